//! The Java programs of `conformance/java`, compiled against Kafka's jars and run with its clients.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::InstalledPeer;
use ottla_workspace::{process, toolchain, workspace};

/// Folders whose classes are compiled into the other programs too.
const SHARED: [&str; 2] = ["client", "tools"];

/// Compiles a folder of `conformance/java` and returns the command that runs one of its classes,
/// without arguments.
pub fn program(kafka: &InstalledPeer, folder: &str, class: &str) -> Result<Vec<String>> {
    let classes = classes(kafka, folder)?;
    let logging = workspace::root().join("peers/log4j2-tools.properties");
    Ok(vec![
        "java".to_owned(),
        "-Xshare:auto".to_owned(),
        "-Xmx256M".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        format!("{}:{}", classes.display(), class_path(kafka)?),
        class.to_owned(),
    ])
}

/// Compiles a folder of `conformance/java` and returns the folder with its classes.
pub fn classes(kafka: &InstalledPeer, folder: &str) -> Result<PathBuf> {
    toolchain::require(&toolchain::JAVAC)?;
    let classes = workspace::target_dir()
        .join("conformance/java")
        .join(kafka.folder())
        .join(folder);
    std::fs::create_dir_all(&classes)?;
    let mut compile = Command::new("javac");
    compile
        .args(["-nowarn", "-proc:none", "-cp", class_path(kafka)?, "-d"])
        .arg(&classes);
    let root = workspace::root().join("conformance/java");
    let shared = SHARED.map(|shared| root.join(shared).display().to_string());
    compile.args(["-sourcepath", &shared.join(":")]);
    let sources = root.join(folder);
    for entry in std::fs::read_dir(sources)? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "java")
        {
            compile.arg(file);
        }
    }
    process::output_of(&mut compile)?;
    Ok(classes)
}

fn class_path(kafka: &InstalledPeer) -> Result<&str> {
    match kafka.class_path() {
        Some(class_path) => Ok(class_path),
        None => bail!("the Java clients come with the peer `kafka`, which has no class path"),
    }
}
