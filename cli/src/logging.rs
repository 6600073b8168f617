//! How much a program says, and in what form.

use std::fmt;

use clap::Args;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How much a program says.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct LogArgs {
    /// Say nothing but results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 900)]
    pub quiet: bool,
    /// Say what happens inside; twice for every detail
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 901)]
    pub verbose: u8,
}

impl LogArgs {
    pub(super) fn start(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => "error",
            (_, 0) => "warn",
            (_, 1) => "ocelli=debug,ocelli_engines=debug,info",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_env("OCELLI_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .event_format(Lines)
            .finish();
        // A second program in one process (a test) keeps the first one's logging.
        drop(tracing::subscriber::set_global_default(subscriber));
    }
}

/// `warning: message`, and below that `debug ocelli::engine: message`: no time, no colours, as errors look.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match *event.metadata().level() {
            Level::ERROR => write!(writer, "error: ")?,
            Level::WARN => write!(writer, "warning: ")?,
            level => write!(writer, "{} {}: ", level.as_str().to_lowercase(), event.metadata().target())?,
        }
        ctx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
