//! How suites count checks and report results.

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

/// The number of passed and failed checks.
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

    /// Prints and counts the outcome of a check. Returns whether it passed.
    pub fn check(&mut self, what: &str, outcome: Result<String>) -> bool {
        let is_passed = outcome.is_ok();
        match outcome {
            Ok(seen) if seen.is_empty() => println!("ok   {what}"),
            Ok(seen) => println!("ok   {what}: {seen}"),
            Err(error) => println!("FAIL {what}: {error:#}"),
        }
        self.add(Tally::of(is_passed));
        is_passed
    }

    /// Ends a suite whose outputs are in a folder: reports the result, and keeps the folder if a
    /// check failed.
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

    /// The tally of a single check.
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
