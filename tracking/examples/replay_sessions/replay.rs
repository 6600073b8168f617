//! Recorded sessions: reading, replaying and comparing.

use crate::bucket_bank::last_writes;
use crate::options::MULTIPLEX;
use crate::script::{Script, Sequence};
use crate::{describe, options};
use ocelli_tracking::masklets::{
    BankReport, BitMask, Click, DetectorPrompt, LifeCycle, MaskNetwork, MaskletSession, Propagation,
    Retention, RunDirection, Step, VideoShape, candidates,
};
use serde_json::{Map, Value, json};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The error says in one line what cannot be replayed.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The result of a replay.
#[derive(Default)]
pub struct Replayed {
    /// One line for each value that differs.
    pub differences: Vec<String>,
    /// Sequences times modes.
    pub runs: usize,
    /// Frames that were processed.
    pub steps: usize,
    /// Frames that were shown.
    pub shown: usize,
    /// Runs in which nothing differs.
    pub equal: usize,
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { differences, runs, steps, shown, equal } = self;
        let count = differences.len();
        write!(f, "{equal} of {runs} runs are equal: {steps} frames, {shown} shown, {count} differences")
    }
}

/// Replays all sequences of a file, in the modes that were recorded.
pub fn replay_file(path: &Path) -> Result<Replayed> {
    let file = read(path)?;
    let grid = number(&file, "grid")?;
    let mut result = Replayed::default();
    for sequence in list(&file, "sequences")? {
        let sequence = Sequence::new(sequence, grid)?;
        for (mode, recorded) in &sequence.recorded {
            // Clicks of SAM 3.1 lose memories in the reference.
            if mode == MULTIPLEX && sequence.ops.iter().any(|op| op[0] == "points") {
                continue;
            }
            let replayed = replay(&sequence, mode, Retention::Video)?;
            let name = format!("{} {mode}", sequence.name);
            result.runs += 1;
            let before = result.differences.len();
            compare_ops(&name, recorded, &replayed, &mut result);
            result.equal += usize::from(result.differences.len() == before);
        }
    }
    Ok(result)
}

/// Reads a recording, which may be gzipped.
pub fn read(path: &Path) -> Result<Value> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked)?;
        bytes = unpacked;
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Replays the operations of a sequence. Each gives what was recorded of it: `op`, `steps`, `shown` and `after`.
pub fn replay(sequence: &Sequence<'_>, mode: &str, retention: Retention) -> Result<Vec<Value>> {
    let options = options::of_mode(mode, sequence.patch_grid, &sequence.options)?;
    let [width, height] = sequence.video;
    let video = VideoShape { frames: Some(sequence.frames), width, height };
    let mut player = Player {
        session: MaskletSession::new(video, retention, options)?,
        script: Script::new(sequence, options),
        ops: Vec::new(),
        is_multiplex: options.life_cycle != LifeCycle::Sam3,
    };
    let recorded = sequence.recorded.iter().find(|recorded| recorded.0 == mode).map_or(&[][..], |ops| ops.1);
    for (index, op) in sequence.ops.iter().enumerate() {
        player.play(op, recorded.get(index).map_or(usize::MAX, complete_steps))?;
    }
    Ok(player.ops)
}

/// The recorded steps that are complete: on the last one before an error the reference failed.
fn complete_steps(op: &Value) -> usize {
    if op["error"].is_null() { usize::MAX } else { array(&op["steps"]).len() - 1 }
}

struct Player<'a> {
    session: MaskletSession,
    script: Script<'a>,
    ops: Vec<Value>,
    is_multiplex: bool,
}

impl Player<'_> {
    /// Plays an operation for at most this many steps.
    fn play(&mut self, op: &Value, most: usize) -> Result<()> {
        let (mut steps, mut shown) = (Vec::new(), Vec::new());
        match text(op, 0)? {
            "text" => self.prompt(DetectorPrompt::Text, op, &mut steps, &mut shown)?,
            "box" => self.prompt(DetectorPrompt::Box, op, &mut steps, &mut shown)?,
            "propagate" => self.propagate(op, most, &mut steps, &mut shown)?,
            "points" => self.click(op, &mut steps, &mut shown)?,
            "remove" => {
                self.session.remove_object(index(op, 1)? as u32);
            }
            "reset" => self.session.reset(),
            other => return Err(format!("the operation {other} is not known").into()),
        }
        let mut after = describe::after(&self.session);
        if let Some(after) = after.as_object_mut().filter(|_| self.is_multiplex) {
            after.remove("removed");
            let mut ids = self.session.objects();
            ids.sort_unstable();
            after.insert("ids".to_owned(), json!(ids));
        }
        self.ops.push(json!({"op": op, "steps": steps, "shown": shown, "after": after}));
        Ok(())
    }

    fn prompt(
        &mut self,
        prompt: DetectorPrompt,
        op: &Value,
        steps: &mut Vec<Value>,
        shown: &mut Vec<Value>,
    ) -> Result<()> {
        let step = self.session.prompt(prompt, index(op, 1)?, &mut self.script)?;
        self.record(&step, steps, shown, false);
        Ok(())
    }

    fn propagate(
        &mut self,
        op: &Value,
        most: usize,
        steps: &mut Vec<Value>,
        shown: &mut Vec<Value>,
    ) -> Result<()> {
        let direction = match text(op, 1)? {
            "forward" => RunDirection::Forward,
            "backward" => RunDirection::Backward,
            "both" => RunDirection::Both,
            other => return Err(format!("the direction {other} is not known").into()),
        };
        let optional = |at: usize| if op[at].is_null() { Ok(None) } else { index(op, at).map(Some) };
        self.session.propagate(direction, optional(2)?, optional(3)?)?;
        let mut banks: Vec<BankReport> = Vec::new();
        while steps.len() < most {
            let Some(step) = self.session.advance(&mut self.script)? else { break };
            banks.extend(step.banks.iter().cloned());
            self.record(&step, steps, shown, true);
        }
        self.add_partial(&banks)
    }

    /// The recording has what a partial run reads with the click before it.
    fn add_partial(&mut self, banks: &[BankReport]) -> Result<()> {
        if banks.is_empty() {
            return Ok(());
        }
        let is_click = |op: &&mut Value| op["op"][0] == "points";
        let click =
            self.ops.iter_mut().rev().find(is_click).ok_or("a partial run without a click before it")?;
        let steps = click["steps"].as_array_mut().ok_or("a click without steps")?;
        steps.push(
            json!({"f": -1, "rev": false, "bank": banks.iter().map(describe::bank).collect::<Vec<_>>()}),
        );
        Ok(())
    }

    fn click(&mut self, op: &Value, steps: &mut Vec<Value>, shown: &mut Vec<Value>) -> Result<()> {
        let (frame, id, source) = (index(op, 1)?, index(op, 2)? as u32, text(op, 3)?);
        self.script.set_source(id, source);
        let clicks = [Click { x: 0.5, y: 0.5, is_foreground: true }];
        let frame_shown = self.session.click(frame, id, &clicks, &mut self.script)?;
        let found = self.script.detect(frame)?.unwrap_or_default();
        let kept = candidates(&found, self.session.options(), false).into_iter();
        let kept: Vec<usize> = kept.map(|kept| kept.index).collect();
        let mut step = json!({"f": frame, "rev": false, "bank": [], "points": id, "det": kept});
        self.script.take_prompted_areas(&mut step);
        steps.push(step);
        shown.push(describe::shown(&frame_shown, None));
        Ok(())
    }

    fn record(&mut self, step: &Step, steps: &mut Vec<Value>, shown: &mut Vec<Value>, is_run: bool) {
        if let Some(report) = &step.report {
            let mut described = describe::step(report);
            self.script.take_prompted_areas(&mut described);
            if self.is_multiplex {
                self.script.buckets.describe(&mut described, report);
            }
            self.script.add_sources(report.frame, &report.born);
            steps.push(described);
        }
        let at = is_run.then_some(steps.len());
        shown.extend(step.shown.iter().map(|frame| describe::shown(frame, at)));
    }
}

/// The name of a run in a recording.
pub fn run_name(kind: &Propagation) -> &'static str {
    match kind {
        Propagation::Full => "propagation_full",
        Propagation::Partial(_) => "propagation_partial",
        Propagation::Fetch => "propagation_fetch",
    }
}

/// Compares what a run recorded of its operations with what a replay found.
pub fn compare_ops(name: &str, recorded: &[Value], replayed: &[Value], result: &mut Replayed) {
    if recorded.len() != replayed.len() {
        let counts = format!("{} operations, found {}", recorded.len(), replayed.len());
        result.differences.push(format!("{name}: expected {counts}"));
    }
    for (index, (recorded, replayed)) in recorded.iter().zip(replayed).enumerate() {
        let has_failed = !recorded["error"].is_null();
        for kind in if has_failed { &["steps"][..] } else { &["steps", "shown"] } {
            let name = format!("{name}, operation {index}, {kind}");
            let (expected, found) = (array(&recorded[kind]), array(&replayed[kind]));
            let expected = &expected[..expected.len().min(complete_steps(recorded))];
            if expected.len() != found.len() {
                result.differences.push(format!(
                    "{name}: expected {}, found {}",
                    expected.len(),
                    found.len()
                ));
            }
            for (place, (expected, found)) in expected.iter().zip(found).enumerate() {
                let name = format!("{name} {place}, frame {}", expected["f"]);
                compare_keys(&name, expected, found, &mut result.differences);
            }
            *(if *kind == "steps" { &mut result.steps } else { &mut result.shown }) += found.len();
        }
        if has_failed {
            continue;
        }
        let name = format!("{name}, operation {index}");
        compare_keys(
            &name,
            &json!({"after": recorded["after"]}),
            &json!({"after": replayed["after"]}),
            &mut result.differences,
        );
    }
}

fn compare_keys(name: &str, expected: &Value, found: &Value, differences: &mut Vec<String>) {
    let none = Map::new();
    let step = expected;
    let (expected, found) = (expected.as_object().unwrap_or(&none), found.as_object().unwrap_or(&none));
    let missing = found.keys().filter(|key| !expected.contains_key(*key));
    for key in expected.keys().chain(missing) {
        let (expected, found) =
            (expected.get(key).unwrap_or(&Value::Null), found.get(key).unwrap_or(&Value::Null));
        let is_equal = if key == "bank" {
            same(&describe::ordered(expected), &describe::ordered(found))
        } else if key == "encode" {
            same(&last_writes(step), found)
        } else {
            same(expected, found)
        };
        if !is_equal {
            differences.push(format!("{name}, {key}: expected {expected}, found {found}"));
        }
    }
}

/// `true` if two values are equal, integers and floats alike.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub fn list<'a>(value: &'a Value, key: &str) -> Result<&'a [Value]> {
    value[key].as_array().map(Vec::as_slice).ok_or_else(|| format!("no list {key}").into())
}

pub fn number(value: &Value, key: &str) -> Result<usize> {
    Ok(value[key].as_u64().ok_or_else(|| format!("no number {key}"))? as usize)
}

fn index(op: &Value, at: usize) -> Result<usize> {
    Ok(op[at].as_u64().ok_or_else(|| format!("the operation {op} has no number at place {at}"))? as usize)
}

fn text(op: &Value, at: usize) -> Result<&str> {
    op[at].as_str().ok_or_else(|| format!("the operation {op} has no text at place {at}").into())
}

/// A mask of rectangles `[left, top, right, bottom, value]`, later ones over earlier ones.
pub fn paint(rectangles: &[Value], side: usize) -> BitMask {
    let mut pixels = vec![false; side * side];
    for rectangle in array(&Value::Array(rectangles.to_vec())) {
        let edge = |at: usize| rectangle[at].as_i64().unwrap_or(0).clamp(0, side as i64) as usize;
        let value =
            rectangle.get(4).is_none_or(|value| value.as_i64() != Some(0) && value.as_bool() != Some(false));
        for y in edge(1)..edge(3) {
            (edge(0)..edge(2)).for_each(|x| pixels[y * side + x] = value);
        }
    }
    BitMask::from_fn(side, side, |x, y| pixels[y * side + x])
}
