//! The `ocelli` program.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    ocelli_cli::Program::Ocelli.main()
}
