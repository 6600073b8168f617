//! Video files, streams and cameras.

use std::io::{self, Write};

use ocelli::sink::video_formats;
use ocelli::source::video_library;

/// Writes what reads and writes videos, and which cameras there are.
pub fn write(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nvideo")?;
    if let Some(videos) = ocelli::videos::replacement() {
        return match videos.library() {
            Some(library) => writeln!(out, "  reads, writes   {library}"),
            None => writeln!(
                out,
                "  not installed: `pip install \"ocelli[video]\"`; folders of images and raw frames work"
            ),
        };
    }
    let library = match video_library() {
        Ok(library) => library,
        Err(e) => return writeln!(out, "  not usable: {e}"),
    };
    writeln!(out, "  reads           {library}")?;
    match video_formats().join(", ") {
        none if none.is_empty() => writeln!(out, "  writes          no video: this OpenCV has no encoders")?,
        formats => writeln!(out, "  writes          {formats}")?,
    }
    match cameras() {
        None => Ok(()),
        Some(cameras) if cameras.is_empty() => writeln!(out, "  cameras         none"),
        Some(cameras) => writeln!(out, "  cameras         {}", cameras.join(", ")),
    }
}

/// The cameras that Linux lists: number and name. `None` on other systems.
fn cameras() -> Option<Vec<String>> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let entries = std::fs::read_dir("/sys/class/video4linux").into_iter().flatten().flatten();
    let mut found: Vec<(u32, String)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("video")?.parse().ok()?;
            let name = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
            Some((number, name.trim().to_owned()))
        })
        .collect();
    found.sort();
    Some(found.into_iter().map(|(number, name)| format!("{number} ({name})")).collect())
}
