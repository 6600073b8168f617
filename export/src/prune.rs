//! Pruning: blocks of the vision transformer that an export removes.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::ModelConfig;
use crate::errors::refused;
use ocelli_error::{Error, Result};

/// One of the two branches of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Branch {
    /// `attn`.
    #[serde(rename = "attn")]
    Attention,
    /// `mlp`.
    Mlp,
}

/// A branch of a block, written `25:attn` or `28:mlp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MaskedBranch {
    /// The block, from 0.
    pub block: usize,
    /// The branch that becomes the identity.
    pub branch: Branch,
}

ocelli_error::read_by_name!(Branch, "branch", "attn or mlp");
ocelli_error::display_as!(MaskedBranch, it => "{}:{}", it.block, it.branch);

impl FromStr for MaskedBranch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            refused(format!("`{text}` is not a branch: expected BLOCK:attn or BLOCK:mlp, such as 25:attn"))
        };
        let (block, branch) = text.trim().split_once(':').ok_or_else(wrong)?;
        let branch = branch.parse().map_err(|_| wrong())?;
        Ok(Self { block: block.parse().map_err(|_| wrong())?, branch })
    }
}

ocelli_error::written_as_text!(MaskedBranch);

/// Blocks and branches that are removed, and where the backbone is split.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pruning {
    /// Blocks that are removed.
    pub skip_blocks: BTreeSet<usize>,
    /// Branches that become the identity: norm, branch and residual sum are removed.
    pub mask_blocks: BTreeSet<MaskedBranch>,
    /// The first block of the second part, if the backbone is split.
    pub split_block: Option<usize>,
}

/// Prunings of SAM 3's image transformer of 32 blocks that DART recommends, by name: whole blocks, and branches.
const PRESETS: [(&str, &str, &str); 3] = [
    ("sbp-8", "", "25:attn,28:mlp,27:attn,22:attn,28:attn,30:mlp,20:attn,27:mlp"),
    (
        "sbp-16",
        "",
        "25:attn,28:mlp,27:attn,22:attn,28:attn,30:mlp,20:attn,27:mlp,26:attn,22:mlp,24:attn,18:attn,20:mlp,21:attn,25:mlp,18:mlp",
    ),
    ("blocks-16", "5,10,12,14,17,18,19,20,21,22,24,25,26,27,28,30", ""),
];

impl Pruning {
    /// The pruning of this name: `sbp-8` or `sbp-16` without 8 or 16 branches, `blocks-16` without 16 blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument) for another name.
    pub fn preset(name: &str) -> Result<Self> {
        let Some((_, blocks, branches)) = PRESETS.iter().find(|(known, ..)| *known == name) else {
            return Err(Error::argument("preset", name, PRESETS.map(|(known, ..)| known).join(", ")));
        };
        Ok(Self {
            skip_blocks: blocks.split(',').filter_map(|block| block.parse().ok()).collect(),
            mask_blocks: branches.split(',').filter_map(|branch| branch.parse().ok()).collect(),
            split_block: None,
        })
    }

    /// Removes these branches: a block that loses both is skipped.
    pub fn of_branches(branches: impl IntoIterator<Item = MaskedBranch>) -> Self {
        let mut mask_blocks: BTreeSet<_> = branches.into_iter().collect();
        let both = |block: &usize| {
            let has = |branch| mask_blocks.contains(&MaskedBranch { block: *block, branch });
            has(Branch::Attention) && has(Branch::Mlp)
        };
        let skip_blocks: BTreeSet<_> = mask_blocks.iter().map(|masked| masked.block).filter(both).collect();
        mask_blocks.retain(|masked| !skip_blocks.contains(&masked.block));
        Self { skip_blocks, mask_blocks, split_block: None }
    }

    /// `true` if a branch of a block stays.
    pub fn has_kept(&self, branch: MaskedBranch) -> bool {
        !self.skip_blocks.contains(&branch.block) && !self.mask_blocks.contains(&branch)
    }

    /// Checks that the blocks exist, and that blocks with attention over the whole grid stay.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](ocelli_error::ErrorKind::InvalidArgument); the message names the block.
    pub fn check(&self, config: &ModelConfig) -> Result<()> {
        let refuse = |option, why: String| Err(refused(format!("{option}{why}")).about(option));
        let removes = !self.skip_blocks.is_empty() || !self.mask_blocks.is_empty();
        if let Some(student) = config.student.as_ref().filter(|_| removes || self.split_block.is_some()) {
            let option = match (self.skip_blocks.is_empty(), self.mask_blocks.is_empty()) {
                (false, _) => "skip_blocks",
                (_, false) => "mask_blocks",
                _ => "split_block",
            };
            return refuse(option, format!(": {}", student.lacks_blocks()));
        }
        let (layers, global) = (config.vision.stack.layers, &config.vision.global_blocks);
        let named = self.skip_blocks.iter().map(|&block| ("skip_blocks", block));
        for (option, block) in named.chain(self.mask_blocks.iter().map(|m| ("mask_blocks", m.block))) {
            if block >= layers {
                return refuse(
                    option,
                    format!(" has block {block}: the model has blocks 0 to {}", layers - 1),
                );
            }
            if global.contains(&block) {
                let why = format!("attends to the whole image: the global blocks {global:?} must stay");
                return refuse(option, format!(" has block {block}, which {why}"));
            }
        }
        if let Some(masked) = self.mask_blocks.iter().find(|masked| self.skip_blocks.contains(&masked.block))
        {
            let block = masked.block;
            return refuse(
                "mask_blocks",
                format!(" has {masked}, but skip_blocks removes all of block {block}"),
            );
        }
        match self.split_block {
            Some(block) if block == 0 || block >= layers => {
                let expected = format!("1 to {}, the first block of the second part", layers - 1);
                Err(Error::argument("split_block", block, expected))
            }
            _ => Ok(()),
        }
    }

    /// The branches that these and `others` remove together. A branch of a block that goes as a whole is not listed.
    #[must_use]
    pub(crate) fn with(&self, others: &Self) -> Self {
        let mut both = self.clone();
        both.skip_blocks.extend(&others.skip_blocks);
        both.mask_blocks.extend(&others.mask_blocks);
        both.split_block = self.split_block.or(others.split_block);
        // The caller's own contradictions are errors, see `check`.
        both.mask_blocks.retain(|masked| {
            let listed = self.mask_blocks.contains(masked) && self.skip_blocks.contains(&masked.block);
            listed || !both.skip_blocks.contains(&masked.block)
        });
        both
    }

    /// `true` if a branch of a block stays.
    pub(crate) fn keeps(&self, block: usize, branch: Branch) -> bool {
        !self.mask_blocks.contains(&MaskedBranch { block, branch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_parse_and_print() {
        for text in ["0:attn", "28:mlp"] {
            assert_eq!(text.parse::<MaskedBranch>().map(|m| m.to_string()).ok().as_deref(), Some(text));
        }
        for text in ["", "5", "5:", "5:ffn", "x:attn", "-1:mlp", "5:attn:mlp"] {
            assert!(text.parse::<MaskedBranch>().is_err(), "{text}");
        }
    }

    #[test]
    fn presets_have_names() {
        for (name, blocks, branches) in [("sbp-8", 0, 8), ("sbp-16", 0, 16), ("blocks-16", 16, 0)] {
            let pruning = Pruning::preset(name).expect("it is one");
            assert_eq!((pruning.skip_blocks.len(), pruning.mask_blocks.len()), (blocks, branches), "{name}");
        }
        let error = Pruning::preset("sbp-9").expect_err("it is none").to_string();
        assert!(error.contains("sbp-8, sbp-16, blocks-16"), "{error}");
    }

    #[test]
    fn a_block_without_branches_is_skipped() {
        let branches = |text: &str| text.split(' ').filter_map(|t| t.parse().ok()).collect::<Vec<_>>();
        for (text, skipped, masked) in [
            ("", &[][..], ""),
            ("3:mlp 1:attn", &[], "1:attn 3:mlp"),
            ("3:mlp 1:attn 3:attn 3:mlp", &[3], "1:attn"),
        ] {
            let pruning = Pruning::of_branches(branches(text));
            assert_eq!(Vec::from_iter(pruning.skip_blocks.clone()), skipped, "{text}");
            assert_eq!(Vec::from_iter(pruning.mask_blocks.clone()), branches(masked), "{text}");
            assert!(branches(text).into_iter().all(|branch| !pruning.has_kept(branch)), "{text}");
            assert!(pruning.has_kept(MaskedBranch { block: 1, branch: Branch::Mlp }), "{text}");
        }
    }

    #[test]
    fn errors_name_the_block() {
        let config = ModelConfig::parse(r#"{"vision_config":{"backbone_config":{}}}"#).expect("defaults");
        let skip = |block| Pruning { skip_blocks: [block].into(), ..Pruning::default() };
        let mask =
            |text: &str| Pruning { mask_blocks: text.parse().into_iter().collect(), ..Pruning::default() };
        let split = |block| Pruning { split_block: Some(block), ..Pruning::default() };
        let both = Pruning { skip_blocks: [5].into(), ..mask("5:mlp") };
        for (pruning, word) in [
            (skip(32), "block 32"),
            (skip(7), "block 7"),
            (mask("31:attn"), "block 31"),
            (mask("99:mlp"), "block 99"),
            (split(0), "split_block is 0"),
            (split(32), "split_block is 32"),
            (both, "5:mlp"),
        ] {
            match pruning.check(&config) {
                Ok(()) => panic!("accepted {pruning:?}"),
                Err(e) => assert!(e.to_string().contains(word), "{pruning:?}: {e}"),
            }
        }
        for pruning in [Pruning::default(), skip(5), mask("25:attn"), split(16)] {
            assert!(pruning.check(&config).is_ok(), "{pruning:?}");
        }
    }
}
