//! Which engine `auto` takes: the first of an ordered list that is installed and starts.

use ocelli_engines::onnxruntime::OnnxRuntime;

use super::{EngineFactory, EngineKind, EngineOptions, load_onnxruntime, probe};
use ocelli_error::{Error, Result};

/// What `auto` tries, best first. The last needs no library.
const CANDIDATES: [EngineKind; 3] = [EngineKind::Cuda { ordinal: 0 }, EngineKind::Cpu, EngineKind::Embedded];

/// Starts the best engine of this machine, with a warning for each better one that is installed and does not start.
pub(super) fn start(options: &EngineOptions) -> Result<EngineFactory> {
    if options.onnxruntime.is_some() {
        // The caller named the library: it is used, or the error says why not.
        load_onnxruntime(options)?;
    }
    let choice = choose(
        &CANDIDATES,
        |kind| is_installed(kind, options),
        |kind| EngineFactory::start(&EngineOptions { kind, ..options.clone() }),
    )?;
    let chosen = choice.started.description();
    for (kind, reason) in &choice.failed {
        // Its library was installed to be used.
        let cause = std::error::Error::source(reason).map_or_else(|| reason.to_string(), ToString::to_string);
        tracing::warn!("engine auto: using {chosen}, because {kind} does not start: {cause}");
    }
    let missing: Vec<String> = choice.missing.iter().map(ToString::to_string).collect();
    let why =
        if missing.is_empty() { String::new() } else { format!("; not installed: {}", missing.join(", ")) };
    tracing::info!("engine auto: {chosen}{why}");
    Ok(choice.started)
}

/// Whether the library of an engine is on this machine, usable or not.
fn is_installed(kind: EngineKind, options: &EngineOptions) -> bool {
    match kind {
        EngineKind::Cpu => OnnxRuntime::find(options.onnxruntime.as_deref()).is_some(),
        // A library that does not load is reported once, as `onnxruntime`.
        EngineKind::Cuda { .. } => load_onnxruntime(options)
            .and_then(|runtime| runtime.providers())
            .is_ok_and(|built_in| built_in.iter().any(|name| name == probe(kind).name())),
        _ => true,
    }
}

/// The first candidate that started, and those before it.
#[derive(Debug)]
struct Choice<T> {
    started: T,
    missing: Vec<EngineKind>,
    failed: Vec<(EngineKind, Error)>,
}

/// Starts the first candidate that is installed and starts; the error of the last is the caller's.
fn choose<T>(
    candidates: &[EngineKind],
    is_installed: impl Fn(EngineKind) -> bool,
    start: impl Fn(EngineKind) -> Result<T>,
) -> Result<Choice<T>> {
    let (&last, better) = candidates.split_last().expect("there is always an engine that needs no library");
    let (mut missing, mut failed) = (Vec::new(), Vec::new());
    for &kind in better {
        if !is_installed(kind) {
            missing.push(kind);
            continue;
        }
        match start(kind) {
            Ok(started) => return Ok(Choice { started, missing, failed }),
            Err(reason) => failed.push((kind, reason)),
        }
    }
    Ok(Choice { started: start(last)?, missing, failed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ocelli_error::ErrorKind;

    const GPU: EngineKind = EngineKind::Cuda { ordinal: 0 };

    fn broken(kind: EngineKind) -> Error {
        Error::new(ErrorKind::Unavailable, format!("engine {kind}: it is broken"))
    }

    #[test]
    fn the_first_that_is_installed_and_starts_is_taken() {
        type Kinds<'k> = &'k [EngineKind];
        use EngineKind::{Cpu, Embedded};
        // Installed, starting → chosen, not installed, failed.
        let cases: [(Kinds<'_>, Kinds<'_>, EngineKind, Kinds<'_>, Kinds<'_>); 6] = [
            (&[GPU, Cpu, Embedded], &[GPU, Cpu, Embedded], GPU, &[], &[]),
            (&[GPU, Cpu, Embedded], &[Cpu, Embedded], Cpu, &[], &[GPU]),
            (&[Cpu, Embedded], &[Cpu, Embedded], Cpu, &[GPU], &[]),
            (&[Embedded], &[Embedded], Embedded, &[GPU, Cpu], &[]),
            (&[Cpu, Embedded], &[Embedded], Embedded, &[GPU], &[Cpu]),
            (&[GPU, Cpu, Embedded], &[Embedded], Embedded, &[], &[GPU, Cpu]),
        ];
        let mut wrong = Vec::new();
        for (installed, starting, expected, missing, failed) in cases {
            let start = |kind| if starting.contains(&kind) { Ok(kind) } else { Err(broken(kind)) };
            let choice = choose(&CANDIDATES, |kind| installed.contains(&kind), start).expect("one starts");
            let failures: Vec<_> = choice.failed.iter().map(|(kind, _)| *kind).collect();
            if (choice.started, &*choice.missing, &*failures) != (expected, missing, failed) {
                wrong.push(format!("{installed:?}, {starting:?}: {choice:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn if_none_starts_the_last_says_why() {
        let error = choose(&CANDIDATES, |_| true, |kind| Err::<EngineKind, _>(broken(kind)));
        assert_eq!(error.expect_err("none starts").to_string(), "engine embedded: it is broken");
    }
}
