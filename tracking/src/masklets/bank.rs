//! A group reads a few memories and pointers on a frame, however long the video is: here they are selected.

use crate::masklets::MaskletOptions;
use crate::masklets::group::Group;

/// The extent and direction of a run through a video.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// The number of frames of the video, if it is known.
    pub(crate) frame_count: Option<usize>,
    pub(crate) is_reverse: bool,
}

impl Course {
    /// The frame `distance` frames before `frame` in the direction of the run.
    fn before(self, frame: usize, distance: usize) -> Option<usize> {
        let earlier = if self.is_reverse { frame.checked_add(distance) } else { frame.checked_sub(distance) };
        earlier.filter(|&earlier| self.frame_count.is_none_or(|count| earlier < count))
    }

    /// Number of frames by which `at` is before `frame` in the direction of the run.
    fn distance(self, at: usize, frame: usize) -> Option<usize> {
        if self.is_reverse { at.checked_sub(frame) } else { frame.checked_sub(at) }
    }

    /// The row of the temporal table for a conditioning frame: the last one. In SAM 3.1, one that is at most
    /// `memory_frames` back counts its rows the other way round.
    fn conditioning_row(self, at: usize, frame: usize, options: &MaskletOptions) -> usize {
        let last = options.memory_frames;
        let near = self.distance(at, frame).filter(|distance| (1..=last).contains(distance));
        near.filter(|_| options.life_cycle.is_multiplex()).map_or(last, |distance| last - distance)
    }

    fn is_first(self, frame: usize) -> bool {
        if self.is_reverse { self.frame_count == Some(frame + 1) } else { frame == 0 }
    }

    /// The most pointers of a frame, its own included.
    pub(crate) fn pointer_frames(self, options: &MaskletOptions) -> usize {
        self.frame_count.unwrap_or(usize::MAX).min(options.pointer_frames)
    }
}

/// The memories that a group reads on a frame: frames of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Frames and rows of the temporal table, conditioning frames first, then the farthest first.
    pub(crate) memories: Vec<(usize, usize)>,
    /// Frames and how far back they are.
    pub(crate) pointers: Vec<(usize, usize)>,
}

/// The memories and pointers that `group` reads on `frame`, which is not one of its conditioning frames.
pub(crate) fn select(group: &Group, frame: usize, course: Course, options: &MaskletOptions) -> Selection {
    let nearest = nearest_conditioning(group.conditioning_frames(), frame, options.conditioning_frames);
    let earlier = earlier_frames(group, frame, course, options);
    let is_readable = |at: usize| group.frames.contains_key(&at) && !nearest.contains(&at);
    let ranked = |most: usize| {
        let ranks = earlier.iter().enumerate().take(most).filter_map(|(index, &at)| Some((at?, index + 1)));
        ranks.filter(|&(at, _)| is_readable(at))
    };

    let mut memories: Vec<_> =
        nearest.iter().map(|&at| (at, course.conditioning_row(at, frame, options))).collect();
    let mut others: Vec<_> = ranked(options.memory_frames).map(|(at, rank)| (at, rank - 1)).collect();
    others.reverse();
    memories.append(&mut others);

    let is_read = |at: usize| options.life_cycle.is_multiplex() || course.distance(at, frame).is_some();
    let mut pointers: Vec<_> =
        nearest.iter().filter(|&&at| is_read(at)).map(|&at| (at, at.abs_diff(frame))).collect();
    let most = course.pointer_frames(options).saturating_sub(1);
    // The reference never reads the pointer of the earliest frame that it selects.
    let most = if options.memory_score_threshold.is_some() {
        most.min(earlier.len().saturating_sub(1))
    } else {
        most
    };
    pointers.extend(ranked(most));
    Selection { memories, pointers }
}

/// The frames that a group has to keep so that a run that goes on after `frame` reads the same: those with memories, and
/// those with pointers.
pub(crate) fn needed_after(
    group: &Group,
    frame: usize,
    course: Course,
    options: &MaskletOptions,
) -> [Vec<usize>; 2] {
    let next = if course.is_reverse { frame.saturating_sub(1) } else { frame + 1 };
    let mut memories = nearest_conditioning(group.conditioning_frames(), next, options.conditioning_frames);
    let pointers: Vec<usize> = earlier_frames(group, next, course, options).into_iter().flatten().collect();
    memories.extend(pointers.iter().take(options.memory_frames));
    [memories, pointers]
}

/// At most `most` frames: the nearest before, the nearest at or after, then the nearest of the others.
fn nearest_conditioning(frames: Vec<usize>, frame: usize, most: usize) -> Vec<usize> {
    if frames.len() <= most {
        return frames;
    }
    let before = frames.iter().copied().rfind(|&at| at < frame);
    let after = frames.iter().copied().find(|&at| at >= frame);
    let mut nearest: Vec<usize> = before.into_iter().chain(after).collect();
    let mut others: Vec<usize> = frames.into_iter().filter(|at| !nearest.contains(at)).collect();
    others.sort_by_key(|at| at.abs_diff(frame));
    nearest.extend(others.into_iter().take(most - nearest.len()));
    nearest
}

/// The frames before `frame` by rank, the nearest first; `None` beyond the video.
fn earlier_frames(
    group: &Group,
    frame: usize,
    course: Course,
    options: &MaskletOptions,
) -> Vec<Option<usize>> {
    let count = course.pointer_frames(options).saturating_sub(1);
    let Some(threshold) = options.memory_score_threshold else {
        let count = count.max(options.memory_frames);
        return (1..=count).map(|distance| course.before(frame, distance)).collect();
    };
    if course.is_first(frame) {
        return Vec::new();
    }
    let is_valid = |at: usize| {
        let entry = group.frames.get(&at).filter(|entry| !entry.is_conditioning);
        entry.and_then(|entry| entry.score).is_some_and(|score| score > threshold)
    };
    // The reference never selects frame 0 when it runs forward.
    let mut later = group.frames.range(frame + 1..);
    let mut earlier = group.frames.range(1.min(frame)..frame).rev();
    let passed = std::iter::from_fn(|| if course.is_reverse { later.next() } else { earlier.next() });
    let valid = passed.map(|(&at, _)| at).filter(|&at| is_valid(at));
    let mut frames: Vec<usize> = valid.take(count.max(1)).collect();
    let last = course.before(frame, 1);
    if let Some(last) = last.filter(|last| !frames.contains(last)) {
        frames.insert(0, last);
    }
    frames.into_iter().map(Some).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masklets::group::GroupFrame;

    /// A group of no objects whose memory scores are given: a conditioning frame is `None`.
    fn group(frames: impl IntoIterator<Item = (usize, Option<f32>)>) -> Group {
        let entry = |score: Option<f32>| GroupFrame {
            is_conditioning: score.is_none(),
            score,
            ..GroupFrame::default()
        };
        let frames = frames.into_iter().map(|(frame, score)| (frame, entry(score))).collect();
        Group { frames, ..Group::default() }
    }

    fn forward(frames: impl IntoIterator<Item = (usize, Option<f32>)>, frame: usize) -> Selection {
        let course = Course { frame_count: Some(100), is_reverse: false };
        select(&group(frames), frame, course, &MaskletOptions::default())
    }

    #[test]
    fn frames_that_score_badly_are_skipped_and_ranks_close_the_gap() {
        let frames =
            [(0, None), (1, Some(0.5)), (2, Some(0.5)), (3, Some(0.01)), (4, Some(0.5)), (5, Some(0.0))];
        let found = forward(frames, 6);
        assert_eq!(
            found.memories,
            [(0, 6), (1, 3), (2, 2), (4, 1), (5, 0)],
            "the frame before is always read"
        );
        assert_eq!(found.pointers, [(0, 6), (5, 1), (4, 2), (2, 3)], "the earliest frame gives no pointer");
    }

    #[test]
    fn the_frame_before_takes_its_rank_even_if_it_is_a_conditioning_frame() {
        let frames = (0..17).map(|frame| (frame, (frame % 16 > 0).then_some(0.5)));
        let found = forward(frames, 17);
        assert_eq!(found.memories, [(0, 6), (16, 6), (11, 5), (12, 4), (13, 3), (14, 2), (15, 1)]);
        assert_eq!(found.pointers.len(), 2 + 14);
    }

    #[test]
    fn at_most_four_conditioning_frames_are_read() {
        let frames: Vec<_> = (0..6).map(|index| (16 * index, None)).collect();
        let read = |frame| -> Vec<usize> {
            forward(frames.clone(), frame)
                .memories
                .iter()
                .filter(|memory| memory.1 == 6)
                .map(|memory| memory.0)
                .collect()
        };
        assert_eq!(read(90), [80, 64, 48, 32]);
        assert_eq!(read(37), [32, 48, 16, 64]);
        assert_eq!(nearest_conditioning(vec![4, 9], 20, 4), [4, 9]);
    }

    #[test]
    fn without_selection_distances_are_frames() {
        let options = MaskletOptions::default().without_temporal_disambiguation();
        let group =
            group((0..30).filter(|&frame| frame != 24).map(|frame| (frame, (frame > 0).then_some(0.0))));
        let found = select(&group, 26, Course { frame_count: Some(40), is_reverse: false }, &options);
        assert_eq!(found.memories, [(0, 6), (20, 5), (21, 4), (22, 3), (23, 2), (25, 0)]);
        let distances: Vec<usize> = found.pointers.iter().map(|pointer| pointer.1).collect();
        assert_eq!(distances, [26, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        let back = select(&group, 26, Course { frame_count: Some(40), is_reverse: true }, &options);
        assert_eq!(
            (back.memories, back.pointers),
            (vec![(0, 6), (29, 2), (28, 1), (27, 0)], vec![(27, 1), (28, 2), (29, 3)])
        );
    }

    #[test]
    fn conditioning_frames_of_buckets_count_their_rows_backward_and_give_pointers_from_the_future() {
        let options = MaskletOptions::multiplex();
        let read = |at: usize, is_reverse| {
            let group = group([(20, None), (at, Some(0.0))]);
            let found = select(&group, 17, Course { frame_count: Some(40), is_reverse }, &options);
            (found.memories, found.pointers)
        };
        assert_eq!(read(16, false), (vec![(20, 6), (16, 0)], vec![(20, 3), (16, 1)]));
        assert_eq!(read(18, true), (vec![(20, 3), (18, 0)], vec![(20, 3), (18, 1)]));
    }

    #[test]
    fn frame_0_is_never_selected() {
        let frames = [(0, Some(0.9)), (1, Some(0.9)), (2, None), (3, Some(0.9))];
        let found = forward(frames, 4);
        assert_eq!((found.memories, found.pointers), (vec![(2, 6), (1, 1), (3, 0)], vec![(2, 2), (3, 1)]));
        assert_eq!(forward(frames, 1).memories, [(2, 6), (0, 0)], "only as the frame before");
    }

    #[test]
    fn the_first_frame_reads_conditioning_frames_alone() {
        let found = forward([(0, Some(0.9)), (5, None)], 0);
        assert_eq!((found.memories, found.pointers), (vec![(5, 6)], vec![]));
    }
}
