use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/checkpoints/containers")
}

fn open(name: &str) -> Container {
    Container::open(&folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("the fixture is in the repository")
}

/// Opens bytes as a file.
fn reopen(bytes: &[u8]) -> Result<Container> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("it can be written");
    Container::open(file.path())
}

fn values(container: &Container, group: &str, name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensors = &container.groups[group];
    let (_, view) = tensors.iter().find(|(key, _)| key == name).unwrap_or_else(|| panic!("no tensor {name}"));
    (view.shape.clone(), view.values(&container.file.map))
}

#[test]
fn number_formats() {
    let container = open("formats.pt");
    let expected: Vec<f32> = (0..24u8).map(f32::from).collect();
    for (name, format) in [
        ("f64", Format::F64),
        ("f32", Format::F32),
        ("f16", Format::F16),
        ("bf16", Format::Bf16),
        ("i64", Format::I64),
        ("i32", Format::I32),
        ("i16", Format::I16),
        ("i8", Format::I8),
        ("u8", Format::U8),
        ("bool", Format::Bool),
        ("complex", Format::Complex64),
    ] {
        let (_, view) = container.groups[""].iter().find(|(key, _)| key == name).expect(name);
        assert_eq!((view.format, view.shape.as_slice()), (format, [2, 3, 4].as_slice()), "{name}");
        let read = view.values(&container.file.map);
        assert_eq!(read, if format.is_float() { expected.clone() } else { Vec::new() }, "{name}");
    }
}

#[test]
fn offsets_strides_and_shared_storages() {
    let container = open("views.pt");
    let at = |row: usize, column: usize| (12 * row + column) as f32;
    let grid = |rows: Vec<usize>, columns: Vec<usize>| -> Vec<f32> {
        rows.iter().flat_map(|row| columns.iter().map(|column| at(*row, *column))).collect()
    };
    let transposed: Vec<f32> = (0..12).flat_map(|column| (0..5).map(move |row| at(row, column))).collect();
    let permuted: Vec<f32> =
        (0..4).flat_map(|c| (0..5).flat_map(move |a| (0..3).map(move |b| at(a, 4 * b + c)))).collect();
    let cases: [(&str, Vec<usize>, Vec<f32>); 10] = [
        ("whole", vec![5, 12], grid((0..5).collect(), (0..12).collect())),
        ("rows", vec![3, 12], grid(vec![1, 2, 3], (0..12).collect())),
        ("columns", vec![5, 4], grid((0..5).collect(), vec![3, 4, 5, 6])),
        ("transposed", vec![12, 5], transposed),
        ("every_second", vec![3, 4], grid(vec![0, 2, 4], vec![0, 3, 6, 9])),
        ("permuted", vec![4, 5, 3], permuted),
        ("expanded", vec![3, 4], vec![at(2, 1); 12]),
        ("scalar", vec![], vec![at(4, 11)]),
        ("empty", vec![5, 0], vec![]),
        ("parameter", vec![12], (0..12).map(|column| 2.0 * at(1, column)).collect()),
    ];
    for (name, shape, expected) in cases {
        assert_eq!(values(&container, "", name), (shape, expected), "{name}");
    }
    let shared = ["whole", "rows", "transposed"]
        .map(|name| container.groups[""].iter().find(|(key, _)| key == name).map(|(_, view)| view.range));
    assert!(shared.iter().all(|range| *range == shared[0]), "one storage");
}

#[test]
fn views_of_views() {
    let container = open("views.pt");
    let (_, whole) = container.groups[""].iter().find(|(key, _)| key == "whole").expect("it is there");
    let read = |view: Option<View>| view.map(|view| view.values(&container.file.map));
    let narrow = whole.narrow(0, 2, 2).and_then(|view| view.narrow(1, 5, 2));
    assert_eq!(read(narrow.clone()), Some(vec![29.0, 30.0, 41.0, 42.0]));
    assert_eq!(read(narrow.and_then(|view| view.transposed())), Some(vec![29.0, 41.0, 30.0, 42.0]));
    assert_eq!(whole.narrow(0, 4, 2), None);
    assert_eq!(whole.narrow(2, 0, 1), None);
}

#[test]
fn dictionaries_inside_dictionaries() {
    let container = open("wrapped.pt");
    assert_eq!(values(&container, "model", "layer.weight").1, [0.999; 4]);
    let groups: Vec<&str> = container.groups.keys().map(String::as_str).collect();
    assert_eq!(groups, ["model", "optimizer/state/0"]);
    let find =
        |name: &str| container.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    assert_eq!(find("epoch"), Some(Attribute::Integer(4)));
    let texts = ["a", "b:c"].map(|text| Attribute::Text(text.into())).to_vec();
    assert_eq!(find("names"), Some(Attribute::List(texts)));
    assert_eq!(find("config"), Some(Attribute::Other), "an unknown class is opaque");
    assert_eq!(values(&open("protocol4.pt"), "", "layer.weight").1, [0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn errors_say_what_to_do() {
    let open =
        |name: &str| Container::open(&folder().join(name)).err().map(|e| e.to_string()).unwrap_or_default();
    let of = |bytes: &[u8]| reopen(bytes).err().map(|e| e.to_string()).unwrap_or_default();
    let whole = bytes_of("views.pt");
    let mut compressed = whole.clone();
    let directory = compressed.windows(4).rposition(|w| w == b"PK\x01\x02").expect("a directory");
    compressed[directory + 10] = 8;
    let entry = compressed.windows(14).rposition(|w| w == b"views/data.pkl").expect("the pickle's entry");
    compressed[entry - 46 + 10] = 8;
    for (message, word) in [
        (open("legacy.pt"), "torch.save(torch.load("),
        (open("module.pt"), "state_dict()"),
        (open("script.pt"), "TorchScript"),
        (of(b""), "empty"),
        (of(b"version https://git-lfs.github.com/spec/v1\noid"), "Git LFS"),
        (of(b"\x80\x04\x95ab"), "bare pickle"),
        (
            of(b"Access to model facebook/sam3 is restricted.\nYou must have access to it."),
            "but text: \"Access to model facebook/sam3 is restricted.\"",
        ),
        (of(b"{\"error\":\"Repository not found\"}"), "Repository not found"),
        (of(b"GGUF    "), "GGUF"),
        (of(b"{\"a\": 1}"), "neither safetensors nor"),
        (of(b"\x08\0\0\0\0\0\0\0{\"a\": 1}"), "corrupt"),
        (of(&whole[..whole.len() - 30]), "incomplete"),
        (of(&compressed), "compressed"),
    ] {
        assert!(message.contains(word), "expected {word:?} in {message:?}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// Packs the entries of an archive again, with every size in a Zip64 field.
fn as_zip64(bytes: &[u8]) -> Vec<u8> {
    let mut entries: Vec<_> = zip::entries(bytes)
        .expect("a good archive")
        .into_iter()
        .map(|(name, entry)| (name, entry.expect("torch.save does not compress")))
        .collect();
    entries.sort();
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    let all = u32::MAX.to_le_bytes();
    for (name, (start, end)) in &entries {
        let (local, size) = (out.len() as u64, (end - start) as u64);
        let header = |record: &mut Vec<u8>, sizes: &[u64]| {
            record.extend([0; 8]); // method, time, date, flags' rest
            record.extend([0; 4]); // checksum
            record.extend(all);
            record.extend(all);
            record.extend((name.len() as u16).to_le_bytes());
            record.extend((4 + 8 * sizes.len() as u16).to_le_bytes());
        };
        let extra = |record: &mut Vec<u8>, sizes: &[u64]| {
            record.extend(name.as_bytes());
            record.extend(1u16.to_le_bytes());
            record.extend((8 * sizes.len() as u16).to_le_bytes());
            sizes.iter().for_each(|size| record.extend(size.to_le_bytes()));
        };
        out.extend(b"PK\x03\x04");
        out.extend(45u16.to_le_bytes());
        header(&mut out, &[size, size]);
        extra(&mut out, &[size, size]);
        out.extend(&bytes[*start..*end]);
        directory.extend(b"PK\x01\x02");
        directory.extend([45, 0, 45, 0]);
        header(&mut directory, &[size, size, local]);
        directory.extend([0; 10]); // comment, disk, attributes
        directory.extend(all);
        extra(&mut directory, &[size, size, local]);
    }
    let start = out.len() as u64;
    out.extend(&directory);
    let end = out.len() as u64;
    let count = entries.len() as u64;
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([45, 0, 45, 0]);
    out.extend([0; 8]);
    for number in [count, count, end - start, start] {
        out.extend(number.to_le_bytes());
    }
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend(end.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([0xFF; 12]);
    out.extend([0, 0]);
    out
}

#[test]
fn hostile_directories_are_refused() {
    let whole = bytes_of("views.pt");
    let directory = whole.windows(4).position(|w| w == b"PK\x01\x02").expect("a directory");
    let name = |name: &[u8]| {
        let at = whole[directory..].windows(name.len()).position(|w| w == name);
        directory + at.expect("it has an entry")
    };
    let changed = |at: usize, bytes: &[u8]| {
        let mut hostile = whole.clone();
        hostile[at..][..bytes.len()].copy_from_slice(bytes);
        zip::entries(&hostile)
    };
    let twice = changed(name(b"views/data/0"), b"views/data/1").expect_err("one name, two entries");
    assert!(twice.contains("twice"), "{twice}");
    let pickle = name(b"views/data.pkl") - 46;
    for (what, at, bytes) in [
        ("beyond the end", 20, [0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0x7F].as_slice()),
        ("elsewhere", 42, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        assert!(changed(pickle + at, bytes).is_err(), "{what}");
    }
    for (what, at, bytes) in [("compressed", 10, [8, 0]), ("encrypted", 8, [9, 8])] {
        assert_eq!(changed(pickle + at, &bytes).expect(what)["views/data.pkl"], None, "{what}");
    }
}

#[test]
fn archives_above_4_gib_have_wide_sizes() {
    let container = reopen(&as_zip64(&bytes_of("views.pt"))).expect("a good archive");
    assert_eq!(values(&container, "", "rows"), values(&open("views.pt"), "", "rows"));
}

/// Damaged files are errors or other tensors, and never a panic, a hang or a large allocation.
#[test]
fn damaged_files_are_harmless() {
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit.max(1) as u64) as usize
    };
    let (mut readable, mut refused) = (0, 0);
    let fixtures = ["formats.pt", "views.pt", "wrapped.pt", "module.pt", "protocol4.pt"].map(bytes_of);
    let wide = as_zip64(&fixtures[1]);
    for original in fixtures.iter().chain([&wide]) {
        for _ in 0..4000 {
            let mut bytes = original.clone();
            for _ in 0..1 + next(4) {
                let at = next(bytes.len());
                match next(5) {
                    0 => bytes[at] = next(256) as u8,
                    1 => bytes[at] ^= 1 << next(8),
                    2 => bytes.truncate(at + 1),
                    3 => {
                        let end = (at + 8).min(bytes.len());
                        bytes[at..end].fill(if next(2) == 0 { 0xFF } else { 0 });
                    }
                    _ => {
                        let (from, size) = (next(bytes.len()), next(40));
                        let piece = bytes[from..(from + size).min(bytes.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            match torch::read(&bytes) {
                Ok((groups, _)) => {
                    readable += 1;
                    for (_, view) in groups.values().flatten() {
                        let expected = if view.format.is_float() { view.count() } else { 0 };
                        assert_eq!(view.values(&bytes).len(), expected);
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(readable > 1000 && refused > 1000, "{readable} read, {refused} refused");
}

/// Pickles that would grow, recurse or loop without their limits.
#[test]
fn hostile_pickles_are_refused() {
    let read = |bytes: &[u8]| pickle::Pickle::read(bytes).err();
    // A list that contains itself is data as any other.
    assert_eq!(read(b"\x80\x02]q\x00h\x00a."), None);
    // A dictionary of many pairs, copied again and again.
    let mut copies = b"\x80\x02ccollections\nOrderedDict\nq\x00](".to_vec();
    (0..60_000).for_each(|_| copies.extend(b"K\x00K\x01\x86"));
    copies.extend(b"e\x85q\x01");
    (0..1000).for_each(|_| copies.extend(b"h\x00h\x01R"));
    copies.push(b'.');
    let cases: [(&[u8], &str); 7] = [
        (b"", "too early"),
        (b"\x80\x02X\xFF\xFF\xFF\x7F", "too early"),
        (b"\x80\x02K\x01(\x85.", "above its mark"),
        (b"\x80\x02t.", "no mark"),
        (b"\x80\x02h\x05.", "remembered"),
        (b"\x80\x02}(K\x01u.", "without a value"),
        (&copies, "entries"),
    ];
    for (bytes, word) in cases {
        let message = read(bytes).unwrap_or_default();
        assert!(message.contains(word), "expected {word:?} in {message:?}");
    }
    let name = [b"\x80\x02c".to_vec(), vec![b'x'; 4000], b"\ny\n.".to_vec()].concat();
    assert!(read(&name).is_some_and(|why| why.contains("name")));
}
