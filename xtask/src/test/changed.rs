//! The parts that a change affects: the folders of changed files, and the packages that contain or
//! depend on them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use ottla_workspace::process::output_of;
use ottla_workspace::workspace;

/// The changed files and the packages that depend on them, directly or not.
#[derive(Debug, Default)]
pub struct Reached {
    files: Vec<String>,
    packages: BTreeSet<String>,
    /// Whether a file that every build depends on has changed.
    everything: bool,
}

impl Reached {
    /// Whether the change affects one of these packages, folders or files. An empty list means any.
    pub fn includes_any(&self, names: &[&str]) -> bool {
        let is_reached = |name: &&str| {
            let folder = format!("{name}/");
            let is_within = |file: &String| file == name || file.starts_with(&folder);
            self.packages.contains(*name) || self.files.iter().any(is_within)
        };
        self.everything || names.is_empty() || names.iter().any(is_reached)
    }
}

/// The parts that the changes since a commit affect, including uncommitted files.
pub fn reached_since(base: &str) -> Result<Reached> {
    let mut files = Vec::new();
    for arguments in [
        // A file that moves affects the package that it leaves, too.
        ["diff", "--name-only", "--no-renames", base].as_slice(),
        ["ls-files", "--others", "--exclude-standard"].as_slice(),
    ] {
        let mut git = std::process::Command::new("git");
        let printed = output_of(git.current_dir(workspace::root()).args(arguments))?;
        files.extend(printed.lines().map(str::to_owned));
    }
    let printed = output_of(workspace::cargo().args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&printed).context("cargo metadata")?;
    Ok(reached(files, &packages(&metadata)?))
}

/// A package of the workspace.
#[derive(Debug)]
struct Package {
    name: String,
    /// Relative to the workspace root, with a trailing slash.
    folder: String,
    /// Its dependencies, including those for development.
    uses: Vec<String>,
}

fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let root = metadata["workspace_root"]
        .as_str()
        .context("workspace_root")?;
    let list = metadata["packages"].as_array().context("packages")?;
    list.iter()
        .map(|package| {
            let manifest = package["manifest_path"].as_str().context("manifest_path")?;
            let folder = manifest
                .strip_prefix(root)
                .and_then(|path| path.strip_prefix('/'))
                .and_then(|path| path.strip_suffix("Cargo.toml"))
                .context("a package outside of the workspace")?;
            let uses = package["dependencies"].as_array().context("dependencies")?;
            Ok(Package {
                name: package["name"].as_str().context("name")?.to_owned(),
                folder: folder.to_owned(),
                uses: uses
                    .iter()
                    .filter_map(|it| Some(it["name"].as_str()?.to_owned()))
                    .collect(),
            })
        })
        .collect()
}

fn reached(files: Vec<String>, packages: &[Package]) -> Reached {
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        for used in &package.uses {
            users.entry(used).or_default().push(&package.name);
        }
    }
    let is_changed = |package: &&Package| files.iter().any(|it| it.starts_with(&package.folder));
    let mut open: Vec<&str> = packages
        .iter()
        .filter(is_changed)
        .map(|package| package.name.as_str())
        .collect();
    let mut found = BTreeSet::new();
    while let Some(name) = open.pop() {
        if found.insert(name.to_owned()) {
            open.extend(users.get(name).into_iter().flatten());
        }
    }
    let of_all_builds = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
    Reached {
        everything: files.iter().any(|it| of_all_builds.contains(&it.as_str())),
        files,
        packages: found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Vec<Package> {
        let package = |name: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            folder: format!("crates/{name}/"),
            uses: uses.iter().map(|it| (*it).to_owned()).collect(),
        };
        vec![
            package("records", &[]),
            package("log", &["records"]),
            package("bench", &[]),
            package("server", &["log", "bench"]),
        ]
    }

    #[test]
    fn a_change_affects_only_its_dependents() {
        let found = reached(vec!["crates/records/src/lib.rs".to_owned()], &tree());
        assert!(found.includes_any(&["server"]));
        assert!(found.includes_any(&["bench", "log"]));
        assert!(!found.includes_any(&["bench"]));
        assert!(found.includes_any(&[]));
    }

    #[test]
    fn folders_without_a_package_are_reached_by_their_files() {
        let found = reached(vec!["conformance/java/A.java".to_owned()], &tree());
        assert!(found.includes_any(&["conformance/java"]));
        assert!(found.includes_any(&["conformance"]));
        assert!(!found.includes_any(&["server"]));
    }

    #[test]
    fn files_at_the_root_are_reached_by_their_name() {
        let found = reached(vec!["README.md".to_owned()], &tree());
        assert!(found.includes_any(&["docs", "README.md"]));
        assert!(!found.includes_any(&["docs", "README"]));
    }

    #[test]
    fn files_of_every_build_affect_everything() {
        let found = reached(vec!["Cargo.lock".to_owned()], &tree());
        assert!(found.includes_any(&["bench"]));
    }
}
