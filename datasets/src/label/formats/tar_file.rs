//! The images in a tar file, such as a WebDataset shard. The file is read in place and never unpacked.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use ocelli::image::{MAX_FILE_BYTES, has_image_extension, has_unsupported_extension};
use ocelli::{Error, Result};
use tar::{EntryType, Header, PaxExtensions};

use crate::label::record::check_name;

/// The size of a header, and the unit of everything else.
const BLOCK: u64 = 512;
/// The longest name of a member, in bytes.
const MAX_NAME: usize = 1024;
/// The most bytes of a member that describes the next one.
const MAX_EXTENSION: u64 = 1 << 20;
/// The most images of a tar file.
const MAX_IMAGES: usize = 10_000_000;

/// Members that describe the next one, or the whole file.
const EXTENSIONS: [EntryType; 4] =
    [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader, EntryType::XGlobalHeader];

/// The place of a member's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    at: u64,
    bytes: u64,
}

/// The images of a tar file by their names, and what is wrong with the file.
#[derive(Debug, Default)]
pub(crate) struct TarFile {
    path: PathBuf,
    /// Size and time of the last change when the headers were read.
    identity: (u64, u64),
    images: BTreeMap<String, Span>,
    /// Why images may be missing.
    pub problem: Option<String>,
}

impl TarFile {
    /// Reads the headers. What cannot be read is a [problem](Self::problem); the images before it are there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](ocelli::ErrorKind::Io) if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        // The names of a large data set are read once, not for every image.
        static KNOWN: Mutex<Option<HashMap<PathBuf, Arc<TarFile>>>> = Mutex::new(None);
        let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let cannot = |e| Error::io("cannot read the tar file", path, e);
        let now = identity_of(&path.metadata().map_err(cannot)?);
        let known = lock().as_ref().and_then(|known| known.get(path).cloned());
        if let Some(known) = known.filter(|known| known.identity == now) {
            return Ok(known);
        }
        let file = File::open(path).map_err(cannot)?;
        let identity = identity_of(&file.metadata().map_err(cannot)?);
        let mut scan = Scan::new(file, identity.0);
        scan.run();
        let images = std::mem::take(&mut scan.images);
        let read = Self { path: path.to_owned(), identity, images, problem: scan.into_problem() };
        let read = Arc::new(read);
        lock().get_or_insert_default().insert(path.to_owned(), read.clone());
        Ok(read)
    }

    /// The names of the images, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.images.keys().map(String::as_str)
    }

    /// `true` if there is an image with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.images.contains_key(name)
    }

    /// The size of an image, and the time of the tar file's last change: the times of members may all be the same.
    pub fn identity(&self, name: &str) -> Option<(u64, u64)> {
        self.images.get(name).map(|span| (span.bytes, self.identity.1))
    }

    /// The content of an image.
    ///
    /// # Errors
    /// If there is none with this name, it is larger than [`MAX_FILE_BYTES`], or the file cannot be read.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "the tar file has no such image");
        let span = self.images.get(name).ok_or_else(missing)?;
        if span.bytes > MAX_FILE_BYTES {
            let message = format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(span.at))?;
        let mut bytes = Vec::new();
        file.take(span.bytes).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != span.bytes {
            let message = "the tar file was cut while it was read";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        Ok(bytes)
    }
}

/// Size and time of the last change of a file.
pub(crate) fn identity_of(meta: &std::fs::Metadata) -> (u64, u64) {
    let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    (meta.len(), since.map_or(0, |since| since.as_nanos() as u64))
}

/// Goes through the headers.
struct Scan<R> {
    file: R,
    length: u64,
    /// The offset of the next header.
    at: u64,
    images: BTreeMap<String, Span>,
    /// The name and the size that a member before gives the next one.
    name: Option<Vec<u8>>,
    size: Option<u64>,
    /// Members that are left out: how many, and the first one.
    skipped: Option<(u64, String)>,
    end: Option<String>,
}

impl<R: Read + Seek> Scan<R> {
    fn new(file: R, length: u64) -> Self {
        let (images, name, size, skipped, end) = Default::default();
        Self { file, length, at: 0, images, name, size, skipped, end }
    }

    fn run(&mut self) {
        let mut is_more = true;
        while is_more {
            is_more = self.next().unwrap_or_else(|why| {
                self.end = Some(format!("{why}; the {} images before are labelled", self.images.len()));
                false
            });
        }
    }

    fn into_problem(self) -> Option<String> {
        let skipped = self.skipped.map(|(count, first)| {
            format!("{count} images are left out, as links and names with `..` are not followed; the first is \"{first}\"")
        });
        let problems: Vec<String> = self.end.into_iter().chain(skipped).collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// Reads a header, and what belongs to it. Returns whether there is another one.
    fn next(&mut self) -> std::result::Result<bool, String> {
        let left = self.length.saturating_sub(self.at);
        if left == 0 {
            return Err(match self.at {
                0 => "the file is empty".into(),
                _ => "it has no end mark, so it may be truncated: copy or download it again".into(),
            });
        }
        let truncated = |at: u64| format!("it is truncated at byte {at}: copy or download it again");
        if left < BLOCK {
            return Err(match self.at {
                0 => "it is not a tar file".into(),
                _ => truncated(self.length),
            });
        }
        let mut header = Header::new_old();
        self.read_at(self.at, header.as_mut_bytes())?;
        if header.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(false);
        }
        if !is_header(&header) {
            return Err(match (self.at, header.as_bytes()) {
                (0, [0x1f, 0x8b, ..]) => "it is compressed: unpack it with gunzip".into(),
                (0, [0x28, 0xb5, 0x2f, 0xfd, ..]) => "it is compressed: unpack it with zstd -d".into(),
                (0, _) => "it is not a tar file".into(),
                (at, _) => format!("it is corrupt at byte {at}: copy or download it again"),
            });
        }
        let corrupt = |what: &str| format!("it is corrupt at byte {}: {what}", self.at);
        let kind = header.entry_type();
        let is_extension = EXTENSIONS.contains(&kind);
        let own_size = header.entry_size().map_err(|_| corrupt("a size that is no number"))?;
        let bytes = if is_extension { own_size } else { self.size.take().unwrap_or(own_size) };
        let start = self.at + BLOCK;
        let end = start
            .checked_add(bytes)
            .filter(|end| *end <= self.length)
            .ok_or_else(|| truncated(self.length))?;
        if kind.is_gnu_sparse() {
            return Err(corrupt("sparse members are not supported: pack it again with whole files"));
        }
        if is_extension {
            if bytes > MAX_EXTENSION {
                return Err(corrupt("a name that is too long"));
            }
            let mut content = vec![0; bytes as usize];
            self.read_at(start, &mut content)?;
            self.extend(kind, &content);
        } else {
            let name = self.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
            self.add(&name, kind, Span { at: start, bytes });
            if self.images.len() > MAX_IMAGES {
                return Err(format!("it has more than {MAX_IMAGES} images"));
            }
        }
        // The padding of the last member may be missing: the end mark is looked for next.
        self.at = end.next_multiple_of(BLOCK).min(self.length);
        Ok(true)
    }

    fn read_at(&mut self, at: u64, bytes: &mut [u8]) -> std::result::Result<(), String> {
        let read = self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(bytes));
        read.map_err(|error| format!("cannot read byte {at}: {error}"))
    }

    /// Keeps what a member says of the next one.
    fn extend(&mut self, kind: EntryType, content: &[u8]) {
        if kind.is_gnu_longname() {
            let end = content.iter().position(|byte| *byte == 0).unwrap_or(content.len());
            self.name = Some(content[..end].to_vec());
        } else if kind.is_pax_local_extensions() {
            for extension in PaxExtensions::new(content).flatten() {
                match extension.key_bytes() {
                    b"path" => self.name = Some(extension.value_bytes().to_vec()),
                    b"size" => self.size = extension.value().ok().and_then(|size| size.parse().ok()),
                    _ => {}
                }
            }
        }
    }

    /// Adds a member if it is an image. Of several with the same name the last one counts, as it does when unpacking.
    fn add(&mut self, name: &[u8], kind: EntryType, span: Span) {
        let text = String::from_utf8_lossy(name);
        let path = Path::new(&*text);
        let is_image = has_image_extension(path) || has_unsupported_extension(path);
        if kind.is_dir() || !is_image {
            return;
        }
        let parts: Vec<_> = path.components().filter(|part| *part != Component::CurDir).collect();
        let is_hidden = |part: &Component<'_>| {
            part.as_os_str().to_string_lossy().starts_with('.') && *part != Component::ParentDir
        };
        if parts.iter().any(is_hidden) {
            return;
        }
        let clean: Vec<_> = parts.iter().map(|part| part.as_os_str().to_string_lossy()).collect();
        let clean = clean.join("/");
        let is_file = kind.is_file() || kind.is_contiguous();
        let is_safe =
            std::str::from_utf8(name).is_ok() && clean.len() <= MAX_NAME && check_name(&clean).is_ok();
        if is_file && is_safe {
            self.images.insert(clean, span);
        } else {
            let first: String = text.chars().take(100).collect();
            self.skipped.get_or_insert((0, first)).0 += 1;
        }
    }
}

/// `true` if the check sum is right: the sum of all bytes, with spaces in its own place.
fn is_header(header: &Header) -> bool {
    let bytes = header.as_bytes();
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = bytes[148..156].iter().map(|byte| u32::from(*byte)).sum();
    header.cksum().is_ok_and(|expected| expected == sum - own + 8 * u32::from(b' '))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A member, without the end mark.
    fn member(name: &str, kind: EntryType, content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn scan(bytes: &[u8]) -> (Vec<(String, u64)>, Option<String>) {
        let mut scan = Scan::new(Cursor::new(bytes), bytes.len() as u64);
        scan.run();
        let images = scan.images.iter().map(|(name, span)| (name.clone(), span.bytes)).collect();
        (images, scan.into_problem())
    }

    const END: [u8; 1024] = [0; 1024];
    const FILE: EntryType = EntryType::Regular;

    #[test]
    fn images_and_problems() {
        let file = |name: &str, content: &[u8]| member(name, FILE, content);
        let whole =
            [file("a.jpg", b"12"), file("./b/c.PNG", b"345"), file("a.cls", b"7"), END.to_vec()].concat();
        let both: &[(&str, u64)] = &[("a.jpg", 2), ("b/c.PNG", 3)];
        let long = format!("{}.jpg", "n".repeat(300));
        let long_name = [(long.as_str(), 1)];
        let mut huge = file("d.jpg", b"");
        huge[124..136].copy_from_slice(b"77777777777\0");
        let mut header = Header::new_gnu();
        header.as_mut_bytes().copy_from_slice(&huge[..512]);
        header.set_cksum();
        let huge = header.as_bytes().to_vec();
        let pax = |text: &str| member("pax", EntryType::XHeader, text.as_bytes());
        let cases: Vec<(&str, Vec<u8>, &[(&str, u64)], &str)> = vec![
            ("whole", whole.clone(), both, ""),
            ("no end mark", whole[..whole.len() - 1024].to_vec(), both, "no end mark"),
            ("cut in a header", whole[..1124].to_vec(), &both[..1], "truncated at byte 1124"),
            ("cut in an image", whole[..1024 + 513].to_vec(), &both[..1], "truncated at byte 1537"),
            ("cut in the padding", whole[..1024 + 515].to_vec(), both, "no end mark"),
            ("noise after", [&whole[..1024], &[7; 512]].concat(), &both[..1], "corrupt at byte 1024"),
            ("empty", Vec::new(), &[], "empty"),
            ("text", b"hello".to_vec(), &[], "not a tar file"),
            ("compressed", [&[0x1f, 0x8b][..], &[1; 600]].concat(), &[], "gunzip"),
            (
                "twice",
                [file("a.jpg", b"1"), file("a.jpg", b"123"), END.to_vec()].concat(),
                &[("a.jpg", 3)],
                "",
            ),
            ("hidden", [file("__x/._a.jpg", b"1"), file(".a/b.jpg", b"1"), END.to_vec()].concat(), &[], ""),
            (
                "names that leave the folder",
                [
                    file("../a.jpg", b"1"),
                    file("/etc/b.jpg", b"1"),
                    file("x/../../c.jpg", b"1"),
                    file("d.jpg", b"1"),
                    END.to_vec(),
                ]
                .concat(),
                &[("d.jpg", 1)],
                "3 images are left out, as links and names with `..` are not followed; the first is \"../a.jpg\"",
            ),
            ("a link", [member("a.jpg", EntryType::Symlink, b""), END.to_vec()].concat(), &[], "1 images"),
            (
                "larger than the file",
                [file("a.jpg", b"1"), huge, END.to_vec()].concat(),
                &[("a.jpg", 1)],
                "truncated",
            ),
            (
                "a long name",
                [
                    member("././@LongLink", EntryType::GNULongName, long.as_bytes()),
                    file("n.jpg", b"1"),
                    END.to_vec(),
                ]
                .concat(),
                &long_name,
                "",
            ),
            (
                "an endless name",
                [
                    member("././@LongLink", EntryType::GNULongName, &vec![b'n'; 2 << 20]),
                    file("n.jpg", b"1"),
                    END.to_vec(),
                ]
                .concat(),
                &[],
                "a name that is too long",
            ),
            (
                "a name of pax",
                [pax("16 path=z/q.jpg\n"), file("n.jpg", b"1"), END.to_vec()].concat(),
                &[("z/q.jpg", 1)],
                "",
            ),
            (
                "a size of pax beyond the file",
                [pax("29 size=18446744073709551615\n"), file("n.jpg", b"1"), END.to_vec()].concat(),
                &[],
                "truncated",
            ),
        ];
        let mut failures = Vec::new();
        for (what, bytes, images, why) in cases {
            let (found, problem) = scan(&bytes);
            let found: Vec<(&str, u64)> = found.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
            let is_right = match &problem {
                None => why.is_empty(),
                Some(problem) => !why.is_empty() && problem.contains(why),
            };
            if found != images || !is_right {
                failures.push(format!("{what}: {found:?}, {problem:?}"));
            }
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = [
            member("a.jpg", FILE, b"12"),
            member("pax", EntryType::XHeader, b"14 path=b.jpg\n"),
            END.to_vec(),
        ];
        let whole = whole.concat();
        for at in 0..whole.len() {
            for value in [0, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                scan(&bytes);
                scan(&bytes[..at]);
            }
        }
    }
}
