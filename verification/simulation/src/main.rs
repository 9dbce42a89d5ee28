//! Runs seeds of simulated clusters: `cargo xtask sim` starts it.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Parser;
use ottla_simulation::{Campaign, Ledger, Ran};

/// Runs seeds of simulated clusters.
#[derive(Parser)]
struct Options {
    /// Repeat this seed, and print the log of its nodes and faults.
    #[arg(long, value_name = "N", conflicts_with_all = ["time", "from", "jobs", "ledger", "hours"])]
    seed: Option<u64>,
    /// With a seed: print where most of its switch points are instead.
    #[arg(long, requires = "seed")]
    points: bool,
    /// Run one seed after the other for this long, or until one finds something: 90s, 20m or 2h.
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = ottla_simulation::parse_time)]
    time: Duration,
    /// The first of these seeds; by default new seeds.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The number of threads that run seeds; by default one per core.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Add each seed to the account in this file. Seeds that have passed according to it are left out.
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// End when the account has this many simulated hours of the present tree.
    #[arg(long, value_name = "H", requires = "ledger")]
    hours: Option<u64>,
    /// The name of the source tree in the account.
    #[arg(long, value_name = "NAME", default_value = "unnamed")]
    tree: String,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let finding = match options.seed {
        Some(seed) if options.points => {
            for (count, at) in ottla_simulation::count_switch_points(seed).iter().take(60) {
                println!("{count:>9} {at}");
            }
            None
        }
        Some(seed) => {
            let (outcome, _) = ottla_simulation::tell(seed, std::io::stdout);
            println!("{outcome:#?}");
            outcome.finding
        }
        None => run_campaign(&options)?.total.finding,
    };
    Ok(match finding {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

fn run_campaign(options: &Options) -> Result<Ran> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let new_seeds = || since_epoch.expect("after 1970").as_secs() * 1_000;
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = Campaign {
        first: options.from.unwrap_or_else(new_seeds),
        jobs: options.jobs.map_or_else(cores, NonZero::get),
        time: options.time,
        simulated: options
            .hours
            .map(|hours| Duration::from_secs(hours.saturating_mul(3_600))),
    };
    let ledger = options.ledger.as_deref();
    let mut ledger = ledger
        .map(|path| Ledger::open(path, &options.tree))
        .transpose()?;
    println!(
        "seeds from {} on, for {:?} with {} threads",
        campaign.first, campaign.time, campaign.jobs
    );
    let ran = campaign.run(ledger.as_mut(), ottla_simulation::run)?;
    println!("{:#?}", ran.total);
    let speed = ran.total.simulated.as_secs_f64() / ran.elapsed.as_secs_f64();
    println!("{} seeds, {speed:.0} simulated seconds a second", ran.seeds);
    if let Some(ledger) = &ledger {
        println!("{ledger}");
    }
    for (seed, finding) in &ran.found {
        println!("seed {seed} has a finding; cargo xtask sim --seed {seed} replays it: {finding}");
    }
    Ok(ran)
}
