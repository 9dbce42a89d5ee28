//! The suite `unit`: runs the test programs of the workspace, several in parallel.
//!
//! `cargo test` runs one program at a time, and most programs that start brokers wait while a core
//! is idle. The output of each program is printed as a whole when it exits, so that a failure is
//! next to its explanation.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use ottla_workspace::process::{OwnedChild, forbid_core_dumps, output_of};
use ottla_workspace::workspace;

use super::{FEATURES, PATIENCE, shown};

/// Programs that run in parallel. Each has as many threads as there are cores, and most of them
/// wait.
const AT_ONCE: usize = 3;

/// Package and name of the programs that measure time. They run alone, as the suite `measures`.
const MEASURING: [(&str, &str); 3] = [
    ("ottla", "measured_cluster_start"),
    ("ottla", "measured_connections"),
    ("ottla", "measured_stalls"),
];

/// The programs that take longest, in order.
const LONGEST: [(&str, &str); 4] = [
    ("simulation", "seeds"),
    ("ottla-broker", "ottla_broker"),
    ("ottla-log", "ottla_log"),
    ("ottla", "bench_runs"),
];

/// Programs whose tests mostly wait: they run with twice as many threads as there are cores, unless
/// `RUST_TEST_THREADS` says otherwise.
const WAITING: [(&str, &str); 1] = [("ottla-broker", "ottla_broker")];
const TEST_THREADS: &str = "RUST_TEST_THREADS";

#[derive(clap::Args)]
pub struct Options {
    /// Only the tests within the libraries and programs, which start no process.
    #[arg(long)]
    quick: bool,
    /// Only the tests that measure time, one program after the other.
    #[arg(long, conflicts_with = "quick")]
    measuring: bool,
    /// Only these packages.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
}

/// A test program, as cargo reports it.
#[derive(Debug, PartialEq, Eq)]
struct TestProgram {
    package: String,
    target: String,
    executable: PathBuf,
    /// The folder of its package, in which cargo runs it.
    folder: PathBuf,
    /// Whether it is a file below `tests/`. These start processes and take longest.
    is_integration: bool,
}

impl TestProgram {
    fn measures(&self) -> bool {
        MEASURING.contains(&self.name())
    }

    /// The folder of the package, and the target.
    fn name(&self) -> (&str, &str) {
        (self.package.as_str(), self.target.as_str())
    }

    /// Its place in the order: the longest first, so that none runs alone at the end.
    fn place(&self) -> (usize, bool) {
        let place = LONGEST.iter().position(|long| *long == self.name());
        (place.unwrap_or(LONGEST.len()), !self.is_integration)
    }
}

pub fn run(options: &Options) -> Result<()> {
    let mut build = cargo_test(options);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    if options.quick {
        build.args(["--lib", "--bins"]);
    }
    build.stderr(std::process::Stdio::inherit());
    let mut programs = test_programs(&output_of(&mut build)?)?;
    programs.retain(|program| program.measures() == options.measuring);
    programs.sort_by_key(TestProgram::place);
    ensure!(!programs.is_empty(), "there is no test program to run");
    forbid_core_dumps()?;
    let failed = run_all(&programs, if options.measuring { 1 } else { AT_ONCE })?;
    for name in &failed {
        println!("error: {name} failed");
    }
    if !failed.is_empty() {
        std::process::exit(1);
    }
    Ok(())
}

fn cargo_test(options: &Options) -> Command {
    let mut command = workspace::cargo();
    command.args(["test", "--locked"]);
    match options.packages.as_slice() {
        [] => {
            command.args(["--workspace", "--features", FEATURES]);
        }
        packages => {
            command.args(packages.iter().flat_map(|name| ["--package", name]));
        }
    }
    command
}

/// Parses the test programs from cargo's build messages, one JSON object per line.
fn test_programs(messages: &str) -> Result<Vec<TestProgram>> {
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

/// Runs the programs in order, `at_once` in parallel, and returns the names of the programs that
/// failed.
fn run_all(programs: &[TestProgram], at_once: usize) -> Result<Vec<String>> {
    let next = Mutex::new(programs.iter());
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let Some(program) = next.lock().expect("no holder panics").next() else {
                return Ok(());
            };
            if !run_one(program)? {
                let name = format!("{} {}", program.package, program.target);
                failed.lock().expect("no holder panics").push(name);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().expect("no worker panics"));
        joined.collect::<Result<Vec<()>>>()
    })?;
    Ok(failed.into_inner().expect("no holder panics"))
}

fn run_one(program: &TestProgram) -> Result<bool> {
    let began = Instant::now();
    let mut output = tempfile::tempfile()?;
    let mut command = Command::new(&program.executable);
    command
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    if WAITING.contains(&program.name()) && std::env::var_os(TEST_THREADS).is_none() {
        let threads = 2 * std::thread::available_parallelism()?.get();
        command.env(TEST_THREADS, threads.to_string());
    }
    let ended = OwnedChild::start(&mut command)?.wait_measured(PATIENCE)?;
    let took = began.elapsed();
    let (succeeded, used) = match ended {
        Some(ended) => (
            ended.status.success(),
            format!("CPU {}", shown(ended.processor_time)),
        ),
        None => (false, "ended because it took too long".to_owned()),
    };
    let mut printed = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut printed)?;
    // In one write, because other programs print too.
    print!(
        "\n     Running {} {} ({}, {used})\n{}",
        program.package,
        program.target,
        shown(took),
        String::from_utf8_lossy(&printed),
    );
    Ok(succeeded)
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
        let found = test_programs(&messages.join("\n")).expect("JSON");
        let brief: Vec<_> = found
            .iter()
            .map(|it| (it.package.as_str(), it.target.as_str(), it.is_integration))
            .collect();
        assert_eq!(brief, [("a", "lib_of_a", false), ("a", "test_of_a", true)]);
        assert_eq!(found[0].folder, PathBuf::from("/w/crates/a"));
    }

    #[test]
    fn the_longest_start_first_then_programs_that_start_processes() {
        let program = |package: &str, target: &str, is_integration| TestProgram {
            package: package.to_owned(),
            target: target.to_owned(),
            executable: PathBuf::new(),
            folder: PathBuf::new(),
            is_integration,
        };
        let mut programs = [
            program("a", "a", false),
            program("a", "b", true),
            program("ottla-log", "ottla_log", false),
            program("simulation", "seeds", true),
        ];
        programs.sort_by_key(TestProgram::place);
        let order: Vec<&str> = programs.iter().map(|it| it.target.as_str()).collect();
        assert_eq!(order, ["seeds", "ottla_log", "b", "a"]);
    }

    #[test]
    fn an_invalid_json_message_is_an_error() {
        assert!(test_programs("Compiling a").is_err());
    }
}
