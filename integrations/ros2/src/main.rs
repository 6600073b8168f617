//! `ocelli-ros2`: open-vocabulary detection as a ROS 2 node.
//!
//! It is built without ROS: the messages are those of `ocelli-robot`, the middleware is in [`middleware`].

mod arguments;
mod latencies;
mod middleware;
mod node;

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Request};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let request = Arguments::parse(std::env::args().skip(1));
    let level = match &request {
        Ok(Request::Run(arguments)) => arguments.log_level.as_deref().unwrap_or("info"),
        _ => "info",
    };
    // Without the middleware's own messages: it reports as errors what is harmless, when peers come and go.
    let filter = EnvFilter::try_from_default_env()
        .or_else(|_| EnvFilter::try_new(format!("ocelli={level},ocelli_ros2={level}")))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match request? {
        Request::Run(arguments) => node::run(*arguments),
        Request::Print(text) => {
            use std::io::Write;
            Ok(std::io::stdout().write_all(text.as_bytes())?)
        }
    }
}
