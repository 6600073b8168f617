//! The tasks of a request. Of their data, texts alone are kept: a picture is one of them.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::labels::{LabelConfig, VideoControl};
use crate::http::problem::Problem;

/// Keys of the data of a task.
const MOST_KEYS: usize = 1000;

/// A picture, and what else Label Studio knows of it.
#[derive(Deserialize)]
pub(super) struct Task {
    #[serde(default)]
    pub id: Text,
    data: Data,
}

impl Task {
    /// The address of the picture.
    pub fn picture(&self, config: &LabelConfig) -> Result<&str, Problem> {
        config.picture_of(|key| self.text(key))
    }

    /// The address of the video, with the tag for it.
    pub fn video<'c>(&self, config: &'c LabelConfig) -> Option<(&'c VideoControl, &str)> {
        config.video_of(|key| self.text(key))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.data.0.iter().find(|(known, _)| known == key).map(|(_, text)| text.0.as_str())
    }
}

/// A text or a number; of any other value nothing is kept.
#[derive(Default)]
pub(super) struct Text(pub String);

impl<'d> Deserialize<'d> for Text {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(from)?.get();
        match json.as_bytes() {
            [b'"', ..] => serde_json::from_str(json).map(Self).map_err(D::Error::custom),
            [b'-' | b'0'..=b'9', ..] => Ok(Self(json.to_owned())),
            _ => Ok(Self::default()),
        }
    }
}

struct Data(Vec<(String, Text)>);

impl<'d> Deserialize<'d> for Data {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'d> Visitor<'d> for Texts {
            type Value = Data;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the data of a task")
            }

            fn visit_map<M: MapAccess<'d>>(self, mut map: M) -> Result<Data, M::Error> {
                let mut texts: Vec<(String, Text)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if texts.len() == MOST_KEYS {
                        return Err(M::Error::custom(format!(
                            "the data of a task has more than {MOST_KEYS} keys"
                        )));
                    }
                    texts.push(entry);
                }
                Ok(Data(texts))
            }
        }
        from.deserialize_map(Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_and_too_many_are_refused() {
        let cases = [
            (r#"{"id": 7, "data": {"a": "x", "b": [1, {"c": null}], "d": 1.5}, "more": {}}"#, Some("7")),
            (r#"{"id": "t-1", "data": {"a": "x", "b": null, "e": {"f": [true]}}}"#, Some("t-1")),
            (r#"{"data": {"b": false, "a": "x"}}"#, Some("")),
            (r#"{"data": ["a"]}"#, None),
            (r#"{"id": 1}"#, None),
        ];
        for (json, id) in cases {
            let task = serde_json::from_str::<Task>(json).ok();
            assert_eq!(task.as_ref().map(|task| task.id.0.as_str()), id, "{json}");
            let Some(Task { data: Data(texts), .. }) = task else { continue };
            let text = texts.iter().find(|(key, _)| key == "a").map(|(_, text)| text.0.as_str());
            assert_eq!(text, Some("x"), "{json}");
        }
        let many: Vec<String> = (0..=MOST_KEYS).map(|key| format!("\"{key}\": 0")).collect();
        for (keys, is_taken) in [(&many[1..], true), (&many[..], false)] {
            let json = format!("{{\"data\": {{{}}}}}", keys.join(", "));
            assert_eq!(serde_json::from_str::<Task>(&json).is_ok(), is_taken, "{} keys", keys.len());
        }
    }
}
