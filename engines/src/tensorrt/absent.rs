//! What stands in the library's place in a program that was built without it.

use super::Product;
use super::calls::BuildCalls;
use std::path::Path;

pub(super) fn bind(_library: &Path) -> Result<(), String> {
    Ok(())
}

pub(super) fn open(product: Product, _library: &Path, _parser: &Path) -> Result<Box<dyn BuildCalls>, String> {
    Err(format!("this program was built without {product}"))
}
