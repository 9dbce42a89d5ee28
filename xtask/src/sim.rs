//! `cargo xtask sim`: runs seeds of simulated clusters (`ottla-simulation`), one with its output or
//! new ones for a while on all cores, and records the seeds that have run.
//!
//! The simulation is a separate program: linking it would make every command wait for half of the
//! product to be built.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use ottla_workspace::{process, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Repeat this seed, and print the log of its nodes and faults.
    #[arg(long, value_name = "N", conflicts_with_all = ["time", "from", "jobs", "ledger", "hours"])]
    seed: Option<u64>,
    /// Run one seed after the other for this long, or until one finds something: 90s, 20m or 2h.
    #[arg(long = "for", value_name = "TIME", default_value = "60s")]
    time: String,
    /// The first of these seeds; by default new seeds.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The number of threads that run seeds; by default one per core.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Add each seed to the account in this file. Seeds that have passed according to it are left out.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// End when the account has this many simulated hours of the present tree.
    #[arg(long, value_name = "H", requires = "ledger")]
    hours: Option<u64>,
}

pub fn run(options: &Options) -> Result<()> {
    let mut command = workspace::cargo();
    command.args([
        "run",
        "--quiet",
        "--profile",
        "simulation",
        "--package",
        "ottla-simulation",
        "--",
    ]);
    match options.seed {
        Some(seed) => {
            command.args(["--seed", &seed.to_string()]);
        }
        None => add_campaign(&mut command, options)?,
    }
    let status = command.status().context("cargo run")?;
    // The findings are already printed.
    std::process::exit(status.code().unwrap_or(1));
}

fn add_campaign(command: &mut Command, options: &Options) -> Result<()> {
    command.args(["--for", &options.time]);
    for (name, value) in [
        ("--from", options.from),
        ("--jobs", options.jobs.map(|jobs| jobs as u64)),
        ("--hours", options.hours),
    ] {
        if let Some(value) = value {
            command.args([name, &value.to_string()]);
        }
    }
    if let Some(ledger) = &options.ledger {
        let mut describe = Command::new("git");
        describe.args(["describe", "--always", "--dirty"]);
        let tree = process::output_of(describe.current_dir(workspace::root()))?;
        // Cargo starts the program at the root of the workspace.
        let ledger = std::path::absolute(ledger).context("the path of the ledger")?;
        command.arg("--ledger").arg(ledger);
        command.args(["--tree", tree.trim()]);
    }
    Ok(())
}
