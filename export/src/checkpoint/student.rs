//! The sizes of a convolutional image backbone, from the shapes of its tensors.

use super::shapes::Shapes;
use crate::config::{Student, StudentFamily, StudentOrigin, StudentStage};
use crate::errors::invalid;
use crate::student::ROOT;
use ocelli_error::Result;

/// A tensor that only this network has, by its name below [`ROOT`].
const SIGNS: [(&str, StudentFamily, StudentOrigin); 6] = [
    ("stem.conv1.c.weight", StudentFamily::RepVit, StudentOrigin::Dart),
    ("stages_0.blocks.0.main.spatial_conv.conv.weight", StudentFamily::EfficientVitL, StudentOrigin::Dart),
    ("patch_embed.conv1.conv.weight", StudentFamily::TinyVit, StudentOrigin::Dart),
    ("features.0.0.c.weight", StudentFamily::RepVit, StudentOrigin::EfficientSam3),
    ("input_stem.op_list.0.conv.weight", StudentFamily::EfficientVitB, StudentOrigin::EfficientSam3),
    ("patch_embed.seq.0.c.weight", StudentFamily::TinyVit, StudentOrigin::EfficientSam3),
];

/// The network in a file.
pub(super) fn student(shapes: &Shapes<'_>) -> Result<Student> {
    let sign = SIGNS.iter().find(|(name, ..)| shapes.has(&format!("{ROOT}.{name}")));
    let Some(&(_, family, origin)) = sign else {
        let first = shapes.first(&format!("{ROOT}.")).unwrap_or_else(|| "nothing".into());
        return Err(invalid(format!(
            "unknown image backbone: its tensors begin with {first}; expected RepViT, EfficientViT or TinyViT in the names \
             of DART or EfficientSAM3"
        )));
    };
    let (tiny, conv) = match origin {
        StudentOrigin::Dart => ("stages_", "conv"),
        StudentOrigin::EfficientSam3 => ("layers.", "c"),
    };
    let grouped = |start: &str, middle: &str, widths: [&str; 2]| grouped(shapes, start, middle, widths);
    let mut stages = match (family, origin) {
        (StudentFamily::RepVit, StudentOrigin::Dart) => {
            grouped("stages_", ".blocks.", ["token_mixer.conv.c"; 2])
        }
        (StudentFamily::RepVit, StudentOrigin::EfficientSam3) => listed(shapes),
        (StudentFamily::EfficientVitL, _) => grouped("stages_", ".blocks.", ["main.point_conv.conv"; 2]),
        (StudentFamily::EfficientVitB, _) => grouped("stages.", ".op_list.", ["main.point_conv.conv"; 2]),
        (StudentFamily::TinyVit, _) => {
            grouped(tiny, ".blocks.", [&format!("conv3.{conv}"), &format!("local_conv.{conv}")])
        }
    }?;
    for (i, stage) in stages.iter_mut().enumerate() {
        match family {
            StudentFamily::TinyVit if i > 0 => {
                let biases = format!("{ROOT}.{tiny}{i}.blocks.0.attn.attention_biases");
                let [heads, places] = shapes.of(&biases)?;
                (stage.heads, stage.window) = (heads, places.isqrt());
            }
            StudentFamily::EfficientVitB if i > 1 => {
                let place = format!("{ROOT}.stages.{i}.op_list.1.context_module.main");
                let head = shapes.of::<4>(&format!("{place}.aggreg.0.1.weight"))?[1].max(1);
                stage.heads = stage.width / head;
            }
            _ => {}
        }
    }
    let stem = match (family, origin) {
        (StudentFamily::EfficientVitL, _) => "stem_in_conv.conv.weight",
        _ => sign.map_or("", |(name, ..)| name),
    };
    let stem = shapes.of::<4>(&format!("{ROOT}.{stem}"))?[0];
    let (expected, whose) = match origin {
        StudentOrigin::Dart => (3, "DART"),
        StudentOrigin::EfficientSam3 => (4, "EfficientSAM3"),
    };
    if stages.len() != expected {
        let found = stages.len();
        return Err(invalid(format!(
            "the image backbone has {found} stages: expected {expected}, as {whose}'s have"
        )));
    }
    Ok(Student { family, origin, stem, stages })
}

/// The number of stages after `start`: `stages_0`, or `layers.0`.
fn stage_count(shapes: &Shapes<'_>, start: &str) -> Result<usize> {
    match (0..).take_while(|i| shapes.first(&format!("{ROOT}.{start}{i}.")).is_some()).take(16).count() {
        0 => Err(invalid(format!("no tensor {ROOT}.{start}0"))),
        count => Ok(count),
    }
}

/// Stages whose blocks are numbered from 0, with the output channels of a module of the first block: that of the first stage,
/// and that of the others.
fn grouped(shapes: &Shapes<'_>, start: &str, middle: &str, widths: [&str; 2]) -> Result<Vec<StudentStage>> {
    let stage = |stage: usize| {
        let blocks = format!("{ROOT}.{start}{stage}{middle}");
        let width = shapes.of::<4>(&format!("{blocks}0.{}.weight", widths[stage.min(1)]))?[0];
        Ok(StudentStage { width, blocks: shapes.count(&blocks), ..StudentStage::default() })
    };
    (0..stage_count(shapes, start)?).map(stage).collect()
}

/// RepViT's blocks in one list. A block with a third part in its token mixer halves the map; the one before it belongs to
/// it.
fn listed(shapes: &Shapes<'_>) -> Result<Vec<StudentStage>> {
    let features = format!("{ROOT}.features.");
    let width = shapes.of::<4>(&format!("{features}0.2.c.weight"))?[0];
    let mut stages = vec![StudentStage { width, ..StudentStage::default() }];
    for block in 1..shapes.count(&features) {
        let channels = format!("{features}{block}.token_mixer.2.c.weight");
        let last = stages.last_mut().expect("there is a first stage");
        if shapes.has(&channels) {
            last.blocks = last.blocks.saturating_sub(1);
            let width = shapes.of::<4>(&channels)?[0];
            stages.push(StudentStage { width, ..StudentStage::default() });
        } else {
            last.blocks += 1;
        }
    }
    Ok(stages)
}
