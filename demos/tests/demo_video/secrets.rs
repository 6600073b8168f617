//! Passwords of addresses: no output has them.

use std::net::TcpListener;
use std::path::Path;

use super::sources::camera;
use super::{DEMO, command, run_demo, succeed};
use crate::run::{Outcome, Place, outcome};

const WHOLE: &str = "zones: [{name: all, points: [[0, 0], [1, 0], [1, 1], [0, 1]]}]";

/// What a run has said or written that contains a secret.
fn leaks(place: &Place, ran: &Outcome) -> Vec<String> {
    let mut found: Vec<String> = ran
        .stderr
        .lines()
        .chain(ran.stdout.lines())
        .filter(|line| line.contains("secret"))
        .map(str::to_owned)
        .collect();
    for path in place.paths() {
        let is_of_test = path == Path::new("sources.txt") || path.starts_with("in");
        if !is_of_test && place.path(&path.to_string_lossy()).is_file() {
            let bytes = place.read(&path.to_string_lossy());
            if path.to_string_lossy().contains("secret") || String::from_utf8_lossy(&bytes).contains("secret")
            {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn no_output_of_cameras_has_their_passwords() {
    let place = Place::new();
    succeed(
        &place,
        "--classes moon --scene-size 160x120 --max-frames 20 -o in/%02d.jpg -q --detect-every 1000 --confidence 1",
    );
    let images: Vec<Vec<u8>> = (0..20).map(|number| place.read(&format!("in/{number:02}.jpg"))).collect();
    place.write("zones.yaml", WHOLE);
    let cameras: Vec<_> = (0..3)
        .map(|_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            let address = listener.local_addr().expect("it is bound");
            let images = images.clone();
            (address, std::thread::spawn(move || camera(listener, images, &[20])))
        })
        .collect();
    let [user, query, path] = [0, 1, 2].map(|number: usize| cameras[number].0);
    place.write(
        "sources.txt",
        format!(
            "http://user:p@secret@{user}/stream\nhttp://{query}/stream?user=a&pwd=secret\n\
             http://{path}/user=a&password=secret&channel=1\n"
        ),
    );
    let ran = run_demo(
        &place,
        "--sources sources.txt --classes moon --track --policy all --reconnect 1 -vv --zones zones.yaml --jsonl lines \
         --events events --stats stats -o out/%d.jpg --webhook http://user:secret@127.0.0.1:9/?token=secret",
    );
    assert_eq!(leaks(&place, &ran), [""; 0]);
    for (_, thread) in cameras {
        thread.join().expect("it was connected to");
    }
    for (address, said) in [(user, ""), (query, "?user=a&pwd=…"), (path, "/user=a&password=…&channel=1")]
    {
        for file in ["lines", "events", "stats"] {
            let text = String::from_utf8(place.read(file)).expect("JSON is text");
            assert!(text.contains(&address.to_string()) && text.contains(said), "{file}: {address} {said}");
        }
        assert!(ran.stderr.contains(&format!("{address}")), "{address}: {}", ran.stderr);
    }
    assert!(ran.stderr.contains("were not delivered"), "the webhook is named: {}", ran.stderr);
}

#[test]
fn no_error_has_a_password() {
    let place = Place::new();
    place.write("zones.yaml", WHOLE);
    for line in ["door:x=rtsp://u:secret@h/x", "door:x=rtsp://h/?pwd=secret"] {
        place.write("sources.txt", line);
        let ran = run_demo(&place, "--sources sources.txt --classes moon");
        ran.is_refusal(2, &["NAME:WEIGHT"]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(leaks(&place, &ran), [""; 0], "{line}");
    }
    for arguments in [
        "--video http://u:a/secret@127.0.0.1:9/x",
        "--video http://127.0.0.1:9/user=a&password=secret",
        "--video rtsp:/u:secret@127.0.0.1/x",
        "--video http://u:secret@127.0.0.1:9/x http://127.0.0.1:9/?token=secret",
        "--video in.mp4 --track --zones zones.yaml --mqtt mqtt://u:secret@h/x",
        "--video in.mp4 --track --zones zones.yaml --webhook https://u:secret@h/x",
        "--video http://u:secret@127.0.0.1:9/x --raw 4x4:bgr",
        "--video http://u:secret@127.0.0.1:9/x --max-frame 3",
        "--vide http://u:secret@127.0.0.1:9/x",
    ] {
        let ran = run_demo(&place, &format!("{arguments} --classes moon --reconnect 0 -v"));
        assert!(!matches!(ran.status, Some(0) | None), "{arguments}: {ran:?}");
        assert_eq!(leaks(&place, &ran), [""; 0], "{arguments}");
    }
    // As on a machine without OpenCV.
    let mut without = command(&place, DEMO, "--video rtsp://u:secret@h/x --classes moon --reconnect 0");
    let ran = outcome(without.env("OCELLI_HOME", place.path("none")));
    assert_ne!(ran.status, Some(0), "{ran:?}");
    assert_eq!(leaks(&place, &ran), [""; 0], "{ran:?}");
}
