//! Comparisons of each graph's outputs with the goldens.

use ocelli::Mask;
use ocelli::engines::Tensor;
use ocelli::export::contract::{file, tensor};

use super::exported::{Exported, Outcome, Outputs};
use super::golden::{Golden, append_to_prompt, f32s, first, range};
use super::report::Report;
use super::{CLASS_COUNTS, MASK_CLASS, MASK_COUNT, MASK_IOU};

/// Compares outputs with the goldens of `prefix`. An output without a golden is a problem.
pub fn compare_all(report: &mut Report, golden: &Golden, prefix: &str, outputs: &Outputs, note: &str) {
    for (name, ours) in outputs {
        let key = format!("{prefix}.{name}");
        match (golden.find(&key), golden.find(&format!("{key}_last"))) {
            (Some(reference), _) => report.compare(key + note, ours, reference),
            // Large outputs of many classes: the goldens have the last class only.
            (None, Some(reference)) => {
                report.compare(key + note, &range(ours, ours.shape()[0] - 1, 1), reference);
            }
            (None, None) => report.problem(key, "has no golden"),
        }
    }
}

pub fn compare_backbone(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    note: &str,
) -> Outcome<()> {
    let outputs = model.backbone(golden.tensor("pixel_values"))?;
    compare_all(report, golden, "backbone", &outputs, note);
    Ok(())
}

pub fn compare_pruned(
    report: &mut Report,
    golden: &Golden,
    i: usize,
    model: &mut Exported,
    how: &str,
) -> Outcome<()> {
    let outputs = model.backbone(golden.tensor("pixel_values"))?;
    let reference = golden.tensor(&format!("pruned.{i}.fpn_2"));
    report.compare(format!("pruned.{i}.fpn_2, {how}"), &outputs[tensor::FPN[2]], reference);
    Ok(())
}

pub fn compare_text(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let reference = golden.tensor("text.text_features");
    for classes in CLASS_COUNTS {
        let [ids, mask] =
            ["text.input_ids", "text.attention_mask"].map(|name| first(golden.tensor(name), classes));
        let inputs = [(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)];
        let outputs = model.run(file::TEXT_ENCODER, &inputs)?;
        let ours = &outputs[tensor::TEXT_FEATURES];
        report.compare(format!("text.text_features of {classes}"), ours, &first(reference, classes));
    }
    Ok(())
}

pub fn compare_exemplars(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let fpn_2 = golden.tensor("backbone.fpn_2");
    let none = (Tensor::f32(&[1, 0, 4], vec![])?, Tensor::i64(&[1, 0], vec![])?);
    let outputs = model.exemplars(fpn_2, &none.0, &none.1)?;
    let cls = golden.tensor("backbone.image_prompt");
    report.compare("exemplar.0.features", &outputs[tensor::EXEMPLAR_FEATURES], cls);
    for count in [1, 3] {
        let [boxes, labels, reference] =
            ["boxes", "labels", "features"].map(|what| golden.tensor(&format!("exemplar.{count}.{what}")));
        let outputs = model.exemplars(fpn_2, boxes, labels)?;
        report.compare(format!("exemplar.{count}.features"), &outputs[tensor::EXEMPLAR_FEATURES], reference);
    }
    Ok(())
}

pub fn compare_encoder_decoder(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    kinds: &[&str],
) -> Outcome<()> {
    for kind in kinds {
        for classes in CLASS_COUNTS {
            let mut outputs = model.decode(golden.tensor("backbone.fpn_2"), &golden.prompt(kind, classes))?;
            if classes == 1 {
                // The goldens have these for three classes only.
                for (name, classes) in [("queries", 3), ("encoded", 3)] {
                    if let Some(ours) = outputs.remove(name) {
                        let reference = golden.tensor(&format!("encdec.{kind}.{classes}.{name}"));
                        report.compare(format!("encdec.{kind}.1.{name}"), &ours, &first(reference, 1));
                    }
                }
            }
            compare_all(report, golden, &format!("encdec.{kind}.{classes}"), &outputs, "");
        }
    }
    Ok(())
}

/// A class of some prompts, `[C, T, …]` → `[1, T, …]`.
pub fn one_class((features, mask): &(Tensor, Tensor), class: usize) -> (Tensor, Tensor) {
    (range(features, class, 1), range(mask, class, 1))
}

/// The first `count` queries of a class, `[C, Q, D]` → `[1, count, D]`.
pub fn some_queries(queries: &Tensor, class: usize, count: usize) -> Outcome<Tensor> {
    let width = queries.shape()[2];
    let values = f32s(&range(queries, class, 1))[..count * width].to_vec();
    Ok(Tensor::f32(&[1, count, width], values)?)
}

/// The lowest IoU of a mask and its reference, both `[1, K, side, side]` logits; 1 if both are empty.
fn least_mask_iou(ours: &Tensor, reference: &Tensor) -> Outcome<f64> {
    let side = reference.shape()[2];
    let masks = |tensor| {
        let bitmaps = f32s(tensor).chunks_exact(side * side);
        let bitmap = |logits: &[f32]| logits.iter().map(|&logit| u8::from(logit > 0.0)).collect::<Vec<_>>();
        bitmaps.map(|logits| Mask::from_bitmap(&bitmap(logits), side as u32, side as u32)).collect()
    };
    let (ours, reference): (ocelli::Result<Vec<Mask>>, ocelli::Result<Vec<Mask>>) =
        (masks(ours), masks(reference));
    let mut least = 1.0f64;
    for (ours, reference) in ours?.iter().zip(&reference?) {
        if ours.area() + reference.area() > 0 {
            least = least.min(ours.iou(reference)?);
        }
    }
    Ok(least)
}

pub fn compare_masks(
    report: &mut Report,
    golden: &Golden,
    model: &mut Exported,
    kinds: &[&str],
) -> Outcome<()> {
    let levels = ["backbone.fpn_0", "backbone.fpn_1"].map(|name| golden.tensor(name));
    for kind in kinds {
        let [encoded, queries] =
            ["encoded", "queries"].map(|name| golden.tensor(&format!("encdec.{kind}.3.{name}")));
        let prompt = one_class(&golden.prompt(kind, MASK_CLASS + 1), MASK_CLASS);
        let encoded = range(encoded, MASK_CLASS, 1);
        let reference = golden.tensor(&format!("mask.{kind}.3.masks"));
        for count in [MASK_COUNT, 1] {
            let queries = some_queries(queries, MASK_CLASS, count)?;
            let outputs = model.masks(levels, &encoded, &prompt, &queries)?;
            let side = reference.shape()[2];
            let part = f32s(reference)[..count * side * side].to_vec();
            let part = Tensor::f32(&[1, count, side, side], part)?;
            report.compare(format!("mask.{kind}.{count}.masks"), &outputs[tensor::MASKS], &part);
            let semantic = golden.tensor(&format!("mask.{kind}.semantic"));
            report.compare(format!("mask.{kind}.{count}.semantic"), &outputs[tensor::SEMANTIC], semantic);
            for (name, reference) in [(tensor::MASKS, &part), (tensor::SEMANTIC, semantic)] {
                let iou = least_mask_iou(&outputs[name], reference)?;
                report.expect(format!("mask.{kind}.{count}.{name}: IoU {iou:.4}"), iou >= MASK_IOU);
            }
        }
    }
    Ok(())
}

/// From pixels, ids and boxes to logits and masks, each graph with the outputs of the one before: names, shapes and token
/// order match.
pub fn compare_chain(report: &mut Report, golden: &Golden, model: &mut Exported) -> Outcome<()> {
    let image = model.backbone(golden.tensor("pixel_values"))?;
    let [ids, mask] = ["text.input_ids", "text.attention_mask"].map(|name| first(golden.tensor(name), 3));
    let text =
        model.run(file::TEXT_ENCODER, &[(tensor::INPUT_IDS, &ids), (tensor::ATTENTION_MASK, &mask)])?;
    let (boxes, labels) = (golden.tensor("exemplar.3.boxes"), golden.tensor("exemplar.3.labels"));
    let exemplars = model.exemplars(&image[tensor::FPN[2]], boxes, labels)?;
    for (kind, appended) in
        [("official", &image[tensor::IMAGE_PROMPT]), ("exemplar", &exemplars[tensor::EXEMPLAR_FEATURES])]
    {
        let prompt = append_to_prompt(&text[tensor::TEXT_FEATURES], &mask, appended);
        let decoded = model.decode(&image[tensor::FPN[2]], &prompt)?;
        compare_all(report, golden, &format!("encdec.{kind}.3"), &decoded, ", chained");
        let queries = some_queries(&decoded[tensor::QUERIES], MASK_CLASS, MASK_COUNT)?;
        let encoded = range(&decoded[tensor::ENCODED], MASK_CLASS, 1);
        let levels = [&image[tensor::FPN[0]], &image[tensor::FPN[1]]];
        let masks = model.masks(levels, &encoded, &one_class(&prompt, MASK_CLASS), &queries)?;
        let reference = golden.tensor(&format!("mask.{kind}.3.masks"));
        report.compare(format!("mask.{kind}.3.masks, chained"), &masks[tensor::MASKS], reference);
    }
    Ok(())
}

/// Runs all graphs at another image size: the shapes are those of the contract, and all values are finite.
pub fn expect_shapes(report: &mut Report, golden: &Golden, model: &mut Exported, grid: usize) -> Outcome<()> {
    let (side, width) = (grid * golden.number("patch"), golden.number("model_width"));
    let (queries, length) = (golden.number("queries"), golden.number("context"));
    report.expect(format!("model.json has imgsz {side}"), model.manifest.imgsz == side);
    let pixels: Vec<f32> = (0..3 * side * side).map(|i| (i % 23) as f32 / 11.0 - 1.0).collect();
    let image = model.backbone(&Tensor::f32(&[1, 3, side, side], pixels)?)?;
    let fpn_2 = &image[tensor::FPN[2]];
    let decoded = model.decode(fpn_2, &golden.prompt("official", 3))?;
    let encoded = range(&decoded[tensor::ENCODED], MASK_CLASS, 1);
    let some = some_queries(&decoded[tensor::QUERIES], MASK_CLASS, 2)?;
    let prompt = one_class(&golden.prompt("official", 2), MASK_CLASS);
    let masks = model.masks([&image[tensor::FPN[0]], &image[tensor::FPN[1]]], &encoded, &prompt, &some)?;
    let exemplars =
        model.exemplars(fpn_2, golden.tensor("exemplar.3.boxes"), golden.tensor("exemplar.3.labels"))?;
    let expected: [(&Outputs, &str, &[usize]); 12] = [
        (&image, "fpn_0", &[1, width, 4 * grid, 4 * grid]),
        (&image, "fpn_1", &[1, width, 2 * grid, 2 * grid]),
        (&image, "fpn_2", &[1, width, grid, grid]),
        (&image, "image_prompt", &[1, 1, width]),
        (&exemplars, "exemplar_features", &[1, 4, width]),
        (&decoded, "logits", &[3, queries]),
        (&decoded, "boxes", &[3, queries, 4]),
        (&decoded, "presence", &[3, 1]),
        (&decoded, "queries", &[3, queries, width]),
        (&decoded, "encoded", &[3, grid * grid, width]),
        (&masks, "masks", &[1, 2, 4 * grid, 4 * grid]),
        (&masks, "semantic", &[1, 1, 4 * grid, 4 * grid]),
    ];
    for (outputs, name, shape) in expected {
        let tensor = &outputs[name];
        report.expect(format!("{name} at {side} px is {shape:?}"), tensor.shape() == shape);
        report.expect(format!("{name} at {side} px is finite"), f32s(tensor).iter().all(|v| v.is_finite()));
    }
    let text =
        model.engine(file::TEXT_ENCODER)?.spec().output(tensor::TEXT_FEATURES).map(ToString::to_string);
    let shape = format!("[classes, {length}, {width}]");
    report.expect(format!("text features are {shape}"), text.is_some_and(|text| text.ends_with(&shape)));
    Ok(())
}
