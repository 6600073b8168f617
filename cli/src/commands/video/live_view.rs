//! `--mjpeg`: annotated frames for browsers and players.

use ocelli::sink::Sink;

use crate::LogArgs;

/// Opens the page and announces its address.
///
/// # Errors
/// For an address that is not `HOST:PORT[/PATH]`, or that others reach without a secret path; if the port is taken.
#[cfg(feature = "serve")]
pub fn open(text: &str, log: &LogArgs) -> anyhow::Result<Box<dyn Sink>> {
    use crate::output::with_flag;
    use crate::{status, usage};

    let (address, path) = text.split_once('/').unwrap_or((text, ""));
    let address = address.parse().map_err(|_| {
        usage(format!(
            "--mjpeg is {text}: expected an address such as 127.0.0.1:8090, or 0.0.0.0:8090/SECRET"
        ))
    })?;
    let view = ocelli_serve::LiveView::bind(address, path).map_err(with_flag("--mjpeg"))?;
    status(log, &format!("live view: {}", view.url()));
    Ok(Box::new(view))
}

#[cfg(not(feature = "serve"))]
pub fn open(_text: &str, _log: &LogArgs) -> anyhow::Result<Box<dyn Sink>> {
    Err(crate::usage("--mjpeg: this build has no web server (the feature serve)"))
}
