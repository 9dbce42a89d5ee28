//! The suite `unit`: runs the test programs of the workspace, several in parallel.
//!
//! `cargo test` runs one program at a time, and most programs that start brokers wait while a core
//! is idle. The output of each program is printed as a whole when it exits, so that a failure is
//! next to its explanation.

use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use ottla_workspace::process::{OwnedChild, forbid_core_dumps};
use ottla_workspace::test_programs::{self, TestProgram};
use ottla_workspace::workspace;

use super::{FEATURES, PATIENCE, shown};

/// Programs that run in parallel. Each has as many threads as there are cores, and most of them
/// wait.
const AT_ONCE: usize = 3;

/// Package and name of the programs that measure time. They run alone, as the suite `measures`.
const MEASURING: [(&str, &str); 4] = [
    ("ottla", "measured_cluster_start"),
    ("ottla", "measured_connections"),
    ("ottla", "measured_one_processor"),
    ("ottla", "measured_stalls"),
];

/// The programs that take longest, in order.
const LONGEST: [(&str, &str); 8] = [
    ("simulation", "seeds"),
    ("ottla-broker", "ottla_broker"),
    ("ottla-log", "ottla_log"),
    ("ottla", "bench_runs"),
    ("ottla", "tls"),
    ("ottla", "local_cluster"),
    ("ottla", "disks"),
    ("ottla", "rebalance"),
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
    /// Only build the programs, and list them for the suites of `cargo xtask test`.
    #[arg(long, conflicts_with_all = ["quick", "measuring", "packages"])]
    build: bool,
    /// Only these packages.
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
}

/// Its place in the order: the longest first, so that none runs alone at the end.
fn place(program: &TestProgram) -> (usize, bool) {
    let place = LONGEST.iter().position(|long| *long == program.name());
    (place.unwrap_or(LONGEST.len()), !program.is_integration)
}

pub fn run(options: &Options) -> Result<()> {
    if options.build {
        let messages = build(options)?;
        ensure!(
            !test_programs::parse(&messages)?.is_empty(),
            "no test program is built"
        );
        return test_programs::leave(&messages);
    }
    let mut programs = match test_programs::built()? {
        Some(programs) => programs,
        None => test_programs::parse(&build(options)?)?,
    };
    programs.retain(|program| MEASURING.contains(&program.name()) == options.measuring);
    programs.sort_by_key(place);
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

/// Builds the programs and returns cargo's messages. What concerns a reader is printed.
fn build(options: &Options) -> Result<String> {
    let mut build = cargo_test(options);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    if options.quick {
        build.args(["--lib", "--bins"]);
    }
    build.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = build.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the test programs do not build");
    Ok(String::from_utf8(output.stdout)?)
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
    let mut command = program.command();
    command
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
    use std::path::PathBuf;

    use super::*;

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
        programs.sort_by_key(place);
        let order: Vec<&str> = programs.iter().map(|it| it.target.as_str()).collect();
        assert_eq!(order, ["seeds", "ottla_log", "b", "a"]);
    }
}
