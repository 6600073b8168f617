//! Without limits, one request could take all memory and time of the server. The checks are here for every road in: JSON, a form,
//! the WebSocket, Label Studio and the gallery. Each comes before the work that grows with what it limits.

use std::fmt;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use ocelli::{Error, Image, Result};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::problem::Problem;

/// Characters of a class's name: the model reads 32 tokens.
const MAX_NAME: usize = 200;
/// Names that are kept while a request is read: short ones take ten times the memory of their text.
const MOST_NAMES: usize = 100_000;
/// Objects that are kept while a request is read, as `{}` takes forty times the memory of its text.
const MOST_OBJECTS: usize = 10_000;
/// Tags of a labelling configuration that name an image or have labels.
const MOST_TAGS: usize = 16;
/// Fields of a form besides one for each class and exemplar.
const MORE_FIELDS: usize = 16;

/// The most that a client may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request. Default 32 MiB.
    pub body_bytes: usize,
    /// Pixels of an image. Default 50 million.
    pub pixels: u64,
    /// Classes of a request, at most 100,000. Default 100.
    pub classes: usize,
    /// Exemplar boxes of a request. Default 32.
    pub exemplars: usize,
    /// Objects that a request shows by clicks and boxes. Default 32.
    pub objects: usize,
    /// Clicks of a request. Default 256.
    pub points: usize,
    /// Tiles that a request asks for; those of the server are its own matter. Default 256.
    pub tiles: usize,
    /// Detections of an answer; of more, those with the highest scores are kept. Also the new boxes of a correction. Default
    /// 1000.
    pub detections: usize,
    /// Sessions that are open at the same time, each with a model of its own. One client has at most half of them. Default 2.
    pub sessions: usize,
    /// Bytes of the frames and objects of a session. Default 2 GiB.
    pub session_bytes: u64,
    /// A session that is not used for this long ends. Default 10 minutes.
    pub session_idle: Duration,
    /// Bytes of the features of images that are kept for further requests; 0 keeps none. Default 256 MiB.
    pub feature_bytes: usize,
    /// Requests that wait or run at the same time, and as many whose bodies arrive; one more is answered with 503. Videos take
    /// at most half of them. One client has at most half of each. Default 64.
    pub queue: usize,
    /// Open connections; any more wait. One client has at most half of them; its others are answered with 503. Default 512.
    pub connections: usize,
    /// The time of a request, from its first byte to its answer, and of a frame of a video. Default 60 s.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            pixels: 50_000_000,
            classes: 100,
            exemplars: 32,
            objects: 32,
            points: 256,
            tiles: 256,
            detections: 1000,
            sessions: 2,
            session_bytes: 2 << 30,
            session_idle: Duration::from_secs(600),
            feature_bytes: 256 << 20,
            queue: 64,
            connections: 512,
            time: Duration::from_secs(60),
        }
    }
}

pub(crate) fn refuse<T>(message: String) -> Result<T> {
    Err(Error::invalid_argument(message))
}

/// Refuses more than `most` of what a request has; `advice` is the end of the message.
pub(crate) fn at_most(what: &str, count: usize, most: usize, advice: &str) -> Result<()> {
    if count > most { refuse(too_many(what, most) + advice) } else { Ok(()) }
}

fn too_many(what: &str, most: usize) -> String {
    format!("too many {what}: expected at most {most}")
}

impl Limits {
    /// Checks the limits themselves.
    pub(crate) fn check(&self) -> Result<()> {
        let (number, time) = ("at least 1", "a number of seconds above 0");
        for (name, is_zero, expected) in [
            ("queue", self.queue == 0, number),
            ("connections", self.connections == 0, number),
            ("sessions", self.sessions == 0, number),
            ("session_bytes", self.session_bytes == 0, number),
            ("max_bytes", self.body_bytes == 0, number),
            ("max_classes", self.classes == 0, number),
            ("max_detections", self.detections == 0, number),
            ("max_pixels", self.pixels == 0, number),
            ("timeout", self.time.is_zero(), time),
            ("session_idle", self.session_idle.is_zero(), time),
        ] {
            if is_zero {
                return Err(Error::argument(name, 0, expected));
            }
        }
        if self.classes > MOST_NAMES {
            let expected = format_args!("at most {MOST_NAMES}");
            return Err(Error::argument("max_classes", self.classes, expected));
        }
        Ok(())
    }

    /// Refuses a body by the length that its headers declare, before it is read.
    pub(crate) fn check_declared(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let length = length.and_then(|length| length.parse::<u64>().ok());
        let Some(length) = length.filter(|length| *length > self.body_bytes as u64) else { return Ok(()) };
        let message = format!("{length} bytes: the limit is {}", self.body_bytes);
        Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message))
    }

    /// Refuses an image with too many pixels, or what is no image, at the cost of reading its header.
    pub(crate) fn check_image(&self, bytes: &[u8]) -> Result<()> {
        let (width, height) = Image::declared_size(bytes, "the request")?;
        self.check_pixels(width, height)
    }

    /// Refuses an image or a video of a size beyond the limit.
    pub(crate) fn check_pixels(&self, width: u32, height: u32) -> Result<()> {
        if u64::from(width) * u64::from(height) > self.pixels {
            return Err(Error::invalid_data(format!(
                "cannot read the image, the request: {width}x{height} is too large; expected at most {:.1} megapixels",
                self.pixels as f64 / 1e6
            )));
        }
        Ok(())
    }

    /// Refuses more classes than the limit.
    pub(crate) fn check_classes(&self, count: usize) -> Result<()> {
        at_most("classes", count, self.classes, "; ask in several requests")
    }

    /// Refuses names that are too long.
    pub(crate) fn check_names<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<()> {
        let too_long = |name: &&str| name.len() > MAX_NAME && name.chars().count() > MAX_NAME;
        let Some(name) = names.into_iter().find(too_long) else { return Ok(()) };
        let start: String = name.chars().take(20).collect();
        refuse(format!("class \"{start}…\": expected at most {MAX_NAME} characters"))
    }

    /// Refuses more objects than the limit.
    pub(crate) fn check_objects(&self, count: usize) -> Result<()> {
        at_most("objects", count, self.objects, "; ask in several requests")
    }

    /// Refuses more clicks than the limit.
    pub(crate) fn check_points(&self, count: usize) -> Result<()> {
        at_most("points", count, self.points, " for all objects")
    }

    /// Refuses a form with more fields than it can need.
    pub(crate) fn check_fields(&self, count: usize) -> Result<()> {
        if count <= self.classes + self.exemplars + MORE_FIELDS {
            return Ok(());
        }
        refuse("the form has too many fields: expected each once; classes can be one field".into())
    }

    /// Refuses a labelling configuration with more tags than a project has.
    pub(crate) fn check_tags(&self, count: usize) -> Result<()> {
        at_most("tags with images or labels", count, MOST_TAGS, "")
    }

    /// Refuses a correction with more new boxes than an answer has.
    pub(crate) fn check_new_boxes(&self, count: usize) -> Result<()> {
        if count <= self.detections {
            return Ok(());
        }
        refuse(format!("{count} new boxes: expected at most {}", self.detections))
    }

    /// The most detections of an answer, where the client or the detector's options say `wanted`.
    pub(crate) fn detections(&self, wanted: Option<usize>) -> usize {
        wanted.map_or(self.detections, |wanted| wanted.min(self.detections))
    }

    /// Waits for work no longer than a request may take.
    ///
    /// # Errors
    /// 504.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Problem> {
        tokio::time::timeout(self.time, work).await.map_err(|_| {
            let message = format!("the request took longer than {} s", self.time.as_secs_f64());
            Problem::new(StatusCode::GATEWAY_TIMEOUT, message)
        })
    }
}

/// What `next` returns until it is `None`, of which no more than `most` are kept.
pub(crate) fn elements<T, E: serde::de::Error>(
    what: &str,
    most: usize,
    mut next: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Vec<T>, E> {
    let mut elements = Vec::new();
    while let Some(element) = next()? {
        if elements.len() == most {
            return Err(E::custom(too_many(what, most)));
        }
        elements.push(element);
    }
    Ok(elements)
}

/// A list in a request, which is not kept if no limit allows it.
struct List<T> {
    what: &'static str,
    most: usize,
    expected: &'static str,
    /// Reads a text in place of a list.
    of_text: fn(&str) -> Result<Vec<T>, String>,
}

impl<'d, T: Deserialize<'d>> Visitor<'d> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.expected)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        (self.of_text)(text).map_err(E::custom)
    }

    fn visit_seq<S: SeqAccess<'d>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        elements(self.what, self.most, || list.next_element())
    }
}

/// Reads a list of names, or names separated by commas, as in a form.
pub(crate) fn names<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<String>, D::Error> {
    let expected = "a list of names, or names separated by commas";
    from.deserialize_any(List { what: "classes", most: MOST_NAMES, expected, of_text: split_names })
}

/// Reads a list of objects.
pub(crate) fn short_list<'d, D: Deserializer<'d>, T: Deserialize<'d>>(from: D) -> Result<Vec<T>, D::Error> {
    let expected = "a list of objects";
    let of_text = |_: &str| Err("a text: expected a list of objects".to_owned());
    from.deserialize_any(List { what: "objects", most: MOST_OBJECTS, expected, of_text })
}

/// Reads a value that can be left out, and `null` as if it was.
pub(crate) fn or_default<'d, D: Deserializer<'d>, T: Default + Deserialize<'d>>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// The names of a text that separates them by commas or has one in each line, or that is a list in JSON.
///
/// # Errors
/// The reason, if it is no such list, or there are more than any limit allows.
pub(crate) fn split_names(text: &str) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct Names(#[serde(deserialize_with = "names")] Vec<String>);
    if text.trim_start().starts_with(['[', '{', '"']) {
        let list = serde_json::from_str::<Names>(text);
        let expected = "expected names separated by commas, or a list of names in JSON";
        return list.map(|Names(names)| names).map_err(|error| format!("classes, {error}: {expected}"));
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let names: Vec<String> =
        lines.flat_map(|line| line.split(',')).take(MOST_NAMES + 1).map(str::to_owned).collect();
    if names.len() > MOST_NAMES { Err(too_many("classes", MOST_NAMES)) } else { Ok(names) }
}
