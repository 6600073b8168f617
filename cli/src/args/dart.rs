//! Spellings of DART's programs. Those that mean the same here or are the default are accepted, with a line on stderr.

use clap::Args;
use ocelli::ModelSource;
use ocelli::export::config::Student;
use ocelli::export::{Checkpoint, MaskedBranch, Pruning};

use super::ModelArgs;
use crate::{status, usage};

/// Options of DART's programs that are not documented here.
#[derive(Args, Clone, Debug, Default)]
pub struct DartArgs {
    #[arg(long, hide = true)]
    fast: bool,
    #[arg(long, hide = true, conflicts_with = "masks")]
    detection_only: bool,
    #[arg(long, hide = true, value_name = "N")]
    trt_max_classes: Option<u64>,
    #[arg(long, hide = true, value_name = "N")]
    pub warmup: Option<u64>,
    #[arg(long, hide = true, value_name = "MODE", num_args = 0..=1)]
    compile: Option<Option<String>>,
    #[arg(long, hide = true, value_name = "BLOCKS", value_delimiter = ',')]
    skip_blocks: Vec<usize>,
    #[arg(long, hide = true, value_name = "BRANCHES", value_delimiter = ',')]
    mask_blocks: Vec<MaskedBranch>,
    #[arg(long, hide = true, value_name = "NAME", value_parser = Pruning::preset, conflicts_with_all = ["skip_blocks", "mask_blocks"])]
    preset: Option<Pruning>,
    #[arg(long, hide = true, value_name = "FAMILY")]
    efficient_backbone: Option<String>,
    #[arg(long, hide = true, value_name = "SIZE", requires = "efficient_backbone")]
    efficient_model: Option<String>,
}

impl DartArgs {
    /// The parts that are left out of the model.
    ///
    /// # Errors
    /// Of usage for a backbone that the checkpoint does not have; those of [`Checkpoint::open`].
    pub fn pruning(&self, model: &ModelArgs) -> anyhow::Result<Pruning> {
        if let Some(family) = &self.efficient_backbone {
            check_backbone(&model.source(), family, self.efficient_model.as_deref().unwrap_or_default())?;
        }
        let given = || Pruning {
            skip_blocks: self.skip_blocks.iter().copied().collect(),
            mask_blocks: self.mask_blocks.iter().copied().collect(),
            split_block: None,
        };
        Ok(self.preset.clone().unwrap_or_else(given))
    }

    /// Says which of the options were not needed; `measures` is whether `--benchmark` is given.
    pub fn announce(&self, measures: bool) {
        let is_given = |flag: &str| crate::given::arguments().iter().any(|one| one == flag);
        let prunes = !self.skip_blocks.is_empty() || !self.mask_blocks.is_empty() || self.preset.is_some();
        if is_given("--checkpoint") {
            status("--checkpoint is --model here");
        }
        for (given, flag, why) in [
            (self.compile.is_some(), "--compile", "it is for PyTorch, which does not run here"),
            (self.fast, "--fast", "it is the default"),
            (self.detection_only, "--detection-only", "it is the default without --masks"),
            (self.trt_max_classes.is_some(), "--trt-max-classes", "the number of classes is not limited"),
            (self.warmup.is_some() && !measures, "--warmup", "only measurements warm up, and this is none"),
        ] {
            if given {
                status(format!("{flag} is not needed: {why}"));
            }
        }
        if prunes {
            let blocks = "--skip-blocks and --mask-blocks";
            status(format!("{blocks}: the checkpoint is exported into the cache without these blocks"));
        }
    }
}

/// Compares `--efficient-backbone` and `--efficient-model` with the backbone of the checkpoint.
fn check_backbone(source: &ModelSource, family: &str, size: &str) -> anyhow::Result<()> {
    let given =
        format!("--efficient-backbone {family}{}", if size.is_empty() { "" } else { " --efficient-model " });
    let (model, name) = match source {
        ModelSource::Folder(path) if path.join("model.json").is_file() => {
            refuse!(
                "{given}{size}, {}: an exported model has the backbone that it was exported with; leave it out",
                path.display()
            );
        }
        ModelSource::Folder(path) => {
            let checkpoint = Checkpoint::open(path)?;
            (path.display().to_string(), checkpoint.config().student.as_ref().map(Student::name))
        }
        _ => (ModelSource::BUILT_IN.to_owned(), None),
    };
    let found = name.as_deref().unwrap_or("the image transformer");
    if name.as_deref().is_some_and(|name| is_called(name, family, size)) {
        return Ok(());
    }
    Err(usage(format!(
        "{given}{size}, {model}: its backbone is {found}; leave it out, or name another model"
    )))
}

/// `true` if DART calls this backbone so: `repvit` and `m2_3` are RepViT-M2.3.
fn is_called(name: &str, family: &str, size: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_', '.'], "");
    let name = plain(name);
    name.strip_prefix(&plain(family)).is_some_and(|rest| size.is_empty() || rest == plain(size))
}

#[cfg(test)]
mod tests {
    use super::is_called;

    #[test]
    fn backbones_have_the_names_of_dart() {
        let cases = [
            ("RepViT-M2.3", "repvit", "m2_3", true),
            ("RepViT-M2.3", "repvit", "m2.3", true),
            ("RepViT-M2.3", "repvit", "", true),
            ("RepViT-M2.3", "repvit", "m1_1", false),
            ("EfficientViT-L1", "efficientvit", "l1", true),
            ("EfficientViT-L1", "efficientvit", "l2", false),
            ("EfficientViT-L1", "repvit", "l1", false),
            ("TinyViT-21M", "tiny_vit", "21m", true),
            ("TinyViT-21M", "tinyvit", "21m", true),
        ];
        let wrong: Vec<_> =
            cases.iter().filter(|(name, family, size, is)| is_called(name, family, size) != *is).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
