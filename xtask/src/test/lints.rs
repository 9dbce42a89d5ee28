//! The suite `clippy` of a run whose builds lint.
//!
//! With `RUSTC_WORKSPACE_WRAPPER=clippy-driver`, cargo compiles the crates of the workspace with
//! clippy's compiler, which generates code as rustc does, and keeps the warnings of each crate with
//! its artefacts. The suite then builds the targets that no other suite needs, and cargo repeats the
//! warnings of all others. Otherwise the suite would check every crate once more, dependencies
//! included.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use ottla_workspace::process::output_of;
use ottla_workspace::workspace;

/// Cargo's variable with the program that runs instead of rustc for crates of the workspace.
const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// The package of this program. It is built alone, before any suite runs: a build with the features
/// of the whole workspace would replace the file of the running program.
const OWN_PACKAGE: &str = "xtask";

/// Whether all builds of this run lint.
pub fn are_in_builds() -> bool {
    is_clippy(std::env::var_os(WRAPPER).as_deref())
}

fn is_clippy(wrapper: Option<&OsStr>) -> bool {
    let name = wrapper.and_then(|wrapper| Path::new(wrapper).file_stem());
    name == Some(OsStr::new("clippy-driver"))
}

/// Builds all targets, and fails if any has a warning.
pub fn run() -> Result<()> {
    ensure!(
        are_in_builds() && workspace::is_suite(),
        "only the suite `clippy` of `cargo xtask test` with {WRAPPER}=clippy-driver runs it; use `cargo clippy`"
    );
    let metadata = output_of(workspace::cargo().args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--locked",
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    // In a suite, these select the whole workspace with its features.
    let mut all = workspace::selection(OWN_PACKAGE, &[]);
    all.extend(targets(&metadata)?);
    let own = ["--package", OWN_PACKAGE].map(str::to_owned).to_vec();
    let mut found = Vec::new();
    for selection in [own, all] {
        let mut build = workspace::cargo();
        build
            .args(["build", "--locked", "--message-format=json"])
            .args(selection)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = build.output().context("cannot start cargo")?;
        let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
        add_diagnostics(&messages, &mut found)?;
        if !output.status.success() {
            found.push(format!("error: cargo ended with {}", output.status));
        }
    }
    for diagnostic in &found {
        println!("{}\n", diagnostic.trim_end());
    }
    if !found.is_empty() {
        bail!("{} warnings or errors", found.len());
    }
    Ok(())
}

/// Cargo's arguments that select every target, as `--all-targets` does. Programs and benchmarks are
/// named, because `--bins` includes this program, and `--benches` builds each program once more, as
/// a test program.
fn targets(metadata: &Value) -> Result<Vec<String>> {
    let mut arguments = ["--lib", "--tests", "--examples"]
        .map(str::to_owned)
        .to_vec();
    for package in metadata["packages"].as_array().context("packages")? {
        if package["name"] == OWN_PACKAGE {
            continue;
        }
        for target in package["targets"].as_array().context("targets")? {
            let kind = target["kind"][0].as_str().context("kind")?;
            if kind == "bin" || kind == "bench" {
                let name = target["name"].as_str().context("name")?;
                arguments.extend([format!("--{kind}"), name.to_owned()]);
            }
        }
    }
    Ok(arguments)
}

/// Adds the warnings and errors in cargo's messages, each once: a library and its tests have the
/// same. A warning becomes an error, as `--deny warnings` makes it.
fn add_diagnostics(messages: &str, found: &mut Vec<String>) -> Result<()> {
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        if message["reason"] != "compiler-message" {
            continue;
        }
        let diagnostic = &message["message"];
        let text = |name: &str| diagnostic[name].as_str().unwrap_or_default();
        let is_problem = ["warning", "error"]
            .iter()
            .any(|level| text("level").starts_with(level));
        // The compiler counts what it has reported.
        let is_count = text("message").ends_with(" emitted");
        if !is_problem || is_count {
            continue;
        }
        let printed = match text("rendered").strip_prefix("warning") {
            Some(rest) => format!("error{rest}"),
            None => text("rendered").to_owned(),
        };
        if !found.contains(&printed) {
            found.push(printed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_clippys_compiler_lints_in_builds() {
        let is_clippy = |wrapper: &str| super::is_clippy(Some(OsStr::new(wrapper)));
        assert!(is_clippy("clippy-driver"));
        assert!(is_clippy("/opt/rust/bin/clippy-driver"));
        assert!(!is_clippy("sccache"));
        assert!(!is_clippy(""));
        assert!(!super::is_clippy(None));
    }

    #[test]
    fn each_warning_and_error_is_found_once() {
        let message = |level: &str, message: &str, rendered: &str| {
            let message = json!({"level": level, "message": message, "rendered": rendered});
            json!({"reason": "compiler-message", "message": message}).to_string()
        };
        let unused = "warning: unused variable: `a`\n --> src/lib.rs:1:5\n\n";
        let wrong = "error[E0308]: mismatched types\n --> src/lib.rs:2:5\n\n";
        let messages = [
            r#"{"reason":"compiler-artifact","fresh":true}"#.to_owned(),
            message("warning", "unused variable: `a`", unused),
            message(
                "warning",
                "1 warning emitted",
                "warning: 1 warning emitted\n\n",
            ),
            message("warning", "unused variable: `a`", unused),
            message("error", "mismatched types", wrong),
            message("failure-note", "For more information, …", "For more …"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let mut found = Vec::new();
        add_diagnostics(&messages.join("\n"), &mut found).expect("JSON");
        let expected = [unused.replacen("warning", "error", 1), wrong.to_owned()];
        assert_eq!(found, expected);
        assert!(add_diagnostics("Compiling a", &mut found).is_err());
    }

    #[test]
    fn every_target_is_selected_but_this_program() {
        let target = |kind: &str, name: &str| json!({"kind": [kind], "name": name});
        let metadata = json!({"packages": [
            {"name": "a", "targets": [target("lib", "a"), target("bin", "serve"), target("bench", "speed")]},
            {"name": "xtask", "targets": [target("bin", "xtask")]},
        ]});
        let selected = targets(&metadata).expect("well-formed").join(" ");
        assert_eq!(
            selected,
            "--lib --tests --examples --bin serve --bench speed"
        );
    }
}
