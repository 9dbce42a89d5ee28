//! `cargo xtask sim`: runs seeds of simulated clusters (`ottla-simulation`), one with its output or
//! new ones for a while.
//!
//! The simulation is a separate program: linking it would make every command wait for half of the
//! product to be built.

use anyhow::{Context, Result};

use ottla_workspace::workspace;

#[derive(clap::Args)]
pub struct Options {
    /// Repeat this seed, and print the log of its nodes and faults.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "from"])]
    seed: Option<u64>,
    /// Run one seed after the other for this long, or until one finds something.
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// The first of these seeds; by default new seeds.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
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
    match (options.seed, options.from) {
        (Some(seed), _) => command.args(["--seed", &seed.to_string()]),
        (None, from) => {
            command.args(["--seconds", &options.seconds.to_string()]);
            command.args(
                from.iter()
                    .flat_map(|from| ["--from".to_owned(), from.to_string()]),
            )
        }
    };
    let status = command.status().context("cargo run")?;
    // The findings are already printed.
    std::process::exit(status.code().unwrap_or(1));
}
