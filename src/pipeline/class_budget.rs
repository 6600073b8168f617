//! Which classes are worth decoding in a frame, where there are more than time allows.

/// For how many looks a class counts as live after something of it was detected.
const RECENT_FRAMES: u64 = 10;

/// Chooses the classes of each frame.
///
/// Of K slots, a quarter, rounded up, is kept for the turn; classes in use — with live tracks, or detected a short
/// while ago — have the others, and take turns among themselves where they are more. What they leave goes to the turn
/// too: the classes that have not been looked at for longest. So with `n` classes, of which `l` fit their slots, each is
/// looked at at least every ⌈(n − l) / (K − l)⌉ frames, and what is in use in every frame.
#[derive(Debug)]
pub(super) struct ClassBudget {
    slots: usize,
    /// Frames planned so far.
    frame: u64,
    /// In which frame a class was looked at last, plus one; 0 is never.
    looked: Vec<u64>,
    /// In which frame something of a class was detected last, plus one.
    detected: Vec<u64>,
    live: Vec<bool>,
    /// Classes that want slots, the one first that has waited longest.
    waiting: Vec<usize>,
    chosen: Vec<usize>,
}

impl ClassBudget {
    /// `slots` classes a frame of `classes`.
    pub(super) fn new(slots: usize, classes: usize) -> Self {
        Self {
            slots: slots.min(classes),
            frame: 0,
            looked: vec![0; classes],
            detected: vec![0; classes],
            live: vec![false; classes],
            waiting: Vec::with_capacity(classes),
            chosen: Vec::with_capacity(classes),
        }
    }

    /// The classes of the next frame, by id; `tracked` are those that have tracks.
    pub(super) fn plan(&mut self, tracked: impl IntoIterator<Item = usize>) -> &[usize] {
        self.frame += 1;
        for (live, &detected) in self.live.iter_mut().zip(&self.detected) {
            *live = detected > 0 && self.frame - detected <= RECENT_FRAMES;
        }
        for class in tracked {
            if let Some(live) = self.live.get_mut(class) {
                *live = true;
            }
        }
        self.chosen.clear();
        let kept_for_turn = self.slots.div_ceil(4);
        let live_slots =
            if self.slots == self.looked.len() { self.slots } else { self.slots - kept_for_turn };
        self.choose(live_slots, |live| live);
        // Where no slot is left for those in use, they take their turn with the others.
        self.choose(self.slots - self.chosen.len(), |live| !live || live_slots == 0);
        self.choose(self.slots - self.chosen.len(), |_| true);
        self.chosen.sort_unstable();
        &self.chosen
    }

    /// Of the classes that `eligible` takes, those not chosen yet that have waited longest.
    fn choose(&mut self, slots: usize, eligible: impl Fn(bool) -> bool) {
        let (looked, frame) = (&self.looked, self.frame);
        self.waiting.clear();
        let classes =
            (0..self.live.len()).filter(|&class| eligible(self.live[class]) && looked[class] < frame);
        self.waiting.extend(classes);
        self.waiting.sort_unstable_by_key(|&class| (looked[class], class));
        self.waiting.truncate(slots);
        for &class in &self.waiting {
            self.looked[class] = self.frame;
        }
        self.chosen.extend_from_slice(&self.waiting);
    }

    /// Something of these classes was detected in the frame that was planned last.
    pub(super) fn detected(&mut self, classes: impl IntoIterator<Item = usize>) {
        for class in classes {
            if let Some(detected) = self.detected.get_mut(class) {
                *detected = self.frame;
            }
        }
    }

    /// Whether the class is looked at in the frame that was planned last.
    pub(super) fn is_looked_at(&self, class: usize) -> bool {
        self.looked.get(class).is_some_and(|&looked| looked == self.frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest any class waited, in frames, from one look to the next or from the beginning to the first.
    struct Waits {
        since: Vec<usize>,
        longest: Vec<usize>,
    }

    impl Waits {
        fn new(classes: usize) -> Self {
            Self { since: vec![0; classes], longest: vec![0; classes] }
        }

        fn frame(&mut self, looked: &[usize]) {
            for (class, since) in self.since.iter_mut().enumerate() {
                *since += 1;
                self.longest[class] = self.longest[class].max(*since);
                if looked.contains(&class) {
                    *since = 0;
                }
            }
        }
    }

    #[test]
    fn every_class_is_visited_in_time() {
        // classes, slots, classes in use, the longest that those in use and the others may wait
        let cases = [
            (80, 8, 0, 0, 10),
            (80, 8, 2, 1, 13),
            (80, 8, 6, 1, 37),
            (80, 8, 7, 2, 37),
            (80, 8, 80, 14, 14),
            (80, 1, 1, 80, 80),
            (3, 1, 3, 3, 3),
            (3, 2, 1, 1, 2),
            (5, 5, 5, 1, 1),
            (5, 9, 2, 1, 1),
            (4, 3, 4, 2, 2),
        ];
        let mut failures = Vec::new();
        for (classes, slots, in_use, most_in_use, most_others) in cases {
            let mut budget = ClassBudget::new(slots, classes);
            let mut waits = Waits::new(classes);
            for _ in 0..1000 {
                let chosen = budget.plan(0..in_use).to_vec();
                assert_eq!(chosen.len(), slots.min(classes), "every slot is used: {chosen:?}");
                assert!(chosen.is_sorted_by(|a, b| a < b), "by id, none twice: {chosen:?}");
                waits.frame(&chosen);
            }
            let longest = |classes: &[usize]| classes.iter().copied().max().unwrap_or(0);
            let (used, others) = waits.longest.split_at(in_use);
            if longest(used) > most_in_use || longest(others) > most_others {
                failures.push(format!(
                    "{classes} classes, {slots} slots, {in_use} in use: those waited {}, the others {}",
                    longest(used),
                    longest(others)
                ));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Which two classes are in use changes; no class waits longer for that.
    #[test]
    fn changing_use_does_not_starve_anyone() {
        let mut budget = ClassBudget::new(8, 80);
        let mut waits = Waits::new(80);
        let mut random = 1u64;
        let mut used = [0, 1];
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (random >> 60) == 0 {
                used[(random >> 32) as usize % 2] = (random >> 40) as usize % 80;
            }
            waits.frame(budget.plan(used));
        }
        assert!(waits.longest.iter().all(|&longest| longest <= 13), "{:?}", waits.longest);
    }

    #[test]
    fn what_was_detected_is_looked_at_for_a_while() {
        let mut budget = ClassBudget::new(4, 40);
        while !budget.plan([]).contains(&20) {}
        budget.detected([20]);
        for frame in 0..RECENT_FRAMES {
            assert!(budget.plan([]).contains(&20), "frame {frame} after it");
            assert!(budget.is_looked_at(20) && !budget.is_looked_at(99));
        }
        assert!(!budget.plan([]).contains(&20), "it is forgotten again");
        assert!(!budget.is_looked_at(20));
    }
}
