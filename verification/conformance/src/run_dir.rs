//! The directory of a run, as configured on the command line.

use std::path::PathBuf;

use anyhow::Result;
use ottla_peers::reference;
use ottla_workspace::workspace;

use crate::seeded;

#[derive(clap::Args)]
pub struct RunDir {
    /// Parent directory of the run's directory; by default the target directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the directory of a successful run too.
    #[arg(long)]
    pub keep: bool,
}

impl RunDir {
    /// Makes the empty directory of a command.
    pub fn make(&self, command: &str) -> Result<PathBuf> {
        make_empty(self.of(command))
    }

    fn of(&self, command: &str) -> PathBuf {
        match &self.dir {
            Some(parent) => parent.join(command),
            None => reference::run_dir(command),
        }
    }
}

/// The directory and the seed of a run with random choices.
#[derive(clap::Args)]
pub struct SeededRun {
    /// Seed of the random choices; a new one for each run by default.
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    pub run_dir: RunDir,
}

impl SeededRun {
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(seeded::chance)
    }

    /// Makes the empty directory of a command's run with this seed.
    pub fn make(&self, command: &str, seed: u64) -> Result<PathBuf> {
        make_empty(self.run_dir.of(command).join(format!("seed-{seed}")))
    }
}

fn make_empty(dir: PathBuf) -> Result<PathBuf> {
    workspace::make_empty(&dir)?;
    Ok(dir)
}
