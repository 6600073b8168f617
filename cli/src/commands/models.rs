//! `ocelli models` and `ocelli pull`.

use clap::Args;
use ocelli::cache::{CachedExport, remove_export};
use ocelli::hub::{self, KnownModel, LocalModel};
use ocelli_datasets::table::{columns, row};

use crate::interrupt::cancel_on_interrupt;
use crate::{Progress, print};

/// Arguments of `ocelli models`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/models.txt"))]
pub struct ModelsArgs {
    /// Remove the downloaded files of these models, and what was exported from them
    #[arg(long, num_args = 1.., value_name = "NAME", help_heading = "Removal")]
    remove: Vec<String>,
}

/// Arguments of `ocelli pull`.
#[derive(Args, Debug)]
#[command(after_help = include_str!("../help/pull.txt"))]
pub struct PullArgs {
    /// The names of the models
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Lists the models with names, or removes files of some.
pub fn run(args: &ModelsArgs) -> anyhow::Result<()> {
    let exports = CachedExport::all()?;
    for name in &args.remove {
        let mut bytes = 0;
        for export in exports.iter().filter(|export| export.is_of(name)) {
            remove_export(&export.path)?;
            bytes += export.bytes;
        }
        bytes += hub::remove(name)?;
        print(|out| writeln!(out, "{name}: {:.1} MB removed", bytes as f64 / 1e6))?;
    }
    if !args.remove.is_empty() {
        return Ok(());
    }
    let mut rows =
        vec![row("name", ["here", "download", "exported", "access", "can", "licence", "repository"])];
    for known in KnownModel::all() {
        let here = if hub::cached(known.name)?.is_some() { "yes" } else { "-" };
        let base = known.base.map_or(String::new(), |base| format!(" + {base}"));
        let is_gated =
            known.is_gated || known.base.and_then(KnownModel::find).is_some_and(|base| base.is_gated);
        let access = if is_gated { "on request" } else { "free" };
        let repository = known.source.split(':').next().unwrap_or_default();
        let license = known.license.name.split(';').next().unwrap_or_default();
        let size = format!("{:.2} GB{base}", known.bytes as f64 / 1e9);
        let of_it = exports.iter().filter(|export| export.is_of(known.name));
        let exported = format!("{:.2} GB", of_it.map(|export| export.bytes).sum::<u64>() as f64 / 1e9);
        rows.push(row(known.name, [here, &size, &exported, access, known.can, license, repository]));
    }
    print(|out| write!(out, "{}", columns(&rows, 7)))
}

/// Downloads models.
pub fn pull(args: &PullArgs) -> anyhow::Result<()> {
    for name in &args.names {
        let local = fetch(name, true)?;
        print(|out| writeln!(out, "{name}: {}, revision {}", local.path.display(), &local.revision[..8]))?;
    }
    Ok(())
}

/// The model of a name, with progress on stderr.
pub(super) fn fetch(name: &str, update: bool) -> anyhow::Result<LocalModel> {
    let progress = Progress::waiting();
    Ok(hub::fetch(name, update, &|line| progress.announce(line), &cancel_on_interrupt())?)
}
