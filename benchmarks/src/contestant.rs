//! Processes that run the same commands in turn, so that a machine that slows down slows all.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

/// The answer to a command.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Answer {
    /// Milliseconds.
    pub ms: f64,
    /// Milliseconds of all cores: what other work on the machine hardly changes.
    pub cpu_ms: f64,
    /// Of the process so far.
    pub peak_memory_mib: f64,
    /// What it computed, if that can be compared.
    pub scores: Vec<f32>,
}

impl Answer {
    /// The largest difference of a score, divided by the largest score; `None` without scores.
    pub fn score_difference(&self, other: &Self) -> Option<f64> {
        let pairs = self.scores.iter().zip(&other.scores);
        let most = other.scores.iter().map(|score| f64::from(score.abs())).reduce(f64::max)?;
        Some(pairs.map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max) / most)
    }
}

/// The first line of a process.
#[derive(Deserialize, Serialize)]
pub struct Greeting {
    /// What runs, with its versions.
    pub name: String,
}

/// A process that reads a command from each line of stdin and answers with a line of JSON, a [`Greeting`] first.
pub struct Contestant {
    /// Of its greeting.
    pub name: String,
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Contestant {
    /// Starts a process and waits for its greeting; `what` is for errors.
    ///
    /// # Errors
    /// If it does not start or greet.
    pub fn start(command: &mut Command, what: &str) -> anyhow::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start the process, {what}"))?;
        let commands = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut contestant = Self { name: what.to_owned(), child, commands, answers };
        contestant.name = contestant.read::<Greeting>()?.name;
        Ok(contestant)
    }

    /// Runs a command and waits for its answer.
    ///
    /// # Errors
    /// If the process ended or answers something else.
    pub fn run(&mut self, command: &str) -> anyhow::Result<Answer> {
        let sent = writeln!(self.commands, "{command}").and_then(|()| self.commands.flush());
        sent.with_context(|| format!("the process ended, {}", self.name))?;
        self.read()
    }

    fn read<T: for<'de> Deserialize<'de>>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the process ended without an answer, {}", self.name);
        }
        serde_json::from_str(&line).with_context(|| format!("{}: {}", self.name, line.trim()))
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_compared_by_the_largest() {
        let answer = |scores: &[f32]| Answer { scores: scores.to_vec(), ..Answer::default() };
        let cases: [(&[f32], &[f32], Option<f64>); 3] =
            [(&[1.0, -4.0], &[1.5, -4.0], Some(0.125)), (&[2.0], &[2.0], Some(0.0)), (&[], &[], None)];
        for (a, b, expected) in cases {
            assert_eq!(answer(a).score_difference(&answer(b)), expected, "{a:?} and {b:?}");
        }
    }
}
