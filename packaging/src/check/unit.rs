//! The systemd unit: its references, and systemd's own analysis.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use ottla_workspace::process::{output_of, run_captured};

use crate::contents::{BINARY, CONFIGURATION, UNIT};

/// systemd's exposure level runs from 0 (confined) to 10; below 4 it rates a service "OK".
const MOST_EXPOSED: f64 = 3.0;

/// The value of a directive that occurs once in the unit.
fn directive<'a>(unit: &'a str, name: &str) -> Result<&'a str> {
    let mut found = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found
        .next()
        .with_context(|| format!("the unit has no {name}"))?;
    ensure!(found.next().is_none(), "the unit has {name} twice");
    Ok(value)
}

pub fn names_what_is_installed(root: &Path) -> Result<String> {
    let unit = std::fs::read_to_string(root.join(&UNIT[1..]))?;
    let started = directive(&unit, "ExecStart")?;
    ensure!(
        started == format!("{BINARY} server {CONFIGURATION}"),
        "ExecStart={started}"
    );
    let account = std::fs::read_to_string(root.join("usr/lib/sysusers.d/ottla.conf"))?;
    let user = directive(&unit, "User")?;
    ensure!(
        account.starts_with(&format!("u {user} ")),
        "the package does not create {user}"
    );
    // The data directory must be writable for the service.
    let configuration = std::fs::read_to_string(root.join(&CONFIGURATION[1..]))?;
    let data = directive(&configuration, "log.dirs")?;
    let state = format!("/var/lib/{}/", directive(&unit, "StateDirectory")?);
    ensure!(
        data.starts_with(&state),
        "the service cannot write {data}, only {state}"
    );
    let files: u64 = directive(&unit, "LimitNOFILE")?.parse()?;
    ensure!(files >= 100_000, "LimitNOFILE={files}");
    Ok(format!("as {user}, data in {data}, {files} files"))
}

pub fn is_accepted(root: &Path) -> Result<String> {
    // It looks up the system's targets below the root; their absence says nothing about this unit.
    let output = run_captured(
        Command::new("systemd-analyze")
            .args([
                "verify",
                "--man=no",
                "--generators=no",
                "--recursive-errors=no",
            ])
            .arg(format!("--root={}", root.display()))
            .arg(UNIT),
    )?;
    let said = String::from_utf8_lossy(&output.stderr);
    let about_it: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("ottla.service"))
        .collect();
    ensure!(
        about_it.is_empty(),
        "systemd-analyze verify:\n{}",
        about_it.join("\n")
    );
    ensure!(
        output.status.success(),
        "systemd-analyze verify ended with {}:\n{said}",
        output.status
    );
    Ok(String::new())
}

pub fn is_confined(root: &Path) -> Result<String> {
    let printed = output_of(
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(format!("--root={}", root.display()))
            .arg("ottla.service"),
    )?;
    let verdict = printed
        .lines()
        .find_map(|line| line.split_once("exposure level for ottla.service: "))
        .with_context(|| format!("systemd-analyze security gives no level:\n{printed}"))?
        .1;
    let exposed: f64 = verdict
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .parse()?;
    ensure!(
        exposed <= MOST_EXPOSED,
        "the exposure is {exposed}, at most {MOST_EXPOSED} is allowed:\n{printed}"
    );
    Ok(format!("exposure {verdict}"))
}
