//! The models and results files that the arguments name.

use std::path::{Path, PathBuf};

use ocelli::{ModelSource, options::DetectorOptions};
use ocelli_datasets::eval::{Contender, EvalTask, Protocol, Truth};

use super::EvalArgs;
use crate::{ModelArgs, detector, load};

/// Opens each model or results file that the arguments name.
pub fn open(args: &EvalArgs, truth: &Truth, task: &EvalTask) -> anyhow::Result<Vec<Contender>> {
    if let Some(path) = &args.predictions {
        if args.exemplars_from_truth {
            refuse!("--exemplars-from-truth needs a model: remove --predictions");
        }
        return Ok(vec![Contender::predicted(path, truth, task)?]);
    }
    if args.compare.is_empty() {
        return Ok(vec![model(args, &args.model, truth, task)?]);
    }
    let open = |path: &PathBuf| {
        if path.is_file() {
            if task.options.gives_boxes() {
                refuse!("annotated boxes are given to models, and --compare names a results file");
            }
            return Ok(Contender::predicted(path, truth, task)?);
        }
        let built_in = path.as_os_str() == ModelSource::BUILT_IN && !path.exists();
        let named = ModelArgs { model: (!built_in).then(|| path.clone()), ..args.model.clone() };
        model(args, &named, truth, task)
    };
    args.compare.iter().map(open).collect()
}

fn model(args: &EvalArgs, model: &ModelArgs, truth: &Truth, task: &EvalTask) -> anyhow::Result<Contender> {
    let prompts = task.prompts(truth)?;
    if args.protocol == Protocol::BoxToMask {
        model.check_tracker("--protocol box-to-mask")?;
    }
    let mut options = DetectorOptions {
        imgsz: args.imgsz,
        class_chunk: args.class_chunk,
        screening: args.screen.screen,
        masks: args.masks || task.options.gives_boxes(),
        ..model.options()?
    };
    options.set_post_processing(args.protocol.post_processing());
    let (detector, loading) = load(detector(options)?)?;
    let name = model.model.as_deref().unwrap_or(Path::new(ModelSource::BUILT_IN));
    let contender = Contender::model(name.display().to_string(), detector, prompts, task)?;
    drop(loading);
    Ok(contender)
}
