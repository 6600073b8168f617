//! Files of formats that are not named any more would describe an earlier image: those that are ours are removed.

use std::path::Path;

use ocelli::Result;

use super::Placer;
use crate::label::store::Owner;
use crate::label::store::layout::{COPIES, copy_name, is_dropped};
use crate::label::{Format, ImageMode, disk, identity};

impl Placer {
    /// Removes the files and images of formats that are not named any more, if they are ours. Returns them.
    pub fn remove_dropped(&mut self) -> Result<Vec<String>> {
        let options = self.options.clone();
        let mut removed = self.state.existing_of(Owner::Ours, |file| is_dropped(&options, file))?;
        for file in &removed {
            self.state.remove(file)?;
        }
        self.state.commit()?;
        removed.iter().for_each(|file| self.state.remove_old_copies(file));
        let is_kept = |folder: &str| match folder.split('/').next() {
            Some("segments") => options.yolo_folders().len() == 2,
            Some("voc") => options.has(Format::Voc),
            _ => options.images == ImageMode::None || !self.image_folders().is_empty(),
        };
        for folder in
            COPIES.into_iter().filter(|folder| !is_kept(folder) && self.state.root.join(folder).is_dir())
        {
            for (name, image) in &self.state.images {
                let file = format!("{folder}/{}", copy_name(name));
                let path = self.state.root.join(&file);
                let Ok(there) = path.symlink_metadata() else { continue };
                // A copy may be all there is of an image.
                let is_ours = || {
                    identity(Path::new(&image.source)) != (0, 0) && self.state.is_image_of(&path, name, [])
                };
                if there.is_symlink() || there.is_file() && is_ours() {
                    disk::remove(&path)?;
                    removed.push(file);
                }
            }
        }
        if !removed.is_empty() {
            // An empty folder of masks says that there are no instances.
            let masks = (!options.has(Format::Masks)).then_some("masks");
            for folder in ["labels", "images", "segments", "voc", "added"].into_iter().chain(masks) {
                disk::remove_empty_folders(&self.state.root.join(folder));
            }
            self.folders.clear();
        }
        Ok(removed)
    }
}
