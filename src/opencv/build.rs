//! Compiles `src/calls.cpp` against the OpenCV of the system, and links OpenCV's modules.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "cargo reads stdout, and shows stderr")]

use std::env;
use std::path::PathBuf;

/// The modules that are used.
const MODULES: [&str; 3] = ["opencv_videoio", "opencv_highgui", "opencv_core"];

fn main() {
    println!("cargo:rerun-if-changed=src/calls.cpp");
    for variable in ["OPENCV_INCLUDE_PATHS", "OPENCV_LINK_PATHS", "OPENCV_LINK_LIBS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let (includes, folders) = match (paths("OPENCV_INCLUDE_PATHS"), paths("OPENCV_LINK_PATHS")) {
        (includes, folders) if !includes.is_empty() => (includes, folders),
        _ => match pkg_config::Config::new().atleast_version("4.0").cargo_metadata(false).probe("opencv4") {
            Ok(library) => (library.include_paths, library.link_paths),
            // Debian's folders, where pkg-config is not installed.
            Err(_) if PathBuf::from("/usr/include/opencv4/opencv2/core.hpp").is_file() => {
                (vec!["/usr/include/opencv4".into()], Vec::new())
            }
            Err(error) => {
                // A message instead of a panic: the last line is what the reader needs.
                eprintln!("{error}");
                eprintln!(
                    "OpenCV 4 not found: install it with its headers (Debian: apt-get install libopencv-dev pkg-config), or \
                     set OPENCV_INCLUDE_PATHS and OPENCV_LINK_PATHS, or build without the feature `opencv`"
                );
                std::process::exit(1);
            }
        },
    };
    cc::Build::new()
        .cpp(true)
        .std("c++14")
        .includes(includes)
        .file("src/calls.cpp")
        .warnings(false)
        .compile("ocelli_opencv");
    for folder in folders {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    // Windows has all modules in one library, `opencv_world4100`.
    let named = env::var("OPENCV_LINK_LIBS").unwrap_or_default();
    let named: Vec<&str> = named.split(',').filter(|name| !name.is_empty()).collect();
    for module in if named.is_empty() { MODULES.to_vec() } else { named } {
        println!("cargo:rustc-link-lib={module}");
    }
}

/// The paths in a variable, separated by commas.
fn paths(variable: &str) -> Vec<PathBuf> {
    let value = env::var(variable).unwrap_or_default();
    value.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}
