//! `--zones`: lines and zones from a YAML file, their counts, and the events of `--events`.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use ocelli::draw::{Annotator, Shape};
use ocelli::report::rounded;
use ocelli::sink::JsonLines;
use ocelli::{Sink, locked, pipeline::FrameOutcome};
use ocelli_datasets::table::{columns, row};
use ocelli_export::read_text;
use ocelli_tracking::{
    Anchor, CountingLine, LineCounts, Zone, ZoneCounter, ZoneCounts, ZoneEvent, ZoneEventKind, ZoneOptions,
};
use serde::Deserialize;
use serde_json::json;

use super::delivery::Delivery;
use crate::config::from_yaml;
use crate::usage;

/// The margin without one in the file, as a share of the frame's height.
const MARGIN: f32 = 0.01;

/// The file of `--zones`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZonesFile {
    /// The file, for messages.
    #[serde(skip)]
    name: String,
    units: Option<Units>,
    anchor: Option<Anchor>,
    margin: Option<f32>,
    #[serde(default)]
    lines: Vec<LineEntry>,
    #[serde(default)]
    zones: Vec<ZoneEntry>,
    /// Areas where motion does not count for `--when-moving`.
    #[serde(default)]
    ignore: Vec<IgnoredEntry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IgnoredEntry {
    points: Vec<[f32; 2]>,
    source: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Units {
    Pixels,
    Relative,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineEntry {
    name: String,
    from: [f32; 2],
    to: [f32; 2],
    source: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneEntry {
    name: String,
    points: Vec<[f32; 2]>,
    source: Option<String>,
}

impl ZonesFile {
    /// Reads a file, or takes the text itself, as a file of `--config` has it.
    ///
    /// # Errors
    /// If it cannot be read or is invalid.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let inline = path.to_str().filter(|text| text.starts_with('{'));
        let name = if inline.is_some() { "in --config".to_owned() } else { path.display().to_string() };
        let refuse = |why: String| usage(format!("--zones, {name}: {why}"));
        let text = match inline {
            Some(text) => text.to_owned(),
            None => read_text(path, "the file of --zones").map_err(|e| usage(e.to_string()))?,
        };
        let expected = "expected YAML with `lines` (name, from, to) and `zones` (name, points)";
        let mut file: Self = from_yaml(&text, expected).map_err(refuse)?;
        if !file.counts() && file.ignore.is_empty() {
            return Err(refuse("expected at least one line or zone".into()));
        }
        let is_share = |point: &[f32; 2]| point.iter().all(|value| (0.0..=1.0).contains(value));
        if !file.ignore.iter().all(|region| region.points.len() >= 3 && region.points.iter().all(is_share)) {
            let why = "ignore: expected at least three points as shares of the frame's width and height";
            return Err(refuse(why.into()));
        }
        let is_relative = file.points().all(|(.., point)| is_share(&point));
        file.units.get_or_insert(if is_relative { Units::Relative } else { Units::Pixels });
        file.name.clone_from(&name);
        // In a frame of one pixel, where scaled points are those of the file.
        file.counter((1, 1)).map_err(|e| refuse(e.to_string()))?;
        Ok(file)
    }

    /// `true` if it has anything to count.
    pub fn counts(&self) -> bool {
        !self.lines.is_empty() || !self.zones.is_empty()
    }

    /// The regions to ignore of sources with these names.
    ///
    /// # Errors
    /// If one is of another source.
    pub fn ignored(&self, sources: &[String]) -> anyhow::Result<Vec<Vec<Vec<[f32; 2]>>>> {
        let named = self.ignore.iter().filter_map(|region| region.source.as_ref());
        if let Some(other) = named.into_iter().find(|source| !sources.contains(source)) {
            let known = sources.join(", ");
            refuse!("--zones, {}: ignore: source {other} is not open: expected {known}", self.name);
        }
        let of = |name: &String| {
            let here = self.ignore.iter().filter(|region| region.source.as_ref().is_none_or(|of| of == name));
            here.map(|region| region.points.clone()).collect()
        };
        Ok(sources.iter().map(of).collect())
    }

    /// The lines and zones that belong to one source, and its name.
    fn sources(&self) -> impl Iterator<Item = (String, &String)> {
        let of = |kind: &str, name: &str, source| Some((format!("{kind} {name}"), source));
        let lines = self.lines.iter().filter_map(move |line| of("line", &line.name, line.source.as_ref()?));
        let zones = self.zones.iter().filter_map(move |zone| of("zone", &zone.name, zone.source.as_ref()?));
        lines.chain(zones)
    }

    /// The points of lines and zones, with what each belongs to.
    fn points(&self) -> impl Iterator<Item = (&'static str, &String, [f32; 2])> {
        let lines = self.lines.iter().flat_map(|one| [one.from, one.to].map(|end| ("line", &one.name, end)));
        let zones = self.zones.iter();
        lines.chain(zones.flat_map(|one| one.points.iter().map(|corner| ("zone", &one.name, *corner))))
    }

    fn is_relative(&self) -> bool {
        self.units == Some(Units::Relative)
    }

    /// What counts for a source.
    fn of(&self, source: Option<&str>) -> Self {
        let is_here = |of: &Option<String>| of.is_none() || of.as_deref() == source;
        let mut here = self.clone();
        here.lines.retain(|line| is_here(&line.source));
        here.zones.retain(|zone| is_here(&zone.source));
        here
    }

    /// Checks that no place is far outside of the frames, as if it were for a larger image.
    fn check_places(&self, (width, height): (u32, u32)) -> ocelli::Result<()> {
        let [w, h] = if self.is_relative() { [1.0; 2] } else { [width as f32, height as f32] };
        let is_far = |[x, y]: [f32; 2]| !(-w..=2.0 * w).contains(&x) || !(-h..=2.0 * h).contains(&y);
        if let Some((kind, name, point)) = self.points().find(|(.., point)| is_far(*point)) {
            refuse!(
                "--zones, {}: {kind} {name}: the point {point:?} is far outside of the frames, {width} × {height}: \
                 expected pixels of these frames, or shares from 0 to 1",
                self.name
            );
        }
        Ok(())
    }

    /// The counter for frames of this size.
    fn counter(&self, (width, height): (u32, u32)) -> ocelli::Result<ZoneCounter> {
        let relative = self.is_relative();
        let scale = if relative { [width as f32, height as f32] } else { [1.0; 2] };
        let scaled = |point: [f32; 2]| [point[0] * scale[0], point[1] * scale[1]];
        let lines = self.lines.iter().map(|line| CountingLine {
            name: line.name.clone(),
            from: scaled(line.from),
            to: scaled(line.to),
        });
        let zones = self.zones.iter().map(|zone| Zone {
            name: zone.name.clone(),
            points: zone.points.iter().copied().map(scaled).collect(),
        });
        let margin = match self.margin {
            Some(margin) if !relative => margin,
            margin => margin.unwrap_or(MARGIN) * height as f32,
        };
        let options =
            ZoneOptions { anchor: self.anchor.unwrap_or_default(), margin, ..ZoneOptions::default() };
        ZoneCounter::new(lines.collect(), zones.collect(), options)
    }
}

/// The counters of all sources; clones share them.
#[derive(Clone)]
pub struct Counting {
    file: Arc<ZonesFile>,
    /// The name of the only source, whose frames have no origin.
    only: Option<Arc<str>>,
    counters: Arc<Mutex<Vec<Option<SourceCounter>>>>,
}

struct SourceCounter {
    source: Option<Arc<str>>,
    counter: ZoneCounter,
    labels: Arc<[Arc<str>]>,
    /// The size of the frames that the counter is for, if its places are shares of it.
    size: Option<(u32, u32)>,
}

impl SourceCounter {
    /// By how much frames are larger than those of the counter: a camera that was lost may come back with another size.
    fn scale(&self, (width, height): (u32, u32)) -> [f32; 2] {
        self.size.map_or([1.0; 2], |(w, h)| [width as f32 / w as f32, height as f32 / h as f32])
    }

    /// Counts the tracks of a frame.
    fn update(&mut self, outcome: &FrameOutcome) -> &[ZoneEvent] {
        let [x, y] = self.scale(outcome.size);
        if [x, y] == [1.0; 2] {
            return self.counter.update(&outcome.tracks, outcome.time);
        }
        let mut tracks = outcome.tracks.clone();
        for track in &mut tracks {
            let [x1, y1, x2, y2] = track.bbox.to_xyxy();
            track.bbox = [x1 / x, y1 / y, x2 / x, y2 / y].into();
        }
        self.counter.update(&tracks, outcome.time)
    }
}

impl Counting {
    /// Counts for sources with these names.
    ///
    /// # Errors
    /// If a line or zone is of another source.
    pub fn new(file: ZonesFile, sources: &[String]) -> anyhow::Result<Self> {
        if let Some((what, source)) = file.sources().find(|(_, source)| !sources.contains(source)) {
            refuse!(
                "--zones, {}: {what} is of source {source}, which is not open: expected {}",
                file.name,
                sources.join(", ")
            );
        }
        let only = match sources {
            [one] => Some(Arc::from(one.as_str())),
            _ => None,
        };
        Ok(Self { file: Arc::new(file), only, counters: Arc::default() })
    }

    /// Calls `action` with the counter of the frame's source.
    fn with_counter<R>(
        &self,
        outcome: &FrameOutcome,
        action: impl FnOnce(&mut SourceCounter) -> R,
    ) -> ocelli::Result<R> {
        let number = outcome.origin.as_ref().map_or(0, |origin| origin.number);
        let mut counters = locked(&self.counters);
        if counters.len() <= number {
            counters.resize_with(number + 1, || None);
        }
        if counters[number].is_none() {
            let source = outcome.origin.as_ref().map(|origin| origin.name.clone());
            let name = source.as_deref().or(self.only.as_deref());
            let here = self.file.of(name);
            here.check_places(outcome.size)?;
            let counter = here.counter(outcome.size)?;
            let size = here.is_relative().then_some(outcome.size);
            counters[number] = Some(SourceCounter { source, counter, labels: outcome.labels.clone(), size });
        }
        Ok(action(counters[number].as_mut().expect("it was just made")))
    }

    /// Tables of the counts, for the terminal.
    pub fn tables(&self) -> String {
        let mut lines = vec![row("line", ["label", "in", "out"])];
        let heading = ["label", "entered", "mean s", "longest s", "first s", "last s"];
        let mut zones = vec![row("zone", heading)];
        for one in locked(&self.counters).iter().flatten() {
            let source = one.source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
            let label = |class: usize| one.labels.get(class).map_or("", |label| label).to_owned();
            for (line, counts) in one.counter.lines().iter().zip(one.counter.line_counts()) {
                lines.extend(counts.iter().map(|(class, LineCounts { entered, left })| {
                    let cells = [label(*class), entered.to_string(), left.to_string()];
                    row(&format!("{source}{}", line.name), cells)
                }));
            }
            for (zone, counts) in one.counter.zones().iter().zip(one.counter.zone_counts()) {
                zones.extend(counts.iter().map(|(class, counts)| {
                    let ZoneCounts { inside, entered, dwell, longest, first, last } = *counts;
                    let ended = entered.saturating_sub(inside).max(1);
                    let mean = dwell.as_secs_f64() / ended as f64;
                    let times = [mean, longest.as_secs_f64(), first.as_secs_f64(), last.as_secs_f64()];
                    let counts = [label(*class), entered.to_string()].into_iter();
                    let cells = counts.chain(times.map(|seconds| format!("{seconds:.1}")));
                    row(&format!("{source}{}", zone.name), cells)
                }));
            }
        }
        let tables = [lines, zones].into_iter().filter(|rows| rows.len() > 1);
        tables.map(|rows| columns(&rows, 2)).collect()
    }

    /// Counters of the same places for the drawing, which counts for itself: sinks may be some frames behind what is drawn.
    pub fn apart(&self) -> Self {
        Self { counters: Arc::default(), ..self.clone() }
    }

    /// Counts the tracks of a frame, and draws the counts with this frame.
    pub fn draw(
        &self,
        annotator: &Annotator,
        image: &mut image::RgbImage,
        outcome: &FrameOutcome,
    ) -> ocelli::Result<()> {
        self.with_counter(outcome, |one| {
            one.update(outcome);
            let [x, y] = one.scale(outcome.size);
            let scaled = |point: [f32; 2]| [point[0] * x, point[1] * y];
            let counter = &one.counter;
            let lines = counter.lines().iter().zip(counter.line_counts()).map(|(line, counts)| {
                let (entered, left) =
                    counts.values().fold((0, 0), |(a, b), counts| (a + counts.entered, b + counts.left));
                let label = format!("{}: {entered} in, {left} out", line.name);
                Shape { points: [line.from, line.to].map(scaled).to_vec(), is_closed: false, label }
            });
            let zones = counter.zones().iter().zip(counter.zone_counts()).map(|(zone, counts)| {
                let inside: u64 = counts.values().map(|counts| counts.inside).sum();
                let points = zone.points.iter().copied().map(scaled).collect();
                Shape { points, is_closed: true, label: format!("{}: {inside}", zone.name) }
            });
            annotator.draw_shapes(image, &lines.chain(zones).collect::<Vec<_>>());
        })
    }
}

/// Counts the tracks of each frame and writes the events.
pub struct ZoneSink {
    counting: Counting,
    events: Option<JsonLines>,
    deliveries: Vec<Delivery>,
    begun: bool,
}

impl ZoneSink {
    /// Writes events to a file and sends them, or only counts.
    pub fn new(counting: Counting, events: Option<JsonLines>, deliveries: Vec<Delivery>) -> Self {
        Self { counting, events, deliveries, begun: false }
    }

    fn write_events(
        &mut self,
        one: &SourceCounter,
        found: &[ZoneEvent],
        wall_time: Option<f64>,
    ) -> ocelli::Result<()> {
        for ZoneEvent { kind, time, track, class_id } in found {
            let line = |number: usize| one.counter.lines().get(number).map(|line| &line.name);
            let zone = |number: usize| one.counter.zones().get(number).map(|zone| &zone.name);
            let (event, line, zone, direction, dwell) = match *kind {
                ZoneEventKind::Crossed(number, direction) => {
                    ("crossed", line(number), None, Some(direction), None)
                }
                ZoneEventKind::Entered(number) => ("entered", None, zone(number), None, None),
                ZoneEventKind::Left(number, dwell) => ("left", None, zone(number), None, Some(dwell)),
                _ => continue,
            };
            let mut record = json!({
                "event": event,
                "source": one.source.as_deref(),
                "time_s": rounded(time.as_secs_f64(), 1e6),
                "wall_time": wall_time,
                "line": line,
                "zone": zone,
                "direction": direction,
                "dwell_s": dwell.map(|dwell| rounded(dwell.as_secs_f64(), 1e6)),
                "track": track,
                "class_id": class_id,
                "label": one.labels.get(*class_id).map_or("", |label| label),
            });
            // What an event does not have is left out.
            record.as_object_mut().expect("it is an object").retain(|_, value| !value.is_null());
            if let Some(writer) = &mut self.events {
                writer.write_record(&record)?;
            }
            self.deliveries.iter_mut().for_each(|delivery| delivery.offer(record.to_string().into_bytes()));
        }
        Ok(())
    }
}

/// Six decimals, as in the lines of frames.
impl Sink for ZoneSink {
    fn write(&mut self, outcome: &FrameOutcome) -> ocelli::Result<()> {
        if !std::mem::replace(&mut self.begun, true)
            && let Some(events) = &mut self.events
        {
            events.begin()?;
        }
        let captured = outcome.captured.and_then(|captured| captured.duration_since(UNIX_EPOCH).ok());
        let wall_time = captured.map(|since| rounded(since.as_secs_f64(), 1e6));
        self.counting.clone().with_counter(outcome, |one| {
            let found = one.update(outcome).to_vec();
            self.write_events(one, &found, wall_time)
        })?
    }

    fn finish(&mut self) -> ocelli::Result<()> {
        let counting = self.counting.clone();
        for one in locked(&counting.counters).iter_mut().flatten() {
            let found = one.counter.finish().to_vec();
            self.write_events(one, &found, None)?;
        }
        self.deliveries.iter_mut().for_each(Delivery::finish);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
