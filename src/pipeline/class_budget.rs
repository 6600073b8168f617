//! Chooses which classes to decode in a frame when there are too many to decode all of them.

/// Number of frames for which a class counts as live after a detection.
const RECENT_FRAMES: u64 = 10;

/// Chooses the classes of each frame.
///
/// Of K slots, a quarter, rounded up, is reserved for the rotation: the classes that have waited longest. The other slots
/// go to live classes, which have tracks or were detected recently; if there are more of them than slots, they rotate
/// among themselves. Slots that live classes leave free join the rotation. With `n` classes, `l` of them live and fitting
/// their slots, each class is decoded at least every ⌈(n − l) / (K − l)⌉ frames, and a live class in every frame.
#[derive(Debug)]
pub(super) struct ClassBudget {
    slots: usize,
    /// Frames planned so far.
    frame: u64,
    /// The frame that a class was last planned for, from 1; 0 is never.
    planned: Vec<u64>,
    /// The frame that a class was last detected in, from 1; 0 is never.
    detected: Vec<u64>,
    live: Vec<bool>,
    /// Classes that compete for slots, the longest wait first.
    waiting: Vec<usize>,
    chosen: Vec<usize>,
}

impl ClassBudget {
    /// Plans `slots` of `classes` classes per frame.
    pub(super) fn new(slots: usize, classes: usize) -> Self {
        Self {
            slots: slots.min(classes),
            frame: 0,
            planned: vec![0; classes],
            detected: vec![0; classes],
            live: vec![false; classes],
            waiting: Vec::with_capacity(classes),
            chosen: Vec::with_capacity(classes),
        }
    }

    /// Plans the next frame: the ids of the classes to decode, in order. `tracked` are the classes with live tracks.
    pub(super) fn plan(&mut self, tracked: impl IntoIterator<Item = usize>) -> &[usize] {
        self.frame += 1;
        for (live, &detected) in self.live.iter_mut().zip(&self.detected) {
            *live = detected > 0 && self.frame - detected <= RECENT_FRAMES;
        }
        set(&mut self.live, tracked, true);
        self.chosen.clear();
        let reserved = if self.slots == self.planned.len() { 0 } else { self.slots.div_ceil(4) };
        let live_slots = self.slots - reserved;
        self.choose(live_slots, |live| live);
        // If no slot is left for live classes, they join the rotation.
        self.choose(self.slots - self.chosen.len(), |live| !live || live_slots == 0);
        self.choose(self.slots - self.chosen.len(), |_| true);
        self.chosen.sort_unstable();
        &self.chosen
    }

    /// Plans the next frame among the classes that a first look at all of them did not rule out, ascending: all of them, or
    /// those that have waited longest. The others count as looked at.
    pub(super) fn plan_among(&mut self, passed: &[usize]) -> &[usize] {
        self.frame += 1;
        self.live.fill(false);
        set(&mut self.live, passed.iter().copied(), true);
        self.chosen.clear();
        self.choose(self.slots, |passed| passed);
        self.chosen.sort_unstable();
        for (planned, _) in self.planned.iter_mut().zip(&self.live).filter(|(_, passed)| !**passed) {
            *planned = self.frame;
        }
        &self.chosen
    }

    /// Fills slots with the eligible classes that have waited longest and are not chosen yet.
    fn choose(&mut self, slots: usize, eligible: impl Fn(bool) -> bool) {
        let (planned, frame) = (&self.planned, self.frame);
        self.waiting.clear();
        let classes =
            (0..self.live.len()).filter(|&class| eligible(self.live[class]) && planned[class] < frame);
        self.waiting.extend(classes);
        self.waiting.sort_unstable_by_key(|&class| (planned[class], class));
        self.waiting.truncate(slots);
        for &class in &self.waiting {
            self.planned[class] = self.frame;
        }
        self.chosen.extend_from_slice(&self.waiting);
    }

    /// Records the classes that were detected in the current frame.
    pub(super) fn detected(&mut self, classes: impl IntoIterator<Item = usize>) {
        set(&mut self.detected, classes, self.frame);
    }

    /// The ids of the classes to decode in the current frame, in order.
    pub(super) fn planned(&self) -> &[usize] {
        &self.chosen
    }

    /// `true` if the class is planned for the current frame.
    pub(super) fn is_planned(&self, class: usize) -> bool {
        self.planned.get(class) == Some(&self.frame)
    }
}

/// Sets the values of some classes; those that are not known are passed over.
fn set<T: Copy>(values: &mut [T], classes: impl IntoIterator<Item = usize>, value: T) {
    for class in classes {
        if let Some(known) = values.get_mut(class) {
            *known = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest that each class waited, in frames, including the wait for its first turn.
    struct Waits {
        since: Vec<usize>,
        longest: Vec<usize>,
    }

    impl Waits {
        fn new(classes: usize) -> Self {
            Self { since: vec![0; classes], longest: vec![0; classes] }
        }

        fn frame(&mut self, planned: &[usize]) {
            for (class, since) in self.since.iter_mut().enumerate() {
                *since += 1;
                self.longest[class] = self.longest[class].max(*since);
                if planned.contains(&class) {
                    *since = 0;
                }
            }
        }
    }

    #[test]
    fn no_class_waits_longer_than_promised() {
        // classes, slots, live classes, the longest allowed wait of live classes and of the others
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
        for (classes, slots, live, most_live, most_others) in cases {
            let mut budget = ClassBudget::new(slots, classes);
            let mut waits = Waits::new(classes);
            for _ in 0..1000 {
                let chosen = budget.plan(0..live).to_vec();
                assert_eq!(chosen.len(), slots.min(classes), "every slot is used: {chosen:?}");
                assert!(chosen.is_sorted_by(|a, b| a < b), "by id, none twice: {chosen:?}");
                waits.frame(&chosen);
            }
            let longest = |classes: &[usize]| classes.iter().copied().max().unwrap_or(0);
            let (used, others) = waits.longest.split_at(live);
            if longest(used) > most_live || longest(others) > most_others {
                failures.push(format!(
                    "{classes} classes, {slots} slots, {live} live: those waited {}, the others {}",
                    longest(used),
                    longest(others)
                ));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// Two classes are live, and which two they are keeps changing.
    #[test]
    fn changing_live_classes_starve_no_class() {
        let mut budget = ClassBudget::new(8, 80);
        let mut waits = Waits::new(80);
        let mut random = 1u64;
        let mut live = [0, 1];
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (random >> 60) == 0 {
                live[(random >> 32) as usize % 2] = (random >> 40) as usize % 80;
            }
            waits.frame(budget.plan(live));
        }
        assert!(waits.longest.iter().all(|&longest| longest <= 13), "{:?}", waits.longest);
    }

    /// After a first look at all classes, those that passed take turns, and the others are not waited for.
    #[test]
    fn classes_that_passed_take_turns() {
        let mut budget = ClassBudget::new(2, 80);
        assert_eq!(budget.plan_among(&[5, 9, 70]), [5, 9]);
        assert!(budget.is_planned(0) && !budget.is_planned(70), "the others were looked at");
        assert_eq!(budget.plan_among(&[5, 9, 70]), [5, 70]);
        assert_eq!(budget.plan_among(&[9]), [9]);
        assert_eq!(budget.plan_among(&[]), [0_usize; 0]);
        assert!(budget.is_planned(9));
        // A class that appears is decoded at the latest when the others have had their turn.
        let seen = [budget.plan_among(&[1, 2, 3]).to_vec(), budget.plan_among(&[1, 2, 3]).to_vec()].concat();
        assert!([1, 2, 3].iter().all(|class| seen.contains(class)), "{seen:?}");
    }

    #[test]
    fn a_detected_class_stays_live_for_ten_frames() {
        let mut budget = ClassBudget::new(4, 40);
        while !budget.plan([]).contains(&20) {}
        budget.detected([20]);
        for frame in 0..RECENT_FRAMES {
            assert!(budget.plan([]).contains(&20), "frame {frame} after it");
            assert!(budget.is_planned(20) && !budget.is_planned(99));
        }
        assert!(!budget.plan([]).contains(&20), "it is not live any more");
        assert!(!budget.is_planned(20));
    }
}
