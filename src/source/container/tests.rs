use super::*;

fn iso_box(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32 + 8).to_be_bytes(), kind.as_slice(), content].concat()
}

fn mp4() -> Vec<u8> {
    [iso_box(b"ftyp", b"isomiso2"), iso_box(b"moov", &[0; 60]), iso_box(b"mdat", &[7; 100])].concat()
}

fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    [id, &[0x40 | (content.len() >> 8) as u8, content.len() as u8], content].concat()
}

/// A file with a cluster of three blocks; if `is_open`, its size is unknown.
fn mkv(is_open: bool) -> Vec<u8> {
    let block = |time: u8| element(&[0xa3], &[0x81, 0, time, 0x80]);
    let blocks: Vec<u8> = [0, 40, 80].into_iter().flat_map(block).collect();
    let cluster = element(&[0x1f, 0x43, 0xb6, 0x75], &[element(&[0xe7], &[0]), blocks].concat());
    let content = [element(&[0xec], &[0; 30]), element(&[0x16, 0x54, 0xae, 0x6b], &[0; 9]), cluster].concat();
    let size = if is_open {
        [1, 255, 255, 255, 255, 255, 255, 255]
    } else {
        (content.len() as u64 | 1 << 56).to_be_bytes()
    };
    [element(&[0x1a, 0x45, 0xdf, 0xa3], &[0; 20]), vec![0x18, 0x53, 0x80, 0x67], size.to_vec(), content]
        .concat()
}

fn avi(size: Option<u32>) -> Vec<u8> {
    let content = [b"AVI LIST".as_slice(), &100u32.to_le_bytes(), &[7; 100]].concat();
    [b"RIFF".as_slice(), &size.unwrap_or(content.len() as u32).to_le_bytes(), &content].concat()
}

fn inspected(bytes: &[u8]) -> Option<Container> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("video");
    std::fs::write(&path, bytes).expect("it can be written to");
    Container::inspect(&path).expect("it can be read")
}

#[test]
fn missing_bytes_are_counted() {
    let whole = Container::default();
    let missing = |missing_bytes| Container { missing_bytes, ..whole };
    let unfinished = Container { unfinished: true, ..whole };
    let cases: [(&str, Vec<u8>, Option<Container>); 13] = [
        ("mp4", mp4(), Some(whole)),
        ("mp4, cut", mp4()[..mp4().len() - 30].to_vec(), Some(missing(30))),
        (
            "mp4, index last, cut",
            [iso_box(b"ftyp", b"isom"), iso_box(b"mdat", &[7; 90])[..50].to_vec()].concat(),
            Some(Container { missing_bytes: 48, ..unfinished }),
        ),
        ("mp4, padding behind", [mp4(), vec![0; 40]].concat(), Some(whole)),
        (
            "mp4, box to the end",
            [mp4(), vec![0, 0, 0, 0], b"free".to_vec(), vec![1; 9]].concat(),
            Some(whole),
        ),
        ("mkv", mkv(false), Some(whole)),
        ("mkv, left open", mkv(true), Some(unfinished)),
        ("mkv, cut", mkv(false)[..80].to_vec(), Some(missing(mkv(false).len() as u64 - 80))),
        ("avi", avi(None), Some(whole)),
        ("avi, cut", avi(None)[..90].to_vec(), Some(missing(30))),
        ("avi, left open", avi(Some(0)), Some(unfinished)),
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
fn sizes_at_the_limit_do_not_panic() {
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
}

#[test]
fn corrupt_structures_do_not_panic() {
    let whole = [mp4(), mkv(false), avi(None)];
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

#[test]
fn damage_of_matroska_is_found() {
    let bytes = mkv(false);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("video");
    let damaged_at = |bytes: &[u8], most| {
        std::fs::write(&path, bytes).expect("it can be written to");
        let mut file = File::open(&path).expect("it can be read");
        matroska(&mut file, bytes.len() as u64, most).expect("it can be read").damaged_at
    };
    assert_eq!(damaged_at(&bytes, 99), None);
    let junk = [bytes.as_slice(), &[0; 30]].concat();
    assert_eq!(damaged_at(&junk, 99), None, "what follows the segment is not part of it");

    // The second of the three blocks, 7 bytes each at the end: its identifier, and a size beyond the cluster, unknown, invalid.
    let second = bytes.len() - 14;
    for (at, value) in [(second, 0), (second + 1, 0x41), (second + 1, 0xff), (second + 1, 0)] {
        let mut damaged = bytes.clone();
        damaged[at] = value;
        assert_eq!(damaged_at(&damaged, 99), Some(second as u64), "{value:#x} at {at}");
        // Head, segment, two elements, cluster, its time and the first block.
        assert_eq!(damaged_at(&damaged, 7), None, "{value:#x} at {at}");
    }
}
