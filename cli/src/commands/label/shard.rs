//! `--shard`: a part of the images, by number or from the scheduler that runs the job.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use ocelli_datasets::label::Shard;

use crate::usage;

/// In `-o`, the number of the shard.
const PLACE: &str = "{shard}";
/// The number of shards, where the scheduler does not say it.
const COUNT: &str = "OCELLI_SHARDS";

/// The part of the images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShardArg {
    /// The one that the scheduler says.
    Auto,
    Of(Shard),
}

impl FromStr for ShardArg {
    type Err = ocelli::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Of) }
    }
}

impl ShardArg {
    /// The shard, with where it comes from if a scheduler says it.
    ///
    /// # Errors
    /// If no scheduler does, or it says something that is no shard.
    pub fn resolve(self) -> anyhow::Result<(Shard, Option<&'static str>)> {
        match self {
            Self::Of(shard) => Ok((shard, None)),
            Self::Auto => of_scheduler(|name| std::env::var(name).ok()).map(|(shard, of)| (shard, Some(of))),
        }
    }
}

/// The output folder of a shard: `{shard}` in it is its number.
pub fn output_of(output: &Path, shard: Option<Shard>) -> anyhow::Result<PathBuf> {
    let text = output.to_string_lossy();
    if !text.contains(PLACE) {
        return Ok(output.to_owned());
    }
    match shard {
        Some(shard) => Ok(text.replace(PLACE, &shard.index().to_string()).into()),
        None => Err(usage(format!("-o, {text}: {PLACE} is the number of the shard: add --shard"))),
    }
}

/// The shard in the variables of Slurm, AWS Batch or Kubernetes, and the scheduler.
fn of_scheduler(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<(Shard, &'static str)> {
    let number = |name: &str| -> anyhow::Result<u32> {
        let text = variable(name).ok_or_else(|| {
            usage(format!("--shard auto: {name} is not set, which says the number of shards"))
        })?;
        text.trim()
            .parse()
            .map_err(|_| usage(format!("--shard auto: {name} is \"{text}\", which is no number from 0 on")))
    };
    let has = |name: &str| variable(name).is_some();
    // Index from 0 and number of the tasks.
    let (index, count, scheduler) = if has("SLURM_ARRAY_TASK_ID") {
        let [id, first, last, count] =
            ["ID", "MIN", "MAX", "COUNT"].map(|part| number(&format!("SLURM_ARRAY_TASK_{part}")));
        let (id, first, last, count) = (id?, first?, last?, count?);
        let step = if has("SLURM_ARRAY_TASK_STEP") { number("SLURM_ARRAY_TASK_STEP")?.max(1) } else { 1 };
        let is_even = u64::from(first) + u64::from(step) * u64::from(count.saturating_sub(1))
            == u64::from(last)
            && id >= first
            && (id - first).is_multiple_of(step);
        if !is_even {
            refuse!(
                "--shard auto: task {id} is of an array of {count} tasks from {first} to {last}, which has gaps; submit \
                 it as one range, such as --array=1-{count}"
            );
        }
        ((id - first) / step, count, "Slurm's job array")
    } else if has("AWS_BATCH_JOB_ARRAY_INDEX") {
        (number("AWS_BATCH_JOB_ARRAY_INDEX")?, number("AWS_BATCH_JOB_ARRAY_SIZE")?, "AWS Batch's array job")
    } else if has("JOB_COMPLETION_INDEX") {
        (number("JOB_COMPLETION_INDEX")?, number(COUNT)?, "Kubernetes' indexed job")
    } else if has("SLURM_PROCID") && has("SLURM_NTASKS") {
        (number("SLURM_PROCID")?, number("SLURM_NTASKS")?, "Slurm's tasks")
    } else {
        refuse!(
            "--shard auto: no variable of a scheduler is set: SLURM_ARRAY_TASK_ID, AWS_BATCH_JOB_ARRAY_INDEX, \
             JOB_COMPLETION_INDEX or SLURM_PROCID; write --shard 1/8"
        );
    };
    let shard = index.checked_add(1).map(|number| Shard::new(number, count));
    match shard {
        Some(Ok(shard)) => Ok((shard, scheduler)),
        _ => Err(usage(format!("--shard auto: {scheduler} says task {index} of {count}, counted from 0"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_say_which_shard_it_is() {
        let slurm = |id: &str, rest: &str| {
            let parts =
                ["ID", "MIN", "MAX", "COUNT", "STEP"].iter().zip(id.split(' ').chain(rest.split(' ')));
            parts
                .map(|(part, value)| format!("SLURM_ARRAY_TASK_{part}={value}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let cases = [
            (slurm("1", "1 8 8"), Ok("1/8 Slurm's job array")),
            (slurm("8", "1 8 8"), Ok("8/8 Slurm's job array")),
            (slurm("0", "0 7 8"), Ok("1/8 Slurm's job array")),
            (slurm("6", "2 10 5 2"), Ok("3/5 Slurm's job array")),
            (slurm("7", "1 9 3"), Err("has gaps")),
            (slurm("3", "2 10 5 2"), Err("has gaps")),
            (slurm("x", "1 8 8"), Err("SLURM_ARRAY_TASK_ID is \"x\"")),
            ("SLURM_ARRAY_TASK_ID=1".to_owned(), Err("SLURM_ARRAY_TASK_MIN is not set")),
            (
                "AWS_BATCH_JOB_ARRAY_INDEX=3 AWS_BATCH_JOB_ARRAY_SIZE=4".to_owned(),
                Ok("4/4 AWS Batch's array job"),
            ),
            (
                "AWS_BATCH_JOB_ARRAY_INDEX=4 AWS_BATCH_JOB_ARRAY_SIZE=4".to_owned(),
                Err("task 4 of 4, counted from 0"),
            ),
            ("JOB_COMPLETION_INDEX=0 OCELLI_SHARDS=2".to_owned(), Ok("1/2 Kubernetes' indexed job")),
            ("JOB_COMPLETION_INDEX=0".to_owned(), Err("OCELLI_SHARDS is not set")),
            ("JOB_COMPLETION_INDEX=0 OCELLI_SHARDS=0".to_owned(), Err("task 0 of 0")),
            ("SLURM_PROCID=1 SLURM_NTASKS=3".to_owned(), Ok("2/3 Slurm's tasks")),
            // The array of a job counts, not the tasks of its steps.
            (format!("{} SLURM_PROCID=0 SLURM_NTASKS=1", slurm("2", "1 4 4")), Ok("2/4 Slurm's job array")),
            ("PATH=/bin".to_owned(), Err("SLURM_ARRAY_TASK_ID, AWS_BATCH")),
        ];
        for (text, expected) in cases {
            let variables: Vec<_> = text.split(' ').filter_map(|pair| pair.split_once('=')).collect();
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            let came = of_scheduler(variable)
                .map(|(shard, scheduler)| format!("{}/{} {scheduler}", shard.index(), shard.count()))
                .map_err(|error| error.to_string());
            match (&came, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                _ => panic!("{text}: {came:?}, expected {expected:?}"),
            }
        }
    }
}
