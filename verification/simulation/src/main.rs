//! Runs seeds of simulated clusters: `cargo xtask sim` starts it.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use ottla_simulation::Outcome;

/// Runs seeds of simulated clusters.
#[derive(Parser)]
struct Options {
    /// Repeat this seed, and print the log of its nodes and faults.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "from"])]
    seed: Option<u64>,
    /// With a seed: print where most of its switch points are instead.
    #[arg(long, requires = "seed")]
    points: bool,
    /// Run one seed after the other for this long, or until one finds something.
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// The first of these seeds; by default new seeds.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed.filter(|_| options.points) {
        for (count, at) in ottla_simulation::count_switch_points(seed).iter().take(60) {
            println!("{count:>9} {at}");
        }
        return ExitCode::SUCCESS;
    }
    let outcome = match options.seed {
        Some(seed) => ottla_simulation::tell(seed),
        None => run_for(Duration::from_secs(options.seconds), options.from),
    };
    println!("{outcome:#?}");
    match outcome.finding {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    }
}

fn run_for(time: Duration, from: Option<u64>) -> Outcome {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let first = from.unwrap_or_else(|| since_epoch.expect("after 1970").as_secs() * 1_000);
    println!("seeds from {first} on, for {} s", time.as_secs());
    let began = Instant::now();
    let mut total = Outcome::default();
    let mut seed = first;
    while began.elapsed() < time {
        let outcome = ottla_simulation::run(seed);
        if outcome.finding.is_some() {
            println!("seed {seed} finds something; cargo xtask sim --seed {seed} tells how");
            return outcome;
        }
        total.add(&outcome);
        seed += 1;
    }
    let speed = total.simulated.as_secs_f64() / began.elapsed().as_secs_f64();
    println!(
        "{} seeds, {speed:.0} simulated seconds a second",
        seed - first
    );
    total
}
