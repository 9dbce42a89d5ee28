//! The programs of other languages that suites need: looked for, installed from Debian's packages where this runs as
//! root, and otherwise named together with the command that installs them.
//!
//! A program is only taken for found when it says a version that is new enough, so that a suite fails with that as its
//! reason and not with what an old compiler makes of a new file. Debian's Go may be older than the clients want; then
//! the one that they want comes from Go's own registry ([`go`]).

pub mod go;
mod version;

use std::process::Command;
use std::sync::Mutex;

use anyhow::{Result, bail};

use crate::process;
pub use version::Version;

/// A program, how it says its version, and the Debian packages that bring it.
#[derive(Debug)]
pub struct Toolchain {
    pub program: &'static str,
    /// The arguments with which it prints its version, and fails where a part of it is missing.
    probe: &'static [&'static str],
    /// The oldest that the suites can use.
    pub needed: Version,
    packages: &'static [&'static str],
    /// Who needs it.
    pub purpose: &'static str,
}

// Kafka's brokers need Java 17.
pub const JAVA: Toolchain = Toolchain {
    program: "java",
    probe: &["--version"],
    needed: Version([17, 0, 0]),
    packages: &["default-jdk-headless"],
    purpose: "Apache Kafka, its clients and tools",
};
pub const JAVAC: Toolchain = Toolchain {
    program: "javac",
    probe: &["--version"],
    needed: Version([17, 0, 0]),
    packages: &["default-jdk-headless"],
    purpose: "the programs of conformance/java",
};
pub const MAVEN: Toolchain = Toolchain {
    program: "mvn",
    probe: &["--batch-mode", "--version"],
    needed: Version([3, 6, 3]),
    packages: &["maven"],
    purpose: "brings Apache Kafka",
};
// What any Go needs to bring the one that conformance/go asks for.
pub const GO: Toolchain = Toolchain {
    program: "go",
    probe: &["version"],
    needed: Version([1, 16, 0]),
    packages: &["golang-go"],
    purpose: "franz-go and sarama, in the version of conformance/go/go.mod",
};
// The codecs of kafkajs ask for it.
pub const NODE: Toolchain = Toolchain {
    program: "node",
    probe: &["--version"],
    needed: Version([18, 0, 0]),
    packages: &["nodejs", "npm"],
    purpose: "kafkajs",
};
pub const NPM: Toolchain = Toolchain {
    program: "npm",
    probe: &["--version"],
    needed: Version([7, 0, 0]),
    packages: &["nodejs", "npm"],
    purpose: "brings kafkajs",
};
// Debian keeps the modules that make an environment in a package of their own.
pub const PYTHON: Toolchain = Toolchain {
    program: "python3",
    probe: &[
        "-c",
        "import ensurepip, platform, venv; print(platform.python_version())",
    ],
    needed: Version([3, 10, 0]),
    packages: &["python3", "python3-venv", "python3-pip"],
    purpose: "confluent-kafka and aiokafka",
};
pub const CHROMIUM: Toolchain = Toolchain {
    program: "chromium",
    probe: &["--version"],
    // The first with the headless mode that draws as the browser does.
    needed: Version([112, 0, 0]),
    packages: &["chromium", "fonts-dejavu-core"],
    purpose: "opens the report of ottla bench",
};
pub const C_COMPILER: Toolchain = Toolchain {
    program: "cc",
    probe: &["--version"],
    needed: Version([4, 8, 0]),
    packages: &["build-essential"],
    purpose: "crates that are in C",
};

// Its name is all that it says in front of the number of its release: iproute2-6.1.0.
pub const IP: Toolchain = Toolchain {
    program: "ip",
    probe: &["-V"],
    needed: Version([2, 0, 0]),
    packages: &["iproute2"],
    purpose: "networks that are cut, of mixed-cluster",
};

/// In the order in which they are shown.
pub const ALL: [&Toolchain; 10] = [
    &C_COMPILER,
    &JAVA,
    &JAVAC,
    &MAVEN,
    &GO,
    &NODE,
    &NPM,
    &PYTHON,
    &CHROMIUM,
    &IP,
];

/// What was found of a toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Found(Version),
    TooOld(Version),
    /// The program is there and does not say a version: why.
    Incomplete(String),
    Missing,
}

/// Looks whether the program is there, whole, and new enough.
pub fn look(toolchain: &Toolchain) -> State {
    if !process::is_on_path(toolchain.program) {
        return State::Missing;
    }
    match process::output_of(Command::new(toolchain.program).args(toolchain.probe)) {
        Ok(printed) => judged(toolchain, &printed),
        Err(error) => {
            let said = error.to_string();
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            State::Incomplete(last.unwrap_or_default().trim().to_owned())
        }
    }
}

fn judged(toolchain: &Toolchain, printed: &str) -> State {
    match Version::first_in(printed) {
        Some(version) if version >= toolchain.needed => State::Found(version),
        Some(version) => State::TooOld(version),
        None => State::Incomplete(format!("it says no version: {}", printed.trim())),
    }
}

/// Makes sure that the program can be started and is new enough.
pub fn require(toolchain: &Toolchain) -> Result<Version> {
    // Debian's installer takes a lock of its own and fails when a second one waits for it.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let state = look(toolchain);
    if let State::Found(version) = state {
        return Ok(version);
    }
    if !may_install() {
        let complaint = complaint(toolchain, &state);
        bail!(
            "{complaint}; install it with: sudo {}",
            install_command(&[toolchain])
        );
    }
    eprintln!(
        "{}: {}",
        complaint(toolchain, &state),
        install_command(&[toolchain])
    );
    process::output_of(apt_get().args(["update", "-qq"]))?;
    process::output_of(
        apt_get()
            .args(["install", "-y", "-qq"])
            .args(toolchain.packages),
    )?;
    match look(toolchain) {
        State::Found(version) => Ok(version),
        state => bail!(
            "{} with Debian's packages ({}) installed; bring a newer one and put it on the PATH",
            complaint(toolchain, &state),
            toolchain.packages.join(" ")
        ),
    }
}

/// What is wrong with it, as the beginning of a sentence.
pub fn complaint(toolchain: &Toolchain, state: &State) -> String {
    let Toolchain {
        program, needed, ..
    } = toolchain;
    match state {
        State::Found(version) => format!("`{program}` is there, version {version}"),
        State::TooOld(version) => {
            format!("`{program}` is of version {version}, and {needed} is needed")
        }
        State::Incomplete(why) => format!("`{program}` is not whole ({why})"),
        State::Missing => format!("`{program}` is missing"),
    }
}

/// Whether packages can be installed by this process.
fn may_install() -> bool {
    rustix::process::geteuid().is_root() && process::is_on_path("apt-get")
}

/// What a person would type to have these toolchains, but for `sudo`.
pub fn install_command(toolchains: &[&Toolchain]) -> String {
    let mut packages: Vec<&str> = Vec::new();
    for package in toolchains.iter().flat_map(|toolchain| toolchain.packages) {
        if !packages.contains(package) {
            packages.push(package);
        }
    }
    format!("apt-get install -y {}", packages.join(" "))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHELL: Toolchain = Toolchain {
        program: "sh",
        probe: &["-c", "echo shell version 5.1"],
        needed: Version([5, 0, 0]),
        packages: &["no-such-package"],
        purpose: "this test",
    };

    #[test]
    fn a_program_that_is_there_is_not_installed_again() {
        assert_eq!(require(&SHELL).unwrap(), Version([5, 1, 0]));
    }

    #[test]
    fn what_is_there_is_judged_by_what_it_says() {
        let newer = Toolchain {
            needed: Version([5, 2, 0]),
            ..SHELL
        };
        assert_eq!(look(&newer), State::TooOld(Version([5, 1, 0])));
        assert_eq!(
            complaint(&newer, &look(&newer)),
            "`sh` is of version 5.1.0, and 5.2.0 is needed"
        );

        let part_missing = Toolchain {
            probe: &["-c", "echo no module named venv >&2; exit 1"],
            ..SHELL
        };
        let State::Incomplete(why) = look(&part_missing) else {
            panic!("it failed");
        };
        assert_eq!(why, "no module named venv");

        let silent = Toolchain {
            probe: &["-c", "echo fine"],
            ..SHELL
        };
        assert!(matches!(look(&silent), State::Incomplete(_)));

        let missing = Toolchain {
            program: "no-such-program-anywhere",
            ..SHELL
        };
        assert_eq!(look(&missing), State::Missing);
    }

    #[test]
    fn one_command_installs_several_and_names_no_package_twice() {
        assert_eq!(
            install_command(&[&JAVA, &JAVAC, &NODE, &NPM]),
            "apt-get install -y default-jdk-headless nodejs npm"
        );
    }
}
