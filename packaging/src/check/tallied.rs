//! Counts and reports the checks of one run, and holds the packages that they check.

use std::path::{Path, PathBuf};

use anyhow::Result;

use ottla_workspace::process::is_on_path;
use ottla_workspace::report::Tally;

/// The checks of one run, and the folder for their files.
pub struct Run<'a> {
    pub folder: &'a Path,
    pub tally: Tally,
}

impl<'a> Run<'a> {
    pub fn new(folder: &'a Path) -> Run<'a> {
        let tally = Tally::default();
        Run { folder, tally }
    }

    /// Runs a check and prints its result after its name.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Result<String>) {
        self.tally.check(name, check());
    }

    /// Whether the program is available; otherwise reports what is skipped.
    pub fn has(&self, program: &str, for_what: &str) -> bool {
        let is_there = is_on_path(program);
        if !is_there {
            println!("note: without {program} on this machine, left out: {for_what}");
        }
        is_there
    }
}

/// Packages of one version, and of its next revision.
pub struct Packages {
    pub deb: PathBuf,
    pub rpm: PathBuf,
    pub next_deb: PathBuf,
    pub next_rpm: PathBuf,
}
