//! `cargo xtask console-speed`: measures the console against its goals, and prints a table of both.
//!
//! Everything runs on two processors of the machine: the broker, the console, the browser and what
//! produces the load. Each figure is a median, with its spread; what is compared is measured in turns
//! (A B A B). A figure that other work of the machine disturbs is worse than the console is, and never
//! better.

mod burden;
mod pages;
mod records;
mod size;
mod stand;

use anyhow::{Result, ensure};

use ottla_workspace::workspace;

#[derive(clap::Args)]
pub struct Options {
    /// Only the parts with one of these in their names: pages, tables, tail, search, tabs, memory, binary, assets.
    #[arg(value_name = "PART")]
    parts: Vec<String>,
    /// MB of records that are searched.
    #[arg(long, value_name = "MB", default_value_t = 2000)]
    search_mb: u64,
    /// Partitions of the cluster whose pages are opened.
    #[arg(long, default_value_t = 10_000)]
    partitions: usize,
    /// Tabs that are open while records are produced.
    #[arg(long, default_value_t = 1000)]
    tabs: usize,
    /// How often each comparison is repeated.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Whether all processors are used, instead of two.
    #[arg(long)]
    all_processors: bool,
}

/// A line of the table.
pub struct Line {
    what: String,
    goal: String,
    measured: String,
    /// `None` for what is only shown.
    is_met: Option<bool>,
}

impl Line {
    fn new(what: &str, goal: &str, measured: String, is_met: bool) -> Line {
        Line {
            what: what.to_owned(),
            goal: goal.to_owned(),
            measured,
            is_met: Some(is_met),
        }
    }

    fn shown(what: &str, measured: String) -> Line {
        Line {
            what: what.to_owned(),
            goal: String::new(),
            measured,
            is_met: None,
        }
    }
}

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
    print(&lines);
    let missed = lines.iter().filter(|it| it.is_met == Some(false)).count();
    ensure!(failures.is_empty(), "not measured: {}", failures.join(", "));
    ensure!(missed == 0, "{missed} goals are missed");
    Ok(())
}

fn print(lines: &[Line]) {
    let width = |of: fn(&Line) -> &String| {
        let widths = lines.iter().map(|it| of(it).chars().count());
        widths.max().unwrap_or(0)
    };
    let (what, goal) = (width(|it| &it.what), width(|it| &it.goal));
    println!();
    for line in lines {
        let verdict = match line.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "",
        };
        println!(
            "{:what$}  {:goal$}  {verdict:6}  {}",
            line.what, line.goal, line.measured
        );
    }
}

/// The middle, the least and the most.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Result<Spread> {
        ensure!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(Spread {
            median: sorted[sorted.len() / 2],
            least: sorted[0],
            most: sorted[sorted.len() - 1],
        })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = usize::from(self.most < 100.0);
        let Spread {
            median,
            least,
            most,
        } = self;
        write!(f, "{median:.places$} ({least:.places$} to {most:.places$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle() {
        let spread = Spread::of(&[3.0, 1.0, 200.0]).unwrap();
        assert_eq!(spread.to_string(), "3 (1 to 200)");
        assert!(Spread::of(&[]).is_err());
    }
}
