//! The arguments of `rebalance`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};

use crate::tools::admin_client::Brokers;

/// No throttle, as in `reassign-partitions`.
const NO_THROTTLE: i64 = -1;
/// Kafka's brokers accept less, and then hardly move.
const LEAST_THROTTLE: i64 = 1024;
/// The default of `--max-moves-per-broker`.
pub(super) const MOVES_PER_BROKER: u32 = 5;

/// Rebalance the replicas and leaders of a cluster: plan, apply, cancel.
///
/// Works with any cluster that speaks Kafka's protocol, from Kafka 2.8. Racks and disk capacity come
/// first, then the number of replicas, the number of leaders, and the bytes that producers write to
/// the leaders; with as few moves as possible. `plan` changes nothing.
#[derive(Args, Debug)]
pub struct RebalanceArgs {
    #[command(subcommand)]
    pub(super) command: RebalanceCommand,
}

#[derive(Subcommand, Debug)]
pub(super) enum RebalanceCommand {
    Plan(PlanArgs),
    Apply(ApplyArgs),
    Cancel(CancelArgs),
}

/// Show what would move, what each broker has before and after, and how long it takes at least.
///
/// With --plan, writes the new replicas to a file, for `ottla rebalance apply` or
/// kafka-reassign-partitions.sh.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    /// Write the plan to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    pub(super) plan: Option<PathBuf>,
    /// Move replicas and leaders to these brokers only, ids separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(super) add_brokers: Vec<i32>,
    /// Move all replicas off these brokers, and, without --add-brokers, nothing else. They need not
    /// run.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(super) empty_brokers: Vec<i32>,
    /// Move only topics that match this regular expression. The others are counted.
    #[arg(long, value_name = "REGEX")]
    pub(super) topics: Option<String>,
    /// Do not move topics that match this regular expression. They are counted.
    #[arg(long, value_name = "REGEX")]
    pub(super) exclude_topics: Option<String>,
    /// How full a log directory may become, in percent of its file system.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) max_disk_used: u32,
    /// How far a broker may be from the average, in percent. Smaller values move more.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(super) tolerance: u32,
    /// Do not spread replicas over racks.
    #[arg(long)]
    pub(super) ignore_racks: bool,
    /// How long to measure what producers write, in seconds; 0 leaves the goal out.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(super) sample: u64,
    /// For the stated time: bytes per second that each broker may send and receive; -1 for no limit.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 50_000_000,
        allow_hyphen_values = true
    )]
    pub(super) throttle: i64,
    /// Print the plan as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Carry out a plan, or the rest of it.
///
/// Moves are throttled with the settings that kafka-reassign-partitions.sh uses, and few at a time.
/// If the command is interrupted, moves in progress continue; run it again to continue with the
/// rest.
#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    /// The file that `plan` wrote.
    #[arg(long, value_name = "FILE")]
    pub(super) plan: String,
    /// Bytes per second that each broker may send and receive for moves, at least 1024; -1 for no
    /// limit.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 50_000_000,
        allow_hyphen_values = true
    )]
    pub(super) throttle: i64,
    /// How many partitions may move from or to a broker at the same time.
    #[arg(long, value_name = "NUMBER", default_value_t = MOVES_PER_BROKER, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_moves_per_broker: u32,
}

/// Cancel the moves of a plan that are in progress, and remove the throttles.
///
/// Stop `ottla rebalance apply` first. Partitions that have moved stay where they are.
#[derive(Args, Debug)]
pub(super) struct CancelArgs {
    #[command(flatten)]
    pub(super) brokers: Brokers,
    /// The file that `plan` wrote.
    #[arg(long, value_name = "FILE")]
    pub(super) plan: String,
}

/// The throttle, if there is one.
pub(super) fn throttle_of(given: i64) -> anyhow::Result<Option<u64>> {
    match u64::try_from(given) {
        Ok(throttle) if given >= LEAST_THROTTLE => Ok(Some(throttle)),
        _ if given == NO_THROTTLE => Ok(None),
        _ => bail!(
            "--throttle {given}: give at least {LEAST_THROTTLE} bytes per second, or {NO_THROTTLE} for no limit"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::throttle_of;

    #[test]
    fn too_low_throttles_are_refused() {
        assert_eq!(throttle_of(1024).unwrap(), Some(1024));
        assert_eq!(throttle_of(-1).unwrap(), None);
        for bad in [0, 1023, -2] {
            let error = throttle_of(bad).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("--throttle {bad}: give at least 1024")),
                "{error}"
            );
        }
    }
}
