//! The report of an evaluation of videos.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use ocelli::{Error, Result};

use super::{CgF1, JAndF, JAndFFigures, TrackCounts, TrackFigures, VideoFormat};
use crate::eval::Accuracy;
use crate::eval::table::{ACCURACY, percent, write_columns};
use crate::table::{printable, row};

/// The figures that the ground truth's format has; the others are `None`. Figures are 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VideoReport {
    /// The files or the folder of ground truth.
    pub truth: String,
    /// The file or folder of predictions.
    pub predictions: String,
    /// The format of the ground truth.
    pub format: VideoFormat,
    /// Notes on what was not evaluated, and why; how classes were understood.
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
            return Err(Error::invalid_data(format!(
                "the ground truth, {}: no object in it counts; in MOTChallenge text those count whose seventh number is 1 or more \
                 and, if there are classes, whose class is 1",
                truth.display()
            )));
        }
        let named = |list: Vec<(String, TrackCounts)>| -> Vec<NamedFigures> {
            list.into_iter().map(|(name, counts)| NamedFigures { name, figures: counts.figures() }).collect()
        };
        Ok(Self { all, per_sequence: named(sequences), per_class: named(classes) })
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
    let tasks = [("given ids", &report.semi_supervised), ("any ids", &report.unsupervised)];
    let overlaps = [("boxes", &report.cgf1_bbox), ("masks", &report.cgf1_segm)];
    let tables = [
        report.segm.as_ref().map(|accuracy| precision_table(accuracy, per_class)),
        report.tracks.as_ref().map(|tracks| track_table(tracks, per_class)),
        Some(boundary_table(tasks, per_class)),
        Some(cgf1_table(overlaps)),
    ];
    // A table that has its heading alone has no figures.
    for table in tables.into_iter().flatten().filter(|table| table.len() > 1) {
        writeln!(writer)?;
        write_columns(&mut writer, &table)?;
    }
    Ok(())
}

type Table = Vec<Vec<String>>;

fn precision_table(accuracy: &Accuracy, per_class: bool) -> Table {
    let mut table = vec![row("", ACCURACY), row("tracks' masks", accuracy.row().map(percent))];
    let classes = accuracy.per_class.iter().filter(|_| per_class);
    table.extend(classes.map(|class| row(&class.name, class.row().map(percent))));
    table
}

fn track_table(tracks: &TrackReport, per_class: bool) -> Table {
    let heading = ["HOTA", "DetA", "AssA", "LocA", "MOTA", "MOTP", "IDF1", "objects", "FP", "FN", "switches"];
    let mut table = vec![row("", heading)];
    let mut add = |name: &str, of: &TrackFigures| {
        let shares = [of.hota, of.det_a, of.ass_a, of.loc_a, of.mota, of.motp, of.idf1];
        // Without an object they say nothing.
        let shares = shares.map(|share| percent((of.objects > 0).then_some(share)));
        let counts = [of.objects, of.false_positives, of.false_negatives, of.id_switches];
        table.push(row(name, shares.into_iter().chain(counts.map(|count| count.to_string()))));
    };
    add("tracks", &tracks.all);
    let sequences = tracks.per_sequence.iter().filter(|_| tracks.per_sequence.len() > 1);
    for one in sequences.chain(tracks.per_class.iter().filter(|_| per_class)) {
        add(&one.name, &one.figures);
    }
    table
}

fn boundary_table(tasks: [(&str, &Option<JAndF>); 2], per_object: bool) -> Table {
    let mut table = vec![row("", ["J&F", "J", "J recall", "J decay", "F", "F recall", "F decay"])];
    let figures = |name: &str, of: &JAndFFigures| row(name, of.row().map(|value| percent(Some(value))));
    for (name, all) in tasks.into_iter().filter_map(|(name, figures)| Some((name, figures.as_ref()?))) {
        table.push(figures(name, &all.figures));
        let objects = all.objects.iter().filter(|_| per_object);
        table.extend(objects.map(|one| figures(&format!("{} {}", one.sequence, one.object), &one.figures)));
    }
    table
}

fn cgf1_table(overlaps: [(&str, &Option<CgF1>); 2]) -> Table {
    let heading =
        ["cgF1", "cgF1@50", "cgF1@75", "IL_MCC", "pmF1", "pmF1@50", "pmF1@75", "prompts", "positive"];
    let mut table = vec![row("", heading)];
    for (name, of) in overlaps.into_iter().filter_map(|(name, figures)| Some((name, figures.as_ref()?))) {
        let percent = |value: f64| percent(Some(value));
        let micro = [of.positive_micro_f1, of.positive_micro_f1_50, of.positive_micro_f1_75].map(percent);
        let counts = [of.cases, of.positive_cases].map(|count| count.to_string());
        // Published as a fraction.
        let il_mcc = format!("{:.3}", of.il_mcc);
        let shares = [of.cgf1, of.cgf1_50, of.cgf1_75].map(percent).into_iter();
        table.push(row(name, shares.chain([il_mcc]).chain(micro).chain(counts)));
    }
    table
}
