//! Programs of other languages that suites need. They are looked up, installed from Debian's
//! packages when running as root, and otherwise reported with the command that installs them.
//!
//! A program counts only if it reports a recent enough version, so that a suite fails for that
//! reason and not with an old compiler's error about newer code. Debian's Go may be older than the
//! clients require; the required one then comes from Go's module proxy ([`go`]).

pub mod go;
mod version;

use std::process::Command;
use std::sync::Mutex;

use anyhow::{Result, bail};

use crate::process;
pub use version::Version;

/// A program, how to query its version, and the Debian packages that contain it.
#[derive(Debug)]
pub struct Toolchain {
    pub program: &'static str,
    /// Arguments with which it prints its version, and fails if a part of it is missing.
    probe: &'static [&'static str],
    /// The minimum version.
    pub needed: Version,
    packages: &'static [&'static str],
    /// The programs that need it.
    pub purpose: &'static str,
}

// Kafka's brokers require Java 17.
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
// The minimum that can download the version required by conformance/go.
pub const GO: Toolchain = Toolchain {
    program: "go",
    probe: &["version"],
    needed: Version([1, 16, 0]),
    packages: &["golang-go"],
    purpose: "franz-go and sarama, in the version of conformance/go/go.mod",
};
// Required by the build of the console's page.
pub const NODE: Toolchain = Toolchain {
    program: "node",
    probe: &["--version"],
    needed: Version([20, 19, 0]),
    packages: &["nodejs", "npm"],
    purpose: "kafkajs, and the page of the console",
};
pub const NPM: Toolchain = Toolchain {
    program: "npm",
    probe: &["--version"],
    needed: Version([7, 0, 0]),
    packages: &["nodejs", "npm"],
    purpose: "provides kafkajs and the build tools of the console's page",
};
// Debian packages the venv modules separately.
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
    // The first version whose headless mode renders like the browser.
    needed: Version([112, 0, 0]),
    packages: &["chromium", "fonts-dejavu-core"],
    purpose: "opens the report of ottla bench and the page of the console",
};
pub const C_COMPILER: Toolchain = Toolchain {
    program: "cc",
    probe: &["--version"],
    needed: Version([4, 8, 0]),
    packages: &["build-essential"],
    purpose: "crates that are in C",
};

// It says "Kerberos 5 version 1.20.1".
pub const KERBEROS: Toolchain = Toolchain {
    program: "klist",
    probe: &["-V"],
    needed: Version([5, 0, 0]),
    packages: &["krb5-kdc", "krb5-admin-server", "krb5-user"],
    purpose: "a KDC for logins with Kerberos",
};
// It prints only its name before its release number: iproute2-6.1.0.
pub const IP: Toolchain = Toolchain {
    program: "ip",
    probe: &["-V"],
    needed: Version([2, 0, 0]),
    packages: &["iproute2"],
    purpose: "networks that are cut, of mixed-cluster",
};
// It says "QEMU emulator version 7.2.22".
pub const QEMU: Toolchain = Toolchain {
    program: "qemu-system-x86_64",
    probe: &["--version"],
    needed: Version([5, 0, 0]),
    packages: &[
        "qemu-system-x86",
        "busybox-static",
        "cpio",
        "kmod",
        "xz-utils",
    ],
    purpose: "a machine with a kernel that has TLS, of kernel-tls",
};

/// In display order.
pub const ALL: [&Toolchain; 12] = [
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
    &KERBEROS,
    &QEMU,
];

/// The result of looking up a toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Found(Version),
    TooOld(Version),
    /// The program exists but does not report a version; holds the reason.
    Incomplete(String),
    Missing,
}

/// Checks that the program exists, is complete and is recent enough.
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

/// Ensures that the program can be started and is recent enough.
pub fn require(toolchain: &Toolchain) -> Result<Version> {
    // Debian's installer takes a lock, and a concurrent second run fails.
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

/// The option of a JVM without the second compiler, which pays off only in longer runs.
pub const FIRST_COMPILER: &str = "-XX:TieredStopAtLevel=1";

/// The options of a JVM that runs for seconds: with archived classes, and a collector that has no
/// threads.
pub const SHORT_JVM: [&str; 3] = ["-Xshare:auto", "-XX:+UseSerialGC", FIRST_COMPILER];

/// Maven, for a run of seconds. The collector is left to `MAVEN_OPTS`: a JVM refuses two.
pub fn maven() -> Result<Command> {
    require(&MAVEN)?;
    let options = std::env::var("MAVEN_OPTS").unwrap_or_default();
    let mut command = Command::new(MAVEN.program);
    command
        .env("MAVEN_OPTS", format!("{options} {FIRST_COMPILER}"))
        .args(["--quiet", "--batch-mode"]);
    Ok(command)
}

/// The problem, as the beginning of a sentence.
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

/// Whether this process can install packages.
fn may_install() -> bool {
    rustix::process::geteuid().is_root() && process::is_on_path("apt-get")
}

/// The command that installs these toolchains, without `sudo`.
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
    fn an_installed_program_is_not_installed_again() {
        assert_eq!(require(&SHELL).unwrap(), Version([5, 1, 0]));
    }

    #[test]
    fn installed_versions_are_read_from_the_programs() {
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
