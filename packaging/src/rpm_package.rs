//! A package for Fedora, Red Hat Enterprise Linux, openSUSE and related distributions.

use anyhow::{Context, Result, ensure};
use rpm::{
    BuildConfig, CompressionWithLevel, Dependency, FileOptions, FileVerifyFlags, PackageBuilder,
    Scriptlet,
};

use crate::binary::Binary;
use crate::contents::{Contents, DESCRIPTION, HOMEPAGE, Item, LICENCE, Role, SUMMARY, VERSION};
use crate::stamp::Stamp;

const SHELL: &str = "/bin/sh";
/// Fixed, so that builds are reproducible across machines.
const BUILD_HOST: &str = "localhost";

/// Loaded at run time by nodes with a listener for GSSAPI.
pub const KERBEROS: &str = "libgssapi_krb5.so.2()(64bit)";

/// `ottla-0.1.0-1.x86_64.rpm`
pub fn file_name(binary: &Binary, stamp: &Stamp) -> String {
    let architecture = binary.architecture.rpm();
    format!("ottla-{VERSION}-{}.{architecture}.rpm", stamp.revision)
}

pub fn write(contents: &Contents, binary: &Binary, stamp: &Stamp) -> Result<Vec<u8>> {
    let architecture = binary.architecture.rpm();
    let mut package = PackageBuilder::new("ottla", VERSION, LICENCE, architecture, SUMMARY);
    let config = BuildConfig::v4()
        .source_date(stamp.time)
        .compression(CompressionWithLevel::Gzip(stamp.level));
    let script = |text: &str| Scriptlet::new(text).prog(vec![SHELL]);
    package
        .using_config(config)
        .release(stamp.revision.to_string())
        .url(HOMEPAGE)
        .packager(stamp.maintainer.as_str())
        .build_host(BUILD_HOST)
        .description(DESCRIPTION)
        .post_install_script(script(include_str!("../files/rpm/post")))
        .pre_uninstall_script(script(include_str!("../files/rpm/preun")))
        .post_uninstall_script(script(include_str!("../files/rpm/postun")));
    // Requirements are file paths, because package names differ between distributions.
    for program in [
        SHELL,
        "/usr/sbin/useradd",
        "/usr/sbin/runuser",
        "/usr/bin/cmp",
    ] {
        package.requires(Dependency::script_post(program));
    }
    if let Some(version) = &binary.glibc {
        package.requires(Dependency::any(format!(
            "libc.so.6(GLIBC_{version})(64bit)"
        )));
    }
    if binary.needs_libgcc {
        package.requires(Dependency::any("libgcc_s.so.1()(64bit)"));
    }
    package.suggests(Dependency::any(KERBEROS));
    for (path, entry) in contents {
        let mode = u16::try_from(entry.mode).context("permissions")?;
        match &entry.item {
            Item::Directory => {
                package.with_dir_entry(FileOptions::dir(path.as_str()).permissions(mode))?;
            }
            Item::Link(target) => {
                package.with_symlink(FileOptions::symlink(path.as_str(), target.as_str()))?;
            }
            Item::File(bytes) => {
                let options = FileOptions::new(path.as_str()).permissions(mode);
                let options = match entry.role {
                    Role::Plain => options,
                    Role::Document => options.doc(),
                    // The package's script changes the group of the file.
                    Role::Configuration => options
                        .config()
                        .noreplace()
                        .verify(FileVerifyFlags::ALL_FLAGS - FileVerifyFlags::GROUP),
                };
                package.with_file_contents(bytes.clone(), options)?;
            }
        }
    }
    let mut out = Vec::new();
    package.build()?.write(&mut out)?;
    Ok(out)
}

/// Reads a package and verifies its digests.
pub fn read(mut bytes: &[u8]) -> Result<rpm::Package> {
    let package = rpm::Package::parse(&mut bytes)?;
    package.verify_digests()?;
    ensure!(bytes.is_empty(), "{} bytes follow the package", bytes.len());
    Ok(package)
}
