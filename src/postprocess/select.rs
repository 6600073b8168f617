//! The first half of post-processing where the outputs lie: which queries may be worth a detection.

use std::sync::Arc;

use ocelli_engines::kernels::{KernelArgument, KernelCompiler, KernelProgram, Launch};
use ocelli_engines::{Device, ElementType, Tensor};

use super::PostProcessOptions;
use crate::error::{Error, ErrorKind, Result};

const SOURCE: &str = include_str!("select.cu");
/// One block.
const THREADS: u32 = 256;

/// Words of a record, and of the head before the first.
const RECORD: usize = 8;
/// Records that the first copy brings along; more need a second.
const FIRST_RECORDS: usize = 255;

/// Far above the rounding of the two exponentials, about a millionth, by which a device's score may differ from the
/// host's.
const MARGIN: f32 = 1e-5;

/// A query whose score is above its class's threshold, or so near that the host has to say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectedQuery {
    /// Which of the classes that ran together.
    pub row: usize,
    /// Which of the class's queries.
    pub query: usize,
    /// How much it is what its class names.
    pub logit: f32,
    /// How much the class is in the image at all, the same for all queries of a row; `None` where the model does not say.
    pub presence: Option<f32>,
    /// xyxy, 1 = the image's side, not clipped.
    pub edges: [f32; 4],
}

/// Picks, on the device, the queries that [`PostProcessor`](super::PostProcessor) may keep, so that nothing else has to
/// cross: 8 KiB at once, and the rest where more than 255 are left.
///
/// Scores are compared with a margin and computed again on the host, so that what is kept does not depend on where.
pub struct QuerySelector {
    device: Arc<dyn Device>,
    program: Arc<dyn KernelProgram>,
    /// [class], and what it holds.
    thresholds: Tensor,
    known_thresholds: Vec<f32>,
    /// [1 + class · query, word]
    selected: Tensor,
    copied: Vec<u8>,
}

impl SelectedQuery {
    /// The queries of each of the first `rows` rows, in turn.
    pub fn by_row(selected: &[Self], rows: usize) -> impl Iterator<Item = &[Self]> {
        let mut rest = selected;
        (0..rows).map(move |row| {
            let (own, others) = rest.split_at(rest.partition_point(|query| query.row <= row));
            rest = others;
            own
        })
    }
}

impl QuerySelector {
    /// Compiles the kernel for the compiler's device.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where there is no compiler for the device's programs.
    pub fn new(compiler: &dyn KernelCompiler) -> Result<Self> {
        let device = Arc::clone(compiler.device());
        let source = format!("#define THREADS {THREADS}\n{SOURCE}");
        Ok(Self {
            program: compiler.compile("select", &source)?,
            thresholds: Tensor::on(Arc::clone(&device)),
            known_thresholds: Vec::new(),
            selected: Tensor::on(Arc::clone(&device)),
            copied: Vec::new(),
            device,
        })
    }

    /// The device whose tensors it takes.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Fills `selected` with the queries to push, by rows and then by queries.
    ///
    /// `logits` is `[class, query]`, `boxes` `[class, query, xyxy]`, `presence` `[class, 1]` where the model has it, all
    /// on the device; `class_ids` are the classes of the first rows, of whose thresholds `options` know. Rows beyond them
    /// do not count.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] where the shapes do not belong together, [`ErrorKind::Engine`] where the device fails.
    pub fn run_into(
        &mut self,
        logits: &Tensor,
        boxes: &Tensor,
        presence: Option<&Tensor>,
        class_ids: &[usize],
        options: &PostProcessOptions,
        selected: &mut Vec<SelectedQuery>,
    ) -> Result<()> {
        selected.clear();
        let classes = class_ids.len();
        let queries = queries(logits, boxes, presence, classes)?;
        if classes * queries == 0 {
            return Ok(());
        }
        let wanted = class_ids.iter().map(|&class_id| options.score_threshold_of(class_id) - MARGIN);
        if !wanted.clone().eq(self.known_thresholds.iter().copied()) {
            self.known_thresholds.clear();
            self.known_thresholds.extend(wanted);
            self.thresholds.copy_from_host(&Tensor::f32(&[classes], self.known_thresholds.clone())?)?;
        }
        self.selected.reset_to(ElementType::I32, &[1 + classes * queries, RECORD])?;

        use KernelArgument::{I32, Nothing, Read, Write};
        let arguments = [
            Read(logits),
            Read(boxes),
            presence.map_or(Nothing, Read),
            Read(&self.thresholds),
            Write(&self.selected),
            I32(classes as i32),
            I32(queries as i32),
        ];
        let (blocks, threads) = ([1; 3], [THREADS, 1, 1]);
        let launch = Launch { kernel: "select_queries", blocks, threads, arguments: &arguments };
        self.program.launch(&launch)?;
        self.read_back(classes * queries, presence.is_some(), selected)
    }

    fn read_back(&mut self, all: usize, has_presence: bool, selected: &mut Vec<SelectedQuery>) -> Result<()> {
        const BYTES: usize = 4 * RECORD;
        let source = self.selected.device_slice().expect("it has at least one record");
        let first = (1 + all.min(FIRST_RECORDS)) * BYTES;
        self.copied.resize(first, 0);
        source.buffer.copy_to_host(source.offset, &mut self.copied)?;
        let word =
            |bytes: &[u8], word: usize| <[u8; 4]>::try_from(&bytes[4 * word..][..4]).expect("four bytes");
        let count = u32::from_ne_bytes(word(&self.copied, 0)) as usize;
        if count > all {
            let message = format!("post-processing on {}: {count} of {all} queries came", self.device.name());
            return Err(Error::new(ErrorKind::Engine, message));
        }
        let needed = (1 + count) * BYTES;
        self.copied.resize(needed, 0);
        if needed > first {
            source.buffer.copy_to_host(source.offset + first, &mut self.copied[first..])?;
        }
        selected.extend(self.copied[BYTES..].chunks_exact(BYTES).map(|record| {
            let index = |at: usize| u32::from_ne_bytes(word(record, at)) as usize;
            let value = |at: usize| f32::from_ne_bytes(word(record, at));
            SelectedQuery {
                row: index(0),
                query: index(1),
                logit: value(2),
                presence: has_presence.then(|| value(3)),
                edges: std::array::from_fn(|edge| value(4 + edge)),
            }
        }));
        Ok(())
    }
}

/// The number of queries, once the shapes are known to belong together.
fn queries(logits: &Tensor, boxes: &Tensor, presence: Option<&Tensor>, classes: usize) -> Result<usize> {
    let mismatch = |name: &str, expected: &str, tensor: &Tensor| {
        let (came, elements) = (tensor.shape(), tensor.element_type());
        let message = format!(
            "encoder-decoder output, {name}: expected f32 of {expected} for {classes} classes, came {elements} of \
             {came:?}; the graph is not of this model, export it again"
        );
        Err(Error::new(ErrorKind::Mismatch, message))
    };
    let is_f32 = |tensor: &Tensor| tensor.element_type() == ElementType::F32;
    let (rows, queries) = match logits.shape() {
        &[rows, queries] if rows >= classes && is_f32(logits) => (rows, queries),
        _ => return mismatch("logits", "[class, query]", logits),
    };
    if boxes.shape() != [rows, queries, 4] || !is_f32(boxes) {
        return mismatch("boxes", &format!("[{rows}, {queries}, 4]"), boxes);
    }
    match presence {
        Some(presence) if presence.len() != rows || !is_f32(presence) => {
            mismatch("presence", &format!("[{rows}, 1]"), presence)
        }
        _ => Ok(queries),
    }
}

impl std::fmt::Debug for QuerySelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "QuerySelector on {}", self.device.name())
    }
}
