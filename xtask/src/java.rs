//! The Java programs of `conformance/java`: compiled against Kafka's own jars and started with its clients.

use std::process::Command;

use anyhow::{Result, bail};

use crate::peer::InstalledPeer;
use crate::{process, toolchain, workspace};

/// Compiles a folder of `conformance/java` and gives the command that runs a class of it, but for its arguments.
pub fn program(kafka: &InstalledPeer, folder: &str, class: &str) -> Result<Vec<String>> {
    toolchain::require(&toolchain::JAVAC)?;
    let Some(class_path) = kafka.class_path() else {
        bail!("the Java clients come with the peer `kafka`, which has no class path");
    };
    let classes = workspace::target_dir()
        .join("conformance/java")
        .join(folder);
    std::fs::create_dir_all(&classes)?;
    let mut compile = Command::new("javac");
    compile
        .args(["-nowarn", "-proc:none", "-cp", class_path, "-d"])
        .arg(&classes);
    let sources = workspace::root().join("conformance/java").join(folder);
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
    let logging = workspace::root().join("peers/log4j2-tools.properties");
    Ok(vec![
        "java".to_owned(),
        "-Xshare:auto".to_owned(),
        "-Xmx256M".to_owned(),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        format!("{}:{class_path}", classes.display()),
        class.to_owned(),
    ])
}
