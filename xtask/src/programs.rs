//! The programs that have the commands which compare, measure and package.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ottla_workspace::workspace;

/// A program of this workspace, by its package, which is called as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program(pub &'static str);

pub const CONFORMANCE: Program = Program("ottla-conformance");
pub const BENCH_PEER: Program = Program("ottla-bench-peer");
pub const PACKAGING: Program = Program("ottla-packaging");

pub const ALL: [Program; 3] = [CONFORMANCE, BENCH_PEER, PACKAGING];

impl Program {
    /// Where a build for tests puts it.
    pub fn path(self) -> PathBuf {
        workspace::target_dir().join("debug").join(self.0)
    }
}

/// Builds the program and turns this process into it, so that signals reach it and its exit status is this process's.
pub fn become_one(program: Program, command: &str, arguments: &[OsString]) -> Result<()> {
    let error = workspace::cargo()
        .args(["run", "--quiet", "--package", program.0, "--", command])
        .args(arguments)
        .exec();
    Err(error).context("cannot start cargo")
}
