//! The CPU: the number of threads that engines use by default, and what it multiplies 8-bit integers with.

/// The number of threads that an engine uses by default: the physical cores that this process may use.
///
/// The two hyperthreads of a core share its arithmetic units, so that matrix products gain nothing from the second.
pub fn default_threads() -> usize {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    physical_cores().map_or(available, |physical| physical.min(available)).max(1)
}

/// This number of threads, or for 0 [`default_threads`].
pub(crate) fn threads_or_default(threads: usize) -> usize {
    if threads == 0 { default_threads() } else { threads }
}

/// The CPU in the description of an engine.
pub fn description(threads: usize) -> String {
    format!("CPU, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// `true` if the CPU sums products of 8-bit integers in 32 bits with one instruction (VNNI), and on CPUs other than x86.
pub fn cpu_has_vnni() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The number of physical cores, if the system lists them (Linux).
fn physical_cores() -> Option<usize> {
    let mut cores = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()? {
        let siblings = entry.ok()?.path().join("topology/thread_siblings_list");
        // All hyperthreads of a core have the same list, so that the lists count the cores.
        if let Ok(siblings) = std::fs::read_to_string(siblings) {
            cores.insert(siblings);
        }
    }
    if cores.is_empty() { None } else { Some(cores.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_threads_are_cores_that_the_process_may_use() {
        let available = std::thread::available_parallelism().expect("this system knows it").get();
        assert!((1..=available).contains(&default_threads()));
    }
}
