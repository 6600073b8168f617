//! Labels in letters that DejaVu Sans lacks.

use std::path::Path;

use crate::run::{Place, outcome};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
/// A letter that DejaVu Sans lacks.
const LETTER: char = '人';

#[test]
#[ignore = "needs OCELLI_TEST_FONT, a font file with Chinese letters, and no such font in the system: tests/check-all.sh"]
fn the_fonts_of_the_system_draw_what_the_own_lacks() {
    let place = Place::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    for name in ["00.png", "01.png"] {
        place.write(name, std::fs::read(golden.join("scenes").join(name)).expect("it is in the repository"));
    }
    let words = "person,wine glass,tv,boat,bicycle,cake,bowl,house,cat,moon,robot";
    let class = |word: &str| format!("- name: \"{LETTER} {word}\"\n  phrases: [{word}]\n");
    place.write("map.yaml", format!("classes:\n{}", words.split(',').map(class).collect::<String>()));
    let font = std::env::var_os("OCELLI_TEST_FONT").expect("OCELLI_TEST_FONT names a font file");
    let installed = Path::new("with/.local/share/fonts").join(Path::new(&font).file_name().expect("a file"));
    place.write(installed.to_str().expect("it is UTF-8"), std::fs::read(&font).expect("it can be read"));
    place.folder("without");
    let detect = |home: &str| {
        let start =
            ["detect", "--engine", "embedded", "--image", "00.png", "01.png", "--classes", "map.yaml"];
        let mut command = place.command(OCELLI, &[&start[..], &["-o", &format!("{home}/out")]].concat());
        let ran = outcome(command.env("HOME", place.path(home)));
        assert_eq!(ran.status, Some(0), "{ran:?}");
        let image = |name: &str| {
            image::load_from_memory(&place.read(&format!("{home}/out/{name}"))).expect("an image").to_rgb8()
        };
        (ran.stderr, ["00.png", "01.png"].map(image))
    };
    let (said, with) = detect("with");
    assert!(!said.contains("no font"), "{said}");
    let (said, without) = detect("without");
    assert_eq!(said.matches("no font has the letters").count(), 1, "{said}");
    let differing: usize = with
        .iter()
        .zip(&without)
        .map(|(a, b)| a.pixels().zip(b.pixels()).filter(|(a, b)| a != b).count())
        .sum();
    assert!(differing > 20, "{differing} pixels differ");
}
