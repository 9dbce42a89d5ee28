//! `rebalance apply`: carries out a plan file, and says how far it is.

use anyhow::{Context, anyhow};
use ottla_rebalance_apply::{Apply, Outcome, Outlook};
use ottla_types::shell_word;

use super::arguments::{ApplyArgs, throttle_of};
use super::plan_file::read;
use super::progress::Progress;
use super::quantities::{bytes, duration};
use crate::counted::counted;
use crate::stop_signals::StopSignals;
use crate::tools::reassign_partitions::assignment_file::shown;

pub(super) async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let throttle = throttle_of(args.throttle)?;
    let targets = read(&args.plan)?.checked()?;
    let admin = args.brokers.connect("ottla-rebalance", None).await?;
    let plan = format!("--plan {}", args.plan);
    let most_moves = args.max_moves_per_broker as usize;
    let mut apply = Apply::prepare(&admin, &targets, &plan, most_moves).await?;
    announce(apply.outlook(), throttle);
    let outlook = apply.outlook();
    let mut progress = Progress::new(outlook.moves, outlook.cost.bytes());
    // From here on, the moves in the cluster continue if the command ends.
    let mut stop = StopSignals::listen().context("cannot wait for Ctrl-C")?;
    let tell = |count| progress.tell(count);
    let worked = tokio::select! {
        worked = apply.work(throttle, tell, std::future::pending()) => worked.map_err(anyhow::Error::from),
        () = stop.next() => Err(anyhow!("interrupted")),
    };
    worked.with_context(|| {
        format!(
            "stopped before the plan was carried out; moves in progress continue, and throttles stay: run the same \
             command to continue, or ottla rebalance cancel {} --plan {}",
            args.brokers.flags(),
            shell_word(&args.plan)
        )
    })?;
    let finished = tokio::select! {
        finished = apply.finish() => finished.map_err(anyhow::Error::from),
        () = stop.next() => Err(anyhow!("interrupted")),
    };
    finished.context(
        "the plan is carried out, but throttles may remain; run the same command to remove them",
    )?;
    conclude(&apply.outcome());
    Ok(())
}

/// Prints the planned moves and their minimum duration.
fn announce(outlook: &Outlook, throttle: Option<u64>) {
    if outlook.missing > 0 {
        println!(
            "Skipped, because they no longer exist: {}.",
            counted(outlook.missing, "partition")
        );
    }
    println!(
        "{} in the plan; {} done, {} moving.",
        counted(outlook.partitions, "partition"),
        outlook.done,
        outlook.started
    );
    if outlook.moves > 0 {
        let time = match throttle {
            Some(throttle) => format!(
                "at least {} at {}/s",
                duration(outlook.cost.seconds_at(throttle)),
                bytes(throttle)
            ),
            None => "without a throttle".to_owned(),
        };
        println!(
            "To move: {}, {}, {time}.",
            counted(outlook.moves, "replica"),
            bytes(outlook.cost.bytes())
        );
    }
}

fn conclude(outcome: &Outcome) {
    println!(
        "Done: {} moved, {} elected. The throttles are removed.",
        counted(outcome.moved, "replica"),
        counted(outcome.elected, "leader")
    );
    if let Some((partition, reason)) = outcome.not_elected.first_key_value() {
        println!(
            "{} could not be elected, {} first: {reason}; ottla leader-election tries again",
            counted(outcome.not_elected.len(), "leader"),
            shown(partition)
        );
    }
}
