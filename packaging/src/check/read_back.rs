//! Reads the packages with libraries.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::contents::{BINARY, CONFIGURATION, Item, SCRIPTS, UNIT, VERSION};
use crate::{deb, rpm_package};

/// Paths that every package must have.
const MUST_HAVE: &[&str] = &[
    BINARY,
    UNIT,
    CONFIGURATION,
    "/usr/share/ottla/set-up",
    "/usr/share/man/man1/ottla.1.gz",
    "/usr/share/man/man1/ottla-server.1.gz",
    "/usr/share/bash-completion/completions/ottla",
    "/usr/share/ottla/bin/kafka-topics.sh",
    "/usr/share/ottla/bin/kafka-server-start.sh",
];

pub fn are_same(one: &Path, other: &Path) -> Result<()> {
    ensure!(
        std::fs::read(one)? == std::fs::read(other)?,
        "{} and {} differ",
        one.display(),
        other.display()
    );
    Ok(())
}

pub fn deb(path: &Path) -> Result<String> {
    let parts = deb::read(&std::fs::read(path)?)?;
    for path in MUST_HAVE {
        ensure!(parts.data.contains_key(*path), "{path} is missing");
    }
    let text = |name: &str| match parts.control.get(name).map(|(entry, _)| &entry.item) {
        Some(Item::File(bytes)) => Ok(String::from_utf8(bytes.clone())?),
        _ => anyhow::bail!("{name} is missing"),
    };
    ensure!(text("/conffiles")? == format!("{CONFIGURATION}\n"));
    let control = text("/control")?;
    for line in [
        "Package: ottla".to_owned(),
        format!("Version: {VERSION}-1"),
        format!("Suggests: {}", deb::KERBEROS),
    ] {
        ensure!(
            control.lines().any(|it| it == line),
            "the description lacks `{line}`:\n{control}"
        );
    }
    // Each sum belongs to a file, and each file except the configuration has a sum.
    let sums = text("/md5sums")?;
    let mut summed = 0;
    for line in sums.lines() {
        let (sum, path) = line.split_once("  ").context("a line of md5sums")?;
        let (entry, _) = parts
            .data
            .get(&format!("/{path}"))
            .with_context(|| format!("md5sums names {path}, which is not there"))?;
        let Item::File(bytes) = &entry.item else {
            anyhow::bail!("md5sums names {path}, which is not a file");
        };
        ensure!(deb::md5(bytes) == sum, "{path} has another sum");
        summed += 1;
    }
    let is_file = |it: &&(crate::contents::Entry, _)| matches!(it.0.item, Item::File(_));
    let files = parts.data.values().filter(is_file).count();
    ensure!(summed + 1 == files, "{files} files, {summed} sums");
    let links = parts
        .data
        .keys()
        .filter(|path| path.starts_with(&format!("{SCRIPTS}/")));
    Ok(format!("{files} files, {} links", links.count()))
}

pub fn rpm(path: &Path) -> Result<String> {
    let package = rpm_package::read(&std::fs::read(path)?)?;
    let paths = package.metadata.get_file_paths()?;
    for path in MUST_HAVE {
        ensure!(
            paths.iter().any(|found| found == Path::new(path)),
            "{path} is missing"
        );
    }
    let flags = package
        .metadata
        .find_file_entry(Path::new(CONFIGURATION))?
        .context("the configuration")?
        .flags();
    let expected = rpm::FileFlags::CONFIG | rpm::FileFlags::NOREPLACE;
    ensure!(
        flags.contains(expected),
        "an upgrade would overwrite {CONFIGURATION}: {flags:?}"
    );
    let suggested = package.metadata.get_suggests()?;
    ensure!(
        suggested.iter().any(|it| it.name == rpm_package::KERBEROS),
        "the library of Kerberos is not suggested: {suggested:?}"
    );
    package.metadata.get_post_install_script()?;
    package.metadata.get_pre_uninstall_script()?;
    Ok(format!("{} paths", paths.len()))
}

/// Paths in both kinds of package have the same contents.
pub fn both(deb: &Path, rpm: &Path) -> Result<String> {
    let parts = deb::read(&std::fs::read(deb)?)?;
    let package = rpm_package::read(&std::fs::read(rpm)?)?;
    let mut files = BTreeMap::new();
    for file in package.files()? {
        let file = file?;
        let path = file.metadata.path().display().to_string();
        let is_file = file.metadata.file_type() == rpm::FileType::Regular;
        if let Some(bytes) = file.content().filter(|_| is_file) {
            files.insert(path, bytes.to_vec());
        }
    }
    let mut compared = 0;
    for (path, (entry, _)) in &parts.data {
        if let (Item::File(bytes), Some(other)) = (&entry.item, files.get(path)) {
            ensure!(bytes == other, "{path} differs");
            compared += 1;
        }
    }
    // The licence, the changelog and the zsh completions have different paths.
    let apart = files.len().abs_diff(compared);
    ensure!(
        compared >= MUST_HAVE.len() && apart <= 3,
        "{compared} files are in both, {} in the .rpm",
        files.len()
    );
    Ok(format!("{compared} files"))
}
