//! `cargo xtask console-speed`: measures the console against its goals, and prints a table of both.
//!
//! Everything runs on two processors of the machine: the broker, the console, the browser and the
//! load generator. Each figure is a median, with its spread; compared variants are measured in
//! turns (A B A B). Other load on the machine can only make a figure worse than the console's real
//! performance, never better.

mod options;
mod table;

mod stand;

mod burden;
mod pages;
mod records;
mod size;

use anyhow::{Result, ensure};

use ottla_workspace::workspace;

pub use options::Options;
use table::Line;

type Part = (&'static str, fn(&Options) -> Result<Vec<Line>>);

const PARTS: &[Part] = &[
    ("pages", pages::pages),
    ("tables", pages::tables),
    ("tail", records::tail),
    ("search", records::search),
    ("tabs", burden::tabs),
    ("memory", burden::memory),
    ("binary", size::binary),
    ("assets", size::assets),
];

pub fn run(options: &Options) -> Result<()> {
    // Built before the processors are taken away.
    workspace::release_binary("ottla", "ottla")?;
    if !options.all_processors {
        stand::use_processors(2)?;
    }
    println!(
        "{} processors; load, broker, console and browser share them.",
        std::thread::available_parallelism()?
    );
    let is_chosen = |name: &str| {
        options.parts.is_empty()
            || options
                .parts
                .iter()
                .any(|part| name.contains(part.as_str()))
    };
    let mut lines = Vec::new();
    let mut failures = Vec::new();
    for (name, measure) in PARTS.iter().filter(|(name, _)| is_chosen(name)) {
        println!("measuring {name} …");
        match measure(options) {
            Ok(measured) => lines.extend(measured),
            Err(error) => {
                println!("{name} failed: {error:#}");
                failures.push(*name);
            }
        }
    }
    table::print(&lines);
    let missed = lines.iter().filter(|it| it.is_missed()).count();
    ensure!(failures.is_empty(), "not measured: {}", failures.join(", "));
    ensure!(missed == 0, "{missed} goals are missed");
    Ok(())
}
