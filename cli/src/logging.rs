//! Diagnostics on stderr: level and format.

use std::fmt;
use std::io::IsTerminal;

use clap::Args;
use ocelli::source::without_secrets;
use ocelli::stages::STAGE_TARGET;
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, registry};

use crate::output::set_quiet;
use crate::progress::show_stage;

/// The level of diagnostics.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Messages")]
pub struct LogArgs {
    /// Read options from a YAML file, such as `classes: [person, dog]`; the command line overrides it
    // The arguments are replaced before they are parsed; this is for the help.
    #[arg(long, global = true, value_name = "FILE", display_order = 899)]
    config: Option<std::path::PathBuf>,
    /// Print only results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 900)]
    pub quiet: bool,
    /// Print debug messages; -vv prints everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 901)]
    pub verbose: u8,
}

impl LogArgs {
    pub(crate) fn start(&self) {
        set_quiet(self.quiet);
        let level = match (self.quiet, self.verbose) {
            (true, _) => "error,ocelli::terms=warn",
            (_, 0) => "warn",
            (_, 1) => "ocelli=debug,ocelli_engines=debug,info",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_env("OCELLI_LOG").unwrap_or_else(|_| EnvFilter::new(level));
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
        let is_shown = !self.quiet && self.verbose == 0 && std::io::stderr().is_terminal();
        let of_stages = filter_fn(|event| event.target() == STAGE_TARGET);
        let stages = StageLine.with_filter(of_stages.with_max_level_hint(LevelFilter::DEBUG));
        let subscriber = registry().with(lines.event_format(Lines).with_filter(filter));
        let subscriber = subscriber.with(is_shown.then_some(stages));
        // Fails if the process has a subscriber already, which then stays.
        drop(tracing::subscriber::set_global_default(subscriber));
    }
}

/// Shows what the detector does now beside the progress.
struct StageLine;

impl<S: Subscriber> Layer<S> for StageLine {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            if field.name() == "message" {
                show_stage(&format_args!("{value:?}"));
            }
        });
    }
}

/// Formats `warning: message`, and for lower levels `debug ocelli::engine: message`: without time and colour, like errors,
/// and without the passwords of addresses. A message is one line, whatever it quotes.
struct Lines;

/// `true` if a character could make another line of a log, or another text, of what follows.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

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
        let mut fields = String::new();
        ctx.field_format().format_fields(Writer::new(&mut fields), event)?;
        for letter in without_secrets(&fields).chars() {
            if is_control(letter) {
                write!(writer, "{}", letter.escape_default())?;
            } else {
                writer.write_char(letter)?;
            }
        }
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_is_one_line() {
        for (quoted, expected) in [
            ("7\nerror: forged", "7\\nerror: forged"),
            ("a\r\tb\u{1b}[31m\u{9b}", "a\\r\\tb\\x1b[31m\\u{9b}"),
            ("\u{2028}\u{202e}", "\\u{2028}\\u{202e}"),
            ("Bär 日本 \\n", "Bär 日本 \\n"),
        ] {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_ansi(false)
                .event_format(Lines)
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || tracing::warn!("task {quoted}"));
            let text = String::from_utf8(log.0.lock().expect("nobody panicked").clone());
            assert_eq!(text.expect("it is text"), format!("warning: task {expected}\n"));
        }
    }
}
