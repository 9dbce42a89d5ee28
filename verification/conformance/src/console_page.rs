//! `cargo xtask console-page`: works with the page of the console in headless Chromium, as the
//! transcripts `crates/ottla-console/page/tests/*.steps` say.
//!
//! A transcript is a text file of steps, one per line: pages to open, clicks, input, and the
//! expected contents of the page ([`steps::Step`]). It begins with the server that it needs: the
//! mock in `page/mock`, or a broker of Ottla's with its console. After every transcript the page
//! must have logged no error and violated no content security policy. Screenshots are kept below
//! the target directory.

pub mod page;
pub mod servers;
pub mod steps;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use ottla_workspace::report::Tally;
use ottla_workspace::{process, toolchain, workspace};

use page::Page;
use servers::{Kind, PAGE, Server};
use steps::{Needs, Step, Transcript};

#[derive(clap::Args)]
pub struct Options {
    /// Only transcripts whose names contain one of these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Play the transcripts that need a broker against Apache Kafka as well.
    #[arg(long)]
    kafka: bool,
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
    let mut tally = Tally::default();
    for file in transcripts(&root.join("tests"), &options.names)? {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = std::fs::read_to_string(&file)?;
        let transcript = steps::parse(&text).with_context(|| file.display().to_string())?;
        let is_broker_needed = matches!(transcript.server, Needs::Broker(_));
        let kinds: &[Kind] = if is_broker_needed && options.kafka {
            &[Kind::Ottla, Kind::Kafka]
        } else {
            &[Kind::Ottla]
        };
        for kind in kinds {
            let name = match kind {
                Kind::Ottla => name.to_string(),
                Kind::Kafka => format!("{name}-kafka"),
            };
            let outcome = play(&transcript, *kind, &name, &axe, &shots);
            match &outcome {
                Ok(()) => println!("ok   {name}: {} steps", transcript.steps.len()),
                Err(error) => println!("FAIL {name}: {error:#}"),
            }
            tally.add(Tally::of(outcome.is_ok()));
        }
    }
    println!("{tally}");
    ensure!(tally.failed == 0, "the page of the console has failed");
    Ok(())
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
fn play(transcript: &Transcript, kind: Kind, name: &str, axe: &str, shots: &Path) -> Result<()> {
    let server = Server::start(&transcript.server, kind)?;
    let mut page = Page::open(axe)?;
    let mut printed = String::new();
    for (number, step) in &transcript.steps {
        let done = match step {
            Step::Open(address) => page.go(&format!("{}{address}", server.url())),
            Step::Reload => page.reload(),
            Step::See(text) => page.see(text),
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
            Step::Shot(shot) => page.shoot(&shots.join(format!("{name}-{shot}.png"))),
            Step::Holds(expression) => page.holds(expression),
            Step::Tool(arguments) => server.tool(arguments).map(|output| printed = output),
            Step::Printed(text) => {
                let is_there = printed.contains(text.as_str());
                is_there.then_some(()).with_context(|| {
                    format!("the tool has not printed “{text}”:\n{}", printed.trim_end())
                })
            }
        };
        done.with_context(|| format!("line {number}"))?;
    }
    page.check_log()
}
