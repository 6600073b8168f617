//! Images come from many places, and their outputs need names that differ.

use std::collections::BTreeSet;

use crate::run::Place;
use crate::tiles::write_image;

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");

#[test]
fn folders_include_subfolders_and_all_outputs_of_an_image_have_one_name() {
    let place = Place::new();
    write_image(&place, "photos/A/i.png", 0);
    write_image(&place, "photos/B/i.png", 1);
    place.write("photos/B/i.mpo", std::fs::read(place.path("photos/A/i.png")).expect("it was written"));
    place.write("photos/raw.dng", "II*\0 and so on");
    let all = "detect --image photos --classes dog pizza tree --confidence 0.05 -o drawn --save-txt labels \
               --crops crops --semantic maps --json found.json";
    let ran = place.run(OCELLI, &all.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let said = [
        "left out 1 file(s) that are no images, photos/raw.dng first",
        "equal names: the outputs of photos/B/i.mpo are named i-2, and 1 more",
    ];
    assert!(said.iter().all(|line| ran.stderr.contains(line)), "{}", ran.stderr);
    assert_eq!(place.json("found.json")["images"].as_array().map(Vec::len), Some(3));
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = place.path(folder).read_dir().expect("it was written");
        entries.map(|entry| entry.expect("it is there").file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names("drawn"), ["i.png", "i-2.png", "i-3.png"].map(str::to_owned).into());
    assert_eq!(names("labels"), ["i.txt", "i-2.txt", "i-3.txt"].map(str::to_owned).into());
    // The same image twice, under two names.
    let read = |name: &str| std::fs::read(place.path(name)).expect("it was written");
    assert_eq!((read("labels/i.txt"), read("drawn/i.png")), (read("labels/i-2.txt"), read("drawn/i-2.png")));
    assert_ne!(read("labels/i.txt"), read("labels/i-3.txt"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_pipe_in_a_folder_is_left_out_and_a_named_one_is_read_until_it_is_stopped() {
    use std::cell::OnceCell;
    use std::os::unix::fs::OpenOptionsExt;

    let place = Place::new();
    write_image(&place, "photos/a.png", 0);
    let pipe = place.path("photos/b.png");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|made| made.success()));
    let detect = |image: &str, json: &str| {
        let all = format!("detect --image {image} --classes dog pizza tree --json {json}");
        let ran = place.run(OCELLI, &all.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.status, Some(0), "{ran:?}");
        ran
    };
    let ran = detect("photos", "folder.json");
    assert!(
        ran.stderr.contains("left out 1 file(s) that are no images, photos/b.png first"),
        "{}",
        ran.stderr
    );
    let (bytes, to) = (std::fs::read(place.path("photos/a.png")).expect("it was written"), pipe.clone());
    let writer = std::thread::spawn(move || std::fs::write(to, bytes));
    detect("photos/b.png", "pipe.json");
    writer.join().expect("it does not panic").expect("there is a reader");
    let found = |name: &str| place.json(name)["images"][0]["detections"].clone();
    assert_eq!(found("pipe.json"), found("folder.json"));

    // The program waits for bytes once the pipe can be opened for writing.
    let held = OnceCell::new();
    let is_time = || {
        let opened = std::fs::OpenOptions::new().write(true).custom_flags(0o4000).open(&pipe);
        opened.is_ok_and(|file| held.set(file).is_ok())
    };
    let waiting = ["detect", "--image", "photos/b.png", "--classes", "dog"];
    let ended = crate::label::stopped::stop_when(&place, &waiting, "-TERM", is_time);
    assert_eq!(ended.status, Some(130), "{ended:?}");
}
