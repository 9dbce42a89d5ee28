//! The contents of an installation: the single description from which every kind of package is
//! built.
//!
//! The packaged binary itself generates the manual pages, the completions and the links with the
//! names of Kafka's scripts, so that they match it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};

use ottla_workspace::workspace;

use crate::binary::Binary;

pub const SUMMARY: &str = "Broker for Apache Kafka's protocol, files and tools";
pub const DESCRIPTION: &str = "Ottla is a drop-in replacement for the Apache Kafka broker: one native binary\n\
     that speaks Kafka's protocols, reads and writes Kafka's files, reads Kafka's\n\
     server.properties and has Kafka's command-line tools.";
pub const LICENCE: &str = "Apache-2.0";
pub const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub const CONFIGURATION: &str = "/etc/ottla/server.properties";
pub const BINARY: &str = "/usr/bin/ottla";
pub const UNIT: &str = "/usr/lib/systemd/system/ottla.service";
/// Links with the names of Kafka's scripts.
pub const SCRIPTS: &str = "/usr/share/ottla/bin";
/// A dashboard and alert rules.
pub const MONITORING: &str = "/usr/share/ottla/monitoring";
const DOCUMENTS: &str = "/usr/share/doc/ottla";

const FILES: &[(&str, Role, u32, &str)] = &[
    (
        UNIT,
        Role::Plain,
        0o644,
        include_str!("../files/ottla.service"),
    ),
    (
        CONFIGURATION,
        Role::Configuration,
        0o640,
        include_str!("../files/server.properties"),
    ),
    // The pristine copy, with which the package's scripts compare.
    (
        "/usr/share/ottla/server.properties",
        Role::Plain,
        0o644,
        include_str!("../files/server.properties"),
    ),
    (
        "/usr/lib/sysusers.d/ottla.conf",
        Role::Plain,
        0o644,
        include_str!("../files/sysusers.conf"),
    ),
    (
        "/usr/share/ottla/set-up",
        Role::Plain,
        0o755,
        include_str!("../files/set-up"),
    ),
    (
        "/usr/share/ottla/monitoring/grafana-dashboard.json",
        Role::Plain,
        0o644,
        include_str!("../files/monitoring/grafana-dashboard.json"),
    ),
    (
        "/usr/share/ottla/monitoring/alerts.yml",
        Role::Plain,
        0o644,
        include_str!("../files/monitoring/alerts.yml"),
    ),
    (
        "/usr/share/ottla/monitoring/prometheus.yml",
        Role::Plain,
        0o644,
        include_str!("../files/monitoring/prometheus.yml"),
    ),
];
const PAGES: &[&str] = &[
    "README.md",
    "COMPATIBILITY.md",
    "NOTICE",
    "docs/operations.md",
    "docs/monitoring.md",
    "docs/metrics.md",
    "docs/settings.md",
    "docs/recovery.md",
    "docs/rolling-take-over.md",
];

/// Package kinds, where their contents differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Deb,
    Rpm,
}

/// The item at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    File(Vec<u8>),
    /// The link target as stored.
    Link(String),
    Directory,
}

/// A file's role for the package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// Changes by the administrator survive an upgrade.
    Configuration,
    Document,
}

/// One path of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub item: Item,
    /// Permission bits, without the file type.
    pub mode: u32,
    pub role: Role,
}

/// Absolute path to item, including the directories that belong to the package alone.
pub type Contents = BTreeMap<String, Entry>;

/// The contents of an installation of this binary.
pub fn contents(binary: &Binary, kind: Kind) -> Result<Contents> {
    let mut all = Contents::new();
    let mut file = |path: &str, role, mode, bytes: Vec<u8>| {
        let item = Item::File(bytes);
        all.insert(path.to_owned(), Entry { item, mode, role })
    };
    file(BINARY, Role::Plain, 0o755, binary.bytes.clone());
    for (path, role, mode, text) in FILES {
        file(path, *role, *mode, text.as_bytes().to_vec());
    }
    let root = workspace::root();
    for page in PAGES {
        let text = fs::read(root.join(page)).with_context(|| (*page).to_owned())?;
        let name = Path::new(page).file_name().unwrap_or_default();
        let path = format!("{DOCUMENTS}/{}", name.display());
        file(&path, Role::Document, 0o644, text);
    }
    let licence = fs::read(root.join("LICENSE")).context("LICENSE")?;
    let changes = fs::read(root.join("CHANGELOG.md")).context("CHANGELOG.md")?;
    // Required by Debian's policy.
    match kind {
        Kind::Deb => {
            file(
                &format!("{DOCUMENTS}/copyright"),
                Role::Document,
                0o644,
                licence,
            );
            let changes = compressed(&changes)?;
            file(
                &format!("{DOCUMENTS}/changelog.gz"),
                Role::Document,
                0o644,
                changes,
            );
        }
        Kind::Rpm => {
            file(
                "/usr/share/licenses/ottla/LICENSE",
                Role::Document,
                0o644,
                licence,
            );
            file(
                &format!("{DOCUMENTS}/CHANGELOG.md"),
                Role::Document,
                0o644,
                changes,
            );
        }
    }
    let completions = [
        ("bash", "/usr/share/bash-completion/completions/ottla"),
        ("fish", "/usr/share/fish/vendor_completions.d/ottla.fish"),
        match kind {
            Kind::Deb => ("zsh", "/usr/share/zsh/vendor-completions/_ottla"),
            Kind::Rpm => ("zsh", "/usr/share/zsh/site-functions/_ottla"),
        },
    ];
    for (shell, path) in completions {
        let script = binary.output(&["completions", shell])?;
        file(path, Role::Plain, 0o644, script.into_bytes());
    }
    for (name, page) in manual_pages(binary)? {
        let path = format!("/usr/share/man/man1/{name}.gz");
        file(&path, Role::Plain, 0o644, compressed(&page)?);
    }
    for name in script_names(binary)? {
        let item = Item::Link("../../../bin/ottla".to_owned());
        let entry = Entry {
            item,
            mode: 0o777,
            role: Role::Plain,
        };
        all.insert(format!("{SCRIPTS}/{name}"), entry);
    }
    for path in [
        "/etc/ottla",
        "/usr/share/ottla",
        SCRIPTS,
        MONITORING,
        DOCUMENTS,
    ] {
        let entry = Entry {
            item: Item::Directory,
            mode: 0o755,
            role: Role::Plain,
        };
        all.insert(path.to_owned(), entry);
    }
    Ok(all)
}

/// The name and text of each manual page.
fn manual_pages(binary: &Binary) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().display().to_string();
    binary.output(&["man-pages", &path])?;
    let mut pages = Vec::new();
    for name in names_in(folder.path())? {
        let text = fs::read(folder.path().join(&name))?;
        pages.push((name, text));
    }
    ensure!(!pages.is_empty(), "`ottla man-pages` wrote no page");
    Ok(pages)
}

/// The names of Kafka's scripts that this binary implements.
pub fn script_names(binary: &Binary) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().display().to_string();
    binary.output(&["install-scripts", &path])?;
    let names = names_in(folder.path())?;
    ensure!(!names.is_empty(), "`ottla install-scripts` made no link");
    Ok(names)
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for found in fs::read_dir(folder)? {
        names.push(found?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Compresses with gzip, reproducibly.
pub fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut out = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    out.write_all(bytes)?;
    Ok(out.finish()?)
}
