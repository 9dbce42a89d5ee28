//! Properties shared by all packages of one run.

use std::process::Command;

use anyhow::{Context, Result};

use ottla_workspace::process::output_of;
use ottla_workspace::workspace;

pub const MAINTAINER: &str = "Ottla maintainers <ottla@users.noreply.github.com>";

/// Maintainer, timestamp and compression of packages.
#[derive(Debug, Clone)]
pub struct Stamp {
    pub revision: u32,
    pub maintainer: String,
    /// The modification time of all files, in seconds since 1970.
    pub time: u32,
    /// Compression level, from 0 to 9.
    pub level: u32,
}

/// `SOURCE_DATE_EPOCH`, or else the commit time, so that the same sources give the same packages.
pub fn source_time() -> Result<u32> {
    let given = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(given) => given,
        Err(_) => output_of(
            Command::new("git")
                .args(["log", "-1", "--format=%ct"])
                .current_dir(workspace::root()),
        )?,
    };
    let given = given.trim();
    given
        .parse()
        .with_context(|| format!("SOURCE_DATE_EPOCH={given}: give seconds since 1970"))
}
