//! The report of an evaluation of videos.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use ocelli::{Error, ErrorKind, Result};

use super::{CgF1, JAndF, TrackCounts, TrackFigures, VideoFormat};
use crate::eval::Accuracy;
use crate::eval::table::{percent, printable, write_columns};

/// The figures that the ground truth's format has; the others are `None`. Figures are 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VideoReport {
    /// The files or the folder of ground truth.
    pub truth: String,
    /// The file or folder of predictions.
    pub predictions: String,
    /// The format of the ground truth.
    pub format: VideoFormat,
    /// What was not evaluated, and why; how classes were understood.
    pub notes: Vec<String>,
    /// HOTA, MOTA and IDF1 of tracks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracks: Option<TrackReport>,
    /// Average precision of YouTube-VIS: of tracks' masks, over all frames. Small tracks have a mean of less than 128² pixels,
    /// large ones of more than 256².
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segm: Option<Accuracy>,
    /// J and F of DAVIS with the ids of the ground truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semi_supervised: Option<JAndF>,
    /// J and F of DAVIS with any ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupervised: Option<JAndF>,
    /// SA-Co's figures of boxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgf1_bbox: Option<CgF1>,
    /// SA-Co's figures of masks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgf1_segm: Option<CgF1>,
}

/// The figures of tracks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrackReport {
    /// All sequences and classes together: their counts are added.
    pub all: TrackFigures,
    /// Each sequence, if there are text files for each.
    pub per_sequence: Vec<NamedFigures>,
    /// Each class, if the format has classes.
    pub per_class: Vec<NamedFigures>,
}

/// The figures of one sequence or class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedFigures {
    /// The name of the sequence or class.
    pub name: String,
    /// The figures.
    #[serde(flatten)]
    pub figures: TrackFigures,
}

impl TrackReport {
    pub(super) fn new(
        truth: &Path,
        sequences: Vec<(String, TrackCounts)>,
        classes: Vec<(String, TrackCounts)>,
    ) -> Result<Self> {
        let parts = if sequences.is_empty() { &classes } else { &sequences };
        let all: TrackCounts = parts.iter().map(|(_, counts)| counts.clone()).sum();
        let all = all.figures();
        if all.objects == 0 {
            let message = format!(
                "the ground truth, {}: no object in it counts; in MOTChallenge text those count whose seventh number is 1 or more \
                 and, if there are classes, whose class is 1",
                truth.display()
            );
            return Err(Error::new(ErrorKind::InvalidData, message));
        }
        let named = |list: Vec<(String, TrackCounts)>| -> Vec<NamedFigures> {
            list.into_iter().map(|(name, counts)| NamedFigures { name, figures: counts.figures() }).collect()
        };
        Ok(Self { all, per_sequence: named(sequences), per_class: named(classes) })
    }
}

impl VideoReport {
    /// Writes the report as one line of JSON.
    ///
    /// # Errors
    /// Errors of `writer`.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut writer, self)?;
        writer.write_all(b"\n")
    }
}

/// Writes a report as text: the files, the notes, and a table for each kind of figures, in percent. With `per_class`, a row for
/// each class or object.
///
/// # Errors
/// Errors of `writer`.
pub fn write_video_report(mut writer: impl Write, report: &VideoReport, per_class: bool) -> io::Result<()> {
    let VideoReport { truth, predictions, format, .. } = report;
    writeln!(writer, "{}   {}", printable(truth), format.name())?;
    writeln!(writer, "{}", printable(predictions))?;
    for note in &report.notes {
        writeln!(writer, "note: {}", printable(note))?;
    }
    let mut tables = Vec::new();
    if let Some(accuracy) = &report.segm {
        tables.push(precision_table(accuracy, per_class));
    }
    if let Some(tracks) = &report.tracks {
        tables.push(track_table(tracks, per_class));
    }
    let tasks = [("given ids", &report.semi_supervised), ("any ids", &report.unsupervised)];
    if tasks.iter().any(|(_, figures)| figures.is_some()) {
        tables.push(boundary_table(tasks, per_class));
    }
    let overlaps = [("boxes", &report.cgf1_bbox), ("masks", &report.cgf1_segm)];
    if overlaps.iter().any(|(_, figures)| figures.is_some()) {
        tables.push(cgf1_table(overlaps));
    }
    for table in tables {
        writeln!(writer)?;
        write_columns(&mut writer, &table)?;
    }
    Ok(())
}

type Table = Vec<Vec<String>>;

fn row<'c>(name: &str, cells: impl IntoIterator<Item = &'c str>) -> Vec<String> {
    std::iter::once(printable(name)).chain(cells.into_iter().map(str::to_owned)).collect()
}

fn figures(name: &str, values: impl IntoIterator<Item = Option<f64>>) -> Vec<String> {
    std::iter::once(printable(name)).chain(values.into_iter().map(percent)).collect()
}

fn precision_table(accuracy: &Accuracy, per_class: bool) -> Table {
    let mut table = vec![row("", ["AP", "AP50", "AP75", "small", "medium", "large", "AR1", "AR10", "AR100"])];
    let Accuracy { ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1, ar10, ar100, .. } = *accuracy;
    table.push(figures("tracks' masks", [ap, ap50, ap75, ap_small, ap_medium, ap_large, ar1, ar10, ar100]));
    for class in accuracy.per_class.iter().filter(|_| per_class) {
        let known = [class.ap, class.ap50, class.ap75, class.ap_small, class.ap_medium, class.ap_large];
        table.push(figures(&class.name, known.into_iter().chain([None, None, class.ar100])));
    }
    table
}

fn track_table(tracks: &TrackReport, per_class: bool) -> Table {
    let heading = ["HOTA", "DetA", "AssA", "LocA", "MOTA", "MOTP", "IDF1", "objects", "FP", "FN", "switches"];
    let mut table = vec![row("", heading)];
    let mut add = |name: &str, of: &TrackFigures| {
        let shares = [of.hota, of.det_a, of.ass_a, of.loc_a, of.mota, of.motp, of.idf1];
        // Without an object they say nothing.
        let shares = shares.map(|share| (of.objects > 0).then_some(share));
        let counts = [of.objects, of.false_positives, of.false_negatives, of.id_switches];
        let mut line = figures(name, shares);
        line.extend(counts.map(|count| count.to_string()));
        table.push(line);
    };
    add("tracks", &tracks.all);
    let sequences = tracks.per_sequence.iter().filter(|_| tracks.per_sequence.len() > 1);
    for one in sequences.chain(tracks.per_class.iter().filter(|_| per_class)) {
        add(&one.name, &one.figures);
    }
    table
}

fn boundary_table(tasks: [(&str, &Option<JAndF>); 2], per_object: bool) -> Table {
    let heading = ["J&F", "J", "J recall", "J decay", "F", "F recall", "F decay"];
    let mut table = vec![row("", heading)];
    for (name, all) in tasks.into_iter().filter_map(|(name, figures)| Some((name, figures.as_ref()?))) {
        let objects = all.objects.iter().filter(|_| per_object);
        let objects = objects.map(|one| (format!("{} {}", one.sequence, one.object), &one.figures));
        for (name, of) in std::iter::once((name.to_owned(), &all.figures)).chain(objects) {
            let values = [of.j_and_f, of.j_mean, of.j_recall, of.j_decay, of.f_mean, of.f_recall, of.f_decay]
                .map(Some);
            table.push(figures(&name, values));
        }
    }
    table
}

fn cgf1_table(overlaps: [(&str, &Option<CgF1>); 2]) -> Table {
    let heading =
        ["cgF1", "cgF1@50", "cgF1@75", "IL_MCC", "pmF1", "pmF1@50", "pmF1@75", "prompts", "positive"];
    let mut table = vec![row("", heading)];
    for (name, of) in overlaps.into_iter().filter_map(|(name, figures)| Some((name, figures.as_ref()?))) {
        let micro = [of.positive_micro_f1, of.positive_micro_f1_50, of.positive_micro_f1_75];
        let mut line = figures(name, [of.cgf1, of.cgf1_50, of.cgf1_75].map(Some));
        // Published as a fraction.
        line.push(format!("{:.3}", of.il_mcc));
        line.extend(micro.map(|share| percent(Some(share))));
        line.extend([of.cases, of.positive_cases].map(|count| count.to_string()));
        table.push(line);
    }
    table
}
