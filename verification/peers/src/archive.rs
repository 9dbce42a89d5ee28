//! An archive of the classes of Kafka's tools (JEP 350), so that the several hundred JVMs that suites
//! start for tools, brokers and clients load them without parsing and verifying them again.
//!
//! Measuring programs do not use it, because Kafka's scripts do not have it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use ottla_workspace::process;

/// The archive for the jars of this folder, made with the command that runs a tool; `None` if this
/// Java makes none, which only costs time.
pub fn of_tools(libs: &Path, tool: &[String]) -> Result<Option<PathBuf>> {
    let archive = libs.join("tools.jsa");
    // Another suite may make it at the same time. Closing the file releases the lock.
    let lock = File::create(libs.join("tools.lock"))?;
    lock.lock()?;
    if !archive.exists() {
        make(&archive, tool)?;
    }
    Ok(archive.exists().then_some(archive))
}

/// The options of a JVM that uses the archive. The JVM ignores an archive that does not fit;
/// without a log, its warning is not in the output of the tool. The last option disables the second
/// compiler, which pays off only in longer runs.
pub fn options(archive: &Path) -> [String; 3] {
    let file = format!("-XX:SharedArchiveFile={}", archive.display());
    [
        file,
        "-Xlog:disable".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
    ]
}

/// Archives the classes that a tool without a reachable broker has loaded: the admin client and all
/// messages.
fn make(archive: &Path, tool: &[String]) -> Result<()> {
    let [java, options @ ..] = tool else {
        return Ok(());
    };
    let unfinished = archive.with_extension("unfinished");
    let settings = archive.with_extension("properties");
    std::fs::write(
        &settings,
        "default.api.timeout.ms=1000\nrequest.timeout.ms=500\n",
    )?;
    let mut command = Command::new(java);
    command
        .arg(format!("-XX:ArchiveClassesAtExit={}", unfinished.display()))
        .args(options)
        .arg("org.apache.kafka.tools.TopicCommand")
        // The port is reserved, and nothing listens on it.
        .args(["--bootstrap-server", "127.0.0.1:1", "--list"])
        .arg("--command-config")
        .arg(settings);
    process::run_captured(&mut command)?;
    if unfinished.exists() {
        std::fs::rename(unfinished, archive)?;
    }
    Ok(())
}
