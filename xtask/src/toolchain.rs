//! The programs of other languages that suites need: looked for, installed from Debian's packages where this runs as
//! root, and otherwise named together with the command that installs them.

use std::process::Command;
use std::sync::Mutex;

use anyhow::{Result, bail};

use crate::process;

/// A program and the Debian packages that bring it.
#[derive(Debug)]
pub struct Toolchain {
    pub program: &'static str,
    pub packages: &'static [&'static str],
}

pub const JAVA: Toolchain = Toolchain {
    program: "java",
    packages: &["default-jdk-headless"],
};
pub const JAVAC: Toolchain = Toolchain {
    program: "javac",
    packages: &["default-jdk-headless"],
};
pub const MAVEN: Toolchain = Toolchain {
    program: "mvn",
    packages: &["maven"],
};
pub const GO: Toolchain = Toolchain {
    program: "go",
    packages: &["golang-go"],
};
pub const NPM: Toolchain = Toolchain {
    program: "npm",
    packages: &["nodejs", "npm"],
};
pub const PYTHON: Toolchain = Toolchain {
    program: "python3",
    packages: &["python3", "python3-venv", "python3-pip"],
};
pub const C_COMPILER: Toolchain = Toolchain {
    program: "cc",
    packages: &["build-essential"],
};

/// Makes sure that the program can be started.
pub fn require(toolchain: &Toolchain) -> Result<()> {
    // Debian's installer takes a lock of its own and fails when a second one waits for it.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if process::is_on_path(toolchain.program) {
        return Ok(());
    }
    install_packages(toolchain)?;
    if !process::is_on_path(toolchain.program) {
        bail!(
            "its packages are installed, and `{}` is still missing",
            toolchain.program
        );
    }
    Ok(())
}

/// Installs the packages although the program is there: for a part that Debian keeps in a package of its own.
pub fn install(toolchain: &Toolchain) -> Result<()> {
    install_packages(toolchain)
}

fn install_packages(toolchain: &Toolchain) -> Result<()> {
    let install = format!("apt-get install -y {}", toolchain.packages.join(" "));
    if !rustix::process::geteuid().is_root() || !process::is_on_path("apt-get") {
        bail!(
            "`{}` is missing; install it with: sudo {install}",
            toolchain.program
        );
    }
    eprintln!("`{}` is missing: {install}", toolchain.program);
    process::output_of(apt_get().args(["update", "-qq"]))?;
    process::output_of(
        apt_get()
            .args(["install", "-y", "-qq"])
            .args(toolchain.packages),
    )?;
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_is_not_installed_again() {
        require(&Toolchain {
            program: "sh",
            packages: &["no-such-package"],
        })
        .unwrap();
    }
}
