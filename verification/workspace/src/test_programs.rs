//! The test programs of the workspace.
//!
//! The suite `test-build` of `cargo xtask test` builds all of them and leaves a list. Other suites
//! start them directly: cargo would wait while the suite `clippy` holds the lock of the target
//! directory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// A test program, as cargo reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct TestProgram {
    pub package: String,
    pub target: String,
    pub executable: PathBuf,
    /// The folder of its package, in which cargo runs it.
    pub folder: PathBuf,
    /// Whether it is a file below `tests/`. These start processes and take longest.
    pub is_integration: bool,
}

impl TestProgram {
    /// The folder of the package, and the target.
    pub fn name(&self) -> (&str, &str) {
        (self.package.as_str(), self.target.as_str())
    }

    /// Runs it as cargo does.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Parses the test programs from cargo's build messages, one JSON object per line.
pub fn parse(messages: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("a message of cargo")?;
        let Some(executable) = message["executable"].as_str() else {
            continue;
        };
        if message["profile"]["test"] != true {
            continue;
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let manifest = PathBuf::from(text(&message["manifest_path"]).context("manifest_path")?);
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let kinds = message["target"]["kind"].as_array();
        programs.push(TestProgram {
            package: folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            target: text(&message["target"]["name"]).context("target.name")?,
            executable: executable.into(),
            folder: folder.to_path_buf(),
            is_integration: kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "test")),
        });
    }
    Ok(programs)
}

/// The names of the examples that a test starts: those of `ottla-client`.
pub fn examples() -> Result<Vec<String>> {
    let folder = workspace::root().join("crates/ottla-client/examples");
    let mut names = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = path.file_stem().context("an example without a name")?;
        names.push(name.to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The file with cargo's messages about the last build.
fn list() -> PathBuf {
    workspace::target_dir().join("test-output/test-programs.json")
}

/// Forgets the last build, before anything is built.
pub fn forget() -> Result<()> {
    match std::fs::remove_file(list()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(list().display().to_string())
        }
        _ => Ok(()),
    }
}

/// Lists the programs of a build for the suites that follow.
pub fn leave(messages: &str) -> Result<()> {
    let whole = list();
    let part = whole.with_extension("part");
    std::fs::create_dir_all(whole.parent().context("the list lies in a folder")?)?;
    std::fs::write(&part, messages)?;
    Ok(std::fs::rename(part, whole)?)
}

/// The programs that this run of `cargo xtask test` has built; `None` if it has not, or this process
/// is not one of its suites.
pub fn built() -> Result<Option<Vec<TestProgram>>> {
    if !workspace::is_suite() || !list().exists() {
        return Ok(None);
    }
    parse(&std::fs::read_to_string(list())?).map(Some)
}

/// Commands that run test programs of a package: files below `tests/`, and the tests within its
/// library under the name of the library. Arguments for the programs can be added. Unless the
/// programs have been built, it is one command of cargo, which builds them with these features.
pub fn commands(package: &str, features: &[&str], targets: &[&str]) -> Result<Vec<Command>> {
    if let Some(programs) = built()? {
        let find = |target: &&str| -> Result<Command> {
            let mut programs = programs.iter();
            let found = programs.find(|program| program.name() == (package, *target));
            let found = found.with_context(|| format!("no test program {package} {target}"))?;
            Ok(found.command())
        };
        return targets.iter().map(find).collect();
    }
    let mut command = workspace::cargo();
    command.args(["test", "--locked"]);
    command.args(workspace::selection(package, features));
    // A failure in one test file must not skip other files.
    command.arg("--no-fail-fast");
    for target in targets {
        match *target == package.replace('-', "_") {
            true => command.arg("--lib"),
            false => command.args(["--test", target]),
        };
    }
    command.arg("--");
    Ok(vec![command])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_distinguished_from_other_artifacts() {
        let artifact = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","profile":{{"test":{test}}},"target":{{"kind":["{kind}"],"name":"{kind}_of_a"}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("lib", true, r#""/t/a-1""#),
            artifact("lib", false, "null"),
            artifact("bin", false, r#""/t/a""#),
            artifact("test", true, r#""/t/b-1""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = parse(&messages.join("\n")).expect("JSON");
        let brief: Vec<_> = found
            .iter()
            .map(|it| (it.package.as_str(), it.target.as_str(), it.is_integration))
            .collect();
        assert_eq!(brief, [("a", "lib_of_a", false), ("a", "test_of_a", true)]);
        assert_eq!(found[0].folder, PathBuf::from("/w/crates/a"));
    }

    #[test]
    fn the_examples_of_the_client_are_found() {
        let names = examples().expect("a folder");
        assert!(names.iter().any(|name| name == "produce"), "{names:?}");
    }

    #[test]
    fn an_invalid_json_message_is_an_error() {
        assert!(parse("Compiling a").is_err());
    }
}
