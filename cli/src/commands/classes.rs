//! `ocelli classes`.

use ocelli::builtin::vocabulary;

use crate::print;

/// Prints the names that the built-in model knows, one per line, as `--classes FILE` reads them.
pub fn run() -> anyhow::Result<()> {
    print(|out| vocabulary().iter().try_for_each(|name| writeln!(out, "{name}")))
}
