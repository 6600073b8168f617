//! Places for connections, videos and requests: as many as the limit allows, of which one client has at most half.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ocelli::locked;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;

/// Places that connections and videos hold while they are open, and requests while they are read, or while they wait and run.
pub(crate) struct Places {
    most: usize,
    all: Arc<Semaphore>,
    /// Places of one client.
    each: usize,
    clients: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A place; it is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Places {
    pub fn new(most: usize) -> Self {
        let each = most.div_ceil(2);
        Self { most, all: Arc::new(Semaphore::new(most)), each, clients: Mutex::default() }
    }

    /// The places of a client. Clients without a request are forgotten.
    fn of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = locked(&self.clients);
        // A permit holds its semaphore.
        clients.retain(|_, places| Arc::strong_count(places) > 1);
        clients.entry(client).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
    }

    /// A place.
    ///
    /// # Errors
    /// 503 if there is none.
    pub fn take(&self, client: IpAddr) -> Result<Place, Problem> {
        // First its own: a client that asks too often takes none of the others'.
        let own = self.of(client).try_acquire_owned().map_err(|_| Problem::busy())?;
        let of_all = self.all.clone().try_acquire_owned().map_err(|_| Problem::busy())?;
        Ok(Place { _own: own, _of_all: of_all })
    }

    /// Waits for a place for a client that is not known yet: [`join`](Self::join) makes it one of a client's.
    ///
    /// # Errors
    /// 503 if the server stops.
    pub async fn any(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.all.clone().acquire_owned().await.map_err(|_| Problem::stopping())
    }

    /// Makes a place one of a client's.
    ///
    /// # Errors
    /// 503 if it has its share.
    pub fn join(&self, client: IpAddr, of_all: OwnedSemaphorePermit) -> Result<Place, Problem> {
        let own = self.of(client).try_acquire_owned().map_err(|_| Problem::busy())?;
        Ok(Place { _own: own, _of_all: of_all })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// 503 if the server stops.
    pub async fn wait(&self, client: IpAddr) -> Result<Place, Problem> {
        let own = self.of(client).acquire_owned().await.map_err(|_| Problem::stopping())?;
        Ok(Place { _own: own, _of_all: self.any().await? })
    }

    /// The number of places that are taken.
    pub fn taken(&self) -> usize {
        self.most - self.free()
    }

    /// The number of free places.
    pub fn free(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_at_most_half_of_the_places() {
        let places = Places::new(4);
        let client = |number: u8| IpAddr::from([127, 0, 0, number]);
        let held: Vec<Place> = (0..2).filter_map(|_| places.take(client(1)).ok()).collect();
        assert!(held.len() == 2 && places.take(client(1)).is_err(), "half of four");
        let other = places.take(client(2));
        assert!(other.is_ok() && places.free() == 1);
        drop(held);
        assert!(places.take(client(1)).is_ok(), "they are given back");
        drop(other);
        assert!(places.free() == 4 && places.take(client(3)).is_ok());
        assert_eq!(places.clients.lock().expect("nobody panicked").len(), 1, "the others are forgotten");
    }
}
