//! `ottla bench size`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use super::arguments::SizeArgs;
use crate::figures;
use crate::results::{ResultFile, TargetInfo};
use crate::scenario::quantities::{self, shown_count};
use crate::sizing::{Demand, Fleet, fleet};

/// The measured capacity of a cluster.
#[derive(Clone, PartialEq, Debug)]
struct MeasuredCapacity {
    target: String,
    records_per_second: f64,
    brokers: u64,
}

pub fn size(args: &SizeArgs) -> Result<ExitCode> {
    ensure!(
        (0.0..1.0).contains(&args.headroom),
        "--headroom {}: give a part from 0 up to but not including 1",
        args.headroom
    );
    let load = match (args.load, &args.daily) {
        (Some(load), _) => load,
        (None, Some(daily)) => {
            let sizing = demand(args, daily)?;
            let sizing = sizing.size().context(
                "services, daily, hours and record must be above 0, and a day has 24 hours at most",
            )?;
            println!("{sizing}");
            sizing.records_per_second
        }
        (None, None) => bail!("give --daily or --load"),
    };
    ensure!(
        load.is_finite() && load > 0.0,
        "--load {load}: give records a second, more than 0"
    );
    let carried = match (&args.result, args.measured) {
        (Some(path), _) => carried_in(path)?,
        (None, Some(records_per_second)) => vec![MeasuredCapacity {
            target: "the cluster".to_owned(),
            records_per_second,
            brokers: args.measured_brokers.unwrap_or(1),
        }],
        (None, None) => return Ok(ExitCode::SUCCESS),
    };
    let mut fleets = Vec::new();
    for of_target in &carried {
        let (rate, brokers) = (of_target.records_per_second, of_target.brokers);
        let price = args.hourly_price.unwrap_or(0.0);
        let Some(found) = fleet(load, rate, brokers, args.headroom, price) else {
            bail!("nothing was measured that brokers could be counted by");
        };
        println!("{}", in_words(of_target, load, found, args));
        fleets.push(found);
    }
    if let ([first, second], Some(_)) = (&fleets[..], args.hourly_price) {
        let saved = (first.yearly_cost - second.yearly_cost).abs();
        let cheaper = if first.yearly_cost > second.yearly_cost {
            &carried[1].target
        } else {
            &carried[0].target
        };
        if saved > 0.0 {
            println!("{cheaper} saves {saved:.2} a year.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn demand(args: &SizeArgs, daily: &str) -> Result<Demand> {
    let bytes = |name: &str, text: &str| {
        quantities::bytes(text)
            .with_context(|| format!("--{name} {text}: not a size; give for example 2GB"))
    };
    Ok(Demand {
        services: args.services,
        daily_bytes: bytes("daily", daily)? as f64,
        hours: args.hours,
        record_bytes: bytes("record", &args.record)? as f64,
    })
}

fn in_words(carried: &MeasuredCapacity, load: f64, found: Fleet, args: &SizeArgs) -> String {
    let counted = |brokers: u64| match brokers {
        1 => "1 broker".to_owned(),
        _ => format!("{brokers} brokers"),
    };
    let mut text = format!(
        "{}: {} carried {} records a second; {} need {}",
        carried.target,
        counted(carried.brokers),
        shown_count(carried.records_per_second),
        shown_count(load),
        counted(found.brokers),
    );
    if args.headroom > 0.0 {
        text.push_str(&format!(", with {:.0} % free", args.headroom * 100.0));
    }
    if let Some(price) = args.hourly_price {
        text.push_str(&format!(
            "; at {price} an hour each that is {:.2} a year",
            found.yearly_cost
        ));
    }
    text.push('.');
    text
}

/// The highest rate of each target: the result of a search, otherwise the produce throughput.
fn carried_in(path: &Path) -> Result<Vec<MeasuredCapacity>> {
    let result = ResultFile::read(path)?;
    let searched = "search.records_per_second";
    for figure in [searched, "produce.records_per_second"] {
        let carried: Vec<MeasuredCapacity> = result
            .targets
            .iter()
            .filter_map(|target| highest(&result, target, figure))
            .collect();
        if !carried.is_empty() {
            return Ok(carried);
        }
    }
    let label = figures::known(searched).map_or("", |it| it.label);
    bail!("{} has neither a {label} nor a throughput", path.display())
}

fn highest(result: &ResultFile, target: &TargetInfo, figure: &str) -> Option<MeasuredCapacity> {
    let points = result.scenarios.iter().flat_map(|it| &it.points);
    let runs = points.flat_map(|it| &it.runs);
    let of_target = runs.filter(|it| it.target == target.name);
    let medians = of_target.filter_map(|it| Some(it.summaries.get(figure)?.median));
    let highest = medians.reduce(f64::max).filter(|it| *it > 0.0)?;
    Some(MeasuredCapacity {
        target: target.name.clone(),
        records_per_second: highest,
        brokers: target.brokers as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::arguments::BenchCommand;
    use clap::{Command, FromArgMatches, Subcommand};

    fn arguments(words: &[&str]) -> SizeArgs {
        let command = BenchCommand::augment_subcommands(Command::new("bench"));
        let all = ["bench", "size"].iter().chain(words);
        let matches = command.try_get_matches_from(all).unwrap();
        match BenchCommand::from_arg_matches(&matches).unwrap() {
            BenchCommand::Size(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// The published comparison: five brokers at 0.904 an hour against three.
    #[test]
    fn the_cost_of_a_load_is_as_published() {
        let args = arguments(&["--load", "155000", "--hourly-price", "0.904"]);
        let carried = |target: &str, records_per_second| MeasuredCapacity {
            target: target.to_owned(),
            records_per_second,
            brokers: 3,
        };
        let words = |carried: MeasuredCapacity| {
            let rate = carried.records_per_second;
            let found = fleet(155_000.0, rate, 3, args.headroom, 0.904).unwrap();
            in_words(&carried, 155_000.0, found, &args)
        };
        let dear = words(carried("OpenJDK", 107_805.0));
        assert!(
            dear.contains("need 5 brokers; at 0.904 an hour each that is 39595.20 a year."),
            "{dear}"
        );
        let cheap = words(carried("Prime", 155_797.0));
        assert!(
            cheap.contains("need 3 brokers") && cheap.contains("23757.12 a year"),
            "{cheap}"
        );
    }
}
