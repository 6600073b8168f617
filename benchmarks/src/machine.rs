//! The machine and the build behind a measurement.

use serde::Serialize;

use crate::nvidia::Gpu;

/// Environment variable with the commit of the programs, for a machine without the repository.
const COMMIT: &str = "OCELLI_BENCH_COMMIT";

/// The machine and the build behind a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Name of the CPU.
    pub cpu: String,
    /// CPUs available to the program.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Operating system and architecture.
    pub system: String,
    /// Commit of the programs, with `+` if files had changed.
    pub commit: String,
    /// Version of Ocelli.
    pub ocelli: &'static str,
    /// The first NVIDIA GPU, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

impl Machine {
    /// This machine; unknown values are `unknown`.
    pub fn here() -> Self {
        let line = |file: &str, key: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let found = text.lines().find(|line| line.starts_with(key)).and_then(|line| line.split_once(':'));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let memory = line("/proc/meminfo", "MemTotal")
            .and_then(|v| v.split(' ').next().and_then(|n| n.parse::<u64>().ok()));
        Self {
            cpu: line("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory_mib: memory.unwrap_or(0) / 1024,
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            commit: commit(),
            ocelli: env!("CARGO_PKG_VERSION"),
            gpu: Gpu::here(),
        }
    }
}

fn commit() -> String {
    if let Some(commit) = std::env::var(COMMIT).ok().filter(|commit| !commit.is_empty()) {
        return commit;
    }
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    match (git(&["rev-parse", "--short", "HEAD"]), git(&["status", "--porcelain"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit}+"),
        _ => "unknown".into(),
    }
}

/// The time that all threads of this process were on a CPU so far, in milliseconds, to a hundredth of a second; 0 if unknown.
pub fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may have spaces.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // In units of a hundredth of a second, on every Linux: of the program itself, and of the kernel for it.
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    10.0 * ticks.sum::<f64>()
}

/// Peak memory of this process in MiB; 0 if unknown.
pub fn peak_memory_mib() -> f64 {
    memory_mib("VmHWM:")
}

/// Current memory of this process in MiB; 0 if unknown.
pub fn resident_memory_mib() -> f64 {
    memory_mib("VmRSS:")
}

fn memory_mib(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
