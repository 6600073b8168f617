//! Commands open videos with the same options.

use clap::Args;
use ocelli::source::InputOptions;

use super::INPUT;

/// How videos are opened.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = INPUT)]
pub struct InputArgs {
    /// Which of a file's video streams, from 0 [default: the one that players choose]
    #[arg(long, value_name = "N")]
    stream: Option<u32>,
    /// Option of FFmpeg for files, URLs and cameras, such as rtsp_transport=udp or video_size=1280x720
    #[arg(long = "ffmpeg-option", value_name = "KEY=VALUE", value_parser = InputOptions::parse_ffmpeg)]
    ffmpeg_options: Vec<(String, String)>,
    /// Hardware that decodes videos; auto takes the first that works, and a named one that does not is an error [default: none]
    #[arg(long, value_name = "HARDWARE", value_parser = HARDWARE)]
    hwaccel: Option<String>,
}

/// Names of FFmpeg, but for the first two.
const HARDWARE: [&str; 8] = ["auto", "none", "cuda", "vaapi", "qsv", "vulkan", "videotoolbox", "d3d11va"];

impl InputArgs {
    /// The form of the library.
    pub fn options(&self) -> InputOptions {
        let hwaccel = self.hwaccel.clone().filter(|name| name != "none");
        InputOptions { stream: self.stream, ffmpeg: self.ffmpeg_options.clone(), hwaccel }
    }
}
