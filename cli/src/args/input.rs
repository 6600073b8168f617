//! How videos are opened.

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
    /// Option of FFmpeg for files and URLs, such as rtsp_transport=udp
    #[arg(long = "ffmpeg-option", value_name = "KEY=VALUE", value_parser = InputOptions::parse_ffmpeg)]
    ffmpeg_options: Vec<(String, String)>,
}

impl InputArgs {
    /// The form of the library.
    pub fn options(&self) -> InputOptions {
        InputOptions { stream: self.stream, ffmpeg: self.ffmpeg_options.clone() }
    }

    /// The first flag that is given.
    pub fn flag(&self) -> Option<&'static str> {
        let flags =
            [("--stream", self.stream.is_some()), ("--ffmpeg-option", !self.ffmpeg_options.is_empty())];
        flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag))
    }
}
