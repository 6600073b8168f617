//! The node that detects.

use std::time::{Duration, Instant};

use anyhow::Context;
use dora_node_api::arrow_v59::array::{Array, LargeStringArray, StringArray};
use dora_node_api::{DoraArray, DoraNode, Event, Metadata, MetadataParameters, Parameter};
use ocelli::{Error, ErrorKind, FrameView, Image};
use ocelli_robot::{Failures, LiveDetector, Settings, camera, parameters};

use crate::image::InputImage;
use crate::objects;

/// The metadata that has the time of the image, in nanoseconds since 1970: dora's own is that of the results.
pub const IMAGE_TIME: &str = "image_time_ns";

/// Detects in images until the dataflow ends.
///
/// # Errors
/// For invalid parameters, a model that cannot be loaded, and if results cannot be sent.
pub fn run() -> anyhow::Result<()> {
    let settings = settings(|name| std::env::var(name).ok())?;
    // Before it joins, so that the camera starts when there is somebody to see.
    let detector = LiveDetector::new(settings)?;
    let (mut node, mut events) = crate::join()?;
    tracing::info!("engine: {}; classes: {}", detector.engine(), detector.labels().join(", "));
    let mut state = State { detector, converted: Vec::new(), failures: Failures::default() };
    while let Some(event) = events.recv() {
        match event {
            Event::Input { id, metadata, data } => match id.as_str() {
                "image" => state.detect(&mut node, &metadata, &data)?,
                "classes" => {
                    let classes = classes(data.as_array());
                    state.change("classes", classes.map(parameters::Parameter::Texts));
                }
                other => tracing::warn!("no use for the input {other}: expected image or classes"),
            },
            // `dora param set DATAFLOW NODE confidence 0.3`
            Event::ParamUpdate { key, value } => state.change(&key, parameters::from_json(&key, &value)),
            Event::ParamDeleted { key } => {
                let default = settings_of(&key, |name| std::env::var(name).ok());
                state.change(&key, default);
            }
            Event::InputClosed { id } => tracing::info!("the input {id} has ended"),
            Event::InputRecovered { id } => tracing::info!("the input {id} is there again"),
            Event::NodeFailed { source_node_id, error, .. } => {
                tracing::warn!("waiting for {source_node_id}, which has failed: {error}");
            }
            Event::NodeRestarted { id } => tracing::info!("{id} was started again"),
            Event::Error(error) => tracing::warn!("{error}"),
            _ => {}
        }
    }
    crate::leave(node);
    Ok(())
}

struct State {
    detector: LiveDetector,
    /// For images with four bytes per pixel.
    converted: Vec<u8>,
    failures: Failures,
}

impl State {
    fn detect(&mut self, node: &mut DoraNode, metadata: &Metadata, data: &DoraArray) -> anyhow::Result<()> {
        let time = since_1970(metadata);
        let outcome = match InputImage::of(data.as_array(), &metadata.parameters, time) {
            Ok(InputImage::Pixels(pixels)) => {
                camera::view(pixels, &mut self.converted).and_then(|frame| self.detector.detect(frame))
            }
            Ok(InputImage::File(file)) => Image::decode(file, "the image")
                .and_then(|image| self.detector.detect(FrameView { timestamp: time, ..(&image).into() })),
            Err(error) => Err(error),
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.report(&error.to_string());
                return Ok(());
            }
        };
        let parameters = with_image_time(metadata, time);
        node.send_output("detections".into(), parameters.clone(), objects::boxes(&outcome)?)
            .context("cannot send detections")?;
        node.send_output("objects".into(), parameters, objects::write(&outcome)?)
            .context("cannot send objects")
    }

    /// Changes a parameter for the images that follow.
    fn change(&mut self, name: &str, value: ocelli::Result<parameters::Parameter>) {
        let mut settings = self.detector.settings().clone();
        let changed = value
            .and_then(|value| parameters::set(&mut settings, name, &value))
            .and_then(|()| self.detector.change(settings));
        match changed {
            Ok(()) => tracing::info!("{name} has changed; classes: {}", self.detector.labels().join(", ")),
            Err(error) => tracing::warn!("{name} stays as it was: {error}"),
        }
    }

    /// Reports why an image has no results, the same reason once in a while.
    fn report(&mut self, failure: &str) {
        if self.failures.is_news(failure, Instant::now()) {
            tracing::warn!("no results for an image: {failure}");
        }
    }
}

/// The settings that variables such as `OCELLI_CLASSES` ask for.
fn settings(variable: impl Fn(&str) -> Option<String>) -> ocelli::Result<Settings> {
    let mut settings = Settings::default();
    for (name, _) in parameters::of(&Settings::default(), 0.0) {
        let key = variable_of(name);
        if let Some(text) = variable(&key) {
            parameters::from_text(name, &text)
                .and_then(|value| parameters::set(&mut settings, name, &value))
                .map_err(|error| Error::new(error.kind(), format!("{key}: {error}")))?;
        }
    }
    Ok(settings)
}

/// The value of a parameter at the start.
fn settings_of(
    name: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> ocelli::Result<parameters::Parameter> {
    let at_start = settings(variable)?;
    let known = parameters::of(&at_start, at_start.confidence.unwrap_or_default());
    known
        .into_iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
        .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("there is no parameter {name}")))
}

fn variable_of(parameter: &str) -> String {
    format!("OCELLI_{}", parameter.to_uppercase())
}

/// The classes of an input: one text such as `person, red apple`, or a text for each.
fn classes(array: &dyn Array) -> ocelli::Result<Vec<String>> {
    let texts: Vec<&str> = if let Some(texts) = array.as_any().downcast_ref::<StringArray>() {
        texts.iter().flatten().collect()
    } else if let Some(texts) = array.as_any().downcast_ref::<LargeStringArray>() {
        texts.iter().flatten().collect()
    } else {
        let message = format!("classes of the type {}: expected texts (Utf8)", array.data_type());
        return Err(Error::new(ErrorKind::InvalidData, message));
    };
    Ok(match texts[..] {
        [one] => Settings::classes_from(one),
        _ => texts.into_iter().map(str::to_owned).collect(),
    })
}

/// Time when a message was sent.
fn since_1970(metadata: &Metadata) -> Duration {
    metadata.timestamp().get_time().to_duration()
}

/// The metadata of an image as it is, with its time. A detector before this one has the time of the same image.
fn with_image_time(metadata: &Metadata, time: Duration) -> MetadataParameters {
    let mut parameters = metadata.parameters.clone();
    let nanoseconds = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    parameters.entry(IMAGE_TIME.to_owned()).or_insert(Parameter::Integer(nanoseconds));
    parameters
}

#[cfg(test)]
mod tests {
    use dora_node_api::arrow_v59::array::UInt8Array;

    use super::*;

    #[test]
    fn variables_are_the_parameters_of_the_start() {
        let given = |name: &str| match name {
            "OCELLI_CLASSES" => Some("person, red apple".to_owned()),
            "OCELLI_CONFIDENCE" => Some("0.25".to_owned()),
            "OCELLI_TRACK" => Some("false".to_owned()),
            "OCELLI_THREADS" => Some("2".to_owned()),
            _ => None,
        };
        let found = settings(given).expect("valid values");
        let expected = Settings {
            classes: vec!["person".into(), "red apple".into()],
            confidence: Some(0.25),
            track: false,
            threads: Some(2),
            ..Settings::default()
        };
        assert_eq!(found, expected);
        let wrong = settings(|name| (name == "OCELLI_MASKS").then(|| "2".into())).expect_err("not a bool");
        assert_eq!(wrong.to_string(), "OCELLI_MASKS: masks is \"2\": expected true or false");
        let wrong =
            settings(|name| (name == "OCELLI_CONFIDENCE").then(|| "7".into())).expect_err("out of range");
        assert!(wrong.to_string().starts_with("OCELLI_CONFIDENCE: confidence is 7"), "{wrong}");
        let original = settings_of("confidence", given).expect("a parameter");
        assert_eq!(original, parameters::Parameter::Double(0.25));
    }

    #[test]
    fn classes_come_as_one_text_or_as_several() {
        let cases: [(&dyn Array, &[&str]); 3] = [
            (&StringArray::from(vec!["person, red apple"]), &["person", "red apple"]),
            (&StringArray::from(vec!["person", "cup, red"]), &["person", "cup, red"]),
            (&LargeStringArray::from(vec!["dog"]), &["dog"]),
        ];
        for (array, expected) in cases {
            assert_eq!(classes(array).expect("texts"), expected);
        }
        let wrong = classes(&UInt8Array::from(vec![1])).expect_err("numbers");
        assert!(wrong.to_string().contains("UInt8"), "{wrong}");
    }
}
