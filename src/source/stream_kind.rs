//! A file on a server is read to its end, and a live stream is connected again: the URL tells the two apart.

/// Files that have an end wherever they are. Streams over HTTP end in `.ts`, `.flv` or `.m3u8`, too.
const FILES: [&str; 13] =
    ["3gp", "apng", "avi", "gif", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "mxf", "webm", "wmv"];
/// Protocols that transfer files; all others transfer streams.
const OF_FILES: [&str; 6] = ["file", "ftp", "ftps", "http", "https", "sftp"];

/// The behaviour of a stream behind a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamKind {
    /// A file on a server: every frame is wanted, it has an end, and to end early is an error.
    File,
    /// A camera or a broadcast: frames arrive at their own pace, and an end is a loss.
    Live,
}

impl StreamKind {
    /// The kind that a URL names; `None` if its protocol transfers files and its path does not end as a video file: then
    /// a stream of known length is a file.
    pub fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if !OF_FILES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Some(Self::Live);
        }
        let path = rest.split(['?', '#']).next().unwrap_or(rest);
        let (_, name) = path.rsplit_once('/')?;
        let (_, ending) = name.rsplit_once('.')?;
        FILES.iter().any(|known| ending.eq_ignore_ascii_case(known)).then_some(Self::File)
    }
}

#[cfg(test)]
mod tests {
    use super::StreamKind::{self, File, Live};

    #[test]
    fn urls_name_their_kind() {
        for (url, expected) in [
            ("http://host/a/street.mp4", Some(File)),
            ("https://user:pass@host:81/a.b/STREET.MKV?token=1.2/3#t=4", Some(File)),
            ("ftp://host/x.avi", Some(File)),
            ("http://host/stream", None),
            ("http://host.mp4", None),
            ("http://host/?file=x.mp4", None),
            ("http://host/video.mjpg", None),
            ("http://host/live.ts", None),
            ("http://host/index.m3u8", None),
            ("rtsp://host/recorded.mp4", Some(Live)),
            ("RTMP://host/app/key", Some(Live)),
            ("udp://@239.0.0.1:1234", Some(Live)),
            ("street.mp4", None),
        ] {
            assert_eq!(StreamKind::of_url(url), expected, "{url}");
        }
    }
}
