//! How suites count and say what came out.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

/// How many checks passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Ends a suite whose outputs are in a folder: it says what came out, and keeps the folder where something failed.
    pub fn conclude(self, dir: &Path, keep: bool) -> Result<()> {
        println!("{self}");
        if self.failed > 0 {
            bail!("outputs are kept in {}", dir.display());
        }
        if !keep {
            std::fs::remove_dir_all(dir)?;
        }
        Ok(())
    }

    /// One check.
    pub fn of(is_passed: bool) -> Tally {
        Tally {
            passed: usize::from(is_passed),
            failed: usize::from(!is_passed),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)
    }
}
