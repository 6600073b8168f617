//! Times of frames: variable rates, live streams, images.

use super::{draw_video, frames_of, index_last, lines_of, succeed};
use crate::run::Place;

type Kind = [u8; 4];

/// Kinds and contents of the boxes of an MP4 file.
fn boxes(mut bytes: &[u8]) -> Vec<(Kind, &[u8])> {
    let number = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
    let mut found = Vec::new();
    while bytes.len() >= 8 {
        let (header, size) = match number(&bytes[..4]) {
            1 => (16, number(&bytes[8..16])),
            size => (8, size),
        };
        found.push((bytes[4..8].try_into().expect("four bytes"), &bytes[header..size]));
        bytes = &bytes[size..];
    }
    found
}

fn boxed(kind: Kind, content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), &kind[..], content].concat()
}

fn is_parent(kind: Kind) -> bool {
    [b"moov", b"trak", b"mdia", b"minf", b"stbl"].contains(&&kind)
}

fn content<'b>(bytes: &'b [u8], wanted: &Kind) -> Option<&'b [u8]> {
    boxes(bytes).into_iter().find_map(|(kind, inside)| match kind == *wanted {
        true => Some(inside),
        false if is_parent(kind) => content(inside, wanted),
        false => None,
    })
}

/// The values of a table of runs, one for each sample.
fn samples(table: &[u8]) -> Vec<i64> {
    let number = |bytes: &[u8]| i64::from(i32::from_be_bytes(bytes.try_into().expect("four bytes")));
    let pairs = table[8..].chunks_exact(8);
    pairs.flat_map(|pair| vec![number(&pair[4..]); number(&pair[..4]) as usize]).collect()
}

fn table(values: &[i64]) -> Vec<u8> {
    let pairs = values.iter().flat_map(|value| [1u32.to_be_bytes(), (*value as i32).to_be_bytes()].concat());
    [&[0; 4][..], &(values.len() as u32).to_be_bytes(), &pairs.collect::<Vec<u8>>()].concat()
}

/// Replaces the times of an MP4 file whose header comes last: `times` in milliseconds, in the order of showing.
fn with_times(bytes: &[u8], times: &[i64]) -> Vec<u8> {
    let header = content(bytes, b"mdhd").expect("a track has a header");
    let scale = i64::from(u32::from_be_bytes(header[12..16].try_into().expect("four bytes")));
    let times: Vec<i64> = times.iter().map(|ms| ms * scale / 1000).collect();
    let steps = samples(content(bytes, b"stts").expect("samples have durations"));
    let offsets = samples(content(bytes, b"ctts").expect("the encoder reorders frames"));
    assert_eq!((steps.len(), offsets.len()), (times.len(), times.len()));
    let mut decoded = 0;
    let shown: Vec<i64> = steps
        .iter()
        .zip(&offsets)
        .map(|(step, offset)| {
            decoded += step;
            decoded - step + offset
        })
        .collect();
    let rank = |time: &i64| shown.iter().filter(|other| *other < time).count();
    let ranks: Vec<usize> = shown.iter().map(rank).collect();
    assert!(ranks.windows(2).any(|pair| pair[0] > pair[1]), "the encoder reorders frames");
    // Decoded at the times of showing; shown so much later that nothing is shown before it is decoded.
    let delay = ranks.iter().enumerate().map(|(at, rank)| times[at] - times[*rank]).max().unwrap_or(0);
    let offsets: Vec<i64> =
        ranks.iter().enumerate().map(|(at, rank)| times[*rank] + delay - times[at]).collect();
    let mut steps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.push(scale / 25);
    let moov = bytes.windows(4).rposition(|window| window == b"moov").expect("there is a header") - 4;
    let mut file = bytes[..moov].to_vec();
    file.extend(changed(&bytes[moov..], &table(&steps), &table(&offsets)));
    file
}

fn changed(bytes: &[u8], steps: &[u8], offsets: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, inside) in boxes(bytes) {
        match &kind {
            b"edts" => {}
            b"stts" => all.extend(boxed(kind, steps)),
            b"ctts" => all.extend(boxed(kind, offsets)),
            _ if is_parent(kind) => all.extend(boxed(kind, &changed(inside, steps, offsets))),
            _ => all.extend(boxed(kind, inside)),
        }
    }
    all
}

#[test]
fn a_variable_rate_keeps_its_times() {
    let place = Place::new();
    draw_video(&place, "even.mp4", 60);
    let intervals = [20, 20, 120, 40, 60];
    let mut times = vec![0];
    (0..59).for_each(|at| times.push(times[at] + intervals[at % intervals.len()]));
    place.write("in.mp4", with_times(&index_last(&place.read("even.mp4")), &times));
    // At this confidence nothing is detected, and nothing drawn.
    let run = "--video in.mp4 --classes moon --detect-every 1000 --confidence 1 --jsonl - -o out.mp4 -q";
    let lines = lines_of(succeed(&place, run).as_bytes());
    let found: Vec<i64> = lines.iter().map(|line| (line.time_s * 1e3).round() as i64).collect();
    assert_eq!(found, times, "also those of the frames that the decoder holds back");
    assert!(lines.iter().all(|line| line.wall_time.is_none() && line.file.is_none()));

    // So has the annotated video.
    let (written, _) = frames_of(&place.path("out.mp4"));
    let written: Vec<i64> =
        written.iter().map(|frame| (frame.time.as_secs_f64() * 1e3).round() as i64).collect();
    assert_eq!(written, times);
}

#[test]
fn lines_of_images_name_the_file() {
    let place = Place::new();
    succeed(&place, "--classes dog --scene-size 160x120 --max-frames 3 -o in/%02d.png -q");
    let lines = lines_of(succeed(&place, "--video in --classes dog --jsonl -").as_bytes());
    let files: Vec<&str> = lines.iter().filter_map(|line| line.file.as_deref()).collect();
    assert_eq!(files, ["in/00.png", "in/01.png", "in/02.png"]);
}
