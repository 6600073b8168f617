//! The steps of a search as an SVG image.

use std::io::{self, Write};

use super::PruneReport;

/// Width and height of the image, and the margins around the plot: left, top, right, bottom.
const SIZE: [f64; 2] = [640.0, 400.0];
const MARGINS: [f64; 4] = [64.0, 24.0, 24.0, 48.0];

/// The values that an axis shows, and where on the image its ends are.
struct Axis {
    values: [f64; 2],
    places: [f64; 2],
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, places: [f64; 2]) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        let room = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.1 };
        Self { values: [low - room, high + room], places }
    }

    fn place(&self, value: f64) -> f64 {
        let [[low, high], [start, end]] = [self.values, self.places];
        start + (value - low) / (high - low) * (end - start)
    }

    /// Round values, about five.
    fn ticks(&self) -> Vec<f64> {
        let [low, high] = self.values;
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
        let first = (low / step).ceil() as i64;
        (first..=(high / step).floor() as i64).map(|number| number as f64 * step).collect()
    }
}

pub(super) fn write(report: &PruneReport, mut out: impl Write) -> io::Result<()> {
    let counts = report.steps.iter().all(|step| step.effect.kept_share.is_some());
    let points: Vec<(f64, f64, [f64; 2])> = report
        .steps
        .iter()
        .map(|step| {
            let effect = &step.effect;
            match (effect.kept_share, effect.kept_interval) {
                (Some(share), Some(interval)) if counts => {
                    (step.backbone_ms, 100.0 * share, interval.map(|end| 100.0 * end))
                }
                _ => (step.backbone_ms, effect.cosine, [effect.cosine; 2]),
            }
        })
        .collect();
    let name = if counts { "detections kept, %" } else { "cosine of the features" };
    let [width, height] = SIZE;
    let [left, top, right, bottom] = MARGINS;
    let x = Axis::new(points.iter().map(|(ms, ..)| *ms), [left, width - right]);
    let y = Axis::new(
        points.iter().flat_map(|(_, value, ends)| [*value, ends[0], ends[1]]),
        [height - bottom, top],
    );
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for value in x.ticks() {
        let (at, base) = (x.place(value), height - bottom);
        writeln!(out, "<path d=\"M{at:.1} {top}V{base}\" stroke=\"#ddd\"/>")?;
        writeln!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            base + 16.0,
            short(value)
        )?;
    }
    for value in y.ticks() {
        let at = y.place(value);
        writeln!(out, "<path d=\"M{left} {at:.1}H{}\" stroke=\"#ddd\"/>", width - right)?;
        writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            at + 4.0,
            short(value)
        )?;
    }
    let (middle, low) = (f64::midpoint(left, width - right), height - 10.0);
    writeln!(out, "<text x=\"{middle}\" y=\"{low}\" text-anchor=\"middle\">backbone, ms</text>")?;
    writeln!(
        out,
        "<text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{name}</text>",
        height / 2.0
    )?;
    let path: Vec<String> =
        points.iter().map(|(ms, value, _)| format!("{:.1} {:.1}", x.place(*ms), y.place(*value))).collect();
    writeln!(out, "<path d=\"M{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\"/>", path.join("L"))?;
    for ((ms, value, ends), step) in points.iter().zip(&report.steps) {
        let (at, center) = (x.place(*ms), y.place(*value));
        let [low, high] = ends.map(|end| y.place(end));
        let name = step.removed.map_or("nothing".into(), |unit| unit.to_string());
        writeln!(out, "<path d=\"M{at:.1} {low:.1}V{high:.1}\" stroke=\"#1f5fa8\"/>")?;
        writeln!(
            out,
            "<circle class=\"step\" cx=\"{at:.1}\" cy=\"{center:.1}\" r=\"3.5\" fill=\"#1f5fa8\"><title>{name}: {}, {ms:.2} ms\
             </title></circle>",
            short(*value)
        )?;
        writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\">{name}</text>",
            at + 5.0,
            center - 5.0
        )?;
    }
    writeln!(out, "</svg>")
}

/// A number without digits that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
