//! `cargo xtask client-versions`: checks that the published crates compile with the oldest versions of
//! their dependencies that the manifests allow.
//!
//! Nobody else notices a bound that is too low, because the workspace is built with the newer
//! versions of its lock file. The crates are copied into a workspace of their own, without their
//! tests, so that the dependencies of the other crates do not raise any version.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use ottla_workspace::process::{output_of, shown};
use ottla_workspace::workspace;

use crate::tidy::dependencies::{PUBLISHED, published};

/// Folders of a crate, and sections of its manifest, that its users do not build.
const FOLDERS: [&str; 3] = ["benches", "examples", "tests"];
const SECTIONS: [&str; 4] = ["bench", "dev-dependencies", "example", "test"];
/// The members of the copy.
const WORKSPACE: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n";

#[derive(clap::Args)]
pub struct Options {}

pub fn run(_options: &Options) -> Result<()> {
    let folder = workspace::target_dir().join("client-versions");
    let copy = folder.join("workspace");
    workspace::make_empty(&copy)?;
    copy_crates(&workspace::root(), &copy)?;
    // Only this command of cargo is allowed unstable options: build scripts of dependencies choose
    // other code when they are.
    let mut lock = workspace::cargo();
    lock.args(["generate-lockfile", "-Zdirect-minimal-versions"])
        .env("RUSTC_BOOTSTRAP", "1");
    succeed(
        lock.current_dir(&copy),
        "a bound in Cargo.toml is lower than what another dependency needs; raise it",
    )?;
    let mut check = workspace::cargo();
    check
        .args([
            "check",
            "--locked",
            "--all-features",
            "--package",
            PUBLISHED,
        ])
        .env("CARGO_TARGET_DIR", folder.join("target"));
    succeed(
        check.current_dir(&copy),
        "a bound in Cargo.toml is lower than what the code needs; raise it",
    )?;
    println!("{PUBLISHED} compiles with the oldest versions of its dependencies");
    Ok(())
}

fn succeed(command: &mut Command, otherwise: &str) -> Result<()> {
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "{}: {otherwise}", shown(command));
    Ok(())
}

/// Copies the published crates, and the part of the workspace's manifest that they inherit from.
fn copy_crates(root: &Path, to: &Path) -> Result<()> {
    let printed = output_of(workspace::cargo().args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&printed).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    for package in published(packages) {
        let name = package["name"].as_str().context("name")?;
        copy_crate(root, &format!("crates/{name}/"), to)?;
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let inherited = without(&manifest, |section| !section.starts_with("workspace."));
    Ok(std::fs::write(
        to.join("Cargo.toml"),
        format!("{WORKSPACE}{inherited}"),
    )?)
}

fn copy_crate(root: &Path, folder: &str, to: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let list = output_of(git.arg(folder).current_dir(root))?;
    for path in list.lines() {
        let inside = path.strip_prefix(folder).unwrap_or(path);
        let (first, _) = inside.split_once('/').unwrap_or_default();
        let (source, target) = (root.join(path), to.join(path));
        // A deleted file is listed until the deletion is committed.
        if FOLDERS.contains(&first) || !source.exists() {
            continue;
        }
        std::fs::create_dir_all(target.parent().context("a file without a folder")?)?;
        if inside == "Cargo.toml" {
            let manifest = std::fs::read_to_string(source)?;
            let reduced = without(&manifest, |section| SECTIONS.contains(&section));
            std::fs::write(target, reduced)?;
        } else {
            std::fs::copy(source, target)?;
        }
    }
    Ok(())
}

/// A manifest without some of its sections.
fn without(manifest: &str, is_dropped: impl Fn(&str) -> bool) -> String {
    let mut kept = String::new();
    let mut is_kept = true;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_kept = !is_dropped(line.trim_matches(['[', ']']));
        }
        if is_kept {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_dropped_with_their_lines() {
        let manifest = "[package]\nname = \"a\"\n[dev-dependencies]\nb = \"1\"\n[[bench]]\nname = \"c\"\n[features]\nd = []\n";
        assert_eq!(
            without(manifest, |section| SECTIONS.contains(&section)),
            "[package]\nname = \"a\"\n[features]\nd = []\n"
        );
        let root = "[workspace]\nmembers = []\n[workspace.package]\nversion = \"1.0.0\"\n[profile.dev]\ndebug = true\n";
        assert_eq!(
            without(root, |section| !section.starts_with("workspace.")),
            "[workspace.package]\nversion = \"1.0.0\"\n"
        );
    }

    #[test]
    fn the_published_crates_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        copy_crates(&workspace::root(), dir.path()).unwrap();
        let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
        assert!(read("Cargo.toml").contains("[workspace.dependencies]"));
        let client = read("crates/ottla-client/Cargo.toml");
        assert!(
            client.contains("[dependencies]") && !client.contains("testkit"),
            "{client}"
        );
        assert!(read("crates/ottla-types/src/lib.rs").contains("mod"));
        for absent in ["crates/ottla-broker", "crates/ottla-client/tests"] {
            assert!(!dir.path().join(absent).exists(), "{absent}");
        }
    }
}
