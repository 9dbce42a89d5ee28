//! The Java programs of `conformance/java`, compiled against Kafka's jars and run with its clients.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::InstalledPeer;
use ottla_workspace::{process, toolchain, workspace};

/// Folders whose classes are compiled into the other programs too.
const SHARED: [&str; 2] = ["client", "tools"];

/// Compiles a folder of `conformance/java` and returns the command that runs one of its classes,
/// without arguments. Its classes are behind Kafka's jars: an archive only fits a class path that
/// begins with the one for which it was made.
pub fn program(kafka: &InstalledPeer, folder: &str, class: &str) -> Result<Vec<String>> {
    let classes = classes(kafka, folder)?;
    let logging = workspace::root().join("peers/log4j2-tools.properties");
    let mut command = ["java", "-Xmx256M"].map(str::to_owned).to_vec();
    command.extend(toolchain::SHORT_JVM.map(str::to_owned));
    command.extend([
        format!("-Dlog4j2.configurationFile={}", logging.display()),
        "-cp".to_owned(),
        format!("{}:{}", class_path(kafka)?, classes.display()),
        class.to_owned(),
    ]);
    Ok(kafka.in_suites(&command))
}

/// Compiles a folder of `conformance/java`, unless it was compiled from the same sources, and returns
/// the folder with its classes.
pub fn classes(kafka: &InstalledPeer, folder: &str) -> Result<PathBuf> {
    toolchain::require(&toolchain::JAVAC)?;
    let classes = workspace::target_dir()
        .join("conformance/java")
        .join(kafka.folder())
        .join(folder);
    let root = workspace::root().join("conformance/java");
    let sources = sources_in(&root.join(folder))?;
    let shared = SHARED.map(|shared| root.join(shared));
    let mut made_from = class_path(kafka)?.to_owned();
    for file in &sources {
        made_from.push_str(&read(file)?);
    }
    for folder in &shared {
        for file in sources_in(folder)? {
            made_from.push_str(&read(&file)?);
        }
    }
    std::fs::create_dir_all(&classes)?;
    // Another suite may compile the same folder at the same time, or run its classes. Closing the
    // file releases the lock.
    let lock = File::create(classes.with_extension("lock"))?;
    lock.lock()?;
    let mark = classes.with_extension("compiled-from");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == made_from) {
        return Ok(classes);
    }
    workspace::make_empty(&classes)?;
    let mut compile = Command::new("javac");
    compile
        .args(toolchain::SHORT_JVM.map(|option| format!("-J{option}")))
        .args(["-nowarn", "-proc:none", "-cp", class_path(kafka)?, "-d"])
        .arg(&classes);
    let shared = shared.map(|folder| folder.display().to_string());
    compile.args(["-sourcepath", &shared.join(":")]);
    compile.args(&sources);
    process::output_of(&mut compile)?;
    std::fs::write(mark, made_from)?;
    Ok(classes)
}

/// The Java files of a folder, sorted.
fn sources_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        if file
            .extension()
            .is_some_and(|extension| extension == "java")
        {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).with_context(|| file.display().to_string())
}

fn class_path(kafka: &InstalledPeer) -> Result<&str> {
    match kafka.class_path() {
        Some(class_path) => Ok(class_path),
        None => bail!("the Java clients come with the peer `kafka`, which has no class path"),
    }
}
