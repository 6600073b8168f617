//! `--geojson`.

use std::path::{Path, PathBuf};

use ocelli::atomic_file::write_atomically;
use ocelli::geo::GeoReference;
use ocelli::{Detection, Result};
use serde_json::Value;

use super::POLYGON_TOLERANCE;
use crate::output::{with_flag, write_json};
use crate::{check_output_file, interrupted};

/// The features of all rasters, in one coordinate system.
pub struct GeoJson {
    path: PathBuf,
    /// One for each raster.
    places: Vec<GeoReference>,
    features: Vec<Value>,
}

impl GeoJson {
    /// Reads where the pixels of the rasters are, before the work begins.
    ///
    /// # Errors
    /// As [`GeoReference::open`]; rasters in different coordinate systems, which one file cannot hold.
    pub fn plan(path: &Path, rasters: &[PathBuf]) -> anyhow::Result<Self> {
        check_output_file("--geojson", path)?;
        let mut places = Vec::with_capacity(rasters.len());
        for raster in rasters {
            interrupted()?;
            places.push(GeoReference::open(raster).map_err(with_flag("--geojson"))?);
        }
        let first = places.first().map(GeoReference::epsg);
        let other = places.iter().zip(rasters).find(|(place, _)| Some(place.epsg()) != first);
        if let (Some((place, raster)), Some(first)) = (other, first) {
            refuse!(
                "--geojson, {}: its coordinate system is EPSG:{}, that of {} is EPSG:{first}; a file has one, so detect in \
                 them one by one",
                raster.display(),
                place.epsg(),
                rasters[0].display()
            );
        }
        Ok(Self { path: path.to_owned(), places, features: Vec::new() })
    }

    /// Adds what was found in a raster.
    pub fn add(&mut self, number: usize, raster: &Path, found: &[Detection]) {
        let image = Value::from(raster.to_string_lossy());
        let feature = |detection| {
            self.places[number].feature(detection, POLYGON_TOLERANCE, &[("image", image.clone())])
        };
        self.features.extend(found.iter().map(feature));
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self) -> Result<&Path> {
        if let Some(place) = self.places.first() {
            let collection = place.collection(self.features.clone());
            write_atomically(&self.path, |file| write_json(file, &collection))?;
        }
        Ok(&self.path)
    }
}
