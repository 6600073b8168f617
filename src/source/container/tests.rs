use super::*;

fn iso_box(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), kind.as_slice(), content].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A track with this handler and duration, rotated by a matrix whose first two numbers are `a` and `b`.
fn track(handler: &[u8; 4], units: u32, a: i32, b: i32) -> Vec<u8> {
    let fixed = |value: i32| (value * 0x1_0000) as u32;
    let header =
        numbers(&[0, 0, 0, 1, 0, units, 0, 0, 0, 0, fixed(a), fixed(b), 0, fixed(-b), fixed(a), 0, 0, 0, 1]);
    let handler = iso_box(b"hdlr", &[&numbers(&[0, 0]), handler.as_slice(), &numbers(&[0; 4])].concat());
    iso_box(b"trak", &[iso_box(b"tkhd", &header), iso_box(b"mdia", &handler)].concat())
}

fn mp4(tracks: &[Vec<u8>]) -> Vec<u8> {
    let movie = iso_box(b"mvhd", &numbers(&[0, 0, 0, 1000, 5000, 0]));
    let movie = iso_box(b"moov", &[movie, tracks.concat()].concat());
    [iso_box(b"ftyp", b"isomiso2"), movie, iso_box(b"mdat", &[7; 100])].concat()
}

fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    [id, &[0x40 | (content.len() >> 8) as u8, content.len() as u8], content].concat()
}

/// A file with tracks of these types; if `is_open`, its size is unknown.
fn mkv(types: &[u8], is_open: bool) -> Vec<u8> {
    let entries = types.iter().flat_map(|kind| element(&[0xae], &element(&[0x83], &[*kind])));
    let tracks = element(&[0x16, 0x54, 0xae, 0x6b], &entries.collect::<Vec<_>>());
    let content =
        [element(&[0xec], &[0; 30]), tracks, element(&[0x1f, 0x43, 0xb6, 0x75], &[7; 100])].concat();
    let size = if is_open {
        [1, 255, 255, 255, 255, 255, 255, 255]
    } else {
        (content.len() as u64 | 1 << 56).to_be_bytes()
    };
    [element(&[0x1a, 0x45, 0xdf, 0xa3], &[0; 20]), vec![0x18, 0x53, 0x80, 0x67], size.to_vec(), content]
        .concat()
}

fn avi(kinds: &[&[u8; 4]], size: Option<u32>) -> Vec<u8> {
    let chunk = |id: &[u8; 4], content: &[u8]| {
        [id.as_slice(), &(content.len() as u32).to_le_bytes(), content].concat()
    };
    let headers: Vec<u8> =
        kinds.iter().flat_map(|kind| chunk(b"strh", &[kind.as_slice(), &[0; 44]].concat())).collect();
    let list = chunk(b"LIST", &[b"hdrl".as_slice(), &headers].concat());
    let content = [b"AVI ".as_slice(), &list, &chunk(b"LIST", &[7; 100])].concat();
    [b"RIFF".as_slice(), &size.unwrap_or(content.len() as u32).to_le_bytes(), &content].concat()
}

fn inspected(bytes: &[u8]) -> Option<Container> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("video");
    std::fs::write(&path, bytes).expect("it can be written to");
    Container::inspect(&path).expect("it can be read")
}

#[test]
fn properties_are_read_from_the_structure() {
    let counted = Container { counts_frames: true, ..Container::default() };
    let video = |quarter_turns, ms| Container {
        quarter_turns: Some(quarter_turns),
        duration: Some(Duration::from_millis(ms)),
        ..counted
    };
    let plain = track(b"vide", 4000, 1, 0);
    let whole = mp4(std::slice::from_ref(&plain));
    let cases: [(&str, Vec<u8>, Option<Container>); 19] = [
        ("mp4", whole.clone(), Some(video(0, 4000))),
        ("mp4, clockwise", mp4(&[track(b"vide", 1, 0, 1)]), Some(video(1, 1))),
        ("mp4, upside down", mp4(&[track(b"vide", 1, -1, 0)]), Some(video(2, 1))),
        ("mp4, counter-clockwise", mp4(&[track(b"vide", 1, 0, -1)]), Some(video(3, 1))),
        (
            "mp4, sound first and longer",
            mp4(&[track(b"soun", 9000, 1, 0), plain]),
            Some(Container { has_sound: true, ..video(0, 4000) }),
        ),
        (
            "mp4, in fragments",
            mp4(&[track(b"vide", 0, 1, 0)]),
            Some(Container { duration: None, ..video(0, 0) }),
        ),
        (
            "mp4, cut",
            whole[..whole.len() - 30].to_vec(),
            Some(Container { missing_bytes: 30, ..video(0, 4000) }),
        ),
        (
            "mp4, index last, cut",
            [iso_box(b"ftyp", b"isom"), iso_box(b"mdat", &[7; 90])[..50].to_vec()].concat(),
            Some(Container { missing_bytes: 48, unfinished: true, ..counted }),
        ),
        ("mp4, padding behind", [whole.clone(), vec![0; 40]].concat(), Some(video(0, 4000))),
        (
            "mp4, box to the end",
            [whole, vec![0, 0, 0, 0], b"free".to_vec(), vec![1; 9]].concat(),
            Some(video(0, 4000)),
        ),
        ("mkv", mkv(&[1], false), Some(Container::default())),
        ("mkv with sound", mkv(&[1, 2], false), Some(Container { has_sound: true, ..Container::default() })),
        ("mkv, left open", mkv(&[1], true), Some(Container { unfinished: true, ..Container::default() })),
        (
            "mkv, cut",
            mkv(&[1], false)[..100].to_vec(),
            Some(Container { missing_bytes: mkv(&[1], false).len() as u64 - 100, ..Container::default() }),
        ),
        ("avi", avi(&[b"vids"], None), Some(counted)),
        ("avi with sound", avi(&[b"vids", b"auds"], None), Some(Container { has_sound: true, ..counted })),
        ("avi, left open", avi(&[b"vids"], Some(0)), Some(Container { unfinished: true, ..counted })),
        ("text", b"hello, this is not a video".to_vec(), None),
        ("nothing", Vec::new(), None),
    ];
    let mut failures = Vec::new();
    for (name, bytes, expected) in cases {
        let found = inspected(&bytes);
        if found != expected {
            failures.push(format!("{name}: {found:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn sizes_and_durations_at_the_limit_do_not_panic() {
    // A 64-bit size: 1, the kind, then the size.
    let long_box = |kind: &[u8; 4], size: u64| {
        [&1u32.to_be_bytes(), kind.as_slice(), &size.to_be_bytes(), &[7; 40]].concat()
    };
    for size in [u64::MAX, u64::MAX - 1, u64::MAX - 15, 1 << 63] {
        let alone = long_box(b"ftyp", size);
        let missing = inspected(&alone).map(|container| container.missing_bytes);
        assert_eq!(missing, Some(size - alone.len() as u64), "{size}");
        let second = [iso_box(b"ftyp", b"isom"), long_box(b"mdat", size)].concat();
        let missing = inspected(&second).map(|container| container.missing_bytes);
        assert_eq!(missing, Some(size.saturating_add(12) - second.len() as u64), "{size}, second");
    }
    // A track header with 64-bit times, in a movie with one unit per second.
    for (duration, expected) in [
        (u64::MAX - 1, None),
        (u64::MAX, None),
        (1 << 63, Some(Duration::from_secs(1 << 63))),
        (9, Some(Duration::from_secs(9))),
    ] {
        let mut header = vec![0; 92];
        header[0] = 1;
        header[28..36].copy_from_slice(&duration.to_be_bytes());
        let handler = iso_box(b"hdlr", &[&numbers(&[0, 0]), b"vide".as_slice(), &numbers(&[0; 4])].concat());
        let track = iso_box(b"trak", &[iso_box(b"tkhd", &header), iso_box(b"mdia", &handler)].concat());
        let movie = iso_box(b"mvhd", &numbers(&[0, 0, 0, 1, 5, 0]));
        let file = [iso_box(b"ftyp", b"isom"), iso_box(b"moov", &[movie, track].concat())].concat();
        assert_eq!(inspected(&file).and_then(|container| container.duration), expected, "{duration}");
    }
}

#[test]
fn corrupt_structures_do_not_panic() {
    let whole = [mp4(&[track(b"vide", 4000, 1, 0)]), mkv(&[1, 2], false), avi(&[b"vids", b"auds"], None)];
    for bytes in whole {
        for length in 0..bytes.len() {
            inspected(&bytes[..length]);
        }
        for place in 0..bytes.len() {
            for value in [0, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                inspected(&damaged);
            }
        }
    }
}

/// A movie whose index has these runs of samples with their durations, at 1000 units a second, shown from `start` on.
fn indexed_movie(runs: &[u32], start: u32, more: &[u8]) -> Vec<u8> {
    let handler = iso_box(b"hdlr", &[&numbers(&[0, 0]), b"vide".as_slice(), &numbers(&[0; 4])].concat());
    let samples = iso_box(b"stts", &[numbers(&[0, runs.len() as u32 / 2]), numbers(runs)].concat());
    let table = iso_box(b"minf", &iso_box(b"stbl", &samples));
    let header = iso_box(b"mdhd", &numbers(&[0, 0, 0, 1000, 0, 0]));
    let edits = iso_box(b"edts", &iso_box(b"elst", &numbers(&[0, 1, 1000, start, 0x1_0000])));
    let media = iso_box(b"mdia", &[header, handler, table].concat());
    let movie = iso_box(b"moov", &[&iso_box(b"trak", &[edits, media].concat()), more].concat());
    [iso_box(b"ftyp", b"isomiso2"), movie].concat()
}

fn times_of(bytes: &[u8]) -> Option<Vec<u128>> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("video");
    std::fs::write(&path, bytes).expect("it can be written to");
    let FrameIndex::Times(times) = frame_times(&path).expect("it can be read") else { return None };
    Some(times.iter().map(Duration::as_millis).collect())
}

#[test]
fn an_index_that_is_not_whole_is_none() {
    assert_eq!(times_of(&indexed_movie(&[3, 40], 0, &[])), Some(vec![0, 40, 80]));
    assert_eq!(
        times_of(&indexed_movie(&[3, 40], 1, &[])),
        Some(vec![0, 40]),
        "the edit leaves the first out"
    );
    let fragmented = indexed_movie(&[3, 40], 0, &iso_box(b"mvex", &[0; 8]));
    assert_eq!(times_of(&fragmented), None, "more frames are in fragments");
    // 4 × 10¹² samples that are all left out.
    let endless = [u32::MAX, 0].repeat(1000);
    assert_eq!(times_of(&indexed_movie(&endless, 1, &[])), None);
}

#[test]
fn an_index_of_matroska_is_whole_or_none() {
    let block = |time: u8| element(&[0xa3], &[0x81, 0, time, 0x80]);
    let blocks: Vec<u8> = [0, 40, 80].into_iter().flat_map(block).collect();
    let entry = element(&[0xae], &[element(&[0x83], &[1]), element(&[0xd7], &[1])].concat());
    let tracks = element(&[0x16, 0x54, 0xae, 0x6b], &entry);
    let cluster = element(&[0x1f, 0x43, 0xb6, 0x75], &[element(&[0xe7], &[0]), blocks].concat());
    let segment = element(&[0x18, 0x53, 0x80, 0x67], &[tracks, cluster].concat());
    let bytes = [element(&[0x1a, 0x45, 0xdf, 0xa3], &[0; 20]), segment].concat();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("video");
    let times_of = |bytes: &[u8], most| {
        std::fs::write(&path, bytes).expect("it can be written to");
        matroska::frame_times(&mut File::open(&path).expect("it can be read"), most).expect("it can be read")
    };
    // Head, segment, tracks, cluster, its time and three blocks; then the end is seen.
    let whole = FrameIndex::Times(vec![0, 40_000_000, 80_000_000]);
    assert_eq!(times_of(&bytes, 8), FrameIndex::Unknown);
    assert_eq!(times_of(&bytes, 9), whole);
    let junk = [bytes.as_slice(), &[0; 30]].concat();
    assert_eq!(times_of(&junk, 99), whole, "what follows the segment is not part of it");

    // The second of the three blocks, 7 bytes each at the end: its identifier, and a size beyond the cluster, unknown, invalid.
    let second = bytes.len() - 14;
    for (at, value) in [(second, 0), (second + 1, 0x41), (second + 1, 0xff), (second + 1, 0)] {
        let mut damaged = bytes.clone();
        damaged[at] = value;
        assert_eq!(times_of(&damaged, 99), FrameIndex::DamagedAt(second as u64), "{value:#x} at {at}");
    }
}
