//! The suite `unit`: runs the test programs of the workspace, several in parallel.
//!
//! `cargo test` runs one program at a time, and most programs that start brokers wait while a core
//! is idle. The output of each program is printed as a whole when it exits, so that a failure is
//! next to its explanation.

use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use ottla_workspace::process::{OwnedChild, forbid_core_dumps, output_of};
use ottla_workspace::test_programs::{self, TestProgram};
use ottla_workspace::workspace;

use super::unfinished::{self, SEED_JOURNAL};
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
const LONGEST: [(&str, &str); 11] = [
    ("simulation", "seeds"),
    ("ottla-broker", "ottla_broker"),
    ("ottla", "program"),
    ("ottla-log", "ottla_log"),
    ("ottla", "bench_runs"),
    ("ottla", "few_handles"),
    ("ottla", "tls"),
    ("ottla-tiered-storage", "stores"),
    ("ottla", "local_cluster"),
    ("ottla", "disks"),
    ("ottla", "rebalance"),
];

/// The tests of `ottla-protocol`, which are not in its library, and start no process either.
const WITHIN_PROTOCOL: &str = "wire";

/// Programs whose tests mostly wait: they run with twice as many threads as there are cores, unless
/// `RUST_TEST_THREADS` says otherwise.
const WAITING: [(&str, &str); 2] = [("ottla-broker", "ottla_broker"), ("ottla", "program")];
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
    for failure in &failed {
        println!("error: {}", failure.trim_end());
    }
    if !failed.is_empty() {
        std::process::exit(1);
    }
    Ok(())
}

/// Builds the programs and returns cargo's messages. What concerns a reader is printed.
fn build(options: &Options) -> Result<String> {
    let mut build = build_command(options)?;
    build.args(["--locked", "--message-format=json-render-diagnostics"]);
    build.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = build.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the test programs do not build");
    Ok(String::from_utf8(output.stdout)?)
}

fn build_command(options: &Options) -> Result<Command> {
    let mut build = workspace::cargo();
    let is_whole = options.packages.is_empty();
    if is_whole && !options.quick {
        // `cargo test` would build all examples, of which the tests start few, or those that are
        // named as tests.
        build.args(["build", "--tests"]);
        for name in test_programs::examples()? {
            build.arg("--example").arg(name);
        }
    } else {
        build.args(["test", "--no-run"]);
    }
    if options.quick {
        build.args(["--lib", "--bins"]);
    }
    if options.quick && is_whole {
        build.args(["--test", WITHIN_PROTOCOL]);
    }
    if is_whole {
        build.args(["--workspace", "--features", FEATURES]);
    }
    for name in &options.packages {
        build.args(["--package", name]);
    }
    Ok(build)
}

/// Runs the programs in order, `at_once` in parallel, and returns how those ended that failed.
fn run_all(programs: &[TestProgram], at_once: usize) -> Result<Vec<String>> {
    let next = Mutex::new(programs.iter());
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let Some(program) = next.lock().expect("no holder panics").next() else {
                return Ok(());
            };
            if let Some(failure) = run_one(program)? {
                failed.lock().expect("no holder panics").push(failure);
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

/// Runs a program and prints its output. If it fails, returns how it ended.
fn run_one(program: &TestProgram) -> Result<Option<String>> {
    let name = format!("{} {}", program.package, program.target);
    run_command(&name, test_threads(program)?, &|| program.command())
}

/// Runs a command that runs tests, `threads` at once, and prints its output. If it fails, returns
/// its name, how it ended, and what it was doing if it did not end by itself.
fn run_command(
    name: &str,
    threads: usize,
    command: &dyn Fn() -> Command,
) -> Result<Option<String>> {
    let began = Instant::now();
    let mut output = tempfile::tempfile()?;
    let journal = tempfile::NamedTempFile::new()?;
    let mut tests = command();
    tests
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .env(TEST_THREADS, threads.to_string())
        .env(SEED_JOURNAL, journal.path());
    let mut child = OwnedChild::start(&mut tests)?;
    let ended = child.wait_measured(PATIENCE)?;
    // Kills it if it takes too long.
    drop(child);
    let took = shown(began.elapsed());
    let used = match &ended {
        Some(ended) => format!("CPU {}", shown(ended.processor_time)),
        None => "ended because it took too long".to_owned(),
    };
    let mut printed = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut printed)?;
    let printed = String::from_utf8_lossy(&printed);
    // In one write, because other programs print too.
    print!("\n     Running {name} ({took}, {used})\n{printed}");
    let (ending, is_over) = match ended {
        Some(ended) if ended.status.success() => return Ok(None),
        Some(ended) => (ending(ended.status), ended.status.code() == Some(FAILED)),
        None => (format!("did not end within {}", shown(PATIENCE)), false),
    };
    let mut failure = format!("{name} {ending}\n");
    if !is_over {
        // Tests may have done anything to it, which must not end the suite.
        let journal = std::fs::read(journal.path()).unwrap_or_default();
        let journal = String::from_utf8_lossy(&journal);
        let listed = match unfinished::has_harness(&printed) {
            true => output_of(command().arg("--list")).unwrap_or_default(),
            false => String::new(),
        };
        failure.push_str(&unfinished::description(
            &listed, &printed, &journal, threads,
        ));
    }
    Ok(Some(failure))
}

/// How many tests of the program run at once.
fn test_threads(program: &TestProgram) -> Result<usize> {
    if let Some(threads) = std::env::var_os(TEST_THREADS) {
        let threads = threads
            .to_str()
            .and_then(|threads| threads.parse::<usize>().ok());
        return threads.with_context(|| format!("{TEST_THREADS} is not a number"));
    }
    let cores = std::thread::available_parallelism()?.get();
    Ok(match WAITING.contains(&program.name()) {
        true => 2 * cores,
        false => cores,
    })
}

/// The exit code of libtest after a test that failed.
const FAILED: i32 = 101;

/// How a program ended that did not succeed.
fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(_), _) => format!("died: {status}"),
        (None, Some(FAILED)) => "failed".to_owned(),
        (None, _) => format!("ended before its tests: {status}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_program_that_died_is_reported_with_its_signal_tests_and_seeds() {
        const SCRIPT: &str = r#"
            if [ "$1" = --list ]; then
                printf 'a::one: test\na::two: test\na::three: test\n'
                exit
            fi
            echo 'running 3 tests'
            echo 'test a::one ... ok'
            echo 'begin ThreadId(2) 17 a::two' >> "$OTTLA_SEED_JOURNAL"
            echo 'a stack overflow' >&2
            kill -KILL $$
        "#;
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT, "sh"]);
            command
        };
        let failure = run_command("sh tests", 1, &command).unwrap();
        let expected = "sh tests died: signal: 9 (SIGKILL)\n    running: a::two\n    \
                        simulated: seed 17 in a::two\n    printed: running 3 tests\n    \
                        printed: a stack overflow\n";
        assert_eq!(failure.as_deref(), Some(expected));
    }

    #[test]
    fn only_a_program_that_failed_without_dying_is_reported_in_one_line() {
        let command = |code: &'static str| {
            move || {
                let mut command = Command::new("sh");
                command.args(["-c", code]);
                command
            }
        };
        let reported = |code| run_command("sh", 1, &command(code)).unwrap();
        assert_eq!(reported("exit 0"), None);
        assert_eq!(reported("exit 101").as_deref(), Some("sh failed\n"));
        let exited = reported("echo gone; exit 3").expect("it failed");
        assert!(
            exited.contains("exit status: 3\n    printed: gone\n"),
            "{exited}"
        );
        let without_journal = reported("rm \"$OTTLA_SEED_JOURNAL\"; exit 3").expect("it failed");
        assert!(
            without_journal.contains("exit status: 3\n"),
            "{without_journal}"
        );
    }

    #[test]
    fn the_named_programs_exist() {
        let protocol = [("ottla-protocol", WITHIN_PROTOCOL)];
        let named = MEASURING.iter().chain(&LONGEST).chain(&WAITING);
        for (package, target) in named.chain(&protocol) {
            let folders =
                ["crates", "verification"].map(|it| workspace::root().join(it).join(package));
            let folder = folders.iter().find(|it| it.exists()).expect(package);
            let program = folder.join("tests").join(target);
            let is_there = *target == package.replace('-', "_")
                || program.join("main.rs").exists()
                || program.with_extension("rs").exists();
            assert!(is_there, "{package} {target}");
        }
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
        programs.sort_by_key(place);
        let order: Vec<&str> = programs.iter().map(|it| it.target.as_str()).collect();
        assert_eq!(order, ["seeds", "ottla_log", "b", "a"]);
    }
}
