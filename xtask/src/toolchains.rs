//! `cargo xtask toolchains`: reports which programs of other languages the suites need and which
//! are missing, and installs them when running as root on Debian.
//!
//! It is also the first suite of `cargo xtask test`, so that a missing program is known within
//! seconds.

use anyhow::{Result, bail};

use ottla_workspace::report::Tally;
use ottla_workspace::toolchain::{self, State, Toolchain};
use ottla_workspace::workspace;

#[derive(clap::Args)]
pub struct Options {
    /// Only check, and install nothing.
    #[arg(long)]
    check: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let mut tally = Tally::default();
    let mut lacking: Vec<&Toolchain> = Vec::new();
    for toolchain in toolchain::ALL {
        let state = toolchain::look(toolchain);
        let (state, error) = match state {
            State::Found(_) => (state, None),
            _ if options.check => (state, None),
            _ => match toolchain::require(toolchain) {
                Ok(version) => (State::Found(version), None),
                Err(error) => (toolchain::look(toolchain), Some(error)),
            },
        };
        println!("{}", line(toolchain, &state));
        let is_there = matches!(state, State::Found(_));
        tally.add(Tally::of(is_there));
        if !is_there {
            lacking.push(toolchain);
        }
        if let Some(error) = error {
            println!("     {error:#}");
        }
    }
    if !options.check && !lacking.iter().any(|lacking| lacking.program == "go") {
        let module = workspace::root().join("conformance/go");
        match toolchain::go::for_module(&module) {
            Ok(program) => println!("     conformance/go is built with {}", program.display()),
            Err(error) => {
                println!("     {error:#}");
                tally.add(Tally::of(false));
            }
        }
    }
    println!("{tally}");
    if !lacking.is_empty() {
        bail!(
            "{} of the toolchains are missing; they come with: sudo {}",
            lacking.len(),
            toolchain::install_command(&lacking)
        );
    }
    if tally.failed > 0 {
        bail!("Go is too old for conformance/go");
    }
    Ok(())
}

fn line(toolchain: &Toolchain, state: &State) -> String {
    let verdict = match state {
        State::Found(_) => "ok  ",
        _ => "FAIL",
    };
    let found = match state {
        State::Found(version) | State::TooOld(version) => version.to_string(),
        State::Incomplete(_) => "not whole".to_owned(),
        State::Missing => "missing".to_owned(),
    };
    format!(
        "{verdict} {:<8} {found:<10} needed {:<8} {}",
        toolchain.program,
        toolchain.needed.to_string(),
        toolchain.purpose
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_found_and_required_version_and_purpose() {
        assert_eq!(
            line(&toolchain::JAVA, &State::Missing),
            "FAIL java     missing    needed 17.0.0   Apache Kafka, its clients and tools"
        );
        let found = State::Found(toolchain::Version([17, 0, 15]));
        assert!(line(&toolchain::JAVA, &found).starts_with("ok   java     17.0.15 "));
    }
}
