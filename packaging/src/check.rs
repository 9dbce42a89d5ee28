//! `cargo xtask check-packages`: builds the packages of a binary, reads them back, unpacks and
//! installs them below a directory, and starts their contents.
//!
//! Checks that need an uncommon program (dpkg, rpm, systemd-analyze) run if it is available, and
//! are otherwise reported as skipped. The packages are always read back with libraries.

mod chart;
mod dpkg;
mod image;
mod installed;
mod node;
mod read_back;
mod tallied;
mod unit;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use ottla_workspace::workspace;

use crate::binary::Binary;
use crate::image::layout;
use crate::package::{write_image, write_packages};
use crate::stamp::{MAINTAINER, Stamp, source_time};
use tallied::{Packages, Run};

#[derive(clap::Args)]
pub struct Options {
    /// The binary to package; by default OTTLA_BINARY, or else target/debug/ottla.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let built = || workspace::target_dir().join("debug/ottla");
    let named = std::env::var_os("OTTLA_BINARY").map(PathBuf::from);
    let path = options.binary.clone().or(named).unwrap_or_else(built);
    let folder = tempfile::Builder::new()
        .prefix("ottla-packages-")
        .tempdir()?
        .keep();
    let mut run = Run::new(&folder);
    packages(&mut run, &path)?;
    run.tally.conclude(&folder, false)
}

fn packages(run: &mut Run, path: &Path) -> Result<()> {
    let folder = run.folder;
    let binary = Binary::read(path)?;
    // Low compression: a debug binary is large, and the level affects nothing else.
    let stamp = |revision| {
        anyhow::Ok(Stamp {
            revision,
            maintainer: MAINTAINER.to_owned(),
            time: source_time()?,
            level: 1,
        })
    };
    let made = |binary: &Binary, revision, name: &str| {
        let out = folder.join(name);
        let paths = write_packages(binary, &stamp(revision)?, &out)?;
        let [deb, rpm]: [PathBuf; 2] = paths.try_into().ok().context("two kinds of packages")?;
        anyhow::Ok((deb, rpm))
    };
    let (deb, rpm) = made(&binary, 1, "first")?;
    // Checks that only install or compare files use a piece of the binary instead, so that they
    // take seconds.
    let piece = binary.cut(64 * 1024);
    let (small_deb, small_rpm) = made(&piece, 1, "small")?;
    let (next_deb, next_rpm) = made(&piece, 2, "next")?;
    let again = made(&piece, 2, "again")?;
    run.check("the same sources give the same packages", || {
        read_back::are_same(&next_deb, &again.0)?;
        read_back::are_same(&next_rpm, &again.1)?;
        Ok(String::new())
    });
    run.check("the .deb reads back", || read_back::deb(&deb));
    run.check("the .rpm reads back", || read_back::rpm(&rpm));
    run.check("both hold the same", || read_back::both(&deb, &rpm));
    let all = Packages {
        deb: small_deb,
        rpm: small_rpm,
        next_deb,
        next_rpm,
    };

    let root = folder.join("root");
    run.check("the .deb unpacks", || installed::unpack(&deb, &root));
    run.check(
        "a node starts from it, and Kafka's scripts reach it",
        || node::starts_from(&root, &folder.join("data")),
    );
    run.check("the unit runs what is installed", || {
        unit::names_what_is_installed(&root)
    });
    if run.has("systemd-analyze", "systemd's own look at the unit") {
        run.check("systemd accepts the unit", || unit::is_accepted(&root));
        run.check("the unit is confined", || unit::is_confined(&root));
    }
    for shell in ["bash", "zsh", "fish"] {
        if run.has(shell, "its look at the completions") {
            run.check(&format!("{shell} reads the completions"), || {
                installed::completions(&root, shell)
            });
        }
    }
    if run.has("dpkg", "installing, upgrading and removing the .deb") {
        dpkg::check(run, &all);
    }
    if run.has("rpm", "installing, upgrading and removing the .rpm") {
        installed::check_rpm(run, &all);
    }
    let [image, archive] = write_image(&binary, &stamp(1)?, &folder.join("image"))?;
    run.check("the same sources give the same image", || {
        let image = || layout::image(&piece, &stamp(1)?);
        ensure!(
            image()? == image()?,
            "two images of the same sources differ"
        );
        Ok(String::new())
    });
    image::check(run, &image, &archive);
    chart::check(run, &binary);
    Ok(())
}
