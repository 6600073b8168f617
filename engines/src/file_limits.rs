//! A limit on the size of files, which ends the process unless its signal is ignored.

#[cfg(unix)]
unsafe extern "C" {
    fn signal(number: std::ffi::c_int, handler: usize) -> usize;
}

/// From now on, writing beyond the limit on file sizes (`ulimit -f`) is an error, as a full disk is. Without this the signal
/// SIGXFSZ ends the process with files half written. A handler of the program stays.
pub fn report_file_limits() {
    #[cfg(unix)]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        const SIGXFSZ: std::ffi::c_int =
            if cfg!(any(target_arch = "mips", target_arch = "mips64")) { 31 } else { 25 };
        const DEFAULT: usize = 0;
        const IGNORE: usize = 1;
        ONCE.call_once(|| {
            // SAFETY: both dispositions are valid for this signal, and a handler that was there is put back as it came.
            unsafe {
                let before = signal(SIGXFSZ, IGNORE);
                if before != DEFAULT {
                    signal(SIGXFSZ, before);
                }
            }
        });
    }
}
