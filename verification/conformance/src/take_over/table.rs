//! The table that a run prints: a line per turn, followed by the violations.

use std::time::Duration;

use super::endings::Ending;
use super::model::Findings;

#[derive(Debug)]
pub struct Turn {
    number: usize,
    pub side: String,
    ending: Ending,
    pub start: Duration,
    pub settled: Duration,
    pub compared: Duration,
    pub operations: usize,
    pub took: Duration,
    /// Whether the moment that the ending waits for occurred.
    pub at_the_moment: bool,
    pub findings: Findings,
}

const MOST_SHOWN: usize = 40;

pub fn heading() {
    println!(
        "{:>4} {:<20} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}  {:<27} wrong",
        "turn",
        "in the hands of",
        "start",
        "settled",
        "records",
        "facts",
        "changes",
        "took",
        "then"
    );
}

impl Turn {
    pub fn new(number: usize, side: &str, ending: Ending) -> Turn {
        Turn {
            number,
            side: side.to_owned(),
            ending,
            start: Duration::ZERO,
            settled: Duration::ZERO,
            compared: Duration::ZERO,
            operations: 0,
            took: Duration::ZERO,
            at_the_moment: true,
            findings: Findings::default(),
        }
    }

    pub fn print(&self) {
        let ending = if self.at_the_moment {
            self.ending.name().to_owned()
        } else {
            format!("{} (none came)", self.ending.name())
        };
        println!(
            "{:>4} {:<20} {:>6.2} s {:>6.2} s {:>8} {:>8} {:>7} {:>6.1} s  {ending:<27} {}",
            self.number,
            self.side,
            self.start.as_secs_f64(),
            self.settled.as_secs_f64(),
            self.findings.records,
            self.findings.facts,
            self.operations,
            self.took.as_secs_f64(),
            self.findings.wrong.len()
        );
        for what in self.findings.wrong.iter().take(MOST_SHOWN) {
            println!("       {what}");
        }
        if self.findings.wrong.len() > MOST_SHOWN {
            println!("       and {} more", self.findings.wrong.len() - MOST_SHOWN);
        }
    }
}
