//! What `ocelli doctor` says about WebGPU.

use std::io::Write;
use std::path::Path;

use ocelli::engine::AdapterVerdict;
use ocelli::engines::webgpu::{self, ALLOW_SOFTWARE, AdapterKind, WebGpu, adapters};

use super::write_places;

/// Writes whether an adapter can be used. No model runs: the adapter is compared with the CPU when it is first used.
pub(super) fn write_engine(out: &mut dyn Write, path: Option<&Path>) -> std::io::Result<()> {
    let adapter = WebGpu::load(path).and_then(|webgpu| {
        let (_, adapter) = webgpu.provider_and_adapter(0)?;
        Ok((webgpu, adapter))
    });
    match adapter {
        Ok((webgpu, adapter)) => {
            writeln!(out, "  webgpu          can be used: WebGPU {}, {}", webgpu.version(), adapter.name)
        }
        Err(e) => writeln!(out, "  webgpu          cannot be used: {e}"),
    }
}

/// Writes where the library is, the adapters, and which adapters were compared with the CPU.
pub(super) fn write_library(out: &mut dyn Write, path: Option<&Path>) -> std::io::Result<()> {
    writeln!(out, "\nWebGPU")?;
    write_places(out, &webgpu::LIBRARY.candidates(path))?;
    // `write_engine` has said why there is none.
    let adapters = adapters().unwrap_or_default();
    let verdicts = AdapterVerdict::remembered();
    for (ordinal, adapter) in adapters.iter().enumerate() {
        let is_software = adapter.kind == AdapterKind::Software;
        let software =
            if is_software { format!(", used only with {ALLOW_SOFTWARE}=1") } else { String::new() };
        let label = format!("adapter {ordinal}");
        writeln!(out, "  {label:<15} {} ({}{software})", adapter.name, adapter.kind)?;
        let identity = adapter.identity();
        let of_this = verdicts.iter().filter(|verdict| Some(&verdict.adapter) == identity.as_ref());
        let mut lines: Vec<String> = of_this.map(verdict_line).collect();
        if lines.is_empty() {
            lines.push("not yet compared with the CPU, which its first use does".to_owned());
        }
        for line in lines {
            writeln!(out, "  {:<15} {line}", "")?;
        }
    }
    Ok(())
}

fn verdict_line(verdict: &AdapterVerdict) -> String {
    let what = if verdict.is_accepted() { "right" } else { "WRONG" };
    let worst = verdict
        .worst()
        .map_or_else(String::new, |(output, error)| format!(", largest error {error:.1e} in {output}"));
    format!(
        "{what}{worst} (built-in model of {} px, provider {}, ONNX Runtime {})",
        verdict.imgsz, verdict.provider, verdict.onnxruntime
    )
}
