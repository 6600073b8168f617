use ocelli::{Frame, source::SourceInfo};

use super::*;

#[test]
fn fps_is_the_rate_of_sources_that_have_none() {
    for (raw, fps, expected) in [
        ("4x2:bgr", None, Some(30.0)),
        ("4x2:bgr", Some(10.0), Some(10.0)),
        ("4x2:bgr@12", None, Some(12.0)),
        ("4x2:bgr@12", Some(12.0), Some(12.0)),
        ("4x2:bgr@12", Some(10.0), None),
    ] {
        let format = raw_at(parse_raw(raw).expect("it is a format"), fps);
        assert_eq!(format.ok().map(|format| format.frame_rate), expected, "{raw:?} {fps:?}");
    }
    for (own, fps, expected) in
        [(None, Some(7.5), Some(7.5)), (None, None, None), (Some(25.0), Some(7.5), Some(25.0))]
    {
        let mut info = SourceInfo::default();
        info.frame_rate = own;
        let mut selection = Selection::default();
        selection.frame_rate = fps;
        let selected = Selected::new(Nothing(info), selection).expect("it selects all frames");
        assert_eq!(selected.info().frame_rate, expected, "{own:?} {fps:?}");
    }
}

#[test]
fn lines_of_sources() {
    let named = |name: &str, source: &str| Named { name: Some(name.into()), source: source.into() };
    let plain = |source: &str| Named { name: None, source: source.into() };
    for (line, expected) in [
        ("street.mp4", plain("street.mp4")),
        ("door=rtsp://a:b@c/d?x=1", named("door", "rtsp://a:b@c/d?x=1")),
        ("back gate = 0", named("back gate", "0")),
        ("rtsp://c/d?x=1", plain("rtsp://c/d?x=1")),
        ("in/a=b.mp4", plain("in/a=b.mp4")),
    ] {
        assert_eq!(Named::parse(line), Some(expected), "{line}");
    }
    assert_eq!(Named::parse("door:3=1"), None);
}

#[test]
fn folders_and_patterns_of_videos_are_their_videos() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    for name in ["v/b.mp4", "v/a.mkv", "one/a.mp4", "both/out.mp4", "both/a.png"] {
        std::fs::create_dir_all(Path::new(&at(name)).parent().expect("it has one")).expect("a folder");
        std::fs::write(at(name), "x").expect("a temporary folder");
    }
    for (named, expected) in [
        ("v", &["v/a.mkv", "v/b.mp4"][..]),
        ("v/*.mp4", &["v/b.mp4"]),
        ("one", &["one/a.mp4"]),
        ("both", &["both"]),
        ("v/*.png", &["v/*.png"]),
        ("v/b.mp4", &["v/b.mp4"]),
    ] {
        let expected: Vec<String> = expected.iter().map(|name| at(name)).collect();
        assert_eq!(with_videos_of_folders(&[at(named)]).expect("it can be read"), expected, "{named}");
    }
}

struct Nothing(SourceInfo);

impl Source for Nothing {
    fn info(&self) -> &SourceInfo {
        &self.0
    }

    fn read_into(&mut self, _: &mut Frame) -> ocelli::Result<bool> {
        Ok(false)
    }
}

#[test]
fn video_values() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("odd [1].mp4"), "x").expect("it can be written to");
    for (text, expected) in [
        ("0", SourceName::Camera(0)),
        ("12", SourceName::Camera(12)),
        ("/dev/video2", SourceName::Camera(2)),
        ("rtsp://a:b@c/d", SourceName::Url("rtsp://a:b@c/d".into())),
        ("http://c/d*.mp4", SourceName::Url("http://c/d*.mp4".into())),
        ("file:///x/y.mp4", SourceName::Video("/x/y.mp4".into())),
        ("frames/*.png", SourceName::Images("frames/*.png".into())),
        ("one.JPG", SourceName::Images("one.JPG".into())),
        ("moving.gif", SourceName::Video("moving.gif".into())),
        ("moving.APNG", SourceName::Video("moving.APNG".into())),
        ("street.mp4", SourceName::Video("street.mp4".into())),
        (&folder.path().display().to_string(), SourceName::Images(folder.path().into())),
        (&at("odd [1].mp4"), SourceName::Video(at("odd [1].mp4").into())),
    ] {
        assert_eq!(SourceName::parse(text), expected, "{text}");
    }
}
