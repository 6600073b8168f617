//! A builder's side without a library: it fails where it is told to and watches over its objects.

use super::calls::{
    BuildCalls, Builder, Class, Config, FIRST_ADDRESS, Handle, Monitor, Network, NetworkTensor, ParseError,
    Parser, ProfileShape, Setting, TimingCache,
};
use super::log::{Log, Severity};
use crate::error::{Error, ErrorKind, Result};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What goes wrong.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    Driver,
    /// An object of this class is null.
    Null(Class),
    /// The parser says no, with these errors.
    Parse(Vec<ParseError>),
    /// The configuration takes no setting.
    Setting,
    Profile,
    /// The bytes of a timing cache make none.
    DamagedTimingCache,
    /// The timing cache is another GPU's.
    OtherTimingCache,
    /// No plan comes of it.
    Build,
    /// A plan of no bytes.
    EmptyPlan,
}

/// [`BuildCalls`] in memory.
pub(super) struct FakeBuildCalls {
    log: Log,
    failure: Option<Failure>,
    inputs: Vec<Option<NetworkTensor>>,
    outputs: Vec<Option<NetworkTensor>>,
    state: Mutex<State>,
}

/// What was asked, and what is left.
#[derive(Debug, Default)]
pub(super) struct State {
    made: usize,
    alive: Vec<(Class, usize)>,
    /// What its owner did that TensorRT would not have survived.
    pub(super) wrong: Vec<String>,
    pub(super) settings: Vec<Setting>,
    pub(super) profiles: Vec<Vec<ProfileShape>>,
    /// The bytes of each timing cache that was made.
    pub(super) timing_caches: Vec<Vec<u8>>,
    pub(super) builds: usize,
}

/// What a library may answer for null: the place of a part in an object that is null.
const NEARLY_NULL: usize = 0x228;
/// What every build gives.
pub(super) const PLAN: &[u8] = b"a plan";
/// What every timing cache holds after a build.
pub(super) const TIMES: &[u8] = b"times";

impl FakeBuildCalls {
    /// One input, one output, and nothing goes wrong.
    pub(super) fn new() -> Self {
        let tensor = |name: &str, sizes: &[i64], names: &[Option<&str>]| {
            let names = names.iter().map(|name| name.map(str::to_owned)).collect();
            Some(NetworkTensor { name: name.into(), data_type: 0, sizes: sizes.to_vec(), names })
        };
        Self {
            log: Log::new(),
            failure: None,
            inputs: vec![tensor("features", &[-1, -1, 8], &[Some("classes"), Some("tokens"), None])],
            outputs: vec![tensor("logits", &[-1, 5], &[None, None])],
            state: Mutex::default(),
        }
    }

    /// The same, and this goes wrong.
    pub(super) fn failing(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::new() }
    }

    /// The same with other inputs.
    pub(super) fn with_inputs(inputs: Vec<Option<NetworkTensor>>) -> Self {
        Self { inputs, ..Self::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was not given back, given back twice or in the wrong order.
    pub(super) fn complaints(&self) -> Vec<String> {
        let state = self.state();
        let left = state.alive.iter().map(|(class, _)| format!("a {class} is left"));
        state.wrong.iter().cloned().chain(left).collect()
    }

    fn make<T>(&self, class: Class) -> Option<Handle<T>> {
        if matches!(&self.failure, Some(Failure::Null(null)) if *null == class) {
            self.log.take(Severity::Error, &format!("no memory for a {class}"));
            return Handle::new(NEARLY_NULL);
        }
        let mut state = self.state();
        state.made += 1;
        let address = FIRST_ADDRESS + state.made;
        state.alive.push((class, address));
        Handle::new(address)
    }

    /// Whether this failure is not the one.
    fn passes(&self, test: impl Fn(&Failure) -> bool, reason: &str) -> bool {
        let fails = self.failure.as_ref().is_some_and(test);
        if fails {
            self.log.take(Severity::Error, reason);
        }
        !fails
    }

    fn use_alive(&self, class: Class, address: usize) {
        let mut state = self.state();
        if !state.alive.contains(&(class, address)) {
            state.wrong.push(format!("a {class} was used after its end"));
        }
    }
}

impl BuildCalls for FakeBuildCalls {
    fn log(&self) -> &Log {
        &self.log
    }

    fn check_driver(&self) -> Result<()> {
        match self.failure {
            Some(Failure::Driver) => {
                Err(Error::new(ErrorKind::Unavailable, "no NVIDIA GPU can be used: none"))
            }
            _ => Ok(()),
        }
    }

    fn create_builder(&self) -> Option<Handle<Builder>> {
        self.make(Class::Builder)
    }

    fn create_network(&self, builder: &mut Handle<Builder>) -> Option<Handle<Network>> {
        self.use_alive(Class::Builder, builder.address());
        self.make(Class::Network)
    }

    fn create_config(&self, builder: &mut Handle<Builder>) -> Option<Handle<Config>> {
        self.use_alive(Class::Builder, builder.address());
        self.make(Class::Config)
    }

    fn create_parser(&self, network: &mut Handle<Network>) -> Option<Handle<Parser>> {
        self.use_alive(Class::Network, network.address());
        self.make(Class::Parser)
    }

    fn parse_file(&self, parser: &mut Handle<Parser>, _: &CStr) -> bool {
        self.use_alive(Class::Parser, parser.address());
        self.passes(|failure| matches!(failure, Failure::Parse(_)), "the parser said why to the log")
    }

    fn parse_errors(&self, _: &Handle<Parser>) -> Vec<ParseError> {
        match &self.failure {
            Some(Failure::Parse(errors)) => errors.clone(),
            _ => Vec::new(),
        }
    }

    fn tensors(&self, _: &Handle<Network>) -> [Vec<Option<NetworkTensor>>; 2] {
        [self.inputs.clone(), self.outputs.clone()]
    }

    fn configure(&self, _: &mut Handle<Config>, setting: &Setting) -> bool {
        self.state().settings.push(setting.clone());
        self.passes(|failure| matches!(failure, Failure::Setting), "no such setting")
    }

    fn add_profile(&self, _: &mut Handle<Builder>, _: &mut Handle<Config>, shapes: &[ProfileShape]) -> bool {
        self.state().profiles.push(shapes.to_vec());
        self.passes(|failure| matches!(failure, Failure::Profile), "no such sizes")
    }

    fn create_timing_cache(&self, _: &Handle<Config>, bytes: &[u8]) -> Option<Handle<TimingCache>> {
        self.state().timing_caches.push(bytes.to_vec());
        if !bytes.is_empty()
            && !self.passes(|failure| matches!(failure, Failure::DamagedTimingCache), "no timing cache")
        {
            return None;
        }
        self.make(Class::TimingCache)
    }

    fn set_timing_cache(&self, _: &mut Handle<Config>, cache: &Handle<TimingCache>) -> bool {
        self.use_alive(Class::TimingCache, cache.address());
        let old = self.state().timing_caches.last().is_some_and(|bytes| !bytes.is_empty());
        !old || self.passes(|failure| matches!(failure, Failure::OtherTimingCache), "another GPU's")
    }

    fn timing_cache_bytes(&self, cache: &Handle<TimingCache>) -> Option<Vec<u8>> {
        self.use_alive(Class::TimingCache, cache.address());
        Some(TIMES.to_vec())
    }

    fn build(
        &self,
        builder: &mut Handle<Builder>,
        network: &mut Handle<Network>,
        config: &mut Handle<Config>,
        monitor: &dyn Monitor,
    ) -> Option<Vec<u8>> {
        self.use_alive(Class::Builder, builder.address());
        self.use_alive(Class::Network, network.address());
        self.use_alive(Class::Config, config.address());
        self.state().builds += 1;
        let outer = "Building engine";
        monitor.phase_start(outer, None, 2);
        monitor.phase_start("Timing tactics", Some(outer), 1);
        let on = monitor.step_complete("Timing tactics", 0);
        monitor.phase_finish("Timing tactics");
        let on = on && monitor.step_complete(outer, 0) && monitor.step_complete(outer, 1);
        monitor.phase_finish(outer);
        if !on {
            self.log.take(Severity::Error, "stopped by the progress monitor");
            return None;
        }
        match self.failure {
            Some(Failure::EmptyPlan) => Some(Vec::new()),
            Some(Failure::Build) => {
                self.log.take(Severity::Error, "not enough workspace for node `attention`");
                None
            }
            _ => Some(PLAN.to_vec()),
        }
    }

    fn destroy(&self, class: Class, address: usize) {
        let mut state = self.state();
        let Some(position) = state.alive.iter().position(|object| *object == (class, address)) else {
            state.wrong.push(format!("a {class} was destroyed twice"));
            return;
        };
        state.alive.remove(position);
        // What must be gone by then.
        let before: &[Class] = match class {
            Class::Parser | Class::Config => &[],
            Class::Network => &[Class::Parser],
            Class::Builder => &[Class::Parser, Class::Network, Class::Config],
            Class::TimingCache => &[Class::Config, Class::Builder],
        };
        let early: Vec<_> = state.alive.iter().filter(|(other, _)| before.contains(other)).collect();
        if let Some((other, _)) = early.first() {
            let complaint = format!("a {class} was destroyed before a {other}");
            // A cache that was refused belongs to nothing and may go at once.
            if class != Class::TimingCache || state.timing_caches.last().is_none_or(Vec::is_empty) {
                state.wrong.push(complaint);
            }
        }
    }
}
