//! Writes the JavaScript module and the types of a WebAssembly file: `bindgen-for-web FILE FOLDER`.

use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder] = arguments.as_slice() else {
        eprintln!("expected two arguments: a WebAssembly file and the folder to write to");
        return ExitCode::from(2);
    };
    let written = Bindgen::new().input_path(file).web(true).and_then(|bindgen| bindgen.generate(folder));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{file}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
