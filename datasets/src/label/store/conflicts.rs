//! A run must not write over corrected files that have another format or other classes than its own.

use ocelli::{Error, Result};

use crate::label::store::layout::{PROPOSALS, is_dropped, meaning_of};
use crate::label::store::{COCO_FILE, ClassHashes, Event, Owner, State, WHOLE_FILES, label_files};
use crate::label::{DataSetOptions, ImageSet};
use crate::table::some;

/// Images that a message names.
const NAMED: usize = 10;

/// Refuses to write over corrected files and saved labels that have another format or other classes, and to leave those behind
/// whose format is not named any more: nothing would say that they describe an earlier image.
pub(crate) fn check_conflicts(
    state: &State,
    classes: &ClassHashes,
    way_out: &str,
    options: &DataSetOptions,
) -> Result<()> {
    let mut conflicts = state.conflicts(classes, |file| meaning_of(options, classes.all, file))?;
    let is_dropped = |file: &str| is_dropped(options, file) && !file.starts_with(PROPOSALS);
    conflicts.extend(state.existing_of(Owner::Person, is_dropped)?);
    let lost = state.lost_saved(options, classes);
    if !lost.is_empty() {
        conflicts.push(format!("{COCO_FILE} (what was saved for {})", some(&lost, NAMED)));
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    let message = format!(
        "cannot write the data set, {}: these files were corrected by hand and have another format or other classes: {}; {way_out}",
        state.root.display(),
        conflicts.join(", ")
    );
    Err(Error::mismatch(message))
}

/// Makes every file ours, whoever wrote it, and forgets what a person saved.
pub(crate) fn discard_corrections(
    state: &mut State,
    options: &DataSetOptions,
    classes: &ClassHashes,
    whole: &ImageSet,
) -> Result<()> {
    let both = |name: &str| [false, true].map(|split| label_files(options, name, split));
    let files = whole.files().iter().flat_map(|file| both(&file.name).into_iter().flatten());
    let files = files.map(|(file, _)| file);
    let others = ["", "segments/"]
        .into_iter()
        .flat_map(|below| ["classes.txt", "data.yaml"].map(|name| format!("{below}{name}")))
        .chain(WHOLE_FILES.map(|(file, ..)| file.to_owned()));
    let meant = |file: String| meaning_of(options, classes.all, &file).map(|meaning| (file, meaning));
    state.discard_corrections(files.chain(others).filter_map(meant))?;
    if state.saved.is_empty() { Ok(()) } else { state.append(Event::Discarded) }
}
