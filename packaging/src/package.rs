//! `cargo xtask package`: writes the packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use ottla_workspace::workspace;

use crate::archive::{self, Owner};
use crate::binary::Binary;
use crate::contents::{Kind, VERSION, contents};
use crate::image::layout;
use crate::stamp::{MAINTAINER, Stamp, source_time};
use crate::{deb, rpm_package};

#[derive(clap::Args)]
pub struct Options {
    /// Package this binary instead of building one with `--profile dist`.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Write a container image instead: an OCI layout, and the same as one file for `docker load`
    /// and `podman load`.
    #[arg(long)]
    image: bool,
    /// The directory for the packages; it is created if missing. By default target/packages.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The revision of the package within this version.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    revision: u32,
    /// The packager.
    #[arg(long, value_name = "NAME <ADDRESS>", default_value = MAINTAINER)]
    maintainer: String,
    /// Compression level, from 0 to 9.
    #[arg(long, value_name = "LEVEL", default_value_t = 9, value_parser = clap::value_parser!(u32).range(0..=9))]
    level: u32,
}

pub fn run(options: &Options) -> Result<()> {
    let binary = match &options.binary {
        Some(path) => Binary::read(path)?,
        None => Binary::build()?,
    };
    let stamp = Stamp {
        revision: options.revision,
        maintainer: options.maintainer.clone(),
        time: source_time()?,
        level: options.level,
    };
    let out = match &options.out {
        Some(out) => out.clone(),
        None => workspace::target_dir().join("packages"),
    };
    let written = match options.image {
        true => write_image(&binary, &stamp, &out)?.into(),
        false => write_packages(&binary, &stamp, &out)?,
    };
    for path in written {
        let found = path.metadata()?;
        match found.is_dir() {
            true => println!("{}/", path.display()),
            false => println!("{} ({:.1} MB)", path.display(), found.len() as f64 / 1e6),
        }
    }
    Ok(())
}

/// Writes a package of each kind and returns their paths.
pub fn write_packages(binary: &Binary, stamp: &Stamp, out: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("{}: cannot create the directory", out.display()))?;
    let packages = [
        (
            deb::file_name(binary, stamp),
            deb::write(&contents(binary, Kind::Deb)?, binary, stamp)?,
        ),
        (
            rpm_package::file_name(binary, stamp),
            rpm_package::write(&contents(binary, Kind::Rpm)?, binary, stamp)?,
        ),
    ];
    let mut paths = Vec::new();
    for (name, bytes) in packages {
        let path = out.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Writes the image as a folder and as one file, and returns both paths.
pub fn write_image(binary: &Binary, stamp: &Stamp, out: &Path) -> Result<[PathBuf; 2]> {
    let image = layout::image(binary, stamp)?;
    let folder = out.join(format!("ottla-{VERSION}-image"));
    if folder.exists() {
        // Removes the layers of an earlier build.
        std::fs::remove_dir_all(&folder)?;
    }
    layout::write(&image, &folder)?;
    let file = out.join(format!("ottla-{VERSION}-image.tar"));
    let bytes = archive::tar(&image, "", |_| Owner::default(), stamp.time)?;
    std::fs::write(&file, bytes).with_context(|| format!("cannot write {}", file.display()))?;
    Ok([folder, file])
}
