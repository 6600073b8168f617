//! The `ocelli` program, which is `demo-image` and `demo-video` as well if it is started by these names.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    ocelli_cli::Program::called().main()
}
