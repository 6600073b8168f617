//! The report as text.

use std::io::{self, Write};

use super::{EvalReport, ModelReport, PrecisionRecall, StageTiming};
use crate::table::{columns, printable, row, some};

/// Writes a report as text: a line about the images, a block for each model and, with `per_class`, a row for each class.
/// Accuracy is in percent.
///
/// # Errors
/// Errors of `writer`.
pub fn write_report(mut writer: impl Write, report: &EvalReport, per_class: bool) -> io::Result<()> {
    let EvalReport { truth, images, instances, classes, .. } = report;
    writeln!(writer, "{}   {images} images   {instances} instances   {classes} classes", printable(truth))?;
    if !report.failed.is_empty() {
        writeln!(writer, "not counted: {} images that could not be read", report.failed.len())?;
    }
    if let Some(protocol) = report.protocol {
        writeln!(writer, "{}", protocol.description())?;
    }
    for model in &report.models {
        writeln!(writer)?;
        write_model(&mut writer, model)?;
    }
    if let Some(difference) = &report.difference {
        let shown = [
            ("box AP", difference.ap.map(|ap| points(ap) + &interval(difference.ap_interval))),
            ("AP50", difference.ap50.map(points)),
            ("mask AP", difference.segm_ap.map(|ap| points(ap) + &interval(difference.segm_ap_interval))),
            ("mask IoU", difference.mask_iou.map(|value| format!("{value:+.3}"))),
            ("median", difference.total_p50_ms.map(|ms| format!("{ms:+.1} ms"))),
            ("speed", difference.speed_up.map(|factor| format!("×{factor:.2}"))),
        ];
        let known = shown.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        writeln!(writer, "\nthe second compared with the first   {}", known.collect::<Vec<_>>().join("   "))?;
    }
    if per_class {
        for model in &report.models {
            write_classes(&mut writer, model)?;
        }
    }
    Ok(())
}

/// ` (-0.3 to +0.1)`.
fn interval(interval: Option<[f64; 2]>) -> String {
    interval.map(|[low, high]| format!(" ({} to {})", points(low), points(high))).unwrap_or_default()
}

fn write_model(writer: &mut impl Write, model: &ModelReport) -> io::Result<()> {
    let engine = model.engine.as_ref().map(|engine| format!("   {engine}")).unwrap_or_default();
    let detections = model.bbox.as_ref().map(|_| format!("   {} detections", model.detections));
    writeln!(writer, "{}{engine}{}", printable(&model.name), detections.unwrap_or_default())?;
    let without = &model.without_detections;
    if !without.is_empty() {
        let names = printable(&some(without, 5));
        writeln!(writer, "no detections in {} images: {names}", without.len())?;
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, accuracy) in [("boxes", &model.bbox), ("masks", &model.segm)] {
        let Some(accuracy) = accuracy else { continue };
        if rows.is_empty() {
            rows.push(row("", ACCURACY));
        }
        rows.push(row(name, accuracy.row().map(percent)));
    }
    write_columns(writer, &rows)?;
    if let Some(hits) = &model.at_confidence {
        let PrecisionRecall { confidence, true_positives, false_positives, false_negatives, .. } = hits;
        let (precision, recall) = (fraction(hits.precision), fraction(hits.recall));
        let mask_iou = hits.mask_iou.map(|iou| format!("   mask IoU of true positives {iou:.3}"));
        let mask_iou = mask_iou.unwrap_or_default();
        writeln!(
            writer,
            "  above {confidence}   precision {precision}   recall {recall}   {true_positives} true positives, \
             {false_positives} false positives, {false_negatives} false negatives{mask_iou}"
        )?;
    }
    if let Some(masks) = &model.from_truth_boxes {
        let (iou, instances, without) = (fraction(masks.mask_iou), masks.instances, masks.without_mask);
        writeln!(
            writer,
            "  given their boxes   mask IoU {iou}   {instances} instances, {without} without a mask"
        )?;
    }
    if let Some(timing) = &model.timing_ms {
        let StageTiming { mean, p50, p90, p99 } = timing.total;
        let [backbone, decoder, masks] = [timing.backbone, timing.decode, timing.masks].map(|one| one.mean);
        writeln!(
            writer,
            "  per image   mean {mean:.1} ms   p50 {p50:.1}   p90 {p90:.1}   p99 {p99:.1}   of which backbone \
             {backbone:.1}, decoder {decoder:.1}, masks {masks:.1}"
        )?;
    }
    Ok(())
}

fn write_classes(writer: &mut impl Write, model: &ModelReport) -> io::Result<()> {
    for (what, accuracy) in [("boxes", &model.bbox), ("masks", &model.segm)] {
        let Some(accuracy) = accuracy else { continue };
        writeln!(writer, "\n{}, {what}", printable(&model.name))?;
        let heading = ["instances", "AP", "AP50", "AP75", "small", "medium", "large", "AR100"];
        let mut rows = vec![row("class", heading)];
        rows.extend(accuracy.per_class.iter().map(|class| {
            let [ap @ .., _, _, ar100] = class.row();
            let figures = ap.into_iter().chain([ar100]).map(percent);
            row(&class.name, std::iter::once(class.instances.to_string()).chain(figures))
        }));
        write_columns(writer, &rows)?;
    }
    Ok(())
}

/// The heading of [`Accuracy::row`](super::Accuracy).
pub(super) const ACCURACY: [&str; 9] =
    ["AP", "AP50", "AP75", "small", "medium", "large", "AR1", "AR10", "AR100"];

/// Writes an indented table.
pub(super) fn write_columns(writer: &mut impl Write, rows: &[Vec<String>]) -> io::Result<()> {
    columns(rows, 1).lines().try_for_each(|line| writeln!(writer, "  {line}"))
}

pub(super) fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{:.1}", 100.0 * value))
}

fn points(value: f64) -> String {
    format!("{:+.1}", 100.0 * value)
}

fn fraction(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.3}"))
}
