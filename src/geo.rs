//! Where the pixels of a GeoTIFF are on Earth, and detections as GeoJSON.
//!
//! A [`GeoReference`] is read from the tags of a file (GeoTIFF 1.1, OGC 19-008r4). Features have the raster's own coordinates:
//! GeoJSON (RFC 7946) means WGS 84, longitude and latitude; a collection in another coordinate system says so in the member
//! `crs` of GeoJSON 2008, which GDAL, QGIS and PostGIS read.

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use crate::detection::Detection;
use crate::mask::{Mask, Outline};
use ocelli_error::{Error, Result};
use ocelli_images::rows::{TiffTags, has_tiff_start};

/// Tags of GeoTIFF.
const PIXEL_SCALE: u16 = 33550;
const TIE_POINTS: u16 = 33922;
const TRANSFORMATION: u16 = 34264;
const KEY_DIRECTORY: u16 = 34735;
/// Keys of the directory, and values of theirs.
const MODEL_TYPE: u16 = 1024;
const RASTER_TYPE: u16 = 1025;
const GEODETIC_CRS: u16 = 2048;
const PROJECTED_CRS: u16 = 3072;
const PROJECTED: f64 = 1.0;
const GEODETIC: f64 = 2.0;
const PIXEL_IS_POINT: f64 = 2.0;
/// A coordinate system that the file describes by parameters.
const USER_DEFINED: f64 = 32767.0;
/// WGS 84, longitude and latitude.
const WGS_84: u32 = 4326;
/// Decimals of coordinates: a tenth of a millimetre.
const DECIMALS_OF_DEGREES: i32 = 9;
const DECIMALS_OF_LENGTHS: i32 = 4;
/// Scores are rounded to one of so many steps.
const SCORE_STEPS: f64 = 1e4;

/// The coordinate system of a raster, and the place of its pixels in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoReference {
    epsg: u32,
    is_geodetic: bool,
    /// Rows of the affine transformation of pixel corners: x = a·column + b·row + c, and y likewise.
    affine: [[f64; 3]; 2],
}

impl GeoReference {
    /// Reads the tags of a file.
    ///
    /// # Errors
    /// [`Io`](ocelli_error::ErrorKind::Io) if it cannot be read, [`InvalidData`](ocelli_error::ErrorKind::InvalidData)
    /// if it is no GeoTIFF, if pixels are placed by control points
    /// alone, or if its coordinate system has no EPSG code.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Error::io("cannot read the image", path, error))?;
        let refuse = |why: &str| Error::invalid_data(format!("georeference, {name}: {why}"));
        if !has_tiff_start(&file).map_err(|error| Error::io("cannot read the image", path, error))? {
            return Err(refuse("it is no GeoTIFF, so nothing says where its pixels are on Earth"));
        }
        let mut tags = TiffTags::open(&file, &name)?;
        let mut read = |tag| tags.numbers(tag);
        let (scale, points) = (read(PIXEL_SCALE)?, read(TIE_POINTS)?);
        let (matrix, keys) = (read(TRANSFORMATION)?, read(KEY_DIRECTORY)?);
        Self::from_tags(scale.as_deref(), points.as_deref(), matrix.as_deref(), keys.as_deref())
            .map_err(refuse)
    }

    /// From the numbers of the tags.
    fn from_tags(
        scale: Option<&[f64]>,
        points: Option<&[f64]>,
        matrix: Option<&[f64]>,
        keys: Option<&[f64]>,
    ) -> std::result::Result<Self, &'static str> {
        let affine = match (matrix, scale, points) {
            (Some(&[a, b, _, c, d, e, _, f, ..]), ..) => [[a, b, c], [d, e, f]],
            (None, Some(&[across, down, ..]), Some(&[column, row, _, x, y, _, ..])) => {
                [[across, 0.0, x - column * across], [0.0, -down, y + row * down]]
            }
            (None, None, Some(_)) => {
                return Err("control points place its pixels; rectify it first, for instance with gdalwarp");
            }
            _ => return Err("it has no GeoTIFF tags, so nothing says where its pixels are on Earth"),
        };
        let [[a, b, _], [d, e, _]] = affine;
        if affine.as_flattened().iter().any(|number| !number.is_finite()) || a * e - b * d == 0.0 {
            return Err("its transformation is corrupt");
        }
        // After a header of four numbers: key, place, count, value; a place of 0 is the entry itself.
        let keys = keys.unwrap_or_default();
        let key = |wanted: u16| {
            let entries = keys.get(4..).unwrap_or_default().chunks_exact(4);
            entries
                .into_iter()
                .find(|entry| entry[0] == f64::from(wanted) && entry[1] == 0.0)
                .map(|entry| entry[3])
        };
        let (code, is_geodetic) = match key(MODEL_TYPE) {
            Some(PROJECTED) => (key(PROJECTED_CRS), false),
            Some(GEODETIC) => (key(GEODETIC_CRS), true),
            _ => (None, false),
        };
        let Some(code) = code.filter(|&code| code > 0.0 && code != USER_DEFINED) else {
            return Err(
                "its coordinate system has no EPSG code; assign one, for instance with gdal_edit.py -a_srs",
            );
        };
        let whole = Self { epsg: code as u32, is_geodetic, affine };
        // The tags of such files are about the middles of pixels.
        Ok(if key(RASTER_TYPE) == Some(PIXEL_IS_POINT) { whole.shifted(-0.5) } else { whole })
    }

    fn shifted(mut self, pixels: f64) -> Self {
        for [a, b, c] in &mut self.affine {
            *c += pixels * (*a + *b);
        }
        self
    }

    /// The EPSG code of the coordinate system.
    pub fn epsg(&self) -> u32 {
        self.epsg
    }

    /// The coordinates of a pixel corner: east and north, or longitude and latitude.
    pub fn coordinates(&self, [column, row]: [f32; 2]) -> [f64; 2] {
        let (column, row) = (f64::from(column), f64::from(row));
        let factor = 10f64.powi(if self.is_geodetic { DECIMALS_OF_DEGREES } else { DECIMALS_OF_LENGTHS });
        // A zero without a sign.
        self.affine.map(|[a, b, c]| ((a * column + b * row + c) * factor).round() / factor + 0.0)
    }

    /// A closed ring: outer ones run anticlockwise, holes clockwise.
    fn ring(&self, points: &[[f32; 2]], is_hole: bool) -> Vec<[f64; 2]> {
        let mut ring: Vec<[f64; 2]> = points.iter().map(|&point| self.coordinates(point)).collect();
        let pairs = ring.iter().zip(ring.iter().cycle().skip(1));
        let doubled_area: f64 = pairs.map(|(a, b)| (b[0] - a[0]) * (b[1] + a[1])).sum();
        if (doubled_area > 0.0) != is_hole {
            ring.reverse();
        }
        ring.extend(ring.first().copied());
        ring
    }

    /// A detection as a GeoJSON feature: the outline of its mask, whose points lie within `tolerance` pixels, or else its box.
    /// The properties are `label`, `class_id`, `score` and those of `more`.
    pub fn feature(&self, detection: &Detection, tolerance: f32, more: &[(&str, Value)]) -> Value {
        let polygon = |(part, holes): (Outline, Vec<Outline>)| {
            let ring = |outline: &Outline| self.ring(&outline.simplified(tolerance).points, outline.is_hole);
            [part].iter().chain(&holes).map(ring).collect::<Vec<_>>()
        };
        let mut polygons: Vec<Vec<Vec<[f64; 2]>>> =
            detection.mask.iter().flat_map(Mask::parts).map(polygon).collect();
        if polygons.is_empty() {
            let [x1, y1, x2, y2] = detection.bbox.to_xyxy();
            polygons.push(vec![self.ring(&[[x1, y1], [x2, y1], [x2, y2], [x1, y2]], false)]);
        }
        let geometry = match polygons.as_slice() {
            [one] => json!({"type": "Polygon", "coordinates": one}),
            several => json!({"type": "MultiPolygon", "coordinates": several}),
        };
        let mut properties = json!({
            "label": &*detection.label,
            "class_id": detection.class_id,
            "score": (f64::from(detection.score) * SCORE_STEPS).round() / SCORE_STEPS,
        });
        more.iter().for_each(|(name, value)| properties[*name] = value.clone());
        json!({"type": "Feature", "geometry": geometry, "properties": properties})
    }

    /// Features as a GeoJSON document, with the member `crs` unless the coordinates are WGS 84.
    pub fn collection(&self, features: Vec<Value>) -> Value {
        let mut collection = json!({"type": "FeatureCollection"});
        if self.epsg != WGS_84 {
            let name = format!("urn:ogc:def:crs:EPSG::{}", self.epsg);
            collection["crs"] = json!({"type": "name", "properties": {"name": name}});
        }
        collection["features"] = features.into();
        collection
    }
}

#[cfg(test)]
mod tests;
