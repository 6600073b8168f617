//! The files of a model, which the page reads: `model.json`, the tokeniser, and graphs with their weights when they are
//! needed.

use std::cell::RefCell;
use std::io;

use js_sys::{Function, Uint8Array};
use ocelli::Model;
use wasm_bindgen::prelude::*;

thread_local! {
    /// A model may be sent between threads and a function of the page may not, so that models have the index of theirs.
    static READERS: RefCell<Vec<Option<Function>>> = const { RefCell::new(Vec::new()) };
}

/// Releases the page's function when its detector is freed.
pub(crate) struct Reader(usize);

impl Drop for Reader {
    fn drop(&mut self) {
        READERS.with_borrow_mut(|readers| readers[self.0] = None);
    }
}

/// Opens a model through `read(name)`, a function that returns a `Uint8Array` and throws if it lacks the file.
pub(crate) fn open(read: Function) -> ocelli::Result<(Model, Reader)> {
    let index = READERS.with_borrow_mut(|readers| {
        readers.push(Some(read));
        readers.len() - 1
    });
    let reader = Reader(index);
    Ok((Model::from_memory(move |name| read_file(index, name))?, reader))
}

fn read_file(index: usize, name: &str) -> io::Result<Vec<u8>> {
    let read = READERS.with_borrow(|readers| readers.get(index).cloned().flatten());
    let read = read.ok_or_else(|| io::Error::other("the detector was freed"))?;
    let value = read.call1(&JsValue::NULL, &name.into()).map_err(|thrown| {
        let text = thrown.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
        io::Error::other(text.unwrap_or_else(|| format!("{thrown:?}")))
    })?;
    let bytes = value.dyn_into::<Uint8Array>();
    Ok(bytes.map_err(|_| io::Error::other("the page returned no Uint8Array"))?.to_vec())
}
