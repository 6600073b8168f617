//! The class of a track whose detections disagree.

/// The factor by which votes decay with each new vote.
const DECAY: f32 = 0.85;
/// The maximum number of candidate classes of a track; a ninth replaces the weakest.
const CANDIDATES: usize = 8;

/// The votes of a track's detections, weighted by their scores, with exponential decay.
#[derive(Debug, Clone)]
pub(crate) struct ClassVotes {
    /// Classes and their votes; a class with 0 votes is a free slot.
    votes: [(usize, f32); CANDIDATES],
}

impl ClassVotes {
    pub(crate) fn new(class_id: usize, score: f32) -> Self {
        let mut votes = [(0, 0.0); CANDIDATES];
        votes[0] = (class_id, score);
        Self { votes }
    }

    /// Adds a vote and returns the leading class; `current` wins ties.
    pub(crate) fn add(&mut self, class_id: usize, score: f32, current: usize) -> usize {
        for (_, votes) in &mut self.votes {
            *votes *= DECAY;
        }
        let own = self.votes.iter().position(|&(class, votes)| class == class_id && votes > 0.0);
        let place = own.unwrap_or_else(|| {
            let weakest = (0..CANDIDATES).min_by(|&a, &b| self.votes[a].1.total_cmp(&self.votes[b].1));
            let place = weakest.expect("there is more than one place");
            self.votes[place] = (class_id, 0.0);
            place
        });
        self.votes[place].1 += score;
        let of_current =
            self.votes.iter().filter(|&&(class, _)| class == current).map(|&(_, votes)| votes).sum::<f32>();
        let mut front = (current, of_current);
        for &(class, votes) in &self.votes {
            if votes > front.1 {
                front = (class, votes);
            }
        }
        front.0
    }
}

#[cfg(test)]
mod tests {
    use super::ClassVotes;

    #[test]
    fn the_class_with_most_decayed_votes_leads() {
        // The detections as (class, score), and the class after each.
        type Case = (&'static str, &'static [(usize, f32)], &'static [usize]);
        let cases: &[Case] = &[
            ("all agree", &[(3, 0.9), (3, 0.5), (3, 0.8)], &[3, 3, 3]),
            ("one slip", &[(3, 0.9), (3, 0.9), (5, 0.95), (3, 0.9)], &[3, 3, 3, 3]),
            // 0.9·0.85 < 0.8: the second is already in front.
            ("a clear change", &[(3, 0.9), (5, 0.8), (5, 0.8)], &[3, 5, 5]),
            // 0.5 and 0.85·0.5 + … : old votes fade, so a long past is overcome in a few frames.
            (
                "a late change",
                &[(1, 0.5), (1, 0.5), (1, 0.5), (1, 0.5), (2, 0.5), (2, 0.5), (2, 0.5), (2, 0.5)],
                &[1, 1, 1, 1, 1, 1, 2, 2],
            ),
            ("a draw keeps what was", &[(4, 1.0), (2, 0.85)], &[4, 4]),
            ("no score at all", &[(4, 0.0), (2, 0.0)], &[4, 4]),
        ];
        let mut failures = Vec::new();
        for &(name, seen, expected) in cases {
            let mut votes = ClassVotes::new(seen[0].0, seen[0].1);
            let mut came = vec![seen[0].0];
            for &(class, score) in &seen[1..] {
                let current = came[came.len() - 1];
                came.push(votes.add(class, score, current));
            }
            if came != expected {
                failures.push(format!("{name}: {came:?}, expected {expected:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn the_strongest_of_too_many_classes_are_kept() {
        let mut votes = ClassVotes::new(0, 1.0);
        let mut front = 0;
        for class in 1..30 {
            front = votes.add(class, 0.3, front);
            front = votes.add(0, 0.3, front);
        }
        assert_eq!(front, 0);
        assert!(votes.votes.iter().any(|&(class, _)| class == 29), "{votes:?}");
    }
}
