//! Without limits, one request could take all memory and time of the server. The checks are here for every road in: JSON, a form,
//! the WebSocket, Label Studio and the gallery. Each comes before the work that grows with what it limits.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use ocelli::{Error, Image, Result};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

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
    /// Pixels of a picture. Default 50 million.
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
    /// Bytes of the features of pictures that are kept for further requests; 0 keeps none. Default 256 MiB.
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
    if count > most { refuse(format!("too many {what}: expected at most {most}{advice}")) } else { Ok(()) }
}

impl Limits {
    /// Checks the limits themselves.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("queue", self.queue),
            ("connections", self.connections),
            ("sessions", self.sessions),
            ("session_bytes", usize::try_from(self.session_bytes).unwrap_or(usize::MAX)),
            ("max_bytes", self.body_bytes),
            ("max_classes", self.classes),
            ("max_detections", self.detections),
            ("max_pixels", usize::try_from(self.pixels).unwrap_or(usize::MAX)),
        ] {
            if value == 0 {
                return Err(Error::argument(name, 0, "at least 1"));
            }
        }
        if self.classes > MOST_NAMES {
            let expected = format_args!("at most {MOST_NAMES}");
            return Err(Error::argument("max_classes", self.classes, expected));
        }
        for (name, time) in [("timeout", self.time), ("session_idle", self.session_idle)] {
            if time.is_zero() {
                return refuse(format!("{name} is 0: expected a number of seconds above 0"));
            }
        }
        Ok(())
    }

    /// Refuses a body by the length that its headers declare, before it is read.
    pub(crate) fn check_declared(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let declared =
            headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        match declared.filter(|length: &u64| *length > self.body_bytes as u64) {
            None => Ok(()),
            Some(length) => {
                let message = format!("{length} bytes: the limit is {}", self.body_bytes);
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message))
            }
        }
    }

    /// Refuses a picture with too many pixels, or what is no picture, at the cost of reading its header.
    pub(crate) fn check_picture(&self, bytes: &[u8]) -> Result<()> {
        let (width, height) = Image::declared_size(bytes, "the request")?;
        self.check_pixels(width, height)
    }

    /// Refuses a picture or a video of a size beyond the limit.
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

/// The elements of a list, of which no more than the limit are kept.
fn elements<'d, S: SeqAccess<'d>, T: Deserialize<'d>>(
    list: &mut S,
    most: usize,
    too_many: impl FnOnce() -> String,
) -> Result<Vec<T>, S::Error> {
    let mut elements = Vec::new();
    while let Some(element) = list.next_element()? {
        if elements.len() == most {
            return Err(S::Error::custom(too_many()));
        }
        elements.push(element);
    }
    Ok(elements)
}

/// Reads a list of names, or names separated by commas, as in a form. A list that no limit allows is not kept.
pub(crate) fn names<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Names;
    impl<'d> Visitor<'d> for Names {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of names, or names separated by commas")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            split_names(text).map_err(E::custom)
        }

        fn visit_seq<S: SeqAccess<'d>>(self, mut list: S) -> Result<Self::Value, S::Error> {
            elements(&mut list, MOST_NAMES, too_many_names)
        }
    }
    from.deserialize_any(Names)
}

/// Reads a list of objects. A list that no limit allows is not kept.
pub(crate) fn short_list<'d, D: Deserializer<'d>, T: Deserialize<'d>>(from: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);
    impl<'d, T: Deserialize<'d>> Visitor<'d> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of objects")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<S: SeqAccess<'d>>(self, mut list: S) -> Result<Self::Value, S::Error> {
            let too_many = || format!("too many objects: expected at most {MOST_OBJECTS}");
            elements(&mut list, MOST_OBJECTS, too_many)
        }
    }
    from.deserialize_any(List(PhantomData))
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
    struct List(#[serde(deserialize_with = "names")] Vec<String>);
    if text.trim_start().starts_with(['[', '{', '"']) {
        let list = serde_json::from_str::<List>(text);
        let expected = "expected names separated by commas, or a list of names in JSON";
        return list.map(|List(names)| names).map_err(|error| format!("classes, {error}: {expected}"));
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let names: Vec<String> =
        lines.flat_map(|line| line.split(',')).take(MOST_NAMES + 1).map(str::to_owned).collect();
    if names.len() > MOST_NAMES { Err(too_many_names()) } else { Ok(names) }
}

fn too_many_names() -> String {
    format!("too many classes: expected at most {MOST_NAMES}")
}
