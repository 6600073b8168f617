//! Sources of frames: parts of videos, pipes, streams that are lost and reconnect.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ocelli::report::FrameReport;
use ocelli::source::open_video;

use super::{
    OCELLI, ONE_DETECTION, VIDEO, command, draw_video, frames_of, index_last, lines_of, numbers, run_video,
    succeed,
};
use crate::run::{Outcome, Place, outcome};

#[test]
fn parts_of_a_video() {
    let place = Place::new();
    draw_video(&place, "in.mp4", 50);
    for (options, expected) in [
        ("--max-frames 3", vec![0, 1, 2]),
        ("--start 48f", vec![48, 49]),
        ("--start 1.88", vec![47, 48, 49]),
        ("--start 40f --end 1.72", vec![40, 41, 42]),
        ("--start 30f --vid-stride 8", vec![30, 38, 46]),
        ("--vid-stride 20", vec![0, 20, 40]),
        ("--vid-stride 10 --max-frames 2 --start 0:01", vec![25, 35]),
    ] {
        let lines = lines_of(
            succeed(&place, &format!("--video in.mp4 --classes moon {options} --jsonl - {ONE_DETECTION}"))
                .as_bytes(),
        );
        assert_eq!(numbers(&lines), expected, "{options}");
        let off = lines.iter().map(|line| (line.time_s - line.frame as f64 / 25.0).abs());
        assert!(off.fold(0.0, f64::max) < 1e-3, "{options}: {lines:?}");
    }
    // A name that looks like an address.
    place.write("12:30:00.mp4", place.read("in.mp4"));
    succeed(&place, &format!("--video 12:30:00.mp4 --classes moon {ONE_DETECTION}"));
    // Every fifth frame, at a fifth of the rate, takes as long.
    succeed(&place, &format!("--video in.mp4 --classes moon --vid-stride 5 -o out.avi {ONE_DETECTION}"));
    let (frames, rate) = frames_of(&place.path("out.avi"));
    assert_eq!((frames.len(), rate), (10, 5.0));
}

#[test]
fn odd_sizes_are_padded_to_even_ones() {
    let place = Place::new();
    for ending in ["mp4", "avi", "mkv", "webm"] {
        let scene =
            format!("--classes dog --scene-size 161x121 --max-frames 3 -o out.{ending} --jsonl out.jsonl");
        succeed(&place, &scene);
        let (frames, _) = frames_of(&place.path(&format!("out.{ending}")));
        let size = (frames[0].image.width(), frames[0].image.height());
        assert_eq!((frames.len(), size), (3, (162, 122)), "{ending}");
    }
    let lines = lines_of(&place.read("out.jsonl"));
    let edges = lines.iter().flat_map(|line| &line.detections).map(|detection| detection.bbox.to_xyxy());
    assert!(edges.clone().all(|[_, _, x2, y2]| x2 <= 161.0 && y2 <= 121.0));
    // Images keep their odd sides.
    succeed(&place, "--classes dog --scene-size 161x121 --max-frames 3 -o out");
    assert_eq!(super::names(place.path("out")), ["000000.png", "000001.png", "000002.png"]);
    let image = ocelli::Image::open(place.path("out/000001.png")).expect("it was written");
    assert_eq!((image.width(), image.height()), (161, 121));
}

/// Runs with bytes on stdin.
fn with_stdin(place: &Place, arguments: &str, bytes: Vec<u8>) -> Outcome {
    let mut command = command(place, VIDEO, arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("writing does not panic");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn raw_frames_are_read_and_written() {
    let place = Place::new();
    let scene = "--classes dog --scene-size 160x120 --max-frames 4";
    let expected = lines_of(succeed(&place, &format!("{scene} --jsonl -")).as_bytes());
    // Without detections nothing is drawn: the output equals the input.
    let raw = outcome_bytes(&place, &format!("{scene} --confidence 1 -o - --raw-out bgr"));
    assert_eq!(raw.len(), 4 * 160 * 120 * 3);
    let arguments = "--video - --raw 160x120:bgr@25 --classes dog --jsonl -";
    let whole = with_stdin(&place, arguments, raw.clone());
    assert_eq!(whole.status, Some(0), "{whole:?}");
    assert_eq!(lines_of(whole.stdout.as_bytes()), expected);
    let rgb: Vec<u8> = raw.chunks(3).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect();
    let swapped = with_stdin(&place, &arguments.replace(":bgr", ":rgb"), rgb);
    assert_eq!(lines_of(swapped.stdout.as_bytes()), expected);

    let short = with_stdin(&place, arguments, raw[..raw.len() - 1].to_vec());
    assert_eq!(short.status, Some(1), "{short:?}");
    assert_eq!(lines_of(short.stdout.as_bytes()), expected[..3]);
    assert!(short.stderr.contains("frame 3") && short.stderr.contains("57599 of 57600 bytes"), "{short:?}");
    let nothing = with_stdin(&place, arguments, Vec::new());
    assert_eq!((nothing.status, nothing.stdout.as_str()), (Some(1), ""), "{nothing:?}");

    // The rate of raw frames, unless they name one.
    let arguments = "--video - --raw 160x120:bgr --fps 5 --classes dog --jsonl -";
    let lines = lines_of(with_stdin(&place, arguments, raw).stdout.as_bytes());
    let times: Vec<f64> = lines.iter().map(|line| line.time_s).collect();
    assert_eq!(times, [0.0, 0.2, 0.4, 0.6]);
}

fn outcome_bytes(place: &Place, arguments: &str) -> Vec<u8> {
    let output = command(place, VIDEO, arguments).output().expect("the program starts");
    assert!(output.status.success(), "{arguments}: {output:?}");
    output.stdout
}

/// The lines and the last message for a corrupt video.
fn read_damaged(place: &Place, name: &str) -> (Vec<FrameReport>, String) {
    let outcome =
        run_video(place, &format!("--video {name} --classes moon --jsonl - -o out.{name} {ONE_DETECTION}"));
    assert_eq!(outcome.status, Some(1), "{name}: {outcome:?}");
    let last = outcome.stderr.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("error: ") && last.contains(name), "{name}: {outcome:?}");
    (lines_of(outcome.stdout.as_bytes()), last)
}

#[test]
fn readable_frames_of_a_corrupt_video_are_kept() {
    let place = Place::new();
    for ending in ["avi", "mkv"] {
        let whole = format!("whole.{ending}");
        draw_video(&place, &whole, 30);
        let bytes = place.read(&whole);
        place.write(&format!("cut.{ending}"), &bytes[..bytes.len() * 2 / 3]);
        let (lines, last) = read_damaged(&place, &format!("cut.{ending}"));
        assert!((3..30).contains(&lines.len()), "{ending}: {} frames", lines.len());
        assert!(last.contains("truncated"), "{ending}: {last}");
        let (frames, _) = frames_of(&place.path(&format!("out.cut.{ending}")));
        assert_eq!(frames.len(), lines.len(), "{ending}: what was read was written");
    }
    // Frames in the middle of an MP4, replaced by noise.
    draw_video(&place, "whole.mp4", 60);
    let mut bytes = place.read("whole.mp4");
    let (from, to) = (bytes.len() / 3, bytes.len() / 2);
    for (place, byte) in bytes[from..to].iter_mut().enumerate() {
        *byte = (place * 7919 % 251) as u8;
    }
    place.write("noise.mp4", bytes);
    let (lines, last) = read_damaged(&place, "noise.mp4");
    assert!((5..60).contains(&lines.len()) && last.contains("corrupt"), "{} frames, {last}", lines.len());
}

#[test]
fn an_mkv_that_is_damaged_midway_is_an_error() {
    let place = Place::new();
    draw_video(&place, "whole.mkv", 250);
    let mut bytes = place.read("whole.mkv");
    // The head of a cluster in the middle; one starts every second.
    let clusters: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter_map(|(at, window)| (window == [0x1f, 0x43, 0xb6, 0x75]).then_some(at))
        .collect();
    let at = *clusters.get(5).expect("ten seconds have as many clusters");
    bytes[at..at + 16].fill(0);
    place.write("damaged.mkv", bytes);
    let (lines, last) = read_damaged(&place, "damaged.mkv");
    assert!(
        lines.len() >= 100 && last.contains(&format!("corrupt at byte {at}")),
        "{} frames, {last}",
        lines.len()
    );
}

#[test]
fn sound_is_copied_where_the_container_takes_it() {
    // An AVI with the header of a second stream, of sound, in place of padding.
    let place = Place::new();
    draw_video(&place, "in.avi", 3);
    let mut bytes = place.read("in.avi");
    let junk =
        bytes.windows(4).position(|window| window == b"JUNK").expect("FFmpeg leaves room in its headers");
    let format = [1u16, 1, 8000, 0, 8000, 0, 1, 8].map(u16::to_le_bytes).concat();
    let header =
        [b"strh\x38\0\0\0auds".as_slice(), &[0; 16], &1u32.to_le_bytes(), &8000u32.to_le_bytes(), &[0; 28]];
    let header = [header.concat(), b"strf\x10\0\0\0".to_vec(), format].concat();
    let size = u32::from_le_bytes(bytes[junk + 4..junk + 8].try_into().expect("four bytes"));
    let rest = [b"JUNK".as_slice(), &(size - header.len() as u32).to_le_bytes()].concat();
    let header = [header, rest].concat();
    bytes[junk..junk + header.len()].copy_from_slice(&header);
    place.write("sound.avi", bytes);
    // PCM has no place in MP4.
    let cases = [
        ("--video in.avi -o out.mp4", false, ""),
        ("--video sound.avi -o out.mp4", false, "it cannot hold 1 of the source's streams"),
        ("--video sound.avi -o out.mkv", true, ""),
        ("--video sound.avi -o out.mkv --no-audio", false, ""),
    ];
    for (arguments, has_sound, warning) in cases {
        let said = run_video(&place, &format!("{arguments} --classes moon {ONE_DETECTION}")).stderr;
        assert!(
            said.contains(warning) && said.contains("warning") != warning.is_empty(),
            "{arguments}: {said}"
        );
        let output = place.path(arguments.split(' ').nth(3).expect("it names an output"));
        let found = open_video(&output).unwrap_or_else(|e| panic!("{e}")).info().has_sound;
        assert_eq!(found, has_sound, "{arguments}");
    }
}

#[test]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn encoders_write_nothing_to_stderr() {
    let place = Place::new();
    for codec in ["h264", "hevc", "av1", "vp9"] {
        let drawn = "--quiet --scene-size 64x64 --max-frames 3 --classes moon";
        let run = run_video(&place, &format!("{drawn} -o {codec}.mkv --codec {codec}"));
        assert_eq!((run.status, &*run.stderr), (Some(0), ""), "{codec}");
    }
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(without_video, ignore = "needs the video library")]
fn short_videos_in_hevc_do_not_depend_on_what_was_in_memory() {
    let place = Place::new();
    for (frames, filling) in [(1_u64, "1"), (2, "90"), (3, "1"), (3, "90"), (5, "90")] {
        let drawn = format!("--quiet --scene-size 64x64 --max-frames {frames} --classes moon");
        let mut command = command(&place, VIDEO, &format!("{drawn} -o {frames}.mp4 --codec hevc"));
        let ran = outcome(command.env("MALLOC_PERTURB_", filling));
        assert_eq!((ran.status, &*ran.stderr), (Some(0), ""), "{frames} frames");
        let video = open_video(&place.path(&format!("{frames}.mp4"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(video.info().frame_count, Some(frames), "{frames} frames");
    }
}

/// A web server that sends images as cameras do: some per connection, then no more responses.
pub fn camera(listener: TcpListener, images: Vec<Vec<u8>>, connections: &[usize]) {
    for &count in connections {
        // Who says nothing looked whether someone is there.
        let mut stream = loop {
            let (mut stream, _) = listener.accept().expect("someone connects");
            if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                break stream;
            }
        };
        // A client may close the connection.
        drop(send_images(&mut stream, &images[..count]));
    }
}

fn send_images(stream: &mut TcpStream, images: &[Vec<u8>]) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace;boundary=frame\r\n\r\n")?;
    for image in images {
        write!(stream, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n", image.len())?;
        stream.write_all(image)?;
        stream.write_all(b"\r\n")?;
    }
    stream.flush()
}

#[test]
fn a_lost_stream_reconnects_until_the_time_is_up() {
    let place = Place::new();
    succeed(
        &place,
        "--classes dog --scene-size 160x120 --max-frames 20 -o in/%02d.jpg -q --detect-every 1000 --confidence 1",
    );
    let images: Vec<Vec<u8>> = (0..20).map(|number| place.read(&format!("in/{number:02}.jpg"))).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || camera(listener, images, &[20, 15]));
    let began = SystemTime::now();
    let arguments = format!(
        "--video http://user:secret@{address}/stream --classes dog --track --policy all --reconnect 1 --jsonl lines -o \
         out.mp4"
    );
    let outcome = outcome(&mut command(&place, VIDEO, &arguments));
    server.join().expect("both connections were made");
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    let last = outcome.stderr.lines().last().unwrap_or_default();
    for word in ["the stream was lost", &address.to_string(), "attempts", "1 s"] {
        assert!(last.contains(word), "{word}: {outcome:?}");
    }
    for word in ["reconnecting", "reconnected"] {
        assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
    }
    assert!(!outcome.stderr.contains("secret"), "{outcome:?}");
    let lines = lines_of(&place.read("lines"));
    assert_eq!(numbers(&lines), (0..lines.len() as u64).collect::<Vec<_>>(), "frames are numbered on");
    // The decoder may need the first few frames to detect the format, and buffers the last.
    assert!((25..=35).contains(&lines.len()), "{} frames of both connections", lines.len());
    assert!(lines.windows(2).all(|pair| pair[0].time_s <= pair[1].time_s));
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
    let taken: Vec<f64> = lines.iter().map(|line| line.wall_time.expect("a live stream has it")).collect();
    assert!(taken.windows(2).all(|pair| pair[0] <= pair[1]), "{taken:?}");
    assert!(
        taken[0] >= since_1970(began) && taken[taken.len() - 1] <= since_1970(SystemTime::now()),
        "{taken:?}"
    );
    // Frames that arrive at once do not all have a place in the video.
    assert!(!frames_of(&place.path("out.mp4")).0.is_empty(), "it was completed");
}

/// The frames of a camera, and an address at which it is switched on when the returned function is called.
fn camera_that_is_off(place: &Place) -> (SocketAddr, impl FnOnce() + use<>) {
    succeed(
        place,
        "--classes dog --scene-size 160x120 --max-frames 20 -o in/%02d.jpg -q --detect-every 1000 --confidence 1",
    );
    let images: Vec<Vec<u8>> = (0..20).map(|number| place.read(&format!("in/{number:02}.jpg"))).collect();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = free.local_addr().expect("it is bound");
    let switch_on = move || {
        std::thread::sleep(Duration::from_secs(4));
        let listener = TcpListener::bind(address).expect("the port is free again");
        camera(listener, images, &[20]);
    };
    (address, switch_on)
}

#[test]
fn a_camera_that_is_off_at_the_start_is_waited_for() {
    let place = Place::new();
    let (address, switch_on) = camera_that_is_off(&place);
    let run = format!("--classes dog --policy all --jsonl lines {ONE_DETECTION}");
    for (reconnect, word) in [("0", "nothing answers"), ("1", "given up after")] {
        let began = Instant::now();
        let never =
            run_for_a_while(&place, &format!("--video http://{address}/x --reconnect {reconnect} {run}"));
        assert!(never.status == Some(1) && never.stderr.contains(word), "{never:?}");
        assert_eq!(never.stderr.contains("trying again"), reconnect != "0", "{never:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
    let server = std::thread::spawn(switch_on);
    let ran =
        run_for_a_while(&place, &format!("--video http://{address}/x --reconnect 12 {run} --max-frames 12"));
    server.join().expect("it was connected to");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    for word in ["trying again for 12 s", "connected, attempt"] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    assert_eq!(numbers(&lines_of(&place.read("lines"))), (0..12).collect::<Vec<_>>());

    // Beside another source, which does not wait for it.
    let (address, switch_on) = camera_that_is_off(&place);
    draw_video(&place, "a.mp4", 20);
    let server = std::thread::spawn(switch_on);
    let ran = run_for_a_while(&place, &format!("--video a.mp4 http://{address}/x --reconnect 12 {run}"));
    server.join().expect("it was connected to");
    assert_eq!(ran.status, Some(0), "{ran:?}");
    let lines = lines_of(&place.read("lines"));
    let count = |part: &str| {
        let of_source =
            lines.iter().filter(|line| line.source.as_deref().is_some_and(|name| name.contains(part)));
        of_source.count()
    };
    assert_eq!(count("a.mp4"), 20, "{ran:?}");
    assert!(count(&address.to_string()) >= 12, "{ran:?}");
}

#[test]
fn sources_that_are_off_hold_up_no_other() {
    let place = Place::new();
    draw_video(&place, "a.mp4", 5);
    let urls: Vec<_> = (0..40)
        .map(|_| TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free"))
        .map(|address| format!("http://{address}/x"))
        .collect();
    let began = Instant::now();
    let run = format!(
        "--video a.mp4 77 {} --classes dog --reconnect 0 --jsonl lines {ONE_DETECTION}",
        urls.join(" ")
    );
    let ran = run_for_a_while(&place, &run);
    assert_eq!(ran.status, Some(0), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(lines_of(&place.read("lines")).len(), 5);
    assert!(ran.stderr.contains("source camera 77 failed"), "{ran:?}");
    let failed = urls.iter().filter(|url| ran.stderr.contains(&format!("source {url} failed")));
    assert_eq!(failed.count(), urls.len(), "{ran:?}");
}

/// A web server with one file: whether it supports byte ranges, and the byte at which each connection breaks.
struct FileServer {
    bytes: Vec<u8>,
    ranges: bool,
    breaks_at: usize,
}

impl FileServer {
    /// Serves in the background; returns the address.
    fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        // Ends with the test program.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may close the connection.
                drop(self.answer(stream));
            }
        });
        address
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = [0; 4096];
        let length = stream.read(&mut request)?;
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        let from = request.lines().find_map(|line| line.strip_prefix("Range: bytes="));
        let from = from.and_then(|range| range.split('-').next()?.parse().ok()).filter(|_| self.ranges);
        let (from, all) = (from.unwrap_or(0usize).min(self.bytes.len()), self.bytes.len());
        let status = if self.ranges {
            format!(
                "206 Partial Content\r\nAccept-Ranges: bytes\r\nContent-Range: bytes {from}-{}/{all}",
                all - 1
            )
        } else {
            "200 OK".into()
        };
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", all - from);
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.bytes[from..self.breaks_at.max(from).min(all)])?;
        stream.flush()
    }
}

/// Runs with a limit: an endless run is an error.
fn run_for_a_while(place: &Place, arguments: &str) -> Outcome {
    let limited = format!("60 {OCELLI} video {arguments}");
    outcome(&mut command(place, "timeout", &limited))
}

#[test]
fn a_file_on_a_server_ends_like_a_file() {
    let place = Place::new();
    draw_video(&place, "in.mkv", 60);
    draw_video(&place, "in.mp4", 60);
    // More than FFmpeg keeps of a stream.
    draw_video(&place, "long.mp4", 200);
    succeed(
        &place,
        "--classes dog --scene-size 160x120 --max-frames 20 -o in/%02d.jpg -q --detect-every 1000 --confidence 1",
    );
    let images: Vec<u8> = (0..20).flat_map(|number| place.read(&format!("in/{number:02}.jpg"))).collect();
    let run = |bytes: &[u8], ranges, part: f64, name: &str, more: &str| {
        let breaks_at = (bytes.len() as f64 * part) as usize;
        let address = FileServer { bytes: bytes.to_vec(), ranges, breaks_at }.start();
        let arguments = format!(
            "--video http://{address}/{name} --classes moon --jsonl lines -o out.mp4 --reconnect 2 {ONE_DETECTION} {more}"
        );
        let outcome = run_for_a_while(&place, &arguments);
        // It does not exist without a frame.
        let lines = lines_of(&std::fs::read(place.path("lines")).unwrap_or_default());
        let written = place.path("out.mp4").exists().then(|| frames_of(&place.path("out.mp4")));
        for name in ["lines", "out.mp4"] {
            drop(std::fs::remove_file(place.path(name)));
        }
        (outcome, lines.len(), written.map(|(frames, _)| frames.len()))
    };
    let (mkv, mp4) = (place.read("in.mkv"), place.read("in.mp4"));
    for (bytes, ranges, name) in [(&mkv, true, "x.mkv"), (&mkv, false, "x.mkv"), (&mp4, true, "x.mp4")] {
        let (whole, lines, frames) = run(bytes, ranges, 1.0, name, "");
        assert_eq!((whole.status, lines, frames), (Some(0), 60, Some(60)), "{name}: {whole:?}");
        assert!(!whole.stderr.contains("reconnect"), "{name}: {whole:?}");
    }
    // Images one after the other, whose number no header tells.
    for (name, more) in [("x.mpg", ""), ("x", "--file")] {
        let (endless, lines, _) = run(&images, false, 1.0, name, more);
        assert_eq!(endless.status, Some(0), "{name}: {endless:?}");
        assert!((15..=20).contains(&lines), "{name}: {lines} frames of 20");
    }
    let (cut, lines, frames) = run(&mkv, true, 0.4, "x.mkv", "");
    assert_eq!(cut.status, Some(1), "{cut:?}");
    let last = cut.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("the connection was lost at") && last.contains("of 60 frames"), "{last}");
    assert!((5..50).contains(&lines) && frames == Some(lines), "{lines} lines, {frames:?} frames");
    // The index is at the end of the file, where a server without byte ranges cannot begin.
    let (without, lines, frames) = run(&index_last(&place.read("long.mp4")), false, 1.0, "x.mp4", "");
    assert_eq!((without.status, lines, frames), (Some(1), 0, None), "{without:?}");
    let last = without.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains("x.mp4"), "{last}");
    // The same stream as a live one.
    let (live, _, _) = run(&mkv, true, 1.0, "x.mkv", "--live --max-frames 70 --policy all");
    assert_eq!(live.status, Some(0), "{live:?}");
    assert!(live.stderr.contains("reconnected"), "{live:?}");
}

#[test]
fn a_stream_that_stalls_is_lost() {
    let place = Place::new();
    succeed(
        &place,
        "--classes dog --scene-size 160x120 --max-frames 20 -o in/%02d.jpg -q --detect-every 1000 --confidence 1",
    );
    let images: Vec<Vec<u8>> = (0..20).map(|number| place.read(&format!("in/{number:02}.jpg"))).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("someone connects");
        drop(listener);
        let mut request = [0; 4096];
        drop(stream.read(&mut request));
        drop(send_images(&mut stream, &images));
        // The connection stays silent until the client closes it.
        let began = Instant::now();
        drop(stream.read(&mut request));
        began.elapsed()
    });
    let arguments =
        format!("--video http://{address}/stream --classes dog --reconnect 0 --policy all --jsonl lines");
    let outcome = outcome(&mut command(&place, VIDEO, &arguments));
    let waited = server.join().expect("the connection was made");
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("no frame for 5 s"), "{outcome:?}");
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    assert!(lines_of(&place.read("lines")).len() >= 15);
}

#[test]
fn exemplars_of_another_image_apply_to_every_frame() {
    let place = Place::new();
    let park = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes/park.png");
    let park = std::fs::read(park).expect("the scene is in the project");
    for name in ["frames/1.png", "frames/2.png", "park.png"] {
        place.write(name, &park);
    }
    // The box of the dog on the left, as detected by a text prompt.
    let named = lines_of(succeed(&place, "--video frames --classes dog --max-frames 1 --jsonl -").as_bytes());
    let dog = &named[0].detections[0].bbox;
    let example = format!("{},{},{},{}@dog", dog.x1, dog.y1, dog.x2, dog.y2);
    let arguments =
        format!("--video frames --classes dog --exemplar {example} --exemplar-image park.png --jsonl -");
    let found = lines_of(succeed(&place, &arguments).as_bytes());
    assert_eq!(numbers(&found), [0, 1]);
    for line in &found {
        let overlaps = line.detections.iter().filter(|found| found.bbox.iou(dog) > 0.7).count();
        assert_eq!(overlaps, 1, "{line:?}");
        assert_eq!(line.detections.len(), 2, "{line:?}");
    }
    for (arguments, word) in [
        ("--video frames --classes dog --exemplar 1,2,3,4 --jsonl -", "--exemplar-image"),
        ("--video frames --classes dog --exemplar 1,2,3,4 --exemplar-image none.png --jsonl -", "none.png"),
    ] {
        let outcome = run_video(&place, arguments);
        assert!(
            outcome.status != Some(0) && outcome.stderr.contains(word),
            "{arguments}: {}",
            outcome.stderr
        );
    }
}
