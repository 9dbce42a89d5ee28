//! `ottla bench size`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

use super::arguments::SizeArgs;
use crate::figures;
use crate::results::ResultFile;
use crate::scenario::quantities;
use crate::sizing::{Demand, fleet};

pub fn size(args: &SizeArgs) -> Result<ExitCode> {
    let bytes = |name: &str, text: &str| {
        quantities::bytes(text)
            .with_context(|| format!("--{name} {text}: not a size; give for example 2GB"))
    };
    ensure!(
        (0.0..1.0).contains(&args.headroom),
        "--headroom {}: give a part from 0 up to but not including 1",
        args.headroom
    );
    let demand = Demand {
        services: args.services,
        daily_bytes: bytes("daily", &args.daily)? as f64,
        hours: args.hours,
        record_bytes: bytes("record", &args.record)? as f64,
    };
    let sizing = demand.size().context(
        "services, daily, hours and record must be above 0, and a day has 24 hours at most",
    )?;
    println!("{sizing}");
    let measured = match (&args.result, args.measured) {
        (Some(path), _) => Some(measured_in(path)?),
        (None, Some(rate)) => Some((rate, args.measured_brokers.unwrap_or(1))),
        (None, None) => None,
    };
    let Some((rate, brokers)) = measured else {
        return Ok(ExitCode::SUCCESS);
    };
    let price = args.hourly_price.unwrap_or(0.0);
    let load = sizing.records_per_second;
    let Some(found) = fleet(load, rate, brokers, args.headroom, price) else {
        bail!("nothing was measured that brokers could be counted by");
    };
    println!(
        "{brokers} brokers were seen to carry {} records a second; {} need {} of them{}.",
        quantities::shown_count(rate),
        quantities::shown_count(load),
        found.brokers,
        match args.headroom > 0.0 {
            true => format!(", with {:.0} % free", args.headroom * 100.0),
            false => String::new(),
        }
    );
    if args.hourly_price.is_some() {
        println!("At {price} an hour each: {:.2} a year.", found.yearly_cost);
    }
    Ok(ExitCode::SUCCESS)
}

/// The highest rate of a result, and the brokers of the target that it was measured on.
fn measured_in(path: &Path) -> Result<(f64, u64)> {
    let result = ResultFile::read(path)?;
    let mut best: Option<(f64, u64)> = None;
    for name in ["search.records_per_second", "produce.records_per_second"] {
        let points = result.scenarios.iter().flat_map(|it| &it.points);
        for run in points.flat_map(|it| &it.runs) {
            let target = result.targets.iter().find(|it| it.name == run.target);
            let brokers = target.map_or(1, |it| it.brokers as u64);
            if let Some(summary) = run.summaries.get(name)
                && best.is_none_or(|(rate, _)| summary.median > rate)
            {
                best = Some((summary.median, brokers));
            }
        }
        if best.is_some() {
            break;
        }
    }
    let label = figures::known("search.records_per_second").map_or("", |it| it.label);
    best.with_context(|| format!("{} has neither a {label} nor a throughput", path.display()))
}
