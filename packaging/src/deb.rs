//! A Debian package: an `ar` archive of the format version, a tar of control files, and a tar of
//! the installed files.
//!
//! Compressed with gzip, which every dpkg supports; zstd needs Debian 12
//! (docs/decisions/0050-packages.md).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;

use anyhow::{Context, Result, ensure};
use md5::{Digest, Md5};

use crate::archive::{self, Owner};
use crate::binary::Binary;
use crate::contents::{Contents, DESCRIPTION, Entry, HOMEPAGE, Item, Role, SUMMARY, VERSION};
use crate::stamp::Stamp;

const SCRIPTS: &[(&str, &str)] = &[
    ("/postinst", include_str!("../files/deb/postinst")),
    ("/prerm", include_str!("../files/deb/prerm")),
    ("/postrm", include_str!("../files/deb/postrm")),
];

/// Loaded at run time by nodes with a listener for GSSAPI.
pub const KERBEROS: &str = "libgssapi-krb5-2";

/// The parts of a package that was read back.
#[derive(Debug)]
pub struct Parts {
    pub control: BTreeMap<String, (Entry, Owner)>,
    pub data: BTreeMap<String, (Entry, Owner)>,
}

/// `ottla_0.1.0-1_amd64.deb`
pub fn file_name(binary: &Binary, stamp: &Stamp) -> String {
    let architecture = binary.architecture.debian();
    format!("ottla_{VERSION}-{}_{architecture}.deb", stamp.revision)
}

pub fn write(contents: &Contents, binary: &Binary, stamp: &Stamp) -> Result<Vec<u8>> {
    let nobody = |_: &str| Owner::default();
    let data = archive::tar_gz(contents, nobody, stamp.time, stamp.level)?;
    let control = archive::tar_gz(&control(contents, binary, stamp), nobody, stamp.time, 9)?;
    let mut out = ar::Builder::new(Vec::new());
    let parts: [(&str, &[u8]); 3] = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", &control),
        ("data.tar.gz", &data),
    ];
    for (name, bytes) in parts {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100644);
        header.set_mtime(stamp.time.into());
        out.append(&header, bytes)?;
    }
    Ok(out.into_inner()?)
}

/// The control archive: description, scripts, checksums and list of configuration files.
fn control(contents: &Contents, binary: &Binary, stamp: &Stamp) -> Contents {
    let mut all = Contents::new();
    let mut file = |path: &str, mode, text: &str| {
        let item = Item::File(text.as_bytes().to_vec());
        let role = Role::Plain;
        all.insert(path.to_owned(), Entry { item, mode, role });
    };
    file("/control", 0o644, &description(contents, binary, stamp));
    for (path, text) in SCRIPTS {
        file(path, 0o755, text);
    }
    let (mut sums, mut configuration) = (String::new(), String::new());
    for (path, entry) in contents {
        let Item::File(bytes) = &entry.item else {
            continue;
        };
        match entry.role {
            Role::Configuration => _ = writeln!(configuration, "{path}"),
            _ => _ = writeln!(sums, "{}  {}", md5(bytes), path.trim_start_matches('/')),
        }
    }
    file("/md5sums", 0o644, &sums);
    file("/conffiles", 0o644, &configuration);
    all
}

pub fn md5(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn description(contents: &Contents, binary: &Binary, stamp: &Stamp) -> String {
    // Policy requires a dependency on what the maintainer scripts call.
    let mut needs = vec!["passwd".to_owned()];
    if let Some(version) = &binary.glibc {
        needs.push(format!("libc6 (>= {version})"));
    }
    if binary.needs_libgcc {
        needs.push("libgcc-s1".to_owned());
    }
    let sizes = contents.values().map(|entry| match &entry.item {
        Item::File(bytes) => bytes.len().div_ceil(1024),
        _ => 1,
    });
    let lines: Vec<String> = DESCRIPTION.lines().map(|line| format!(" {line}")).collect();
    format!(
        "Package: ottla\nVersion: {VERSION}-{}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {}\n\
         Depends: {}\nSuggests: {KERBEROS}\nSection: net\nPriority: optional\nHomepage: {HOMEPAGE}\nDescription: {SUMMARY}\n{}\n",
        stamp.revision,
        binary.architecture.debian(),
        stamp.maintainer,
        sizes.sum::<usize>(),
        needs.join(", "),
        lines.join("\n"),
    )
}

/// Reads a package.
pub fn read(bytes: &[u8]) -> Result<Parts> {
    let mut parts = Vec::new();
    let mut archive = ar::Archive::new(bytes);
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(entry.header().identifier()).into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        parts.push((name, bytes));
    }
    // dpkg requires this order.
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    ensure!(
        names == ["debian-binary", "control.tar.gz", "data.tar.gz"],
        "the package has the parts {names:?}"
    );
    ensure!(parts[0].1 == b"2.0\n", "the package is not of version 2.0");
    Ok(Parts {
        control: archive::read_tar_gz(&parts[1].1).context("control.tar.gz")?,
        data: archive::read_tar_gz(&parts[2].1).context("data.tar.gz")?,
    })
}
