//! `--webhook`: events as HTTP requests.

use std::time::Duration;

use super::delivery::{Delivery, Health};

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The pauses before each further attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Starts the delivery; the first event opens a connection.
///
/// # Errors
/// If the URL is not one of HTTP.
pub fn start(url: &str) -> anyhow::Result<Delivery> {
    if !url.starts_with("http://") {
        let why = "expected http://…; for https, name a relay in your network";
        refuse!("--webhook, {url}: {why}");
    }
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).build().into();
    let to = url.to_owned();
    Ok(Delivery::start(format!("--webhook, {url}"), move |_| {
        move |event: &[u8], health: &mut Health| send(&agent, &to, event, health)
    }))
}

/// Sends an event, again after a pause if that may help.
fn send(agent: &ureq::Agent, url: &str, event: &[u8], health: &mut Health) -> Result<(), String> {
    let mut pauses = PAUSES.iter();
    loop {
        let error = match agent.post(url).header("content-type", "application/json").send(event) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let is_refusal = matches!(error, ureq::Error::StatusCode(status) if (400..500).contains(&status));
        match pauses.next().filter(|_| !is_refusal) {
            Some(pause) => {
                health.report(Some(&error.to_string()));
                std::thread::sleep(*pause);
            }
            None => return Err(error.to_string()),
        }
    }
}
