//! `rebalance cancel`: stops the moves of a plan, and removes the throttles.

use std::time::Duration;

use anyhow::bail;

use super::apply::clear_throttles;
use super::arguments::CancelArgs;
use super::targets::{Phase, existing, look, read};
use crate::counted::counted;
use crate::tools::reassign_partitions::assignment_file::shown;
use crate::tools::reassign_partitions::{active, cancel_active};

/// A move may end while it is cancelled, which is an error for this one only.
const ATTEMPTS: usize = 20;
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn cancel(args: &CancelArgs) -> anyhow::Result<()> {
    let assignment = read(&args.plan)?;
    let admin = args.brokers.connect("ottla-rebalance", None).await?;
    let mut cancelled = 0;
    let mut refused = None;
    let mut left = active(&admin, &assignment).await?;
    for _ in 0..ATTEMPTS {
        if left.is_empty() {
            break;
        }
        let before = left.len();
        refused = cancel_active(&admin, &left).await.err();
        left = active(&admin, &assignment).await?;
        cancelled += before.saturating_sub(left.len());
        if !left.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    if let Some(partition) = left.keys().next() {
        match refused {
            Some(error) => return Err(error),
            None => bail!("{} still moves; run the command again", shown(partition)),
        }
    }
    let targets = existing(&admin, &assignment).await?;
    clear_throttles(&admin, &targets).await?;
    let seen = look(&admin, &targets).await?;
    let is_there = |phase: &&Phase| matches!(phase, Phase::Done | Phase::Electing);
    let there = seen.phases.values().filter(is_there).count();
    println!(
        "Cancelled {}. The throttles are removed. {there} of {} are where the plan puts them, and stay there.",
        counted(cancelled, "move"),
        counted(targets.len(), "partition")
    );
    Ok(())
}
