//! Units that can be removed: blocks, and branches of blocks.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ocelli::{Error, Result};
use ocelli_export::{Branch, Checkpoint, MaskedBranch};
use serde::Serialize;

use super::PruneOptions;

/// A block, written `5`, or a branch of it, written `5:attn` or `5:mlp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub enum Unit {
    /// Both branches of this block.
    Block(usize),
    /// One branch.
    Branch(MaskedBranch),
}

impl Unit {
    /// Its branches, in the order in which they run.
    pub fn branches(self) -> Vec<MaskedBranch> {
        match self {
            Self::Block(block) => {
                [Branch::Attention, Branch::Mlp].map(|branch| MaskedBranch { block, branch }).to_vec()
            }
            Self::Branch(branch) => vec![branch],
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block(block) => write!(f, "{block}"),
            Self::Branch(branch) => write!(f, "{branch}"),
        }
    }
}

impl FromStr for Unit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().parse() {
            Ok(block) => Ok(Self::Block(block)),
            Err(_) => text.parse().map(Self::Branch).map_err(|_| {
                let message =
                    format!("`{text}` is no block: expected BLOCK, BLOCK:attn or BLOCK:mlp, such as 25");
                Error::invalid_argument(message)
            }),
        }
    }
}

ocelli_error::written_as_text!(Unit);

/// The units of a search, front to back.
#[derive(Debug)]
pub(super) struct Units {
    /// Blocks and branches whose importance is measured.
    pub alone: Vec<Unit>,
    /// Those of one size, which the search removes.
    pub removable: Vec<Unit>,
}

/// The units that may be removed.
pub(super) fn of(checkpoint: &Checkpoint, options: &PruneOptions) -> Result<Units> {
    if let Some(student) = &checkpoint.config().student {
        return Err(Error::invalid_argument(format!("model: {}", student.lacks_blocks())).about("model"));
    }
    let vision = &checkpoint.config().vision;
    let (layers, global) = (vision.stack.layers, &vision.global_blocks);
    let invalid = |option, message| Err(Error::invalid_argument(message).about(option));
    let stay: BTreeSet<_> = options.protect.iter().flat_map(|unit| unit.branches()).collect();
    if let Some(block) = stay.iter().map(|branch| branch.block).find(|block| *block >= layers) {
        let last = layers - 1;
        return invalid("protect", format!("protect has block {block}: the model has blocks 0 to {last}"));
    }
    let mut free: BTreeSet<_> = (0..layers).flat_map(|block| Unit::Block(block).branches()).collect();
    free.retain(|branch| {
        let stays = stay.contains(branch) || global.contains(&branch.block);
        !stays && checkpoint.pruning().has_kept(*branch)
    });
    let whole = |block: &usize| Unit::Block(*block).branches().iter().all(|branch| free.contains(branch));
    let blocks: Vec<Unit> = (0..layers).filter(whole).map(Unit::Block).collect();
    let branches: Vec<Unit> = free.iter().copied().map(Unit::Branch).collect();
    let (removable, name) =
        if options.whole_blocks { (&blocks, "blocks") } else { (&branches, "branches of blocks") };
    let most = removable.len();
    if most == 0 {
        return invalid("protect", format!("protect leaves no {name} to remove"));
    }
    if options.num_prune == 0 || options.num_prune > most {
        let asked = options.num_prune;
        let message =
            format!("num_prune is {asked}: expected 1 to {most}, the number of {name} that may be removed");
        return invalid("num_prune", message);
    }
    let removable = removable.clone();
    let mut alone = [blocks, branches].concat();
    alone.sort_by_key(|unit| (unit.branches()[0], unit.branches().len()));
    Ok(Units { alone, removable })
}
