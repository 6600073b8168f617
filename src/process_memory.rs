//! The memory of this process.

/// The memory of this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The memory that is resident now.
    pub resident: u64,
    /// The most that was resident so far.
    pub peak: u64,
}

impl ProcessMemory {
    /// The memory now; known on Linux only.
    pub fn now() -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kilobytes * 1024)
        };
        Some(Self { resident: bytes("VmRSS:")?, peak: bytes("VmHWM:")? })
    }
}

/// Logs the memory after a stage.
pub(crate) fn log_memory_after(stage: &str) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    if let Some(ProcessMemory { resident, peak }) = ProcessMemory::now() {
        tracing::debug!("memory after {stage}: {} MiB, peak {} MiB", resident >> 20, peak >> 20);
    }
}
