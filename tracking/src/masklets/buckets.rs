//! Buckets of objects that share memories.

use crate::masklets::ObjectId;

/// A place of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No object ever had it.
    Free,
    /// An object.
    Object(ObjectId),
    /// Its object was removed; no other one gets it, because older memories still show that object there.
    Removed,
}

/// The buckets of a group. In SAM 3 each has one place, and they are in the order of the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets(Vec<Vec<Place>>);

impl Buckets {
    /// Free buckets of `size` places, as many as `count` objects need.
    pub(crate) fn new(count: usize, size: usize) -> Self {
        Self(vec![vec![Place::Free; size]; count.div_ceil(size)])
    }

    /// The number of buckets.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The places of every bucket.
    pub(crate) fn places(&self) -> &[Vec<Place>] {
        &self.0
    }

    /// The number of free places.
    pub(crate) fn free(&self) -> usize {
        self.0.iter().flatten().filter(|place| **place == Place::Free).count()
    }

    /// Gives objects the first free places.
    pub(crate) fn add(&mut self, ids: &[ObjectId]) {
        let free = self.0.iter_mut().flatten().filter(|place| **place == Place::Free);
        free.zip(ids).for_each(|(place, id)| *place = Place::Object(*id));
    }

    /// The bucket and the place of an object.
    pub(crate) fn find(&self, id: ObjectId) -> Option<(usize, usize)> {
        let place = |bucket: &Vec<Place>| bucket.iter().position(|place| *place == Place::Object(id));
        self.0.iter().enumerate().find_map(|(index, bucket)| Some((index, place(bucket)?)))
    }

    /// The objects of a bucket with their places.
    pub(crate) fn objects(&self, bucket: usize) -> Vec<(ObjectId, usize)> {
        let object = |(index, place): (usize, &Place)| match place {
            Place::Object(id) => Some((*id, index)),
            Place::Free | Place::Removed => None,
        };
        self.0[bucket].iter().enumerate().filter_map(object).collect()
    }

    /// Removes an object. Returns its bucket if that has no objects any more: it is removed, too.
    pub(crate) fn remove(&mut self, id: ObjectId) -> Option<usize> {
        let (bucket, place) = self.find(id)?;
        self.0[bucket][place] = Place::Removed;
        self.objects(bucket).is_empty().then(|| {
            self.0.remove(bucket);
            bucket
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_order_and_not_used_again() {
        let mut buckets = Buckets::new(3, 2);
        buckets.add(&[4, 5, 6]);
        assert_eq!((buckets.count(), buckets.free(), buckets.find(6)), (2, 1, Some((1, 0))));
        assert_eq!(buckets.remove(5), None);
        buckets.add(&[7]);
        assert_eq!((buckets.find(7), buckets.free()), (Some((1, 1)), 0));
        assert_eq!(buckets.places()[0], [Place::Object(4), Place::Removed]);
        assert_eq!((buckets.remove(4), buckets.count()), (Some(0), 1));
        assert_eq!(buckets.objects(0), [(6, 0), (7, 1)]);
    }
}
