//! Installs, upgrades and removes the package with dpkg, below a directory with its own database.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use ottla_workspace::process::{is_on_path, output_of};

use super::tallied::{Packages, Run};
use crate::contents::{BINARY, CONFIGURATION};

pub fn check(run: &mut Run, packages: &Packages) {
    run.check("dpkg reads it", || {
        let deb = &packages.deb;
        let version = output_of(
            Command::new("dpkg-deb")
                .arg("--field")
                .arg(deb)
                .arg("Version"),
        )?;
        output_of(Command::new("dpkg-deb").arg("--contents").arg(deb))?;
        Ok(version.trim().to_owned())
    });
    if !rustix::process::geteuid().is_root() || !is_on_path("useradd") {
        println!(
            "note: without the rights of root and useradd, left out: installing, upgrading and removing with dpkg"
        );
        return;
    }
    let root = match Root::create(&run.folder.join("dpkg")) {
        Ok(root) => root,
        Err(error) => return run.check("a root for dpkg", || Err(error)),
    };
    run.check("dpkg installs it", || {
        root.dpkg(&["--install"], Some(&packages.deb))?;
        root.is_set_up()
    });
    run.check("an upgrade keeps the configuration and the data", || {
        let configuration = root.at(CONFIGURATION);
        let changed = format!("{}num.partitions=3\n", fs::read_to_string(&configuration)?);
        fs::write(&configuration, &changed)?;
        root.write_data()?;
        root.dpkg(&["--install"], Some(&packages.next_deb))?;
        ensure!(
            fs::read_to_string(&configuration)? == changed,
            "the upgrade changed {CONFIGURATION}"
        );
        root.has_data()?;
        root.is_set_up()?;
        root.dpkg_query()
    });
    run.check("what dpkg installed is unchanged", || {
        // Only the configuration differs; dpkg marks it with a `c`.
        let changed = root.dpkg(&["--verify", "ottla"], None)?;
        let others = changed
            .lines()
            .filter(|line| !line.ends_with(CONFIGURATION));
        let others: Vec<&str> = others.collect();
        ensure!(others.is_empty(), "dpkg --verify:\n{}", others.join("\n"));
        Ok(String::new())
    });
    run.check(
        "a removal keeps the configuration, a purge the data",
        || {
            root.dpkg(&["--remove", "ottla"], None)?;
            ensure!(!root.at(BINARY).exists(), "{BINARY} is still there");
            ensure!(root.at(CONFIGURATION).exists(), "{CONFIGURATION} is gone");
            root.dpkg(&["--purge", "ottla"], None)?;
            ensure!(
                !root.at(CONFIGURATION).exists(),
                "{CONFIGURATION} is still there"
            );
            root.has_data()?;
            Ok(String::new())
        },
    );
}

/// A directory that acts as a system root for dpkg: a database and accounts, but no programs.
struct Root {
    path: PathBuf,
}

impl Root {
    fn create(path: &Path) -> Result<Root> {
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/log",
            "etc",
        ] {
            fs::create_dir_all(path.join(folder))?;
        }
        let files = [
            ("var/lib/dpkg/status", ""),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/shadow", "root:*:19000:0:99999:7:::\n"),
            ("etc/gshadow", "root:*::\n"),
        ];
        for (file, text) in files {
            fs::write(path.join(file), text)?;
        }
        Ok(Root {
            path: path.to_owned(),
        })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The package's scripts run on this machine with the directory as `DPKG_ROOT`, as when an
    /// image is assembled for another machine.
    fn dpkg(&self, arguments: &[&str], package: Option<&Path>) -> Result<String> {
        output_of(
            Command::new("dpkg")
                .arg(format!("--root={}", self.path.display()))
                .args([
                    "--force-script-chrootless",
                    "--force-depends",
                    "--force-unsafe-io",
                    "--log=/dev/null",
                ])
                .args(arguments)
                .args(package),
        )
    }

    /// The installed version.
    fn dpkg_query(&self) -> Result<String> {
        let mut query = Command::new("dpkg-query");
        query.arg(format!("--root={}", self.path.display()));
        query.args(["--show", "--showformat=${Version} ${Status}", "ottla"]);
        output_of(&mut query)
    }

    /// Checks the results of the package's script: the user, the data directory, the owner of the
    /// configuration.
    fn is_set_up(&self) -> Result<String> {
        let accounts = fs::read_to_string(self.at("/etc/passwd"))?;
        let account = accounts.lines().find(|line| line.starts_with("ottla:"));
        let account = account.with_context(|| format!("there is no user ottla in:\n{accounts}"))?;
        let fields: Vec<&str> = account.split(':').collect();
        let [_, _, user, group, ..] = fields[..] else {
            bail!("the account is {account}");
        };
        let data = fs::metadata(self.at("/var/lib/ottla"))?;
        ensure!(
            data.uid() == user.parse::<u32>()? && data.permissions().mode() & 0o777 == 0o750,
            "/var/lib/ottla is of {} with {:o}",
            data.uid(),
            data.permissions().mode()
        );
        let configuration = fs::metadata(self.at(CONFIGURATION))?;
        ensure!(
            configuration.uid() == 0
                && configuration.gid() == group.parse::<u32>()?
                && configuration.permissions().mode() & 0o777 == 0o640,
            "{CONFIGURATION} is of {}:{} with {:o}",
            configuration.uid(),
            configuration.gid(),
            configuration.permissions().mode()
        );
        Ok(account.to_owned())
    }

    fn write_data(&self) -> Result<()> {
        let data = self.at("/var/lib/ottla/data");
        fs::create_dir_all(&data)?;
        Ok(fs::write(data.join("meta.properties"), "version=1\n")?)
    }

    fn has_data(&self) -> Result<()> {
        let data = self.at("/var/lib/ottla/data/meta.properties");
        ensure!(data.exists(), "the data is gone");
        Ok(())
    }
}
