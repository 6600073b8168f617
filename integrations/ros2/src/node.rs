//! The node: images in, detections out, parameters in between.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ocelli::draw::Annotator;
use ocelli::{FrameView, pipeline::FrameOutcome};
use ocelli_robot::messages::{CompressedImage, Detection2DArray, Header, Image, LabelInfo, Time, VisionInfo};
use ocelli_robot::parameters::{self, Parameter};
use ocelli_robot::{
    Failures, LiveDetector, Newest, Settings, camera, detection_array, instance_image, label_info,
};

use crate::arguments::Arguments;
use crate::latencies::{self, Latencies};
use crate::middleware::{Middleware, OnParameter, Publisher};

/// Time that the loop waits for an image before it looks at parameters and signals.
const TURN: Duration = Duration::from_millis(20);
/// The longest time of a change of parameters: a full-size model is loaded in less.
const CHANGE: Duration = Duration::from_secs(120);
/// After this time without an image the node says so.
const SILENCE: Duration = Duration::from_secs(5);
/// The parameter that selects the topic; it is set at the start.
const TRANSPORT: &str = "image_transport";

/// Settings to change to, and where to answer.
type Change = (Settings, Sender<Result<(), String>>);

enum InputImage {
    Raw(Image),
    Compressed(CompressedImage),
}

/// Runs the node until it is interrupted.
///
/// # Errors
/// For invalid parameters, a model that cannot be loaded, and if there is no network.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed)).context("cannot handle signals")?;

    let (settings, transport) = settings(&arguments)?;
    let detector = LiveDetector::new(settings)?;
    let (changes, requests) = mpsc::channel();
    let mut node = Node::new(&arguments, &transport, detector, changes)?;
    while !stop.load(Ordering::Relaxed) {
        node.turn(&requests);
    }
    tracing::info!("{} frames, {} replaced by newer ones", node.latencies.frames, node.newest.replaced());
    if let Some(latencies) = node.latencies.summary() {
        tracing::info!("{latencies}");
    }
    Ok(())
}

/// The settings and the transport that the parameters of the start ask for.
fn settings(arguments: &Arguments) -> anyhow::Result<(Settings, String)> {
    let (mut settings, mut transport) = (Settings::default(), "raw".to_owned());
    let known = parameters::of(&settings, 0.0);
    for (name, value) in &arguments.parameters {
        if name == TRANSPORT {
            transport = value.as_str().unwrap_or_default().to_owned();
            if !["raw", "compressed"].contains(&&*transport) {
                bail!("{TRANSPORT} is {value}: expected raw or compressed");
            }
        } else if known.iter().any(|(known, _)| known == name) {
            parameters::set(&mut settings, name, &parameters::from_json(name, value)?)?;
        } else if name != "use_sim_time" {
            tracing::warn!("there is no parameter {name}");
        }
    }
    Ok((settings, transport))
}

struct Node {
    detector: LiveDetector,
    newest: Arc<Newest<InputImage>>,
    /// The settings as the parameter services see them.
    current: Arc<Mutex<Settings>>,
    detections: Publisher<Detection2DArray>,
    annotated: Publisher<Image>,
    masks: Publisher<Image>,
    vision_info: Publisher<VisionInfo>,
    label_info: Publisher<LabelInfo>,
    label_topic: String,
    version: i32,
    converted: Vec<u8>,
    annotator: Annotator,
    topic: String,
    last_image: Instant,
    is_silent: bool,
    failures: Failures,
    latencies: Latencies,
    middleware: Middleware,
}

impl Node {
    fn new(
        arguments: &Arguments,
        transport: &str,
        detector: LiveDetector,
        changes: Sender<Change>,
    ) -> anyhow::Result<Self> {
        let current = Arc::new(Mutex::new(detector.settings().clone()));
        let started = Arc::new(AtomicBool::new(false));
        let mut declared = parameters::of(detector.settings(), detector.confidence());
        declared.push((TRANSPORT, Parameter::Text(transport.to_owned())));
        let (check, apply) = handlers(current.clone(), started.clone(), changes);
        let mut middleware = Middleware::new(&arguments.namespace, &arguments.node, declared, check, apply)?;

        let label_topic = arguments.topic("label_info");
        let detections = middleware.publisher(&arguments.topic("detections"), false)?;
        let annotated = middleware.publisher(&arguments.topic("~/annotated"), false)?;
        let masks = middleware.publisher(&arguments.topic("~/masks"), false)?;
        let vision_info = middleware.publisher(&arguments.topic("vision_info"), true)?;
        let label_info = middleware.publisher(&label_topic, true)?;

        let newest = Arc::new(Newest::default());
        let place = newest.clone();
        let mut topic = arguments.topic("image");
        if transport == "compressed" {
            // As image_transport names it, whatever the topic is remapped to.
            topic = arguments.topic(&format!("{topic}/compressed"));
            middleware.subscribe(&topic, move |image| place.put(InputImage::Compressed(image)))?;
        } else {
            middleware.subscribe(&topic, move |image| place.put(InputImage::Raw(image)))?;
        }
        middleware.spin()?;
        started.store(true, Ordering::Relaxed);
        tracing::info!("engine: {}; images from {topic}", detector.engine());
        let mut node = Self {
            detector,
            newest,
            current,
            detections,
            annotated,
            masks,
            vision_info,
            label_info,
            label_topic,
            version: 0,
            converted: Vec::new(),
            annotator: Annotator::new(),
            topic,
            last_image: Instant::now(),
            is_silent: false,
            failures: Failures::default(),
            latencies: Latencies::default(),
            middleware,
        };
        node.publish_labels();
        Ok(node)
    }

    /// Changes parameters that somebody has set, then detects in the newest image, if there is one.
    fn turn(&mut self, requests: &Receiver<Change>) {
        while let Ok((settings, answer)) = requests.try_recv() {
            let changed = self.detector.change(settings).map_err(|error| error.to_string());
            match &changed {
                Ok(()) => self.publish_labels(),
                Err(error) => tracing::warn!("parameters stay as they were: {error}"),
            }
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = self.detector.settings().clone();
            // Nobody waits any longer if it took too long.
            drop(answer.send(changed));
        }
        let Some(image) = self.newest.take(TURN) else {
            if !self.is_silent && self.last_image.elapsed() > SILENCE {
                self.is_silent = true;
                tracing::warn!("no image on {} for {} s; waiting", self.topic, SILENCE.as_secs());
            }
            return;
        };
        if std::mem::take(&mut self.is_silent) {
            tracing::info!("images on {} again", self.topic);
        }
        self.last_image = Instant::now();
        if let Err(error) = self.detect(&image) {
            self.report(&error.to_string());
        }
    }

    fn detect(&mut self, input: &InputImage) -> ocelli::Result<()> {
        let decoded;
        let mut converted = std::mem::take(&mut self.converted);
        let (header, frame) = match input {
            InputImage::Raw(image) => {
                let pixels = camera::Pixels {
                    encoding: &image.encoding,
                    width: image.width,
                    height: image.height,
                    step: image.step as usize,
                    data: &image.data,
                    timestamp: image.header.stamp.since_start(),
                };
                (&image.header, camera::view(pixels, &mut converted)?)
            }
            InputImage::Compressed(file) => {
                decoded = ocelli::Image::decode(&file.data, &format!("image on {}", self.topic))?;
                let timestamp = file.header.stamp.since_start();
                (&file.header, FrameView { timestamp, ..(&decoded).into() })
            }
        };
        let outcome = self.detector.detect(frame)?;
        self.detections.publish(detection_array(&outcome, header));
        self.latencies.add(header.stamp.since_start(), latencies::now(), outcome.times.total);
        if self.detector.settings().masks && self.middleware.is_received(&self.masks) {
            self.masks.publish(instance_image(&outcome, header));
        }
        if self.middleware.is_received(&self.annotated)
            && let Some(image) = camera::to_image(frame)?
        {
            self.publish_annotated(image, &outcome, header)?;
        }
        self.converted = converted;
        Ok(())
    }

    fn publish_annotated(
        &self,
        image: ocelli::Image,
        outcome: &FrameOutcome,
        header: &Header,
    ) -> ocelli::Result<()> {
        let (width, height) = (image.width(), image.height());
        let mut rgb = image.into_rgb_image();
        self.annotator.annotate(&mut rgb, &outcome.detections)?;
        self.annotated.publish(Image {
            header: header.clone(),
            height,
            width,
            encoding: "rgb8".into(),
            is_bigendian: 0,
            step: 3 * width,
            data: rgb.into_raw(),
        });
        Ok(())
    }

    /// Tells what the classes are, at the start and when they change.
    fn publish_labels(&mut self) {
        self.version += 1;
        let since = latencies::now();
        let stamp = Time { sec: since.as_secs() as i32, nanosec: since.subsec_nanos() };
        let header = Header { stamp, frame_id: String::new() };
        self.label_info.publish(label_info(
            self.detector.labels(),
            self.detector.confidence(),
            header.clone(),
        ));
        self.vision_info.publish(VisionInfo {
            header,
            method: "Ocelli".into(),
            database_location: self.label_topic.clone(),
            database_version: self.version,
        });
    }

    /// Reports why a frame has no results, the same reason once in a while.
    fn report(&mut self, failure: &str) {
        if self.failures.is_news(failure, Instant::now()) {
            tracing::warn!("no results for an image: {failure}");
        }
    }
}

/// The functions that check and apply parameters that others set while the node runs.
fn handlers(
    current: Arc<Mutex<Settings>>,
    started: Arc<AtomicBool>,
    changes: Sender<Change>,
) -> (OnParameter, OnParameter) {
    let is_started = started.clone();
    let changed = move |name: &str, value: &Parameter| {
        if name == TRANSPORT {
            return Err(format!("{TRANSPORT} is set at the start"));
        }
        let mut settings = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        parameters::set(&mut settings, name, value).map_err(|error| error.to_string())?;
        Ok(settings)
    };
    let changed = Arc::new(changed);
    let check = changed.clone();
    let check = move |name: &str, value: &Parameter| {
        // What was declared has been checked.
        if started.load(Ordering::Relaxed) { check(name, value).map(drop) } else { Ok(()) }
    };
    let apply = move |name: &str, value: &Parameter| {
        if !is_started.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (answer, answered) = mpsc::channel();
        let stopping = || "the node is ending".to_owned();
        changes.send((changed(name, value)?, answer)).map_err(|_| stopping())?;
        match answered.recv_timeout(CHANGE) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", CHANGE.as_secs())),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(stopping()),
        }
    };
    (Box::new(check), Box::new(apply))
}
