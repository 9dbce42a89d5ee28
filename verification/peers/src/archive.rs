//! Archives of Kafka's classes (JEP 350), so that the several hundred JVMs that suites start for tools,
//! brokers and clients load them without parsing and verifying them again; and the other options with
//! which the JVMs of suites start sooner.
//!
//! Measuring programs do not use any of it, because Kafka's scripts do not have it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use ottla_workspace::process;
use ottla_workspace::toolchain::FIRST_COMPILER;

/// What the archives of the two kinds of programs are named after.
const TOOLS: &str = "tools";
const BROKERS: &str = "brokers";

/// After this time, another attempt is made after one that has failed.
const RETRIED_AFTER: Duration = Duration::from_secs(3600);

/// The archive for the jars of this folder, made with the command that runs a tool; `None` if this
/// Java makes none, which only costs time.
pub fn of_tools(libs: &Path, tool: &[String]) -> Result<Option<PathBuf>> {
    let [java, ..] = tool else {
        return Ok(None);
    };
    let version = process::output_of(Command::new(java).arg("--version"))?;
    made_once(&of_java(libs, &version), |unfinished| {
        make(unfinished, tool)
    })
}

/// The archive for brokers, beside this one for tools; `None` if it cannot be made.
pub fn of_brokers(
    of_tools: &Path,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<Option<PathBuf>> {
    let name = of_tools.file_name().unwrap_or_default();
    let name = name.to_string_lossy().replacen(TOOLS, BROKERS, 1);
    made_once(&of_tools.with_file_name(name), make)
}

/// The file of the archive for tools. Its name has the build of Java, from the output of
/// `java --version`: a JVM ignores an archive of another build without a word.
fn of_java(libs: &Path, version: &str) -> PathBuf {
    // Of the last line, which is about the virtual machine.
    let (_, build) = version.rsplit_once("(build ").unwrap_or(("", version));
    let build = build.split(',').next().unwrap_or_default();
    let build = build.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    libs.join(format!("{TOOLS}-{build}.jsa"))
}

/// The archive with this path, which `make` writes to the path that it receives. `None` if it fails or
/// writes none, which only costs time. It is then not called again for a while: it may start a broker,
/// and each start of a broker asks for the archive.
fn made_once(archive: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<Option<PathBuf>> {
    // Another suite may make it at the same time. Closing the file releases the lock.
    let lock = File::create(archive.with_extension("lock"))?;
    lock.lock()?;
    let failed = archive.with_extension("failed");
    if !archive.exists() && !is_recent(&failed) {
        let unfinished = archive.with_extension("unfinished");
        // A process that was killed may have left the beginning of one.
        if unfinished.exists() {
            std::fs::remove_file(&unfinished)?;
        }
        match make(&unfinished) {
            Ok(()) if unfinished.exists() => std::fs::rename(unfinished, archive)?,
            made => {
                let reason = match made {
                    Ok(()) => "this Java has made none".to_owned(),
                    Err(error) => format!("{error:#}"),
                };
                eprintln!("no {}: {reason}", archive.display());
                std::fs::write(failed, reason)?;
            }
        }
    }
    Ok(archive.exists().then(|| archive.to_owned()))
}

/// Whether this file is younger than a run of all suites takes.
fn is_recent(file: &Path) -> bool {
    let written = std::fs::metadata(file).and_then(|file| file.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age < RETRIED_AFTER)
}

/// The options of a JVM that uses the archive. The JVM ignores an archive that does not fit;
/// without a log, its warning is not in the output of the tool. The last option disables the second
/// compiler, which pays off only in longer runs.
pub fn options(archive: &Path) -> Vec<String> {
    let file = format!("-XX:SharedArchiveFile={}", archive.display());
    [file.as_str(), "-Xlog:disable", FIRST_COMPILER]
        .map(str::to_owned)
        .to_vec()
}

/// The options of a JVM that writes the classes that it has loaded into an archive when it ends.
pub fn options_to_make(archive: &Path) -> Vec<String> {
    let file = format!("-XX:ArchiveClassesAtExit={}", archive.display());
    [file.as_str(), FIRST_COMPILER].map(str::to_owned).to_vec()
}

/// The words that start a broker, changed so that it uses less processor time in its first minute:
/// without remote management, which no suite uses, and with a collector that has no threads, needs no
/// large heap from the start, and does not run because classes are loaded.
pub fn for_short_life(words: &[String]) -> Vec<String> {
    let mut changed = Vec::new();
    for word in words {
        match word.as_str() {
            "-XX:+UseG1GC" => changed.push("-XX:+UseSerialGC".to_owned()),
            "-Xms1G" => changed.push("-XX:MetaspaceSize=128M".to_owned()),
            management if management.starts_with("-Dcom.sun.management.") => {}
            _ => changed.push(word.clone()),
        }
    }
    changed
}

/// Archives the classes that a tool without a reachable broker has loaded: the admin client and all
/// messages.
fn make(archive: &Path, tool: &[String]) -> Result<()> {
    let [java, options @ ..] = tool else {
        return Ok(());
    };
    let settings = archive.with_extension("properties");
    std::fs::write(
        &settings,
        "default.api.timeout.ms=1000\nrequest.timeout.ms=500\n",
    )?;
    let mut command = Command::new(java);
    command
        .args(options_to_make(archive))
        .args(options)
        .arg("org.apache.kafka.tools.TopicCommand")
        // The port is reserved, and nothing listens on it.
        .args(["--bootstrap-server", "127.0.0.1:1", "--list"])
        .arg("--command-config")
        .arg(settings);
    process::run_captured(&mut command)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_made_once() {
        let libs = tempfile::tempdir().unwrap();
        let mut made = 0;
        for _ in 0..2 {
            let archive = made_once(&libs.path().join("broker.jsa"), |unfinished| {
                made += 1;
                Ok(std::fs::write(unfinished, "classes")?)
            });
            let archive = archive.unwrap().expect("an archive");
            assert_eq!(archive, libs.path().join("broker.jsa"));
            assert_eq!(std::fs::read_to_string(archive).unwrap(), "classes");
        }
        assert_eq!(made, 1);
    }

    #[test]
    fn another_build_of_java_has_archives_of_its_own() {
        let libs = tempfile::tempdir().unwrap();
        let version = |build: &str| {
            format!(
                "openjdk 21.0.5 2024-10-15\nOpenJDK Runtime Environment (build 21)\n\
                 OpenJDK 64-Bit Server VM (build {build}, mixed mode, sharing)\n"
            )
        };
        let mut made = Vec::new();
        for build in ["21.0.5+11", "21.0.6+7", "21.0.5+11"] {
            let of_tools = of_java(libs.path(), &version(build));
            for archive in [
                made_once(&of_tools, |it| Ok(std::fs::write(it, build)?)),
                of_brokers(&of_tools, |it| Ok(std::fs::write(it, build)?)),
            ] {
                let archive = archive.unwrap().expect("an archive");
                assert_eq!(std::fs::read_to_string(&archive).unwrap(), build);
                let name = archive.file_name().unwrap();
                made.push(name.to_string_lossy().into_owned());
            }
        }
        let names = ["tools-21-0-5-11.jsa", "brokers-21-0-5-11.jsa"];
        assert_eq!(made[..2], names);
        assert_eq!(made[4..], names);
        assert_eq!(made[2..4], ["tools-21-0-6-7.jsa", "brokers-21-0-6-7.jsa"]);
    }

    #[test]
    fn an_archive_that_cannot_be_made_is_left_out_and_not_tried_again_at_once() {
        let libs = tempfile::tempdir().unwrap();
        for (name, fails) in [("tools", false), ("brokers", true)] {
            // Of a process that was killed.
            std::fs::write(libs.path().join(name).with_extension("unfinished"), "cl").unwrap();
            let mut tried = 0;
            for _ in 0..2 {
                let file = libs.path().join(name).with_extension("jsa");
                let archive = made_once(&file, |_| {
                    tried += 1;
                    anyhow::ensure!(!fails, "the broker does not start");
                    Ok(())
                });
                assert_eq!(archive.unwrap(), None, "{name}");
            }
            assert_eq!(tried, 1, "{name}");
        }
    }
}
