//! What the builder's side of TensorRT is asked, call by call.
//!
//! The lowest of three layers: [`BuildCalls`] answers as the C++ does, with null and `false`; `session` makes results
//! and owners of that. Behind the trait stands the library, or, in tests, [`FakeBuildCalls`](super::fake_calls).

use super::log::Log;
use super::version::ComputeCapability;
use crate::error::Result;
use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

/// No memory lies below this on the systems that TensorRT runs on: what could not be made may be the place of a part in an
/// object that is null.
pub(super) const FIRST_ADDRESS: usize = 1 << 16;

/// An object of TensorRT's: an address that is not null. Whoever has it by value owns the object.
pub(super) struct Handle<T> {
    address: NonZeroUsize,
    object: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    /// `None` for null, and for an address in the first pages, where nothing lies.
    pub(super) fn new(address: usize) -> Option<Self> {
        NonZeroUsize::new(address)
            .filter(|address| address.get() >= FIRST_ADDRESS)
            .map(|address| Self { address, object: PhantomData })
    }

    pub(super) fn address(&self) -> usize {
        self.address.get()
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.address)
    }
}

/// The classes of which a build makes objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Builder,
    Network,
    Parser,
    Config,
    TimingCache,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Builder => "builder",
            Self::Network => "network",
            Self::Parser => "ONNX parser",
            Self::Config => "configuration",
            Self::TimingCache => "timing cache",
        })
    }
}

/// A type that stands for one of the classes.
pub(super) trait Object {
    const CLASS: Class;
}

macro_rules! objects {
    ($($name:ident),+) => {$(
        #[derive(Debug)]
        pub(super) enum $name {}

        impl Object for $name {
            const CLASS: Class = Class::$name;
        }
    )+};
}

objects!(Builder, Network, Parser, Config, TimingCache);

/// An input or output of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkTensor {
    pub(super) name: String,
    /// The number of `nvinfer1::DataType`.
    pub(super) data_type: i32,
    /// -1 where it is dynamic.
    pub(super) sizes: Vec<i64>,
    /// ONNX's `dim_param`, for each of the sizes.
    pub(super) names: Vec<Option<String>>,
}

/// The sizes of one input in an optimisation profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProfileShape {
    pub(super) name: String,
    pub(super) min: Vec<i64>,
    pub(super) optimal: Vec<i64>,
    pub(super) max: Vec<i64>,
}

/// One thing that a configuration is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    /// The generations of GPUs, for TensorRT for RTX alone.
    Targets(Vec<ComputeCapability>),
    WorkspaceBytes(usize),
    VersionCompatible,
    HardwareCompatible,
    OptimizationLevel(i32),
}

/// What the ONNX parser reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ParseError {
    pub(super) description: String,
    /// Index of the node; negative where no node is meant.
    pub(super) node: i32,
    pub(super) node_name: String,
    pub(super) operator: String,
}

/// Told how a build proceeds, from any of TensorRT's threads.
pub(super) trait Monitor: Sync {
    fn phase_start(&self, phase: &str, parent: Option<&str>, steps: i32);
    /// Whether to go on.
    fn step_complete(&self, phase: &str, step: i32) -> bool;
    fn phase_finish(&self, phase: &str);
}

/// The calls.
///
/// Handles are made by an implementation alone and go back to it once, through [`destroy`](Self::destroy): parser
/// before network, network and configuration before builder, timing cache last.
pub(super) trait BuildCalls: Send + Sync {
    /// Where the reasons are told.
    fn log(&self) -> &Log;
    /// Whether there is a driver with a GPU.
    fn check_driver(&self) -> Result<()>;

    fn create_builder(&self) -> Option<Handle<Builder>>;
    fn create_network(&self, builder: &mut Handle<Builder>) -> Option<Handle<Network>>;
    fn create_config(&self, builder: &mut Handle<Builder>) -> Option<Handle<Config>>;
    fn create_parser(&self, network: &mut Handle<Network>) -> Option<Handle<Parser>>;

    fn parse_file(&self, parser: &mut Handle<Parser>, path: &CStr) -> bool;
    fn parse_errors(&self, parser: &Handle<Parser>) -> Vec<ParseError>;

    /// Inputs, outputs; one that is null is `None`.
    fn tensors(&self, network: &Handle<Network>) -> [Vec<Option<NetworkTensor>>; 2];

    fn configure(&self, config: &mut Handle<Config>, setting: &Setting) -> bool;
    /// Makes one optimisation profile and adds it.
    fn add_profile(
        &self,
        builder: &mut Handle<Builder>,
        config: &mut Handle<Config>,
        shapes: &[ProfileShape],
    ) -> bool;

    /// Of what was written before, or a new one of no bytes.
    fn create_timing_cache(&self, config: &Handle<Config>, bytes: &[u8]) -> Option<Handle<TimingCache>>;
    /// `false` if it is another version's or another GPU's.
    fn set_timing_cache(&self, config: &mut Handle<Config>, cache: &Handle<TimingCache>) -> bool;
    fn timing_cache_bytes(&self, cache: &Handle<TimingCache>) -> Option<Vec<u8>>;

    fn build(
        &self,
        builder: &mut Handle<Builder>,
        network: &mut Handle<Network>,
        config: &mut Handle<Config>,
        monitor: &dyn Monitor,
    ) -> Option<Vec<u8>>;

    fn destroy(&self, class: Class, address: usize);
}
