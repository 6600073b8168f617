//! Others watch a video while it runs: `--mqtt` and `--mjpeg`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::zones::{EVENTS, events};
use super::{VIDEO, run_video, succeed};
use crate::run::{Place, refusal};

/// A packet of MQTT: the first byte, and what follows its length.
pub(super) fn packet(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    let first = byte[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        stream.read_exact(&mut byte).ok()?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).ok()?;
    Some((first, rest))
}

/// An MQTT broker that breaks the first connection when the first message comes, and then confirms `count` messages. Returns
/// their topics and texts.
fn broker(count: usize) -> (String, JoinHandle<Vec<(String, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("mqtt://{}/yard/gate", listener.local_addr().expect("it is bound"));
    let serve = move || {
        let mut received = Vec::new();
        for connection in 0.. {
            let (mut stream, _) = listener.accept().expect("it listens");
            while let Some((first, rest)) = packet(&mut stream) {
                match first >> 4 {
                    1 => stream.write_all(&[0x20, 2, 0, 0]).expect("it is open"),
                    3 if connection == 0 => break,
                    3 => {
                        assert_eq!(first & 0b110, 0b010, "quality 1, at least once");
                        let end = 2 + usize::from(u16::from_be_bytes([rest[0], rest[1]]));
                        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
                        received.push((text(&rest[2..end]), text(&rest[end + 2..])));
                        stream.write_all(&[0x40, 2, rest[end], rest[end + 1]]).expect("it is open");
                    }
                    12 => stream.write_all(&[0xd0, 0]).expect("it is open"),
                    14 => return received,
                    other => panic!("packet {other} was not expected"),
                }
            }
            assert!(received.len() < count, "it ends without saying so");
        }
        received
    };
    (url, thread::spawn(serve))
}

#[test]
fn events_are_published() {
    let place = Place::new();
    let run = EVENTS;
    let events: Vec<_> = events(&place).into_iter().map(|line| ("yard/gate".to_owned(), line)).collect();
    let (url, received) = broker(events.len());
    let ran = run_video(&place, &format!("{run} --mqtt {url}"));
    assert!(ran.status == Some(0) && !ran.stderr.contains("not delivered"), "{ran:?}");
    assert_eq!(received.join().expect("it received all"), events);
    // Nobody listens: the run succeeds, and says so.
    let ran = run_video(&place, &format!("{run} --mqtt mqtt://127.0.0.1:9/gate"));
    let said = format!("{0} of {0} events were not delivered", events.len());
    assert!(ran.status == Some(0) && ran.stderr.contains(&said), "{ran:?}");
    let warnings = ran.stderr.matches("warning: --mqtt").count();
    assert_eq!(warnings, 2, "one at once, and one at the end: {ran:?}");
    let row = |url: &str| format!("--classes|dog|--max-frames|1|--track|--zones|zones.yaml|--mqtt|{url}");
    let rows = [
        (row("http://host/topic"), &["--mqtt", "mqtt://"][..]),
        (row("mqtt://host"), &["no topic"]),
        (row("mqtts://host/a"), &["TLS is not supported"]),
        (row("mqtt://host/a/#"), &["for subscribers"]),
        (row("mqtt://me:secret@host/a"), &["OCELLI_MQTT_PASSWORD"]),
    ];
    let rows: Vec<_> = rows.iter().map(|(arguments, words)| refusal(arguments, 2, words)).collect();
    place.refuses(VIDEO, &rows);
}

/// Asks for a path, and returns the answer's head and what follows.
pub(super) fn ask(address: &str, path: &str, host: &str) -> (String, BufReader<TcpStream>) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > end => panic!("{address}: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    };
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("it is open");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("it answers") > 0, "{head}");
    }
    (head, reader)
}

#[test]
fn frames_are_shown_to_those_who_look() {
    let place = Place::new();
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.local_addr().expect("it is bound").to_string()
    };
    let watched = {
        let address = address.clone();
        thread::spawn(move || {
            let (head, _) = ask(&address, "/", "localhost");
            assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/html"), "{head}");
            let (head, _) = ask(&address, "/", "evil.example");
            assert!(head.starts_with("HTTP/1.1 403"), "{head}");
            let (head, mut stream) = ask(&address, "/stream.mjpg", &address);
            assert!(head.contains("multipart/x-mixed-replace; boundary=frame"), "{head}");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("it ends with the run");
            all
        })
    };
    succeed(
        &place,
        &format!(
            "--classes moon --scene-size 320x240 --max-frames 600 --detect-every 20 --mjpeg {address} -q"
        ),
    );
    let all = watched.join().expect("it was shown");
    let starts: Vec<usize> =
        (0..all.len() - 2).filter(|&at| all[at..].starts_with(&[0xff, 0xd8, 0xff])).collect();
    assert!(starts.len() > 3, "{} frames in {} bytes", starts.len(), all.len());
    let frame = image::load_from_memory(&all[starts[0]..starts[1]]).expect("a JPEG");
    assert_eq!((frame.width(), frame.height()), (320, 240));
    let row = |address: &str| format!("--classes|dog|--max-frames|1|--mjpeg|{address}");
    let rows = [
        (row("8090"), &["--mjpeg", "127.0.0.1:8090"][..]),
        (row("0.0.0.0:0"), &["--mjpeg", "nobody guesses"]),
        (row("0.0.0.0:0/short"), &["nobody guesses"]),
        (row("127.0.0.1:0/a%20b"), &["letters, digits"]),
    ];
    let rows: Vec<_> = rows.iter().map(|(arguments, words)| refusal(arguments, 2, words)).collect();
    place.refuses(VIDEO, &rows);
}
