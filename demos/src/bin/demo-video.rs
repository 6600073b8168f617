//! `demo-video`: `ocelli video` under the name of the paper's demonstration.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    ocelli_cli::Program::DemoVideo.main()
}
