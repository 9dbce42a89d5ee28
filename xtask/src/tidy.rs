//! `cargo xtask tidy`: what neither the compiler nor clippy checks.
//!
//! A check is a function from what it reads to a list of complaints, so that its test can show that it complains.

mod architecture;
mod circles;
mod dependencies;
mod licence;
mod purity;
mod sources;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::report::Tally;
use crate::{process, workspace};

#[derive(clap::Args)]
pub struct Options {}

/// One thing that is not as it should be: where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    pub place: String,
    pub text: String,
}

impl Complaint {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Complaint {
        Complaint {
            place: place.into(),
            text: text.into(),
        }
    }
}

/// A file of the repository, by its path from the root.
#[derive(Debug, Clone)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

pub fn run(_options: &Options) -> Result<()> {
    let tally = run_all()?;
    println!("{tally}");
    if tally.failed > 0 {
        bail!("the repository is not tidy");
    }
    Ok(())
}

/// Runs every check and prints the complaints.
pub fn run_all() -> Result<Tally> {
    let files = repository_files()?;
    let metadata = process::output_of(workspace::cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--locked",
    ]))?;
    let checks: [(&str, Vec<Complaint>); 10] = [
        ("crate dependencies", dependencies::check(&metadata)?),
        ("circles between modules", circles::check(&files)),
        ("pure crates", purity::check(&files)),
        ("file lengths", sources::lengths(&files)),
        ("file names", sources::names(&files)),
        ("paths of a machine", sources::machine_paths(&files)),
        (
            "unfinished code and ignored tests",
            sources::unfinished(&files),
        ),
        (
            "API versions where they belong",
            sources::api_versions(&files),
        ),
        (
            "names in ARCHITECTURE.md and docs/format.md",
            architecture::check(&files),
        ),
        ("licence", licence::check(&files)),
    ];
    let mut tally = Tally::default();
    for (name, complaints) in checks {
        tally.add(Tally::of(complaints.is_empty()));
        if !complaints.is_empty() {
            println!("tidy: {name}");
            for Complaint { place, text } in complaints {
                println!("    {place}: {text}");
            }
        }
    }
    Ok(tally)
}

/// Every text file that is committed, or would be.
fn repository_files() -> Result<Vec<SourceFile>> {
    let root = workspace::root();
    let list = process::output_of(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root),
    )?;
    let mut files = Vec::new();
    for path in list.lines() {
        // A file that was deleted and not yet committed is still listed; one that is not UTF-8 is no source.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            files.push(SourceFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

/// Whether it is a Rust source file.
fn is_rust(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

/// Whether the whole file is tests, by where it stands and how it is called.
fn is_test_file(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "benches" || part == "fuzz")
        || path.ends_with("tests.rs")
}

/// A file's lines before its own tests, which stand at its end.
fn without_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .take_while(|(_, line)| {
            !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_tests_are_told_from_the_rest() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(without_tests(text).count(), 1);
        assert!(is_test_file("crates/x/src/a/tests.rs") && is_test_file("crates/x/tests/a.rs"));
        assert!(!is_test_file("crates/x/src/attests.md"));
    }

    #[test]
    fn the_repository_has_files() {
        assert!(
            repository_files()
                .unwrap()
                .iter()
                .any(|file| file.path == "Cargo.toml")
        );
    }
}
