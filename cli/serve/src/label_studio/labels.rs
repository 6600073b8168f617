//! The labelling configuration of a project: which labels there are, and what they become. The tasks of a request: of their
//! data, texts alone are kept; an image is one of them.

use std::collections::HashSet;
use std::fmt::{self, Display};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::http::limits::{Limits, elements};
use crate::http::problem::Problem;

/// The form that a tag gives an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Rectangle,
    Polygon,
    Brush,
    /// Of an object in a video.
    VideoRectangle,
}

impl Shape {
    const ALL: [Self; 4] = [Self::Rectangle, Self::Polygon, Self::Brush, Self::VideoRectangle];

    /// The type of its results, which is the name of its tag in lower case.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Rectangle => "rectanglelabels",
            Self::Polygon => "polygonlabels",
            Self::Brush => "brushlabels",
            Self::VideoRectangle => "videorectangle",
        }
    }
}

/// A label, and the phrases that are searched for it.
type Label = (String, Vec<String>);

/// A tag with labels for an image; or one for rectangles in a video, with those of the `Labels` tag for the same video.
#[derive(Debug)]
pub(super) struct Control {
    pub shape: Shape,
    pub from_name: String,
    pub to_name: String,
    labels: Vec<Label>,
}

impl Control {
    /// The label of a phrase.
    pub fn label_of(&self, phrase: &str) -> Option<&str> {
        let has = |phrases: &[String]| phrases.iter().any(|known| known.eq_ignore_ascii_case(phrase));
        self.labels.iter().find(|(_, phrases)| has(phrases)).map(|(label, _)| label.as_str())
    }

    /// The phrases that are looked for, each with its label.
    pub fn phrases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .iter()
            .flat_map(|(label, phrases)| phrases.iter().map(move |phrase| (&**label, &**phrase)))
    }

    /// The label of an object that was drawn with this one, if the tag has it; the first for an object without one.
    pub fn drawn_label(&self, label: &str) -> Option<&str> {
        let mut labels = self.labels.iter().map(|(known, _)| known.as_str());
        labels.find(|known| label.is_empty() || *known == label)
    }
}

/// The part of a labelling configuration that matters here.
#[derive(Debug)]
pub(super) struct LabelConfig {
    pub controls: Vec<Control>,
    /// Rectangles in a video.
    pub video: Option<Control>,
    /// The names of the image and video tags, and the keys of the task's data that they show.
    images: Vec<(String, String)>,
    videos: Vec<(String, String)>,
}

impl LabelConfig {
    /// Reads the XML of a configuration.
    ///
    /// # Errors
    /// 400 if it is wrong, or beyond the limits: each tag and each list of labels is counted before it is kept.
    pub fn parse(xml: &str, limits: &Limits) -> Result<Self, Problem> {
        let tags = read_tags(xml, limits)?;
        let shown = |kind: &str| -> Vec<(String, String)> {
            let tags = tags.iter().filter(|tag| tag.kind == kind);
            tags.map(|tag| (tag.name.clone(), tag.key.clone())).collect()
        };
        let (images, videos) = (shown("image"), shown("video"));
        let control = |tag: &Tag| {
            let shape = Shape::ALL.into_iter().find(|shape| shape.kind() == tag.kind)?;
            let (labels, shown) = if shape == Shape::VideoRectangle {
                let lists = tags.iter().filter(|list| list.kind == "labels" && list.to_name == tag.to_name);
                (lists.flat_map(|list| list.labels.clone()).collect(), &videos)
            } else {
                (tag.labels.clone(), &images)
            };
            let is_named = shape != Shape::VideoRectangle || !tag.name.is_empty() && !tag.to_name.is_empty();
            let is_used =
                is_named && !labels.is_empty() && shown.iter().any(|(name, _)| *name == tag.to_name);
            let (from_name, to_name) = (tag.name.clone(), tag.to_name.clone());
            is_used.then_some(Control { shape, from_name, to_name, labels })
        };
        let controls = tags.iter().filter_map(control);
        let (of_videos, controls): (Vec<_>, Vec<_>) =
            controls.partition(|control| control.shape == Shape::VideoRectangle);
        if controls.is_empty() && of_videos.is_empty() {
            return Err(wrong(
                "expected RectangleLabels, PolygonLabels or BrushLabels with labels, for an Image; or VideoRectangle and Labels, \
                 for a Video",
            ));
        }
        Ok(Self { controls, video: of_videos.into_iter().next(), images, videos })
    }

    /// The phrases of all labels, each once, and true if masks are needed as well.
    pub fn asks(&self) -> (Vec<String>, bool) {
        let all = self.controls.iter().flat_map(|control| &control.labels).flat_map(|(_, phrases)| phrases);
        let mut known = HashSet::new();
        let phrases = all.filter(|phrase| known.insert(phrase.to_ascii_lowercase())).cloned().collect();
        let masks = self.controls.iter().any(|control| control.shape != Shape::Rectangle);
        (phrases, masks)
    }

    /// The address of the video in the data of a task; `None` without a tag for videos.
    pub fn video_of<'c, 'd>(
        &'c self,
        data: impl Fn(&str) -> Option<&'d str>,
    ) -> Option<(&'c Control, &'d str)> {
        let control = self.video.as_ref()?;
        let (_, key) = self.videos.iter().find(|(name, _)| *name == control.to_name)?;
        Some((control, data(key).filter(|video| !video.is_empty())?))
    }

    /// The address of the image in the data of a task.
    pub fn image_of<'d>(&self, data: impl Fn(&str) -> Option<&'d str>) -> Result<&'d str, Problem> {
        let used = |name: &str| self.controls.iter().any(|control| control.to_name == name);
        let keys = self.images.iter().filter(|(name, _)| used(name)).map(|(_, key)| key);
        keys.filter_map(|key| data(key))
            .find(|image| !image.is_empty())
            .ok_or_else(|| Problem::bad("a task has no image under the name that the configuration has"))
    }
}

fn wrong(error: impl Display) -> Problem {
    Problem::bad(format!("labelling configuration: {error}"))
}

/// The tags that matter, in lower case.
const TAGS: [&str; 7] =
    ["image", "video", "videorectangle", "labels", "rectanglelabels", "polygonlabels", "brushlabels"];

/// One of [`TAGS`].
struct Tag {
    kind: String,
    name: String,
    to_name: String,
    /// The key of the task's data that it shows.
    key: String,
    labels: Vec<Label>,
}

fn read_tags(xml: &str, limits: &Limits) -> Result<Vec<Tag>, Problem> {
    let mut reader = Reader::from_str(xml);
    let mut tags = Vec::new();
    loop {
        let event = reader.read_event().map_err(wrong)?;
        let (tag, is_open) = match &event {
            Event::Start(tag) => (tag, true),
            Event::Empty(tag) => (tag, false),
            Event::Eof => return Ok(tags),
            _ => continue,
        };
        let spelled = String::from_utf8_lossy(tag.local_name().as_ref()).into_owned();
        let kind = spelled.to_ascii_lowercase();
        if !TAGS.contains(&&*kind) {
            continue;
        }
        limits.check_tags(tags.len() + 1)?;
        let text = |name| Ok::<_, Problem>(attribute(tag, name)?.unwrap_or_default());
        let (name, to_name, key) = (text("name")?, text("toName")?, text("value")?);
        let has_labels = is_open && kind.ends_with("labels");
        let labels = if has_labels { read_labels(&mut reader, &spelled, limits)? } else { Vec::new() };
        tags.push(Tag { kind, name, to_name, key: key.trim_start_matches('$').to_owned(), labels });
    }
}

/// The labels up to the end of the tag.
fn read_labels(reader: &mut Reader<&[u8]>, parent: &str, limits: &Limits) -> Result<Vec<Label>, Problem> {
    let (mut labels, mut count) = (Vec::new(), 0);
    loop {
        match reader.read_event().map_err(wrong)? {
            Event::Start(tag) | Event::Empty(tag)
                if tag.local_name().as_ref().eq_ignore_ascii_case(b"label") =>
            {
                let Some(value) = attribute(&tag, "value")? else { continue };
                // The attribute by which Label Studio's own backends map names of a model to labels.
                let phrases = attribute(&tag, "predicted_values")?.unwrap_or_else(|| value.clone());
                count += phrases.split(',').count();
                limits.check_classes(count)?;
                let phrases = phrases.split(',').map(str::trim).filter(|phrase| !phrase.is_empty());
                let phrases: Vec<String> = phrases.map(str::to_owned).collect();
                if !phrases.is_empty() {
                    labels.push((value, phrases));
                }
            }
            Event::End(tag) if tag.local_name().as_ref() == parent.as_bytes() => return Ok(labels),
            Event::Eof => return Err(wrong(format!("{parent} is not closed"))),
            _ => {}
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Result<Option<String>, Problem> {
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(wrong)?;
        if attribute.key.local_name().as_ref().eq_ignore_ascii_case(name.as_bytes()) {
            let text = String::from_utf8_lossy(&attribute.value).into_owned();
            let text = quick_xml::escape::unescape(&text).map_err(wrong)?;
            return Ok(Some(text.into_owned()));
        }
    }
    Ok(None)
}

/// Keys of the data of a task.
const MOST_KEYS: usize = 1000;

/// An image, and what else Label Studio knows of it.
#[derive(Deserialize)]
pub(super) struct Task {
    #[serde(default)]
    pub id: Text,
    data: Data,
}

impl Task {
    /// The text that its data has under a key.
    pub fn text(&self, key: &str) -> Option<&str> {
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
                elements("keys in the data of a task", MOST_KEYS, || map.next_entry()).map(Data)
            }
        }
        from.deserialize_map(Texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_shapes_and_images_are_read() {
        let xml = r#"<View>
          <Image name="img" value="$photo"/>
          <RectangleLabels name="box" toName="img">
            <Label value="Dog" background="red"/><Label value="Fruit" predicted_values="red apple, banana"/>
          </RectangleLabels>
          <BrushLabels name="brush" toName="img"><Label value="Cat &amp; dog"></Label></BrushLabels>
          <PolygonLabels name="other" toName="text"><Label value="no"/></PolygonLabels>
          <Choices name="c" toName="img"><Choice value="x"/></Choices>
        </View>"#;
        let limits = Limits::default();
        let config = LabelConfig::parse(xml, &limits).expect("it is a configuration");
        let (phrases, masks) = config.asks();
        assert_eq!(phrases, ["Dog", "red apple", "banana", "Cat & dog"]);
        assert!(masks);
        assert_eq!(config.controls[0].label_of("Red Apple"), Some("Fruit"));
        assert_eq!(config.controls[1].label_of("dog"), None);
        let video = r#"<View><Video name="v" value="$clip"/><VideoRectangle name="box" toName="v"/>
          <Labels name="l" toName="v"><Label value="Car" predicted_values="car, truck"/></Labels>
          <Labels name="o" toName="other"><Label value="no"/></Labels></View>"#;
        let of_video = LabelConfig::parse(video, &limits).expect("it is a configuration");
        let (control, address) =
            of_video.video_of(|key| (key == "clip").then_some("a.mp4")).expect("a video");
        assert_eq!((&*control.from_name, &*control.to_name, address), ("box", "v", "a.mp4"));
        assert_eq!(control.phrases().collect::<Vec<_>>(), [("Car", "car"), ("Car", "truck")]);
        assert!(of_video.video_of(|_| None).is_none() && config.video_of(|_| Some("x")).is_none());
        let data = [("photo", "/data/a.png"), ("image", "no")];
        let text_of = |key: &str| data.iter().find(|(known, _)| *known == key).map(|(_, text)| *text);
        let image = config.image_of(text_of);
        assert_eq!(image.expect("it has one"), "/data/a.png");
        for wrong in [
            "",
            "<View/>",
            "<View><Image name=\"i\" value=\"$i\"/>",
            "<RectangleLabels name=\"a\" toName=\"b\">",
            "<a b=c",
        ] {
            assert!(LabelConfig::parse(wrong, &limits).is_err(), "{wrong}");
        }
    }

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
