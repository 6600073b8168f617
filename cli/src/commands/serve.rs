//! `ocelli serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use ocelli::{DetectorBuilder, Image, Prompts, hub::variable, options::DetectorOptions};
use ocelli_serve::{Bound, LabelStudio, Limits, ServeConfig, random_token};

use crate::args::{INPUT, PERFORMANCE, TileArgs};
use crate::loading::{engines, load_devices};
use crate::{DetectorArgs, cancel_on_interrupt, detector, interrupted, print, status, usage};

/// The text that `ocelli serve --help` prints after the options.
pub const AFTER_HELP: &str =
    concat!(include_str!("../help/built_in_model.txt"), include_str!("../help/serve.txt"));

/// Heading of options that say who may connect.
const ACCESS: &str = "Access";
/// The environment variable for `--token`.
const TOKEN: &str = "OCELLI_TOKEN";
/// The environment variable for Label Studio's token, that of its own tools.
const STUDIO_TOKEN: &str = "LABEL_STUDIO_API_KEY";

/// Arguments of `ocelli serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Address and port; port 0 is a free one
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = parse_address, value_name = "ADDRESS", help_heading = ACCESS)]
    listen: SocketAddr,
    /// Secret that every client must send; better in the environment, as OCELLI_TOKEN [default: none on this machine; a random one,
    /// which is printed, if other machines reach the address]
    #[arg(long, value_name = "TOKEN", help_heading = ACCESS)]
    token: Option<String>,
    /// Other names of this machine that clients may use, such as robot.local
    #[arg(long, num_args = 1.., value_name = "NAME", help_heading = ACCESS)]
    host: Vec<String>,
    /// Data set of `ocelli label` to look at and to correct
    #[arg(long, value_name = "DIR", help_heading = INPUT)]
    gallery: Option<PathBuf>,
    /// Folder whose videos, and folders of images, can be opened on the page and by requests
    #[arg(long, value_name = "DIR", help_heading = INPUT)]
    videos: Option<PathBuf>,
    /// Label Studio whose images are fetched, http://HOST:PORT; its token is in the environment as LABEL_STUDIO_API_KEY
    #[arg(long, value_name = "URL", help_heading = INPUT)]
    label_studio: Option<String>,
    /// Run without masks, which takes less memory
    #[arg(long, help_heading = PERFORMANCE)]
    no_masks: bool,
    /// Keep one half of the model in memory at a time, which loads both for every new image; sessions load a whole one
    #[arg(long, conflicts_with = "tile", help_heading = PERFORMANCE)]
    low_memory: bool,
    /// Memory for the features of images, so that the next request about one skips the backbone; 0 keeps none
    #[arg(long, default_value_t = Limits::default().feature_bytes >> 20, value_name = "MIB", help_heading = PERFORMANCE)]
    feature_cache: usize,
    /// Most requests that wait or run at the same time, half of them from one address and half of them frames of videos; any more
    /// are answered with 503
    #[arg(long, default_value_t = Limits::default().queue, value_name = "N", help_heading = PERFORMANCE)]
    queue: usize,
    /// Most open connections, half of them from one address; any more wait
    #[arg(long, default_value_t = Limits::default().connections, value_name = "N", help_heading = PERFORMANCE)]
    connections: usize,
    /// Most sessions that are open at the same time, half of them from one address; each loads the model again
    #[arg(long, default_value_t = Limits::default().sessions, value_name = "N", help_heading = PERFORMANCE)]
    sessions: usize,
    /// Most memory for the frames and objects of a session, in bytes
    #[arg(long, default_value_t = Limits::default().session_bytes, value_name = "BYTES", help_heading = PERFORMANCE)]
    session_bytes: u64,
    /// A session that is not used for this long ends, in seconds
    #[arg(long, default_value_t = Limits::default().session_idle.as_secs_f64(), value_name = "SECONDS", help_heading = PERFORMANCE)]
    session_idle: f64,
    /// Longest time for a request, in seconds
    #[arg(long, default_value_t = Limits::default().time.as_secs_f64(), value_name = "SECONDS", help_heading = PERFORMANCE)]
    timeout: f64,
    /// Largest request, in bytes
    #[arg(long, default_value_t = Limits::default().body_bytes, value_name = "BYTES", help_heading = PERFORMANCE)]
    max_bytes: usize,
    /// Largest image, in pixels
    #[arg(long, default_value_t = Limits::default().pixels, value_name = "N", help_heading = PERFORMANCE)]
    max_pixels: u64,
    /// Most classes of a request
    #[arg(long, default_value_t = Limits::default().classes, value_name = "N", help_heading = PERFORMANCE)]
    max_classes: usize,
    #[command(flatten)]
    tiles: TileArgs,
    #[command(flatten)]
    detector: DetectorArgs,
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address with a port, such as 127.0.0.1:8080 or 0.0.0.0:8080")
}

/// Serves until Ctrl-C.
pub fn run(args: &ServeArgs) -> anyhow::Result<()> {
    let config = config(args)?;
    let has_new_token = config.token.is_some() && args.token.is_none() && variable(TOKEN).is_none();
    let is_open_gallery = config.gallery.is_some() && config.token.is_none();
    let bound = Bound::new(config)?;
    if is_open_gallery {
        status(
            "no token: every user of this machine can see and correct the data set; --token prevents that",
        );
    }
    let devices = args.detector.devices()?;
    if args.low_memory && devices.len() > 1 {
        refuse!("--low-memory runs on one device: name one with --engine");
    }
    let with_masks = |options| detector(DetectorOptions { masks: !args.no_masks, ..options });
    // Sessions follow objects through whole frames; the devices take turns.
    let of_sessions = devices.into_iter().map(with_masks).collect::<ocelli::Result<Vec<_>>>()?;
    let (builders, sessions) = (of_sessions.clone(), AtomicUsize::new(0));
    let bound = bound.with_sessions(move || {
        let number = sessions.fetch_add(1, Ordering::Relaxed);
        of_sessions[number % of_sessions.len()].clone().build()
    });
    let (tiling, low_memory) = (args.tiles.tiling(), args.low_memory);
    let of_images = |builder: DetectorBuilder| {
        builder.with_options(|options| (options.tiling, options.low_memory) = (tiling, low_memory))
    };
    let builders = builders.into_iter().map(of_images).collect();
    let first = Prompts::new(["person"])?;
    args.detector.model.announce_built_in(&first);
    let (mut detectors, loading) = load_devices(builders)?;
    // A model or an engine that does not work is an error now, and the first request does not wait for it.
    for detector in &mut detectors {
        detector.prepare(&first)?;
        if args.low_memory {
            // Loads each half once.
            detector.detect(&Image::from_rgb8(32, 32, vec![0; 3 * 32 * 32])?, &first)?;
        }
    }
    drop(loading);
    status(format!("engine: {}", engines(&detectors)));
    let detector = detectors.remove(0);
    let server = bound.with(detector, detectors);
    if has_new_token {
        status("token: made for this run, as other machines reach this address; --token sets one");
    }
    status("serving; Ctrl-C ends it");
    // A token that was configured is known to those who may know it; stdout often goes to a log that more people read.
    let url = if has_new_token { server.url_with_token() } else { server.url() };
    print(|out| writeln!(out, "{url}"))?;
    server.run(&cancel_on_interrupt())?;
    interrupted()?;
    Ok(())
}

fn config(args: &ServeArgs) -> anyhow::Result<ServeConfig> {
    let mut token = args.token.clone().or_else(|| variable(TOKEN));
    if token.is_none() && !args.listen.ip().is_loopback() {
        token = Some(random_token()?);
    }
    let seconds = |flag: &str, seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| usage(format!("{flag} is {seconds}: expected a number of seconds above 0")))
    };
    let limits = Limits {
        body_bytes: args.max_bytes,
        pixels: args.max_pixels,
        classes: args.max_classes,
        detections: args.detector.max_det.unwrap_or(Limits::default().detections),
        feature_bytes: args.feature_cache.saturating_mul(1 << 20),
        queue: args.queue,
        connections: args.connections,
        sessions: args.sessions,
        session_bytes: args.session_bytes,
        session_idle: seconds("--session-idle", args.session_idle)?,
        time: seconds("--timeout", args.timeout)?,
        ..Limits::default()
    };
    let model = args.detector.model.model.as_ref();
    let defaults = ServeConfig::default();
    Ok(ServeConfig {
        listen: args.listen,
        token,
        hosts: args.host.clone(),
        limits,
        model: model.map_or(defaults.model, |path| path.to_string_lossy().into_owned()),
        masks: !args.no_masks,
        gallery: args.gallery.clone(),
        videos: args.videos.clone(),
        label_studio: args.label_studio.clone().map(|url| LabelStudio { url, token: variable(STUDIO_TOKEN) }),
    })
}
