//! The tables as Markdown.

use std::io::{self, Write};

/// Rows of both tables, and what was left out.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    steps: Vec<Step>,
    left_out: Vec<String>,
}

struct Row {
    backbone: String,
    imgsz: usize,
    classes: usize,
    /// Image half and prompt half: time and CPU time.
    ms: [[f64; 2]; 2],
    pipelined_fps: Option<f64>,
}

struct Step {
    backbone: String,
    imgsz: usize,
    classes: usize,
    step: String,
    frame_ms: f64,
}

impl Table {
    pub fn add_row(
        &mut self,
        backbone: &str,
        imgsz: usize,
        classes: usize,
        ms: [[f64; 2]; 2],
        pipelined_fps: Option<f64>,
    ) {
        self.rows.push(Row { backbone: backbone.to_owned(), imgsz, classes, ms, pipelined_fps });
    }

    /// A step of the ablation; the first of a backbone and a size is what the others are compared with.
    pub fn add_step(&mut self, backbone: &str, imgsz: usize, classes: usize, step: &str, frame_ms: f64) {
        let (backbone, step) = (backbone.to_owned(), step.to_owned());
        self.steps.push(Step { backbone, imgsz, classes, step, frame_ms });
    }

    pub fn leave_out(&mut self, what: String) {
        self.left_out.push(what);
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "| image backbone | px | classes | backbone ms | its CPU ms | encoder-decoder ms | its CPU ms | sequential FPS | \
             pipelined FPS |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        for Row { backbone, imgsz, classes, ms, pipelined_fps } in &self.rows {
            let [[image, image_cpu], [prompts, prompts_cpu]] = ms;
            let pipelined = pipelined_fps.map_or_else(|| "–".into(), digits);
            let sequential = digits(1e3 / (image + prompts));
            writeln!(
                out,
                "| {backbone} | {imgsz} | {classes} | {image:.0} | {image_cpu:.0} | {prompts:.0} | {prompts_cpu:.0} | \
                 {sequential} | {pipelined} |"
            )?;
        }
        if !self.steps.is_empty() {
            writeln!(
                out,
                "\n| image backbone | px | prompts | | a frame, ms | of the first |\n|---|---|---|---|---|---|"
            )?;
        }
        for Step { backbone, imgsz, classes, step, frame_ms } in &self.steps {
            let first = self.steps.iter().find(|one| one.backbone == *backbone && one.imgsz == *imgsz);
            let ratio = first.map_or(1.0, |first| frame_ms / first.frame_ms);
            writeln!(out, "| {backbone} | {imgsz} | {classes} | {step} | {frame_ms:.0} | {ratio:.2} |")?;
        }
        if !self.left_out.is_empty() {
            writeln!(out, "\nLeft out:\n")?;
        }
        self.left_out.iter().try_for_each(|what| writeln!(out, "- {what}"))
    }
}

/// Three digits.
fn digits(fps: f64) -> String {
    let decimals = if fps >= 100.0 {
        0
    } else if fps >= 10.0 {
        1
    } else if fps >= 1.0 {
        2
    } else {
        3
    };
    format!("{fps:.decimals$}")
}
