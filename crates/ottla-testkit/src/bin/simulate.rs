//! Runs seeds of the simulated cluster: `cargo xtask sim` starts it.
//!
//! `simulate --seed N` prints the history of one; `simulate --seconds S [--from N]` runs one after the other for that long, and
//! the history of the first that finds something.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use ottla_testkit::simulation;

/// Lines of a history that are shown without being asked for.
const LAST_LINES: usize = 150;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let (mut seed, mut seconds, mut from) = (None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .with_context(|| format!("{name} wants a number"))?;
        let value: u64 = value.parse().with_context(|| format!("{name} {value}"))?;
        match name.as_str() {
            "--seed" => seed = Some(value),
            "--seconds" => seconds = Some(value),
            "--from" => from = Some(value),
            other => bail!("{other} is not known: --seed N, --seconds S, --from N"),
        }
    }
    if let Some(seed) = seed {
        let (outcome, history) = simulation::replay(seed);
        for line in history {
            println!("{line}");
        }
        println!("{outcome:#?}");
        return Ok(outcome.finding.is_none());
    }
    run_for(Duration::from_secs(seconds.unwrap_or(60)), from)
}

fn run_for(time: Duration, from: Option<u64>) -> Result<bool> {
    let first = match from {
        Some(first) => first,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() * 1_000,
    };
    println!("seeds from {first} on, for {} s", time.as_secs());
    let began = Instant::now();
    let mut total = simulation::Outcome::default();
    let mut seed = first;
    while began.elapsed() < time {
        let outcome = simulation::run(seed);
        if outcome.finding.is_some() {
            let (outcome, history) = simulation::replay(seed);
            for line in &history[history.len().saturating_sub(LAST_LINES)..] {
                println!("{line}");
            }
            println!("{outcome:#?}");
            println!("seed {seed} finds something; cargo xtask sim --seed {seed} prints all of it");
            return Ok(false);
        }
        total.add(&outcome);
        seed += 1;
    }
    println!("{} seeds: {total:#?}", seed - first);
    Ok(true)
}
