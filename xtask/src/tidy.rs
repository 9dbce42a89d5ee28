//! `cargo xtask tidy`: checks that neither the compiler nor clippy makes.
//!
//! A check is a function from its input to a list of complaints, so that its test can show that it
//! complains.

mod architecture;
mod circles;
mod complaint;
pub mod dependencies;
mod licence;
pub mod links;
mod modules;
mod public_api;
mod purity;
pub mod source_file;
mod sources;
mod untested;

use std::process::Command;

use anyhow::{Result, bail};

use complaint::Complaint;
use source_file::SourceFile;

use ottla_workspace::report::Tally;
use ottla_workspace::{process, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// List the present public API of ottla-client in its public-api.txt.
    #[arg(long)]
    accept_api: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let metadata = process::output_of(workspace::cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--locked",
    ]))?;
    if options.accept_api {
        public_api::accept(&repository_files()?, &metadata, &workspace::root())?;
    }
    let tally = run_all(&repository_files()?, &metadata)?;
    println!("{tally}");
    if tally.failed > 0 {
        bail!("the repository is not tidy");
    }
    Ok(())
}

/// Runs every check and prints the complaints.
fn run_all(files: &[SourceFile], metadata: &str) -> Result<Tally> {
    let checks: [(&str, Vec<Complaint>); 14] = [
        ("crate dependencies", dependencies::check(metadata)?),
        ("circles between modules", circles::check(files)),
        ("pure crates", purity::check(files, metadata)?),
        ("file lengths", sources::lengths(files)),
        ("file names", sources::names(files)),
        ("paths of a machine", sources::machine_paths(files)),
        (
            "unfinished code and ignored tests",
            sources::unfinished(files),
        ),
        ("programs without tests", untested::check(files, metadata)?),
        (
            "API versions where they belong",
            sources::api_versions(files),
        ),
        (
            "names in ARCHITECTURE.md and docs/format.md",
            architecture::check(files),
        ),
        ("licence", licence::check(files)),
        ("examples of the public API", public_api::examples(files)),
        (
            "changes of the public API",
            public_api::changes(files, metadata)?,
        ),
        (
            "links between pages",
            links::check(files, links::is_there(&workspace::root())),
        ),
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

/// Every text file that is committed or untracked without being ignored.
pub fn repository_files() -> Result<Vec<SourceFile>> {
    let root = workspace::root();
    let list = process::output_of(
        Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root),
    )?;
    let mut files = Vec::new();
    for path in list.lines() {
        // Git still lists a file whose deletion is not committed. A file that is not UTF-8 is not
        // source.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            files.push(SourceFile {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

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
