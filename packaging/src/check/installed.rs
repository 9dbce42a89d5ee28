//! Checks of a directory into which a package was unpacked.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use ottla_workspace::process::output_of;

use super::tallied::{Packages, Run};
use crate::contents::{BINARY, CONFIGURATION, Item, SCRIPTS};
use crate::deb;

/// Unpacks the files of a package without dpkg.
pub fn unpack(package: &Path, root: &Path) -> Result<String> {
    let parts = deb::read(&fs::read(package)?)?;
    let paths = parts.data.len();
    for (path, (entry, _)) in parts.data {
        let to = root.join(path.trim_start_matches('/'));
        match entry.item {
            Item::Directory => fs::create_dir_all(&to)?,
            Item::Link(target) => symlink(target, &to)?,
            Item::File(bytes) => {
                fs::write(&to, bytes).with_context(|| to.display().to_string())?;
                fs::set_permissions(&to, fs::Permissions::from_mode(entry.mode))?;
            }
        }
    }
    let scripts = root.join(&SCRIPTS[1..]);
    let mut links = 0;
    for link in fs::read_dir(&scripts)? {
        let link = link?.path();
        let target = link
            .canonicalize()
            .with_context(|| format!("{} leads nowhere", link.display()))?;
        ensure!(
            target == root.join(&BINARY[1..]).canonicalize()?,
            "{} leads to {}",
            link.display(),
            target.display()
        );
        links += 1;
    }
    Ok(format!("{paths} paths; {links} links lead to the binary"))
}

/// Checks that the shell parses its completions without an error.
pub fn completions(root: &Path, shell: &str) -> Result<String> {
    let path = root.join(match shell {
        "bash" => "usr/share/bash-completion/completions/ottla",
        "zsh" => "usr/share/zsh/vendor-completions/_ottla",
        "fish" => "usr/share/fish/vendor_completions.d/ottla.fish",
        other => bail!("no completions for {other}"),
    });
    output_of(Command::new(shell).arg("-n").arg(path))?;
    Ok(String::new())
}

/// Installs, upgrades and removes with rpm below a directory. The package's scripts are skipped,
/// because they would run chrooted in that directory, which has no programs.
pub fn check_rpm(run: &mut Run, packages: &Packages) {
    let root = run.folder.join("rpm");
    let rpm = |arguments: &[&str], package: Option<&Path>| {
        let mut command = Command::new("rpm");
        command
            .arg("--root")
            .arg(&root)
            .args(arguments)
            .args(package);
        output_of(&mut command)
    };
    run.check("rpm installs, upgrades and removes it", || {
        fs::create_dir_all(&root)?;
        let install = ["--nodeps", "--noscripts", "--nosignature", "-i"];
        rpm(&install, Some(&packages.rpm))?;
        let configuration = root.join(&CONFIGURATION[1..]);
        let changed = format!("{}num.partitions=3\n", fs::read_to_string(&configuration)?);
        fs::write(&configuration, &changed)?;
        let data = root.join("var/lib/ottla/data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("meta.properties"), "version=1\n")?;
        let upgrade = ["--nodeps", "--noscripts", "--nosignature", "-U"];
        rpm(&upgrade, Some(&packages.next_rpm))?;
        ensure!(
            fs::read_to_string(&configuration)? == changed,
            "the upgrade changed {CONFIGURATION}"
        );
        let version = rpm(&["-q", "ottla"], None)?;
        rpm(&["--nodeps", "--noscripts", "-e", "ottla"], None)?;
        ensure!(!root.join(&BINARY[1..]).exists(), "{BINARY} is still there");
        ensure!(data.join("meta.properties").exists(), "the data is gone");
        Ok(format!("upgraded to {}", version.trim()))
    });
}
