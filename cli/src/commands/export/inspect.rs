//! `ocelli export --inspect`.

use std::path::Path;

use ocelli::export::config::{Student, StudentStage, VisionConfig};
use ocelli::export::{CheckpointOptions, Inspection};

use crate::print;

/// Prints what a checkpoint is; fails after that if it cannot be exported.
pub fn run(path: &Path, options: &CheckpointOptions) -> anyhow::Result<()> {
    let inspection = options.inspect(path)?;
    print(|out| {
        for line in lines(path, &inspection) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    })?;
    Ok(())
}

fn lines(path: &Path, inspection: &Inspection) -> Vec<String> {
    let mut lines = vec![
        format!("{}: {} ({})", path.display(), inspection.family, inspection.container),
        String::new(),
        format!("{:<20} {:>8} {:>14}", "part", "tensors", "parameters"),
    ];
    for part in &inspection.parts {
        lines.push(format!("{:<20} {:>8} {:>14}", part.name, part.tensors, millions(part.parameters)));
    }
    let (tensors, parameters) = inspection.parts.iter().fold((0, 0u64), |(tensors, all), part| {
        (tensors + part.tensors, all.saturating_add(part.parameters))
    });
    lines.push(format!("{:<20} {tensors:>8} {:>14}", "together", millions(parameters)));
    for (format, tensors, parameters) in &inspection.formats {
        lines.push(format!("{:<20} {tensors:>8} {:>14}", format!("in {format}"), millions(*parameters)));
    }
    if !inspection.ignored.is_empty() {
        lines.extend([String::new(), "ignored".into()]);
    }
    for (why, (tensors, bytes)) in &inspection.ignored {
        lines.push(format!("  {why}: {tensors} tensors, {}", super::size(*bytes)));
    }
    if let Some(config) = &inspection.config {
        let (vision, text) = (&config.vision, &config.text);
        lines.extend([
            String::new(),
            "exports as".into(),
            match &config.student {
                Some(student) => student_line(vision, student),
                None => format!(
                    "  image: {} px, patches of {} px, {} blocks of width {}, {} heads, windows of {} tokens, global blocks {:?}",
                    vision.image_size,
                    vision.patch_size,
                    vision.stack.layers,
                    vision.hidden,
                    vision.stack.heads,
                    vision.window_size,
                    vision.global_blocks
                ),
            },
            format!(
                "  text: {} layers of width {}, {} tokens of context, {} in the vocabulary",
                text.stack.layers, text.hidden, text.context_length, text.vocab_size
            ),
            format!(
                "  detector: width {}, {} fusion and {} decoder layers, {} queries",
                config.width, config.encoder.layers, config.decoder.layers, config.num_queries
            ),
        ]);
    }
    for (file, bytes) in &inspection.graphs {
        lines.push(format!("  {file:<28} {:>10}", super::size(*bytes)));
    }
    if !inspection.graphs.is_empty() {
        let total = super::size(inspection.graphs.iter().map(|(_, bytes)| bytes).sum());
        lines.push(format!("  {:<28} {total:>10}", "together, in fp32"));
    }
    let list = |items: Vec<String>| items.join(",");
    let pruning = &inspection.pruning;
    if !pruning.skip_blocks.is_empty() {
        let blocks = list(pruning.skip_blocks.iter().map(ToString::to_string).collect());
        lines.push(format!("  without the image blocks {blocks}"));
    }
    if !pruning.mask_blocks.is_empty() {
        let branches = list(pruning.mask_blocks.iter().map(ToString::to_string).collect());
        lines.push(format!("  without the branches {branches}"));
    }
    if !inspection.notes.is_empty() {
        lines.push(String::new());
    }
    let spelled = |note: &String| format!("note: {}", note.replace("norm_eps", "--norm-eps"));
    lines.extend(inspection.notes.iter().map(spelled));
    if let Some(problem) = &inspection.problem {
        lines.extend([String::new(), format!("cannot be exported: {problem}")]);
    }
    lines
}

/// A convolutional image backbone in one line.
fn student_line(vision: &VisionConfig, student: &Student) -> String {
    let list = |of: fn(&StudentStage) -> usize| {
        student.stages.iter().map(|stage| of(stage).to_string()).collect::<Vec<_>>().join(", ")
    };
    format!(
        "  image: {} px, a grid of {} px, {} with stages of {} channels and {} blocks",
        vision.image_size,
        vision.patch_size,
        student.name(),
        list(|stage| stage.width),
        list(|stage| stage.blocks)
    )
}

fn millions(parameters: u64) -> String {
    match parameters {
        0..100_000 => parameters.to_string(),
        _ => format!("{:.2} M", parameters as f64 / 1e6),
    }
}
