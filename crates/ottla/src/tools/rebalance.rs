//! `rebalance`: plans a rebalance of a cluster, carries it out, and cancels it. Kafka has no such
//! tool.
//!
//! The plan itself is made by the crate `ottla-rebalance`, and carried out by `ottla-rebalance-apply`,
//! which the console uses too. The plan file has the format of
//! `reassign-partitions`, and is all the state there is beside the cluster's: `apply` can be killed
//! and run again at any time.

mod arguments;
mod plan_file;

mod apply;
mod cancel;
mod progress;
mod quantities;
mod report;
mod sampling;

use std::process::ExitCode;

use anyhow::{Context, bail};
use ottla_rebalance::{Options, plan};

use super::{block_on, report_plainly};
pub use arguments::RebalanceArgs;
use arguments::{PlanArgs, RebalanceCommand, throttle_of};

pub fn run(args: RebalanceArgs) -> ExitCode {
    block_on(async {
        report_plainly(match args.command {
            RebalanceCommand::Plan(args) => make_plan(&args).await,
            RebalanceCommand::Apply(args) => apply::apply(&args).await,
            RebalanceCommand::Cancel(args) => cancel::cancel(&args).await,
        })
    })
}

async fn make_plan(args: &PlanArgs) -> anyhow::Result<()> {
    let throttle = throttle_of(args.throttle)?;
    if let Some(path) = args.plan.as_ref().filter(|path| path.exists()) {
        bail!(
            "--plan {}: the file exists; apply the plan in it, remove it, or give another file",
            path.display()
        );
    }
    let topics = sampling::Topics::new(args.topics.as_deref(), args.exclude_topics.as_deref())?;
    let admin = args.brokers.connect("ottla-rebalance", None).await?;
    let options = Options {
        added: args.add_brokers.iter().copied().collect(),
        emptied: args.empty_brokers.iter().copied().collect(),
        max_disk_percent: args.max_disk_used,
        tolerance_percent: args.tolerance,
        ignores_racks: args.ignore_racks,
    };
    let image = sampling::image(&admin, &topics, &options, args.sample, !args.json).await?;
    if !args.ignore_racks {
        check_racks(&image)?;
    }
    let plan = plan(&image, &options)?;
    let written = args.plan.as_deref().filter(|_| !plan.changes.is_empty());
    if let Some(path) = written {
        let text = format!("{}\n", report::assignment(&image, &plan));
        std::fs::write(path, text).with_context(|| {
            format!(
                "--plan {}: cannot be written; give another file",
                path.display()
            )
        })?;
    }
    if args.json {
        println!("{}", report::json(&image, &plan, throttle));
        return Ok(());
    }
    let surroundings = report::Surroundings {
        throttle,
        sample_seconds: args.sample,
        written,
        cluster: &args.brokers.flags(),
    };
    report::print(&image, &options, &plan, &surroundings);
    Ok(())
}

/// Either all brokers have racks or none.
fn check_racks(image: &ottla_rebalance::Image) -> anyhow::Result<()> {
    let (with, without): (Vec<_>, Vec<_>) = image
        .brokers
        .iter()
        .filter(|broker| broker.is_alive)
        .partition(|broker| broker.rack.is_some());
    if with.is_empty() || without.is_empty() {
        return Ok(());
    }
    let ids: Vec<String> = without.iter().map(|it| it.id.to_string()).collect();
    bail!(
        "brokers {} have no rack, and others have one; set their broker.rack, or give --ignore-racks",
        ids.join(", ")
    )
}
