//! Paths of the workspace: its root, its target directory, and the binaries built there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The folder of the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    // `cargo run` sets the variable; the compiled-in value serves a binary that is started
    // directly.
    let manifest =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    // Only the workspace root has a lock file.
    let mut folders = Path::new(&manifest).ancestors();
    folders
        .find(|folder| folder.join("Cargo.lock").exists())
        .expect("a package of the workspace stands below its root")
        .to_path_buf()
}

/// Cargo's target directory, including when the caller has moved it.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Makes a folder empty, and creates it if it is not there.
pub fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(std::fs::create_dir_all(folder)?)
}

/// Cargo, run at the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Variables that `cargo run` set for this process must not leak into the builds: build scripts
    // that watch them would rerun each time.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_PKG_NAME",
        "CARGO_PKG_VERSION",
        "CARGO_BIN_NAME",
    ] {
        command.env_remove(name);
    }
    command
}

/// The variable with the features of the whole workspace, set for the suites of `cargo xtask test`.
pub const SUITE_FEATURES: &str = "OTTLA_SUITE_FEATURES";

/// Whether this process is a suite of `cargo xtask test`, which has built the programs that the
/// suites start.
pub fn is_suite() -> bool {
    std::env::var_os(SUITE_FEATURES).is_some()
}

/// Cargo's arguments that select a package, with these features of it. In a suite of `cargo xtask
/// test` they select the whole workspace with its features: cargo unifies the features of the
/// selected packages, so a package alone would compile its dependencies again.
pub fn selection(package: &str, features: &[&str]) -> Vec<String> {
    let named = features
        .iter()
        .map(|feature| format!("{package}/{feature}"));
    let (mut arguments, features) = match std::env::var(SUITE_FEATURES) {
        Ok(all) => {
            let features: Vec<String> = std::iter::once(all).chain(named).collect();
            (vec!["--workspace".to_owned()], features)
        }
        Err(_) => (
            vec!["--package".to_owned(), package.to_owned()],
            named.collect(),
        ),
    };
    if !features.is_empty() {
        arguments.push("--features".to_owned());
        arguments.push(features.join(","));
    }
    arguments
}

/// The path of a program of a debug build: `NAME`, or `examples/NAME`.
pub fn debug_program(name: &str) -> PathBuf {
    target_dir().join("debug").join(name)
}

/// The path of a release binary of the workspace, built first if it is out of date. `OTTLA_BINARY`
/// can name another build of `ottla`, as in the process tests, and `OTTLA_LOAD_BINARY` one of
/// `ottla-load`.
pub fn release_binary(package: &str, name: &str) -> Result<PathBuf> {
    let variable = format!("{}_BINARY", name.to_uppercase().replace('-', "_"));
    if let Some(named) = std::env::var_os(variable) {
        return Ok(named.into());
    }
    let status = cargo()
        .args([
            "build",
            "--quiet",
            "--release",
            "--package",
            package,
            "--bin",
            name,
        ])
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("`cargo build --release --package {package} --bin {name}` failed");
    }
    Ok(target_dir().join("release").join(name))
}
