//! `cargo xtask tidy`: what neither the compiler nor clippy checks.

use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {}

pub fn run(_options: &Options) -> Result<()> {
    Ok(())
}
