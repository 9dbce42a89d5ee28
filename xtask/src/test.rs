//! `cargo xtask test`: runs every test, with one line per suite and a final line `N passed, N
//! failed`.
//!
//! A suite runs as a child process whose output is kept below the target directory. When it fails,
//! its failure lines are printed immediately and again at the end, with the complete output in
//! between, so that both the start and the end of a long log show the reason. A suite that cannot
//! run counts as failed; none is skipped. All programs that the suites start are built at once.
//!
//! These programs come first, beside quick suites. Then two lanes run in parallel, because suites
//! that start brokers mostly wait for them. Suites that may run in either lane go to the one that
//! finishes first, longest first. While the processors have time to spare, more suites run in
//! parallel. When the test programs are built, the suites that call cargo run beside them, one after
//! the other, because cargo runs one build at a time: at last clippy, which waits for nothing, and
//! takes the time in which others wait, with a low priority. No other suite calls cargo if these run.
//! Suites that measure time run alone at the end. Then a profile of the run is printed.

mod changed;
pub mod lints;
mod processors;
mod profile;
pub mod programs;
mod unfinished;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::programs::{BENCH_PEER, CONFORMANCE, PACKAGING, Program};
use ottla_workspace::process::{OwnedChild, forbid_core_dumps};
use ottla_workspace::report::Tally;
use ottla_workspace::test_programs;
use ottla_workspace::workspace::{self, SUITE_FEATURES};
use profile::{Measured, shown};

/// Far longer than a suite takes on two cores; a suite that exceeds it is killed and counts as
/// failed.
const PATIENCE: Duration = Duration::from_secs(45 * 60);

/// Additional suites that run at once while the processors have time to spare.
const MORE_AT_ONCE: usize = 4;
/// They start when at least this share of the processors' time was spare for this long.
const SPARE_SHARE: f64 = 0.35;
const SPARE_WINDOW: Duration = Duration::from_secs(3);

/// The niceness of a suite that must not slow down the suites beside it.
/// With a lower one, `clippy` would still run when the last of them has ended.
const LOW_PRIORITY: &str = "7";

/// Limits of the failure summary: lines per failure, and failures per suite.
const LINES_OF_A_COMPLAINT: usize = 12;
const COMPLAINTS: usize = 12;

/// Features of all test builds: the planted bugs that the simulation must find, all test programs,
/// and the stores that releases leave out, with their tests. The same for every build, so that
/// nothing is built twice.
/// Suites that call cargo themselves receive them in the environment
/// (`ottla_workspace::workspace::selection`).
const FEATURES: &str = "ottla-simulation/planted-bugs,ottla-testkit/client-histories,ottla-protocol/samples,\
     ottla-tiered-storage/real-stores";

/// The programs that the suites start, besides the test programs. `--test server` makes cargo unify
/// features with those of development dependencies, as the build of the test programs does.
const PROGRAMS: [&str; 18] = [
    "--bin",
    "ottla",
    "--bin",
    "ottla-conformance",
    "--bin",
    "ottla-bench-peer",
    "--bin",
    "ottla-packaging",
    "--bin",
    "client_histories",
    "--example",
    "golden",
    "--example",
    "clean",
    "--test",
    "server",
    "--locked",
    "--workspace",
];

#[derive(clap::Args)]
pub struct Options {
    /// Only these suites, by name.
    #[arg(value_name = "SUITE")]
    suites: Vec<String>,
    /// The suites that most changes need, in a few minutes: tidy, rustfmt, and the tests that start
    /// no process.
    #[arg(long, conflicts_with_all = ["suites", "changed"])]
    quick: bool,
    /// Only the suites that the changes since this commit can affect, uncommitted files included.
    #[arg(long, value_name = "COMMIT", num_args = 0..=1, default_missing_value = "HEAD", conflicts_with = "suites")]
    changed: Option<String>,
}

/// The lane in which a suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Before all other suites.
    First,
    /// Beside `First`: takes seconds and builds nothing.
    Quick,
    /// Builds the test programs.
    Build,
    /// Runs them, after `Build`.
    Tests,
    /// Calls cargo, after `Build` and beside `Tests`.
    Cargo,
    /// Starts brokers and mostly waits for them.
    Brokers,
    /// Whichever lane finishes first.
    Either,
    /// After all other suites, sequentially: measures time.
    Last,
}

#[derive(Clone, Copy)]
struct Suite {
    lane: Lane,
    name: &'static str,
    what: &'static str,
    /// Packages, folders and files whose change can affect the suite's result. If empty, every change
    /// may.
    reached_by: &'static [&'static str],
    command: fn() -> Command,
}

const fn suite(
    lane: Lane,
    name: &'static str,
    what: &'static str,
    reached_by: &'static [&'static str],
    command: fn() -> Command,
) -> Suite {
    Suite {
        lane,
        name,
        what,
        reached_by,
        command,
    }
}

/// The results of suites.
#[derive(Default)]
struct Outcome {
    tally: Tally,
    failures: Vec<Failure>,
    measured: Vec<Measured>,
}

struct Failure {
    suite: &'static str,
    /// How its process ended.
    why: String,
    /// Its complete output.
    printed: String,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.tally.add(other.tally);
        self.failures.extend(other.failures);
        self.measured.extend(other.measured);
    }
}

impl Failure {
    /// Its verdict and failure messages.
    fn summary(&self) -> String {
        let mut text = format!("---- {}: {}\n", self.suite, self.why);
        for line in complaints(&self.printed) {
            text.push_str(&format!("     {line}\n"));
        }
        text
    }
}

use Lane::{Brokers, Build, Cargo, Either, First, Last, Quick, Tests};

const ALWAYS: &[&str] = &[];
/// Affected by the comparing commands' scripts and by the peers.
const BROKER: &[&str] = &[
    "ottla",
    "ottla-conformance",
    "conformance",
    "peers",
    "COMPATIBILITY.md",
];
const CODEGEN: &[&str] = &[
    "ottla-protocol",
    "ottla-conformance",
    "conformance/java",
    "peers",
];
const RECORDS: &[&str] = &[
    "ottla-records",
    "ottla-conformance",
    "conformance/java",
    "peers",
];
const REPORT: &[&str] = &["ottla", "ottla-conformance"];
const CONSOLE: &[&str] = &["ottla-console"];
const CONSOLE_PAGE: &[&str] = &["ottla", "ottla-conformance", "peers"];
const CONSOLE_API: &[&str] = &["ottla", "ottla-conformance", "conformance/java", "peers"];
const CLEANING: &[&str] = &["ottla-log", "ottla-bench-peer", "conformance/java", "peers"];
const TIERED: &[&str] = &["ottla", "ottla-conformance", "conformance/java", "peers"];
/// The pages at the root are packaged.
const PACKAGES: &[&str] = &[
    "ottla",
    "ottla-packaging",
    "docs",
    "README.md",
    "COMPATIBILITY.md",
    "CHANGELOG.md",
    "LICENSE",
    "NOTICE",
];
const MEASURES: &[&str] = &["ottla", "ottla-testkit"];
/// The suites of `--quick`, besides unit tests.
const QUICK: [&str; 2] = ["tidy", "fmt"];

#[rustfmt::skip]
const SUITES: &[Suite] = &[
    suite(First, "toolchains", "the programs that the suites need are there", ALWAYS, || xtask(&["toolchains"])),
    suite(Quick, "tidy", "names, lengths, dependencies, licence", ALWAYS, || xtask(&["tidy"])),
    suite(Quick, "fmt", "rustfmt agrees", ALWAYS, || cargo(&["fmt", "--all", "--check"])),
    // A debug build of the same features as the unit tests, so that those reuse its artefacts. The
    // suites check behaviour, not speed; `bench-peer` has its own build.
    suite(First, "binary", "the programs that the other suites start, the broker first of all", ALWAYS, build_of_programs),
    suite(Build, "test-build", "the test programs are built", ALWAYS, || xtask(&["test-programs", "--build"])),
    suite(Tests, "unit", "tests beside the code, and of the broker's process", ALWAYS, || xtask(&["test-programs"])),
    suite(Cargo, "documentation", "the examples in the documentation", ALWAYS, || cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--locked", "--features", FEATURES])),
    suite(Cargo, "clippy", "no warnings", ALWAYS, clippy),
    suite(Brokers, "conformance", "scripts of every kind of client against Ottla and Apache Kafka", BROKER, || conformance(&["conformance"])),
    // Longest first, so that no long one runs alone at the end. `tiered` and `client` need the programs
    // of `test-build`, so they are later than their length says.
    suite(Either, "take-over", "one directory in the hands of Kafka and Ottla in turn", BROKER, || conformance(&["take-over"])),
    suite(Either, "console-page", "the console page in a browser: changes, keys, hostile contents", CONSOLE_PAGE, || conformance(&["console-page", "--measuring", "false"])),
    suite(Either, "console-api", "the console's API against Ottla and Apache Kafka", CONSOLE_API, || conformance(&["console-api"])),
    suite(Either, "take-over-secured", "a directory whose clients log in over TLS, with ACLs, quotas and tokens", BROKER, || conformance(&["take-over", "--changes", "2", "--secured"])),
    suite(Either, "secured", "clients and tools on listeners with TLS and logins, with ACLs and quotas", BROKER, || conformance(&["conformance", "--secured"])),
    suite(Either, "rolling-take-over", "three brokers of Kafka's handed over one by one, and back", BROKER, || conformance(&["mixed-cluster", "--brokers", "kafka,kafka,kafka", "--rolling", "ottla"])),
    suite(Either, "take-over-4.0", "a directory of Kafka 4.0", BROKER, || conformance(&["take-over", "--changes", "2", "--from", "kafka40"])),
    // A short selection against Kafka 4.4; docs/testing.md has the other suites.
    suite(Either, "conformance-4.4", "the Java client of 4.4, librdkafka and all dynamic settings, against Kafka 4.4", BROKER, || conformance(&["conformance", "--reference", "kafka44", "--client", "java", "--client", "confluent", "--client", "settings"])),
    suite(Either, "raised-quorum", "kraft.version is raised with voters of both makers", BROKER, || conformance(&["raised-quorum", "--quorums", "ottla+kafka+kafka"])),
    suite(Either, "take-over-4.4", "a directory of Kafka 4.4", BROKER, || conformance(&["take-over", "--changes", "2", "--from", "kafka44"])),
    suite(Either, "tiered", "Kafka's remote segments are shown, checked and found damaged; stores with real servers", TIERED, || conformance(&["tiered"])),
    suite(Either, "mixed-tiered", "brokers of both kinds are killed while they share a store of segments", TIERED, || conformance(&["mixed-tiered", "--kills", "2"])),
    suite(Either, "take-over-static", "the same with static voters", BROKER, || conformance(&["take-over", "--changes", "2", "--static-voters"])),
    suite(Either, "kerberos", "logins with Kerberos of both clients at both brokers, with a KDC", BROKER, || conformance(&["kerberos"])),
    suite(Either, "report", "the report of ottla bench in a browser, light, dark and narrow", REPORT, || conformance(&["report"])),
    suite(Either, "take-over-3.9", "a directory of Kafka 3.9", BROKER, || conformance(&["take-over", "--changes", "2", "--from", "kafka39"])),
    suite(Either, "under-controllers", "a broker under Kafka's controller, through stops, kills and settings", BROKER, || conformance(&["under-controllers"])),
    suite(Either, "client", "the native client against Apache Kafka and Ottla", BROKER, || conformance(&["client"])),
    suite(Either, "mixed-cluster", "two brokers of Ottla's and one of Kafka's, stopped and killed in turn", BROKER, || conformance(&["mixed-cluster", "--troubles", "3", "--kinds", "stopped,killed"])),
    suite(Either, "cluster-admin", "Kafka's tools and ours elect leaders, uncleanly too, and print the same", BROKER, || conformance(&["cluster-admin", "--controllers", "ottla", "--only", "elections"])),
    suite(Either, "mixed-cluster-4.4", "brokers of Ottla's and of Kafka 4.4, under its controller", BROKER, || conformance(&["mixed-cluster", "--reference", "kafka44", "--troubles", "2", "--kinds", "stopped,killed"])),
    suite(Either, "exactly-once", "copiers of a topic, under kill -9 of the broker and of themselves", BROKER, || conformance(&["exactly-once", "--kills", "3"])),
    suite(Either, "changing-quorum", "voters of both makers are added, come to harm and are removed", BROKER, || conformance(&["changing-quorum", "--troubles", "1"])),
    suite(Either, "golden-records", "record batches against Kafka's classes", RECORDS, || conformance(&["golden-records"])),
    suite(Either, "compare-cleaning", "compaction beside Kafka's own cleaner, and served by Kafka", CLEANING, || bench_peer(&["compare-cleaning", "--logs", "2"])),
    suite(Either, "client-histories", "histories of transactional clients, under kill -9 of the broker", BROKER, || conformance(&["exactly-once", "--work", "histories", "--kills", "3"])),
    suite(Either, "golden", "messages against Kafka's classes", CODEGEN, || conformance(&["golden"])),
    suite(Either, "packages", "the packages are read back, installed, and started from", PACKAGES, || program(PACKAGING, &["check-packages"])),
    suite(Either, "console", "the committed console page is up to date", CONSOLE, || xtask(&["console", "--check"])),
    suite(Either, "codegen", "the schema files agree with Kafka's jars", CODEGEN, || conformance(&["codegen", "--check"])),
    suite(Last, "measures", "measurements of a stall, of many connecting clients, and of the start of a cluster", MEASURES, || xtask(&["test-programs", "--measuring"])),
    suite(Last, "console-times", "times of the console page in a browser: long lists, keys", CONSOLE_PAGE, || conformance(&["console-page", "--measuring", "true"])),
];

pub fn run(options: &Options) -> Result<()> {
    for name in &options.suites {
        if !SUITES.iter().any(|suite| suite.name == name) {
            let all: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
            bail!("no suite is called `{name}`; there are {}", all.join(", "));
        }
    }
    forbid_core_dumps()?;
    let began = Instant::now();
    test_programs::forget()?;
    let chosen = choose(options)?;
    let suites_of = |lane: Lane| chosen.iter().filter(move |suite| suite.lane == lane);
    let lane = &|lane: Lane| run_all(suites_of(lane));
    let (first, quick) = std::thread::scope(|scope| {
        let quick = scope.spawn(move || lane(Lane::Quick));
        (lane(Lane::First), quick.join())
    });
    let mut total = first?;
    total.add(joined(quick)?);
    let starts_programs = chosen.iter().any(|suite| {
        let program = (suite.command)();
        let all = [CONFORMANCE, BENCH_PEER, PACKAGING];
        all.iter().any(|it| program.get_program() == it.path())
    });
    if starts_programs {
        // Nothing to do if the suite `binary` has run.
        let status = build_of_programs().arg("--quiet").status();
        let status = status.context("cannot start cargo")?;
        ensure!(status.success(), "the programs of the suites do not build");
    }
    let either = &Queue::new(suites_of(Lane::Either));
    let rest = || run_all(std::iter::from_fn(|| either.next()));
    let lanes = std::thread::scope(|scope| {
        let tests = scope.spawn(move || {
            let mut total = lane(Lane::Build)?;
            let beside = scope.spawn(move || lane(Lane::Cargo));
            total.add(lane(Lane::Tests)?);
            total.add(rest()?);
            total.add(joined(beside.join())?);
            anyhow::Ok(total)
        });
        let brokers = scope.spawn(move || {
            let mut total = lane(Lane::Brokers)?;
            total.add(rest()?);
            anyhow::Ok(total)
        });
        let more: Vec<_> = (0..MORE_AT_ONCE)
            .map(|_| scope.spawn(move || run_all(std::iter::from_fn(|| either.next_while_spare()))))
            .collect();
        let all = [tests, brokers].into_iter().chain(more);
        all.map(|lane| lane.join()).collect::<Vec<_>>()
    });
    for outcome in lanes {
        total.add(joined(outcome)?);
    }
    total.add(run_all(suites_of(Lane::Last))?);
    for failure in &total.failures {
        println!("---- all that {} printed", failure.suite);
        println!("{}", failure.printed.trim_end());
    }
    for failure in &total.failures {
        print!("{}", failure.summary());
    }
    let file = test_output()?.join("profile.md");
    profile::report(&file, &total.measured, began.elapsed())?;
    println!("in {}", shown(began.elapsed()));
    println!("{}", total.tally);
    if total.tally.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// The suites of this run. Prints the suites that the change cannot affect.
fn choose(options: &Options) -> Result<Vec<Suite>> {
    if options.quick {
        let quick = SUITES.iter().filter(|suite| QUICK.contains(&suite.name));
        let within = suite(Tests, "unit", "tests that start no process", ALWAYS, || {
            xtask(&["test-programs", "--quick"])
        });
        return Ok(quick.copied().chain([within]).collect());
    }
    if let Some(base) = &options.changed {
        let reached = changed::reached_since(base)?;
        let (chosen, left): (Vec<Suite>, Vec<Suite>) = SUITES
            .iter()
            .copied()
            .partition(|suite| reached.includes_any(suite.reached_by));
        for suite in left {
            println!(
                "left {:<16} {:>8}   no change since {base} reaches it",
                suite.name, ""
            );
        }
        return Ok(chosen);
    }
    let is_asked_for = |suite: &&Suite| {
        options.suites.is_empty() || options.suites.iter().any(|name| name == suite.name)
    };
    Ok(SUITES.iter().filter(is_asked_for).copied().collect())
}

fn run_all<'a>(suites: impl Iterator<Item = &'a Suite>) -> Result<Outcome> {
    let mut total = Outcome::default();
    for suite in suites {
        total.add(run_suite(suite)?);
    }
    Ok(total)
}

/// Suites that any lane may run, in order.
struct Queue<'a> {
    suites: Mutex<VecDeque<&'a Suite>>,
    /// Held while a lane checks whether the processors have time to spare, so that each check includes
    /// the suites that other lanes have just started.
    looking: Mutex<()>,
}

impl<'a> Queue<'a> {
    fn new(suites: impl Iterator<Item = &'a Suite>) -> Self {
        Queue {
            suites: Mutex::new(suites.collect()),
            looking: Mutex::new(()),
        }
    }

    fn suites(&self) -> MutexGuard<'_, VecDeque<&'a Suite>> {
        self.suites.lock().expect("no lane panics with it")
    }

    fn next(&self) -> Option<&'a Suite> {
        self.suites().pop_front()
    }

    /// Waits until the processors have time to spare. Returns `None` when all suites have been taken.
    fn next_while_spare(&self) -> Option<&'a Suite> {
        let _looking = self.looking.lock().expect("no lane panics with it");
        while !self.suites().is_empty() {
            // Without /proc/stat, the two lanes run all suites.
            let spare = processors::spare_share(SPARE_WINDOW).unwrap_or_default();
            if spare >= SPARE_SHARE {
                return self.next();
            }
        }
        None
    }
}

/// The result of a lane's thread.
fn joined(lane: std::thread::Result<Result<Outcome>>) -> Result<Outcome> {
    lane.map_err(|_| anyhow!("a lane of suites panicked"))?
}

fn run_suite(suite: &Suite) -> Result<Outcome> {
    let log = log_file(suite)?;
    let output = File::create(&log)?;
    let mut command = (suite.command)();
    command
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output))
        .env("OTTLA_BINARY", workspace::target_dir().join("debug/ottla"))
        .env(SUITE_FEATURES, FEATURES)
        .env("CARGO_TERM_COLOR", "never");
    let began = Instant::now();
    // Cargo starts child processes, so it gets a SIGTERM before it is killed.
    let mut processor = Duration::ZERO;
    let status = match OwnedChild::start(&mut command) {
        Ok(mut child) => match child.wait_measured(PATIENCE)? {
            Some(ended) => {
                processor = ended.processor_time;
                Ok(ended.status)
            }
            None => Err(match child.stop(Duration::from_secs(10)) {
                Ok(_) | Err(_) => format!("it was ended after {}", shown(PATIENCE)),
            }),
        },
        Err(error) => Err(format!("{error:#}")),
    };
    let took = began.elapsed();
    let printed = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let is_ok = status.as_ref().is_ok_and(|status| status.success());
    let tally = judged(is_ok, counted(&printed));
    let verdict = if tally.failed == 0 { "ok  " } else { "FAIL" };
    let mut text = format!(
        "{verdict} {:<16} {:>8}   {tally:<26} {}\n",
        suite.name,
        shown(took),
        suite.what
    );
    let mut failures = Vec::new();
    if tally.failed > 0 {
        let why = match status {
            Ok(status) => format!("ended with {status}"),
            Err(why) => why,
        };
        let failure = Failure {
            suite: suite.name,
            why,
            printed: printed.clone(),
        };
        text.push_str(&failure.summary());
        failures.push(failure);
    }
    for line in passages(&printed, is_remark) {
        let _ = writeln!(text, "     {line}");
    }
    // In one write, because another lane prints too.
    print!("{text}");
    let measured = Measured {
        suite: suite.name,
        wall: took,
        processor,
    };
    Ok(Outcome {
        tally,
        failures,
        measured: vec![measured],
    })
}

/// Whether a line is printed for passed and failed suites.
fn is_remark(line: &str) -> bool {
    line.starts_with("once ")
}

fn is_complaint(line: &str) -> bool {
    let marks = ["FAIL", "error", "Error"];
    marks.iter().any(|mark| line.starts_with(mark))
        || line.contains("panicked at")
        || (line.starts_with("test ") && line.ends_with("FAILED"))
}

/// The passages of the output: each starts with a matching line and ends before an empty line or a
/// line with another verdict.
fn passages(printed: &str, begins: fn(&str) -> bool) -> Vec<&str> {
    let is_of_another = |line: &str| {
        let marks = ["ok ", "test ", "note: "];
        let is_verdict = marks.iter().any(|mark| line.starts_with(mark));
        line.trim().is_empty() || is_verdict || is_complaint(line) || is_remark(line)
    };
    let lines: Vec<&str> = printed.lines().collect();
    (0..lines.len())
        .filter(|&at| begins(lines[at]))
        .take(COMPLAINTS)
        .flat_map(|at| {
            let rest = lines[at + 1..].iter();
            let belonging = rest.take_while(|line| !is_of_another(line));
            std::iter::once(&lines[at]).chain(belonging.take(LINES_OF_A_COMPLAINT - 1))
        })
        .copied()
        .collect()
}

/// The lines that report failures; if there are none, the last lines.
fn complaints(printed: &str) -> Vec<&str> {
    let found = passages(printed, is_complaint);
    if !found.is_empty() {
        return found;
    }
    let lines: Vec<&str> = printed.lines().collect();
    lines[lines.len().saturating_sub(LINES_OF_A_COMPLAINT)..].to_vec()
}

/// A suite that ends with an error has at least one failure, even if it counted none. A suite
/// without a count counts as one check.
fn judged(is_ok: bool, counted: Option<Tally>) -> Tally {
    let mut tally = counted.unwrap_or(Tally::of(is_ok));
    if !is_ok && tally.failed == 0 {
        tally.failed = 1;
    }
    if is_ok && tally == Tally::default() {
        // A runner that ran no test has shown nothing.
        tally.failed = 1;
    }
    tally
}

/// The sum of the suite's own counts: lines of cargo's form, or a last line of the suite's.
fn counted(printed: &str) -> Option<Tally> {
    let mut total: Option<Tally> = None;
    for line in printed.lines() {
        let found = match line.strip_prefix("test result: ") {
            Some(result) => {
                let (_, counts) = result.split_once(". ").unwrap_or_default();
                tally_in(counts, ';')
            }
            None => tally_in(line, ','),
        };
        if let Some(found) = found {
            total.get_or_insert_default().add(found);
        }
    }
    total
}

/// Parses `3 passed, 0 failed`, followed by anything.
fn tally_in(text: &str, separator: char) -> Option<Tally> {
    let mut parts = text.split(separator).map(str::trim);
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some(Tally { passed, failed })
}

fn xtask(arguments: &[&str]) -> Command {
    // Read once, because a build may replace the file, and the system would then add `(deleted)`.
    static OWN_FILE: LazyLock<PathBuf> =
        LazyLock::new(|| std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
    let mut command = Command::new(&*OWN_FILE);
    command.args(arguments).current_dir(workspace::root());
    command
}

fn conformance(arguments: &[&str]) -> Command {
    program(CONFORMANCE, arguments)
}

fn bench_peer(arguments: &[&str]) -> Command {
    program(BENCH_PEER, arguments)
}

fn program(program: Program, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.path());
    command.args(arguments);
    command
}

/// Builds all programs that suites start in one build: separate builds would wait for each other's
/// lock, and compile shared dependencies again with other features.
fn build_of_programs() -> Command {
    let mut build = cargo(&["build", "--features", FEATURES]);
    build.args(PROGRAMS);
    build
}

fn clippy() -> Command {
    if lints::are_in_builds() {
        return with_low_priority(&xtask(&["lints"]));
    }
    let clippy = cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--features",
        FEATURES,
        "--",
        "--deny",
        "warnings",
    ]);
    with_low_priority(&clippy)
}

/// The same command, with a priority that leaves the processors to the suites beside it.
fn with_low_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", LOW_PRIORITY])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments);
    command
}

fn log_file(suite: &Suite) -> Result<PathBuf> {
    Ok(test_output()?.join(format!("{}.log", suite.name)))
}

/// The folder of the suites' outputs and of the profile.
fn test_output() -> Result<PathBuf> {
    let folder = workspace::target_dir().join("test-output");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_several_runners_are_summed() {
        let printed = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                       x\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(
            counted(printed),
            Some(Tally {
                passed: 5,
                failed: 1
            })
        );
        assert_eq!(
            counted("ok\n7 passed, 2 failed\n"),
            Some(Tally {
                passed: 7,
                failed: 2
            })
        );
        assert_eq!(counted("nothing of the kind, it passed"), None);
    }

    #[test]
    fn errors_and_empty_runs_count_as_failures() {
        let fine = Some(Tally {
            passed: 4,
            failed: 0,
        });
        assert_eq!(judged(true, fine).failed, 0);
        assert_eq!(judged(false, fine).failed, 1);
        assert_eq!(judged(true, Some(Tally::default())).failed, 1);
        assert_eq!(
            judged(true, None),
            Tally {
                passed: 1,
                failed: 0
            }
        );
        assert_eq!(
            judged(false, None),
            Tally {
                passed: 0,
                failed: 1
            }
        );
    }

    #[test]
    fn only_failures_and_their_details_are_shown() {
        let printed = "ok   kafkajs: 59 steps alike\nFAIL java: 1 unknown\n    - 3\n    + 4\nok   settings: 2 alike\n\
                       test a ... ok\ntest b ... FAILED\n\nthread 'b' panicked at src/b.rs:1:\nleft: 1\n\
                       note: run with a backtrace\n7 passed, 2 failed\n";
        let expected = [
            "FAIL java: 1 unknown",
            "    - 3",
            "    + 4",
            "test b ... FAILED",
            "thread 'b' panicked at src/b.rs:1:",
            "left: 1",
        ];
        assert_eq!(complaints(printed), expected);
        assert_eq!(complaints("begins\nhangs\n"), ["begins", "hangs"]);
        let printed = "?    franz: 1 unknown\nonce franz: a:\n    - 3\nok   java: 2 alike\n";
        assert_eq!(passages(printed, is_remark), ["once franz: a:", "    - 3"]);
    }

    #[test]
    fn everything_that_reaches_a_suite_exists() {
        let root = workspace::root();
        for name in SUITES.iter().flat_map(|suite| suite.reached_by) {
            let short = name.strip_prefix("ottla-").unwrap_or(name);
            let places = [
                (*name).to_owned(),
                format!("crates/{name}"),
                format!("verification/{short}"),
                short.to_owned(),
            ];
            let is_there = places.iter().any(|place| root.join(place).exists());
            assert!(is_there, "there is no {name}");
        }
    }

    #[test]
    fn suite_names_are_unique() {
        for (index, suite) in SUITES.iter().enumerate() {
            assert!(
                SUITES[index + 1..]
                    .iter()
                    .all(|other| other.name != suite.name)
            );
        }
    }
}
