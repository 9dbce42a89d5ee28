//! The separate programs of the comparing, measuring and packaging commands.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ottla_workspace::workspace;

/// A program of this workspace, identified by its package, which has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program(pub &'static str);

pub const CONFORMANCE: Program = Program("ottla-conformance");
pub const BENCH_PEER: Program = Program("ottla-bench-peer");
pub const GROWTH: Program = Program("ottla-growth");
pub const PACKAGING: Program = Program("ottla-packaging");

impl Program {
    /// Its path in a test build.
    pub fn path(self) -> PathBuf {
        workspace::target_dir().join("debug").join(self.0)
    }
}

/// Builds the program and replaces this process with it (exec), so that signals and the exit status
/// pass through.
pub fn become_one(program: Program, command: &str, arguments: &[OsString]) -> Result<()> {
    let error = workspace::cargo()
        .args(["run", "--quiet", "--package", program.0, "--", command])
        .args(arguments)
        .exec();
    Err(error).context("cannot start cargo")
}

/// As [`become_one`], for a program that measures: with optimisations, and without commands.
pub fn become_measuring(program: Program, arguments: &[OsString]) -> Result<()> {
    let error = workspace::cargo()
        .args(["run", "--quiet", "--release", "--package", program.0, "--"])
        .args(arguments)
        .exec();
    Err(error).context("cannot start cargo")
}
