//! `cargo xtask console`: builds the page of the console into `crates/ottla-console/assets`, from
//! which `ottla-console` embeds it.
//!
//! The built files are committed, so that building Ottla needs no Node. `--check` builds them into a
//! temporary folder and compares: the same sources give the same bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use ottla_workspace::report::Tally;
use ottla_workspace::{process, toolchain, workspace};

#[derive(clap::Args)]
pub struct Options {
    /// Only compare the committed files with a new build.
    #[arg(long)]
    check: bool,
}

const PAGE: &str = "crates/ottla-console/page";
const ASSETS: &str = "crates/ottla-console/assets";
/// The limit of all files together, compressed.
const MOST_BYTES: usize = 150_000;

pub fn run(options: &Options) -> Result<()> {
    toolchain::require(&toolchain::NODE)?;
    toolchain::require(&toolchain::NPM)?;
    let page = workspace::root().join(PAGE);
    let assets = workspace::root().join(ASSETS);
    process::output_of(Command::new("npm").arg("ci").current_dir(&page))?;
    process::output_of(npm(&page).args(["check"]))?;
    if !options.check {
        build(&page, &assets)?;
        let bytes = compressed(&files_of(&assets)?)?;
        println!("{ASSETS}: {bytes} bytes compressed");
        ensure!(bytes <= MOST_BYTES, "more than {MOST_BYTES} bytes");
        return Ok(());
    }
    let folder = tempfile::Builder::new()
        .prefix("ottla-console-")
        .tempdir()?;
    build(&page, folder.path())?;
    let (built, committed) = (files_of(folder.path())?, files_of(&assets)?);
    let mut tally = Tally::default();
    for complaint in differences(&built, &committed) {
        println!("FAIL {complaint}");
        tally.add(Tally::of(false));
    }
    tally.add(Tally::of(tally.failed == 0));
    let bytes = compressed(&built)?;
    println!("{} files, {bytes} bytes compressed", built.len());
    tally.add(Tally::of(bytes <= MOST_BYTES));
    println!("{tally}");
    ensure!(
        tally.failed == 0,
        "the committed page differs from its sources, or is too large; run `cargo xtask console` and commit {ASSETS}"
    );
    Ok(())
}

fn npm(page: &Path) -> Command {
    let mut command = Command::new("npm");
    command.arg("run").current_dir(page);
    command
}

fn build(page: &Path, folder: &Path) -> Result<()> {
    let mut command = npm(page);
    command.args(["pack-page", "--", "--outDir"]).arg(folder);
    process::output_of(&mut command)?;
    Ok(())
}

/// The files of a folder, by name.
fn files_of(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            bail!("{name} is a folder; the page is files without folders");
        }
        files.insert(name, std::fs::read(entry.path())?);
    }
    Ok(files)
}

/// A complaint for each file that is missing, unexpected or different.
fn differences(
    built: &BTreeMap<String, Vec<u8>>,
    committed: &BTreeMap<String, Vec<u8>>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, bytes) in built {
        match committed.get(name) {
            None => complaints.push(format!("{name} is not committed")),
            Some(other) if other != bytes => {
                complaints.push(format!("{name} differs from the build"));
            }
            Some(_) => {}
        }
    }
    let superfluous = committed.keys().filter(|name| !built.contains_key(*name));
    complaints.extend(superfluous.map(|name| format!("{name} is committed but not built")));
    complaints
}

fn compressed(files: &BTreeMap<String, Vec<u8>>) -> Result<usize> {
    let mut total = 0;
    for bytes in files.values() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        std::io::Write::write_all(&mut encoder, bytes)?;
        total += encoder.finish()?.len();
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        all.iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let built = files(&[("a.js", "1"), ("b.js", "2"), ("c.js", "3")]);
        let committed = files(&[("a.js", "1"), ("b.js", "other"), ("d.js", "4")]);
        assert_eq!(
            differences(&built, &committed),
            [
                "b.js differs from the build",
                "c.js is not committed",
                "d.js is committed but not built"
            ]
        );
        assert_eq!(differences(&built, &built), [""; 0]);
    }
}
