//! `cargo xtask golden`: compares every message at every version byte for byte with Kafka's own
//! classes.
//!
//! 1. `conformance/java/golden` writes values of every message class. The example `golden` of
//!    `ottla-protocol` must decode them, print the same text, and encode the same bytes.
//! 2. The example writes values. The Java program must decode them, print the same text, and encode
//!    the same bytes.
//! 3. Both checks receive a file with one changed value and must reject it, which proves that they
//!    can fail.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use ottla_peers::class_path;
use ottla_workspace::{process, toolchain, workspace};

#[derive(clap::Args)]
pub struct Options {}

pub fn run(_options: &Options) -> Result<()> {
    let folder = workspace::target_dir().join("golden");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let java_classes = build_java()?;
    let example = build_rust()?;
    let java = |action: &str, file: &Path| -> Command {
        let mut command = Command::new("java");
        command
            .args(toolchain::SHORT_JVM)
            .args(["-cp", &java_classes])
            .args(["golden.Golden", action])
            .arg(file);
        command
    };
    let rust = |action: &str, file: &Path| -> Command {
        let mut command = Command::new(&example);
        command.arg(action).arg(file);
        command
    };

    let from_java = folder.join("from-java.txt");
    print!(
        "Java writes: {}",
        process::output_of(&mut java("write", &from_java))?
    );
    print!(
        "Rust reads:  {}",
        process::output_of(&mut rust("check", &from_java))?
    );
    must_refuse(&rust, &from_java, &folder.join("from-java-changed.txt"))?;

    let from_rust = folder.join("from-rust.txt");
    print!(
        "Rust writes: {}",
        process::output_of(&mut rust("write", &from_rust))?
    );
    print!(
        "Java reads:  {}",
        process::output_of(&mut java("check", &from_rust))?
    );
    must_refuse(&java, &from_rust, &folder.join("from-rust-changed.txt"))
}

/// The path of the example.
fn build_rust() -> Result<PathBuf> {
    if !workspace::is_suite() {
        let mut build = workspace::cargo();
        build.args(["build", "--quiet", "--example", "golden"]);
        process::output_of(build.args(workspace::selection("ottla-protocol", &["samples"])))?;
    }
    Ok(workspace::debug_program("examples/golden"))
}

/// Compiles the Java side with Maven and returns the class path.
fn build_java() -> Result<String> {
    let project = workspace::root().join("conformance/java/golden");
    process::output_of(
        toolchain::maven()?
            .args(["compile", "dependency:copy-dependencies"])
            .args(["-DoutputDirectory=target/libs", "-DincludeScope=runtime"])
            .current_dir(&project),
    )?;
    let libs = class_path(&project.join("target/libs"))?;
    Ok(format!(
        "{}:{libs}",
        project.join("target/classes").display()
    ))
}

/// Changes the text of one value and, separately, one byte of another. The check must name both.
fn must_refuse(side: &dyn Fn(&str, &Path) -> Command, golden: &Path, changed: &Path) -> Result<()> {
    let lines = std::fs::read_to_string(golden)?;
    let mut text_changed = false;
    let mut byte_changed = false;
    let mut out = String::with_capacity(lines.len());
    for line in lines.lines() {
        if !text_changed && line.contains("errorcode:") {
            out.push_str(&line.replacen("errorcode:", "errorcode:1", 1));
            text_changed = true;
        } else if !byte_changed && line.starts_with("RequestHeader ") && line.contains("00- ") {
            out.push_str(&line.replacen("00- ", "01- ", 1));
            byte_changed = true;
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    ensure!(
        text_changed && byte_changed,
        "{}: nothing to change",
        golden.display()
    );
    std::fs::write(changed, out)?;
    let output = process::run_captured(&mut side("check", changed))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let named = said
        .lines()
        .filter(|line| line.contains(" version "))
        .count();
    if output.status.success() || named != 2 {
        bail!(
            "two values were changed in {}, but the check said:\n{said}",
            changed.display()
        );
    }
    Ok(())
}
