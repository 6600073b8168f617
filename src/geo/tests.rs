use ocelli_tracking::BoundingBox;

use ocelli_error::ErrorKind;

use super::*;

const SCALE: [f64; 3] = [0.5, 0.25, 0.0];
const POINT: [f64; 6] = [0.0, 0.0, 0.0, 400_000.0, 5_700_000.0, 0.0];

/// The directory of keys: entries of key and value.
fn keys(entries: &[(u16, f64)]) -> Vec<f64> {
    let entries = entries.iter().flat_map(|&(key, value)| [f64::from(key), 0.0, 1.0, value]);
    [1.0, 1.0, 0.0, 0.0].into_iter().chain(entries).collect()
}

fn utm() -> Vec<f64> {
    keys(&[(MODEL_TYPE, PROJECTED), (RASTER_TYPE, 1.0), (PROJECTED_CRS, 25832.0)])
}

#[test]
fn pixels_are_placed_by_the_tags() {
    let of = |scale: Option<&[f64]>, points: Option<&[f64]>, matrix: Option<&[f64]>, keys: &[f64]| {
        let found = GeoReference::from_tags(scale, points, matrix, Some(keys));
        found.map(|found| (found.epsg(), found.coordinates([10.0, 20.0])))
    };
    let shifted = [4.0, 8.0, 0.0, 400_000.0, 5_700_000.0, 0.0];
    let turned = [0.0, 2.0, 0.0, 100.0, 3.0, 0.0, 0.0, 200.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
    let point = keys(&[(MODEL_TYPE, PROJECTED), (RASTER_TYPE, PIXEL_IS_POINT), (PROJECTED_CRS, 25832.0)]);
    let degrees = keys(&[(MODEL_TYPE, GEODETIC), (GEODETIC_CRS, 4326.0), (PROJECTED_CRS, 7.0)]);
    let own = keys(&[(MODEL_TYPE, PROJECTED), (PROJECTED_CRS, USER_DEFINED)]);
    let (scale, origin) = (Some(&SCALE[..]), Some(&POINT[..]));
    let cases = [
        ("scale and tie point", of(scale, origin, None, &utm()), Ok((25832, [400_005.0, 5_699_995.0]))),
        (
            "a tie point inside",
            of(scale, Some(&shifted), None, &utm()),
            Ok((25832, [400_003.0, 5_699_997.0])),
        ),
        ("middles of pixels", of(scale, origin, None, &point), Ok((25832, [400_004.75, 5_699_995.125]))),
        ("a transformation", of(None, None, Some(&turned), &utm()), Ok((25832, [140.0, 230.0]))),
        ("degrees", of(scale, origin, None, &degrees), Ok((4326, [400_005.0, 5_699_995.0]))),
        ("control points", of(None, origin, None, &utm()), Err("control points")),
        ("no tags", of(None, None, None, &utm()), Err("no GeoTIFF tags")),
        ("a scale alone", of(scale, None, None, &utm()), Err("no GeoTIFF tags")),
        ("no code", of(scale, origin, None, &own), Err("no EPSG code")),
        ("no keys", of(scale, origin, None, &[]), Err("no EPSG code")),
        ("no area", of(Some(&[0.0, 1.0]), origin, None, &utm()), Err("corrupt")),
        ("no number", of(Some(&[f64::NAN, 1.0]), origin, None, &utm()), Err("corrupt")),
    ];
    let mut wrong = Vec::new();
    for (what, found, expected) in cases {
        let is_right = match (&found, &expected) {
            (Ok(found), Ok(expected)) => found == expected,
            (Err(why), Err(part)) => why.contains(part),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{what}: {found:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn detection(mask: Option<Mask>) -> Detection {
    let bbox = BoundingBox::new(1.0, 2.0, 5.0, 6.0);
    Detection { class_id: 3, label: "roof".into(), score: 0.75, bbox, mask }
}

#[test]
fn detections_become_polygons_whose_outer_rings_are_anticlockwise() {
    let place = GeoReference::from_tags(
        Some(&[1.0, 1.0, 0.0]),
        Some(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        None,
        Some(&utm()),
    );
    let place = place.expect("the tags are complete");
    let boxed = place.feature(&detection(None), 1.0, &[("image", "a.tif".into())]);
    let expected = json!({
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [[[1.0, -6.0], [5.0, -6.0], [5.0, -2.0], [1.0, -2.0], [1.0, -6.0]]]},
        "properties": {"label": "roof", "class_id": 3, "score": 0.75, "image": "a.tif"},
    });
    assert_eq!(boxed, expected);
    // A ring around a hole, and a pixel beside it.
    let rows = ["#####.#", "#...#..", "#...#..", "#####.."];
    let bitmap: Vec<u8> =
        rows.iter().flat_map(|row| row.bytes().map(|pixel| u8::from(pixel == b'#'))).collect();
    let mask = Mask::from_bitmap(&bitmap, 7, 4).expect("a byte for each pixel");
    let found = place.feature(&detection(Some(mask)), 0.0, &[]);
    let geometry = &found["geometry"];
    assert_eq!(geometry["type"], "MultiPolygon");
    let rings: Vec<Vec<Vec<[f64; 2]>>> =
        serde_json::from_value(geometry["coordinates"].clone()).expect("lists of rings of points");
    let signed = |ring: &Vec<[f64; 2]>| {
        ring.windows(2).map(|pair| (pair[0][0] * pair[1][1] - pair[1][0] * pair[0][1]) / 2.0).sum::<f64>()
    };
    let areas: Vec<Vec<f64>> = rings.iter().map(|polygon| polygon.iter().map(signed).collect()).collect();
    assert_eq!(areas, [vec![20.0, -6.0], vec![1.0]]);
    assert!(rings.iter().flatten().all(|ring| ring.first() == ring.last()), "rings are closed");
}

#[test]
fn the_coordinate_system_is_named_unless_it_is_wgs_84() {
    let of = |keys: &[f64]| {
        let place = GeoReference::from_tags(Some(&SCALE), Some(&POINT), None, Some(keys)).expect("complete");
        place.collection(vec![]).get("crs").cloned()
    };
    let named = of(&utm()).expect("it is another one");
    assert_eq!(named["properties"]["name"], "urn:ogc:def:crs:EPSG::25832");
    assert_eq!(of(&keys(&[(MODEL_TYPE, GEODETIC), (GEODETIC_CRS, 4326.0)])), None);
    assert!(of(&keys(&[(MODEL_TYPE, GEODETIC), (GEODETIC_CRS, 4258.0)])).is_some());
}

#[test]
fn files_without_a_place_are_one_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let picture = ::image::RgbImage::new(4, 4);
    for (name, part) in [("plain.tif", "no GeoTIFF tags"), ("plain.png", "it is no GeoTIFF")] {
        let path = folder.path().join(name);
        picture.save(&path).expect("it can be written");
        let error = GeoReference::open(&path).expect_err(name);
        let text = error.to_string();
        assert!(text.contains(part) && text.contains(name) && text.lines().count() == 1, "{text}");
    }
    let missing = GeoReference::open(folder.path().join("none.tif")).expect_err("no file");
    assert_eq!(missing.kind(), ErrorKind::Io);
}
