//! Passwords of addresses: no output has them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::live::{ask, packet};
use super::sources::camera;
use super::{VIDEO, command, run_video, succeed};
use crate::run::{Outcome, Place, outcome};

const WHOLE: &str = "zones: [{name: all, points: [[0, 0], [1, 0], [1, 1], [0, 1]]}]";

/// The lines and files of a run that contain a secret.
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

/// Whoever connects: what they sent, and how to answer.
fn listener(answer: fn(&mut TcpStream, &Mutex<String>)) -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let heard = Arc::new(Mutex::new(String::new()));
    let hears = heard.clone();
    // Ends with the test program.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            answer(&mut stream, &hears);
        }
    });
    (address, heard)
}

/// A broker that confirms all messages, and keeps their texts.
fn broker(stream: &mut TcpStream, heard: &Mutex<String>) {
    while let Some((first, rest)) = packet(stream) {
        let sent = match first >> 4 {
            1 => stream.write_all(&[0x20, 2, 0, 0]),
            3 => {
                let topic = 2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]));
                let mut heard = heard.lock().expect("no thread panics");
                heard.push_str(&String::from_utf8_lossy(&rest[topic + 2..]));
                stream.write_all(&[0x40, 2, rest[topic], rest[topic + 1]])
            }
            _ => Ok(()),
        };
        drop(sent);
    }
}

/// A web server that takes all events, and keeps their texts.
fn web_hook(stream: &mut TcpStream, heard: &Mutex<String>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            let header = line.to_lowercase();
            length = header.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap_or(0));
            line.clear();
        }
        let mut body = vec![0; length];
        if length == 0 || reader.read_exact(&mut body).is_err() {
            return;
        }
        heard.lock().expect("no thread panics").push_str(&String::from_utf8_lossy(&body));
        drop(reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    }
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
    let (mqtt, messages) = listener(broker);
    let (hook, posts) = listener(web_hook);
    let view = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free");
    let watched = ["/", "/stream.mjpg"].map(|page| {
        std::thread::spawn(move || {
            let (head, mut rest) = ask(&view.to_string(), page, "localhost");
            let mut body = Vec::new();
            drop(rest.read_to_end(&mut body));
            head + &String::from_utf8_lossy(&body)
        })
    });
    let mut run = command(
        &place,
        VIDEO,
        &format!(
            "--sources sources.txt --classes moon --track --policy all --reconnect 1 -vv --zones zones.yaml --jsonl lines \
             --events events --stats stats -o out/%d.jpg --webhook http://user:secret@{hook}/?token=secret \
             --mqtt mqtt://user@{mqtt}/topic --mjpeg {view}"
        ),
    );
    let ran = outcome(run.env("OCELLI_MQTT_PASSWORD", "secret"));
    assert_eq!(leaks(&place, &ran), [""; 0]);
    for (_, thread) in cameras {
        thread.join().expect("it was connected to");
    }
    let heard = |what: &Mutex<String>| what.lock().expect("no thread panics").clone();
    let mut texts = vec![("mqtt", heard(&messages)), ("webhook", heard(&posts))];
    for file in ["lines", "events", "stats"] {
        texts.push((file, String::from_utf8(place.read(file)).expect("JSON is text")));
    }
    for (address, said) in [(user, ""), (query, "?user=a&pwd=…"), (path, "/user=a&password=…&channel=1")]
    {
        for (what, text) in &texts {
            assert!(!text.contains("secret"), "{what}: {text}");
            assert!(text.contains(&address.to_string()) && text.contains(said), "{what}: {address} {said}");
        }
        assert!(ran.stderr.contains(&format!("{address}")), "{address}: {}", ran.stderr);
    }
    for page in watched {
        let shown = page.join().expect("it was shown");
        assert!(shown.starts_with("HTTP/1.1 200") && !shown.contains("secret"), "{shown}");
    }
}

#[test]
fn no_error_has_a_password() {
    let place = Place::new();
    place.write("zones.yaml", WHOLE);
    for line in ["door:x=rtsp://u:secret@h/x", "door:x=rtsp://h/?pwd=secret"] {
        place.write("sources.txt", line);
        let ran = run_video(&place, "--sources sources.txt --classes moon");
        ran.is_refusal(2, &["no colon in a name"]).unwrap_or_else(|e| panic!("{e}"));
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
        let ran = run_video(&place, &format!("{arguments} --classes moon --reconnect 0 -v"));
        assert!(!matches!(ran.status, Some(0) | None), "{arguments}: {ran:?}");
        assert_eq!(leaks(&place, &ran), [""; 0], "{arguments}");
    }
    // Nobody takes the events.
    let events = "--classes moon --scene-size 160x120 --max-frames 4 --track --zones zones.yaml";
    for to in ["--webhook http://user:secret@127.0.0.1:9/?token=secret", "--mqtt mqtt://user@127.0.0.1:9/t"] {
        let mut run = command(&place, VIDEO, &format!("{events} {to} -v"));
        let ran = outcome(run.env("OCELLI_MQTT_PASSWORD", "secret"));
        assert!(ran.stderr.contains("were not delivered"), "{ran:?}");
        assert_eq!(leaks(&place, &ran), [""; 0], "{to}");
    }
    // As on a machine without OpenCV.
    let mut without = command(&place, VIDEO, "--video rtsp://u:secret@h/x --classes moon --reconnect 0");
    let ran = outcome(without.env("OCELLI_HOME", place.path("none")));
    assert_ne!(ran.status, Some(0), "{ran:?}");
    assert_eq!(leaks(&place, &ran), [""; 0], "{ran:?}");
}
