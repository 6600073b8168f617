//! Predictions for videos: rectangles with a key frame for each frame of an object.
//!
//! A video is followed in a session of its own, which ends with the request. Without a drawing, each phrase of the labels is looked
//! for in all frames; a rectangle that a person drew becomes a mask on its first key frame, which is followed to the end.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Bytes;
use ocelli::masklets::TrackedFrame;
use serde_json::{Value, json};

use super::drawn::Drawn;
use super::labels::Control;
use super::regions::lowest;
use crate::http::body::off_the_workers;
use crate::http::problem::Problem;
use crate::sessions::Session;
use crate::sessions::opened::OpenedVideo;
use crate::sessions::worker::{AskedRun, Shows};
use crate::state::App;

/// A session that ends when nobody waits for the prediction any more.
struct Own<'a> {
    app: &'a App,
    session: Arc<Session>,
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        drop(self.app.sessions.end(&self.session.id));
    }
}

/// The regions of a video, and the lowest score of an object.
pub(super) async fn predict(
    app: &App,
    client: IpAddr,
    control: &Control,
    video: Bytes,
    drawn: &[Drawn],
) -> Result<(Vec<Value>, f32), Problem> {
    let limits = app.config.limits.clone();
    let opened = off_the_workers(move |_| OpenedVideo::upload(&video, None, &limits)).await?;
    let own = Own { app, session: app.sessions.open(client, None, Some(opened))? };
    let mut objects = Vec::new();
    if drawn.is_empty() {
        for (label, phrase) in control.phrases() {
            let text = phrase.to_owned();
            own.session.ask(move |worker| worker.show(0, Shows::Text(text, None))).await?;
            own.follow(0).await?;
            own.add_regions(control, |_| label, &mut objects);
        }
    } else {
        let first = drawn.iter().map(|one| one.frame).min().unwrap_or(0);
        for (number, one) in (0..).zip(drawn) {
            let mask = own.session.mask_of(&app.engine, client, one.frame, |size| one.shown(size)).await?;
            let (frame, shows) = (one.frame, Shows::Mask(Some(number), mask));
            own.session.ask(move |worker| worker.show(frame, shows)).await?;
        }
        own.follow(first).await?;
        let label = |id: u64| drawn.get(id as usize).map_or("", |one| one.label.as_str());
        own.add_regions(control, label, &mut objects);
    }
    let score = lowest(objects.iter().map(|(score, _)| *score));
    Ok((objects.into_iter().map(|(_, region)| region).collect(), score))
}

impl Own<'_> {
    async fn follow(&self, start: usize) -> Result<(), Problem> {
        let run = AskedRun { start: Some(start), ..AskedRun::default() };
        self.session.ask(move |worker| worker.run_to_end(&run)).await
    }

    /// Adds the scores and regions of the objects that the session has followed.
    fn add_regions<'l>(
        &self,
        control: &Control,
        label: impl Fn(u64) -> &'l str,
        all: &mut Vec<(f32, Value)>,
    ) {
        let state = self.session.state();
        let frames = self.session.seen.results().snapshot().frames;
        let ids: BTreeSet<u64> = frames.iter().flat_map(|frame| &frame.objects).map(|one| one.id).collect();
        let size = (state.width as f32, state.height as f32);
        for id in ids {
            let (score, sequence) = sequence(&frames, id, size, state.frame_rate);
            let region = json!({
                "id": format!("{}-{}", control.from_name, all.len()),
                "from_name": control.from_name,
                "to_name": control.to_name,
                "type": control.shape.kind(),
                "score": score,
                "value": {
                    "framesCount": state.frames,
                    "duration": state.frames as f64 / state.frame_rate,
                    "sequence": sequence,
                    "labels": [label(id)],
                },
            });
            all.push((score, region));
        }
    }
}

/// The highest score of an object, and its key frames: Label Studio counts frames from 1, and draws an object from a key frame to
/// the next if the first is enabled.
fn sequence(frames: &[TrackedFrame], id: u64, size: (f32, f32), frame_rate: f64) -> (f32, Vec<Value>) {
    let mut score = 0.0_f32;
    let mut sequence = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        let Some(object) = frame.objects.iter().find(|one| one.id == id) else { continue };
        score = score.max(object.score);
        let next = frames.get(at + 1).filter(|next| next.frame == frame.frame + 1);
        let goes_on = next.is_some_and(|next| next.objects.iter().any(|one| one.id == id));
        let share = |pixels: f32, side: f32| f64::from(pixels) / f64::from(side) * 100.0;
        let [x1, y1, x2, y2] = object.bbox.to_xyxy();
        sequence.push(json!({
            "frame": frame.frame + 1,
            "enabled": goes_on,
            "rotation": 0,
            "x": share(x1, size.0),
            "y": share(y1, size.1),
            "width": share(x2 - x1, size.0),
            "height": share(y2 - y1, size.1),
            "time": frame.frame as f64 / frame_rate,
        }));
    }
    (score, sequence)
}

#[cfg(test)]
mod tests {
    use ocelli::masklets::TrackedObject;
    use ocelli::{BoundingBox, Mask};

    use super::*;

    #[test]
    fn an_object_is_drawn_where_it_is_and_not_in_its_gaps() {
        let frame = |number: usize, is_there: bool| {
            let object = TrackedObject {
                id: 4,
                class_id: 0,
                score: 0.1 * number as f32,
                bbox: BoundingBox::new(10.0, 20.0, 60.0, 40.0),
                mask: Mask::from_bitmap(&[1], 1, 1).expect("one pixel"),
            };
            let objects = if is_there { vec![object] } else { Vec::new() };
            TrackedFrame { frame: number, objects, retracted: Vec::new() }
        };
        let frames = [frame(2, true), frame(3, true), frame(4, false), frame(5, true), frame(6, true)];
        let (score, sequence) = sequence(&frames, 4, (100.0, 200.0), 10.0);
        assert!((score - 0.6).abs() < 1e-6);
        let keys = |key: &str| sequence.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
        assert_eq!(keys("frame"), [3, 4, 6, 7]);
        assert_eq!(keys("enabled"), [true, false, true, false]);
        assert_eq!(keys("time")[0], 0.2);
        let [x, y, w, h] = ["x", "y", "width", "height"].map(|key| keys(key)[0].as_f64().expect("a number"));
        assert_eq!([x, y, w, h].map(f64::round), [10.0, 10.0, 50.0, 10.0]);
    }
}
