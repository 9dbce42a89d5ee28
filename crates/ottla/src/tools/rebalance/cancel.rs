//! `rebalance cancel`: stops the moves of a plan, and removes the throttles.

use super::arguments::CancelArgs;
use super::plan_file::read;
use crate::counted::counted;

pub(super) async fn cancel(args: &CancelArgs) -> anyhow::Result<()> {
    let targets = read(&args.plan)?.checked()?;
    let admin = args.brokers.connect("ottla-rebalance", None).await?;
    let cancelled = ottla_rebalance_apply::cancel(&admin, &targets).await?;
    println!(
        "Cancelled {}. The throttles are removed. {} of {} are where the plan puts them, and stay there.",
        counted(cancelled.moves, "move"),
        cancelled.there,
        counted(cancelled.partitions, "partition")
    );
    Ok(())
}
