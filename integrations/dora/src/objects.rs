//! Results as Arrow arrays: `std/vision/v1/Detection`, which every dataflow knows, and `ocelli/vision/v1/Objects`, which has
//! all of them.

use std::sync::Arc;

use dora_node_api::DoraArray;
use dora_node_api::arrow_v59::array::{
    Array, ArrayRef, Float32Array, LargeListArray, StringArray, StructArray, UInt32Array, UInt64Array,
};
use dora_node_api::arrow_v59::buffer::OffsetBuffer;
use dora_node_api::arrow_v59::datatypes::Field;
use ocelli::pipeline::FrameOutcome;
use ocelli::tracking::{Track, TrackState};
use ocelli::{BoundingBox, Detection, Error, ErrorKind, Mask, Result};

/// The detections as one `std/vision/v1/Detection`: boxes by their upper left corner, the highest score first.
///
/// # Errors
/// None for what a detector finds.
pub fn boxes(outcome: &FrameOutcome) -> Result<DoraArray> {
    let found = &outcome.detections;
    let side = |of: fn(&BoundingBox) -> f32| numbers(found.iter().map(|one| of(&one.bbox)));
    let boxes = table(vec![
        ("x", side(|bbox| bbox.x1)),
        ("y", side(|bbox| bbox.y1)),
        ("width", side(|bbox| bbox.x2 - bbox.x1)),
        ("height", side(|bbox| bbox.y2 - bbox.y1)),
        ("confidence", numbers(found.iter().map(|one| one.score))),
        ("label", texts(found.iter().map(|one| Some(&*one.label)))),
    ])?;
    Ok(DoraArray::from(table(vec![("boxes", list(boxes)?)])?))
}

/// All results as one `ocelli/vision/v1/Objects`.
///
/// # Errors
/// None for what a detector finds.
pub fn write(outcome: &FrameOutcome) -> Result<DoraArray> {
    let (found, tracks) = (&outcome.detections, &outcome.tracks);
    let track_of = |place: usize| tracks.iter().find(|track| track.detection == Some(place));
    let mut columns = corners(found.iter().map(|one| one.bbox));
    columns.extend([
        ("confidence", numbers(found.iter().map(|one| one.score))),
        ("label", texts(found.iter().map(|one| Some(&*one.label)))),
        ("class_id", ids(found.iter().map(|one| one.class_id))),
        ("track_id", track_ids((0..found.len()).map(|place| track_of(place).map(|track| track.id)))),
        ("mask", texts(found.iter().map(|one| one.mask.as_ref().map(Mask::counts)))),
    ]);
    let instances = table(columns)?;

    let label = |track: &Track| outcome.labels.get(track.class_id).map_or("", |label| &**label);
    let state = |track: &Track| if track.state == TrackState::Lost { "lost" } else { "tracked" };
    let mut columns = vec![("id", track_ids(tracks.iter().map(|track| Some(track.id))))];
    columns.extend(corners(tracks.iter().map(|track| track.bbox)));
    let place = |track: &Track| track.detection.and_then(|place| u32::try_from(place).ok());
    columns.extend([
        ("confidence", numbers(tracks.iter().map(|track| track.score))),
        ("label", texts(tracks.iter().map(|track| Some(label(track))))),
        ("class_id", ids(tracks.iter().map(|track| track.class_id))),
        ("state", texts(tracks.iter().map(|track| Some(state(track))))),
        ("instance", Arc::new(tracks.iter().map(place).collect::<UInt32Array>()) as ArrayRef),
    ]);
    let tracks = table(columns)?;

    let classes = texts(outcome.labels.iter().map(|label| Some(&**label)));
    Ok(DoraArray::from(table(vec![
        ("width", Arc::new(UInt32Array::from(vec![outcome.size.0]))),
        ("height", Arc::new(UInt32Array::from(vec![outcome.size.1]))),
        ("classes", list(classes)?),
        ("instances", list(instances)?),
        ("tracks", list(tracks)?),
    ])?))
}

/// The results of a message of [`write`].
///
/// # Errors
/// [`ErrorKind::InvalidData`] for a message of another type, and for a mask that is corrupt.
pub fn read(array: &dyn Array) -> Result<FrameOutcome> {
    let Some(message) = array.as_any().downcast_ref::<StructArray>().filter(|message| message.len() == 1)
    else {
        let found = array.data_type();
        return Err(invalid(format!(
            "{} of the type {found}: expected one ocelli/vision/v1/Objects",
            array.len()
        )));
    };
    let size = |name| column::<UInt32Array>(message, name).map(|side| side.value(0));
    let mut outcome = FrameOutcome::default();
    outcome.size = (size("width")?, size("height")?);
    outcome.detected = true;
    let inner = |name| column::<LargeListArray>(message, name).map(|list| list.value(0));
    let classes = inner("classes")?;
    let classes = downcast::<StringArray>(&classes, "classes")?;
    outcome.labels = classes.iter().flatten().map(Arc::from).collect();

    let instances = inner("instances")?;
    let instances = downcast::<StructArray>(&instances, "instances")?;
    let rows = Rows::of(instances)?;
    let masks: &StringArray = column(instances, "mask")?;
    for row in 0..instances.len() {
        let mask =
            masks.is_valid(row).then(|| Mask::from_counts(masks.value(row), outcome.size.0, outcome.size.1));
        outcome.detections.push(Detection {
            class_id: rows.class_ids.value(row) as usize,
            label: rows.labels.value(row).into(),
            score: rows.scores.value(row),
            bbox: rows.bbox(row),
            mask: mask.transpose()?,
        });
    }

    let tracks = inner("tracks")?;
    let tracks = downcast::<StructArray>(&tracks, "tracks")?;
    let rows = Rows::of(tracks)?;
    let track_ids: &UInt64Array = column(tracks, "id")?;
    let states: &StringArray = column(tracks, "state")?;
    let places: &UInt32Array = column(tracks, "instance")?;
    for row in 0..tracks.len() {
        outcome.tracks.push(Track {
            id: track_ids.value(row),
            class_id: rows.class_ids.value(row) as usize,
            score: rows.scores.value(row),
            bbox: rows.bbox(row),
            // These are not sent.
            age_frames: 0.0,
            hits: 1,
            velocity: [0.0; 2],
            frames_since_seen: 0.0,
            state: if states.value(row) == "lost" { TrackState::Lost } else { TrackState::Tracked },
            detection: places.is_valid(row).then(|| places.value(row) as usize),
        });
    }
    Ok(outcome)
}

/// The columns that instances and tracks share.
struct Rows<'a> {
    corners: [&'a Float32Array; 4],
    scores: &'a Float32Array,
    labels: &'a StringArray,
    class_ids: &'a UInt32Array,
}

impl<'a> Rows<'a> {
    fn of(table: &'a StructArray) -> Result<Self> {
        let corner = |name| column(table, name);
        Ok(Self {
            corners: [corner("x1")?, corner("y1")?, corner("x2")?, corner("y2")?],
            scores: column(table, "confidence")?,
            labels: column(table, "label")?,
            class_ids: column(table, "class_id")?,
        })
    }

    fn bbox(&self, row: usize) -> BoundingBox {
        self.corners.map(|corner| corner.value(row)).into()
    }
}

type Columns = Vec<(&'static str, ArrayRef)>;

fn corners(boxes: impl Iterator<Item = BoundingBox> + Clone) -> Columns {
    vec![
        ("x1", numbers(boxes.clone().map(|bbox| bbox.x1))),
        ("y1", numbers(boxes.clone().map(|bbox| bbox.y1))),
        ("x2", numbers(boxes.clone().map(|bbox| bbox.x2))),
        ("y2", numbers(boxes.map(|bbox| bbox.y2))),
    ]
}

fn numbers(values: impl Iterator<Item = f32>) -> ArrayRef {
    Arc::new(Float32Array::from_iter_values(values))
}

fn ids(values: impl Iterator<Item = usize>) -> ArrayRef {
    Arc::new(values.map(|id| u32::try_from(id).ok()).collect::<UInt32Array>())
}

fn track_ids(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.collect::<UInt64Array>())
}

fn texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

/// Columns of one length, whose values may be null, as dora's types have them.
fn table(columns: Columns) -> Result<ArrayRef> {
    let fields: Vec<Field> =
        columns.iter().map(|(name, values)| Field::new(*name, values.data_type().clone(), true)).collect();
    let values = columns.into_iter().map(|(_, values)| values).collect();
    let table =
        StructArray::try_new(fields.into(), values, None).map_err(|error| invalid(error.to_string()))?;
    Ok(Arc::new(table))
}

/// One list of all values: dora's `List<T>`.
fn list(values: ArrayRef) -> Result<ArrayRef> {
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    let list = LargeListArray::try_new(item, OffsetBuffer::from_lengths([values.len()]), values, None)
        .map_err(|error| invalid(error.to_string()))?;
    Ok(Arc::new(list))
}

fn column<'a, T: 'static>(table: &'a StructArray, name: &str) -> Result<&'a T> {
    let column = table.column_by_name(name);
    downcast(column.ok_or_else(|| invalid(format!("objects without the field {name}")))?, name)
}

fn downcast<'a, T: 'static>(array: &'a ArrayRef, name: &str) -> Result<&'a T> {
    let found = array.data_type();
    array
        .as_any()
        .downcast_ref()
        .ok_or_else(|| invalid(format!("objects, field {name}: unexpected type {found}")))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use ocelli::report::FrameReport;
    use ocelli::tracking::{ByteTracker, ByteTrackerOptions, TrackerDetection};

    use super::*;

    fn outcome() -> FrameOutcome {
        let mut outcome = FrameOutcome::default();
        outcome.size = (4, 2);
        outcome.detected = true;
        outcome.labels = ["red apple", "dog"].map(Arc::from).into();
        let mask = Mask::from_bitmap(&[1, 1, 0, 0, 1, 1, 0, 0], 4, 2).expect("eight pixels");
        let bbox = BoundingBox::new(0.1, 0.2, 2.3, 2.4);
        outcome.detections = vec![
            Detection { class_id: 1, label: "dog".into(), score: 0.9, bbox, mask: Some(mask) },
            Detection { class_id: 0, label: "red apple".into(), score: 0.3, bbox, mask: None },
        ];
        let mut tracker = ByteTracker::new(ByteTrackerOptions::default()).expect("the defaults");
        let found = TrackerDetection { bbox, score: 0.9, class_id: 1 };
        tracker.update(&[found], 1.0);
        outcome.tracks = tracker.update(&[found], 1.0).to_vec();
        let lost = Track { id: 7, state: TrackState::Lost, detection: None, ..outcome.tracks[0] };
        outcome.tracks.push(lost);
        outcome
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let mut empty = FrameOutcome::default();
        empty.detected = true;
        for outcome in [outcome(), empty] {
            let read = read(write(&outcome).expect("columns of one length").as_array()).expect("the type");
            assert_eq!(FrameReport::from(&read), FrameReport::from(&outcome));
        }
        let other = boxes(&outcome()).expect("columns of one length");
        let error = read(other.as_array()).expect_err("another type").to_string();
        assert!(error.contains("without the field width"), "{error}");
    }

    #[test]
    fn the_types_are_those_that_dataflows_declare() {
        // As `dora_core::types` resolves them: lists are large, everything may be null.
        let boxes = boxes(&outcome()).expect("columns of one length");
        let expected = "Struct(\"boxes\": LargeList(Struct(\"x\": Float32, \"y\": Float32, \"width\": Float32, \
                        \"height\": Float32, \"confidence\": Float32, \"label\": Utf8)))";
        assert_eq!(boxes.as_array().data_type().to_string(), expected);
        let declared = include_str!("../types/ocelli/vision/v1.yml");
        let objects = write(&outcome()).expect("columns of one length");
        let objects = objects.as_array().as_any().downcast_ref::<StructArray>().expect("a struct");
        let mut names: Vec<String> = Vec::new();
        for list in ["instances", "tracks"] {
            let list: &LargeListArray = column(objects, list).expect("a list");
            let values = list.values().as_any().downcast_ref::<StructArray>().expect("structs");
            names.extend(
                values.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())),
            );
        }
        let mut found = Vec::new();
        let mut lines = declared.lines().map(|line| line.trim().trim_start_matches("- "));
        while let Some(line) = lines.next() {
            let Some(name) = line.strip_prefix("name: ") else { continue };
            let kind = lines.next().and_then(|line| line.strip_prefix("type: ")).expect("a type");
            found.push(format!("{} {kind}", name.trim_matches('"')));
        }
        assert_eq!(found[..names.len()], names);
        let all = objects.fields().iter().map(|field| field.name().as_str());
        let declared = found[names.len()..].iter().map(|field| field.split(' ').next().unwrap_or_default());
        assert!(all.eq(declared), "{found:?}");
    }
}
