//! `cargo xtask console-page`: works with the page of the console in headless Chromium, as the
//! transcripts `crates/ottla-console/page/tests/*.steps` say.
//!
//! A transcript is a text file of steps, one per line: pages to open, clicks, input, and the
//! expected contents of the page ([`steps::Step`]). It begins with the server that it needs: the
//! mock in `page/mock`, or brokers with a console, which are Ottla's and then Apache Kafka's. After
//! every transcript the page must have logged no error and violated no content security policy.
//! Screenshots are kept below the target directory.

pub mod page;
pub mod servers;
pub mod steps;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use ottla_workspace::report::Tally;
use ottla_workspace::{process, toolchain, workspace};

use page::Page;
use servers::{Kind, PAGE, Server};
use steps::{Needs, Step, Transcript};

/// Plays that run in parallel, except those that measure times. Most of its time, a play waits: for the
/// start of its server and its browser, and for the page, which asks its server every few seconds.
const AT_ONCE: usize = 2;

#[derive(clap::Args)]
pub struct Options {
    /// Only transcripts whose names contain one of these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only what is played against this broker. Transcripts without a broker belong to Ottla's.
    #[arg(long)]
    broker: Option<Kind>,
    /// Only transcripts that measure times, for which the machine must do nothing else, or only the
    /// others.
    #[arg(long)]
    measuring: Option<bool>,
}

/// A transcript, and the broker that it is played against.
struct Play {
    name: String,
    transcript: Transcript,
    kind: Kind,
}

pub fn run(options: &Options) -> Result<()> {
    toolchain::require(&toolchain::CHROMIUM)?;
    toolchain::require(&toolchain::NODE)?;
    let root = workspace::root().join(PAGE);
    if !root.join("node_modules/axe-core").exists() {
        toolchain::require(&toolchain::NPM)?;
        process::output_of(Command::new("npm").arg("ci").current_dir(&root))?;
    }
    let axe = std::fs::read_to_string(root.join("node_modules/axe-core/axe.min.js"))?;
    let shots = workspace::target_dir().join("console");
    std::fs::create_dir_all(&shots)?;
    let mut plays = Vec::new();
    for file in transcripts(&root.join("tests"), &options.names)? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&file)?;
        let transcript = steps::parse(&text).with_context(|| file.display().to_string())?;
        let measuring = transcript.measures();
        if options.measuring.is_some_and(|it| it != measuring) {
            continue;
        }
        for kind in kinds(&transcript.server) {
            if options.broker.is_none_or(|it| it == *kind) {
                plays.push(Play {
                    name: match kind {
                        Kind::Ottla => name.to_string(),
                        Kind::Kafka => format!("{name}-kafka"),
                    },
                    transcript: transcript.clone(),
                    kind: *kind,
                });
            }
        }
    }
    ensure!(!plays.is_empty(), "no transcript is left by the options");
    let (measuring, others): (Vec<Play>, Vec<Play>) = plays
        .into_iter()
        .partition(|play| play.transcript.measures());
    let mut tally = play_all(&others, AT_ONCE, &axe, &shots);
    tally.add(play_all(&measuring, 1, &axe, &shots));
    println!("{tally}");
    ensure!(tally.failed == 0, "the page of the console has failed");
    Ok(())
}

/// Plays in order, `at_once` in parallel.
fn play_all(plays: &[Play], at_once: usize, axe: &str, shots: &Path) -> Tally {
    let next = Mutex::new(plays.iter());
    let work = || {
        let mut tally = Tally::default();
        loop {
            let Some(play) = next.lock().expect("no holder panics").next() else {
                return tally;
            };
            let server = Server::start(&play.transcript.server, play.kind);
            let outcome = server.and_then(|server| perform(play, server, axe, shots));
            match &outcome {
                Ok(()) => println!("ok   {}: {} steps", play.name, play.transcript.steps.len()),
                Err(error) => println!("FAIL {}: {error:#}", play.name),
            }
            tally.add(Tally::of(outcome.is_ok()));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut total = Tally::default();
        for worker in workers {
            total.add(worker.join().expect("no worker panics"));
        }
        total
    })
}

/// The brokers that a transcript is played against.
fn kinds(needs: &Needs) -> &'static [Kind] {
    match needs {
        Needs::Brokers(_) => &[Kind::Ottla, Kind::Kafka],
        Needs::Mock(_) => &[Kind::Ottla],
    }
}

fn transcripts(folder: &Path, names: &[String]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_chosen = names.is_empty() || names.iter().any(|part| name.contains(part));
        if path.extension().is_some_and(|it| it == "steps") && is_chosen {
            files.push(path);
        }
    }
    files.sort();
    ensure!(
        !files.is_empty(),
        "no transcript in {} matches",
        folder.display()
    );
    Ok(files)
}

/// Runs the steps of one transcript, with its own server and browser.
fn perform(play: &Play, mut server: Server, axe: &str, shots: &Path) -> Result<()> {
    let mut page = Page::open(axe)?;
    for (index, (number, step)) in play.transcript.steps.iter().enumerate() {
        let done = match step {
            Step::Open(address) => page.go(&format!("{}{address}", server.url())),
            Step::Reload => page.reload(),
            Step::See(text) => page.see(text),
            Step::Wait(seconds, text) => page.see_within(Duration::from_secs(*seconds), text),
            Step::SeeNot(text) => page.see_not(text),
            Step::Click(target) => page.click(target),
            Step::Type(field, text) => page.fill(field, text),
            Step::Choose(field, option) => page.choose(field, option),
            Step::Press(keys) => page.press(keys),
            Step::Address(address) => page.address_is(address),
            Step::Size(width, height) => page.resize(*width, *height),
            Step::Dark(is_dark) => page.set_dark(*is_dark),
            Step::Accessible => page.check_accessibility(),
            Step::Fits => page.check_width(),
            Step::Smooth => page.check_scrolling(),
            Step::Within(milliseconds, target, text) => page.within(*milliseconds, target, text),
            Step::Shot(shot) => page.shoot(&shots.join(format!("{}-{shot}.png", play.name))),
            Step::Holds(expression) => page.holds(expression),
            Step::Tool(arguments) if play.transcript.is_repeated(index) => server.repeat(arguments),
            Step::Tool(arguments) => server.tool(arguments),
            Step::Printed(text) => server.has_printed(text),
            Step::Until(text) => server.repeat_until(text, true),
            Step::UntilNot(text) => server.repeat_until(text, false),
            Step::HangingTransaction(topic, partition) => server.leave_hanging(topic, *partition),
            Step::Start(arguments) => server.start_tool(arguments),
        };
        done.with_context(|| format!("line {number}{}", server.state()))?;
    }
    page.check_log()
}
