//! Membership of the cluster: the quorum and its observers, racks, and a broker that is removed and
//! returns.

use anyhow::{Context, Result, ensure};

use super::desk::{Desk, ENDPOINTS, HANDS, Hand, row_of, state_of};
use crate::conformance::tools::{CLUSTER, FEATURES, QUORUM, REASSIGN, TOPICS};

pub fn run(desk: &mut Desk) -> Result<()> {
    desk.file(
        "spread",
        r#"{"topics":[{"topic":"spread-SUBJECT"}],"version":1}"#,
    )?;
    for hand in HANDS {
        describe(desk, hand)?;
        spread_over_racks(desk, hand).context("racks")?;
    }
    for hand in HANDS {
        println!("{hand:?}: broker 3 is stopped, taken out, and started again");
        desk.cluster.brokers[2].take()?.stop()?;
        take_out(desk, hand).context("broker 3 is taken out")?;
        desk.cluster.brokers[2].start()?;
        desk.wait_for(&hand.topic("spread"), "in sync", |partitions| {
            partitions.iter().all(|it| it.in_sync.len() == 2)
        })?;
        desk.run(hand, CLUSTER, "list-endpoints BROKERS")?;
    }
    println!("broker 3 is started without a rack");
    let broker = &mut desk.cluster.brokers[2];
    broker.take()?.stop()?;
    let settings = &mut broker.options.overrides;
    settings.retain(|(key, _)| key != "broker.rack");
    broker.start()?;
    // Other brokers may still know its previous registration.
    desk.wait_for_each(ENDPOINTS, |it| {
        row_of(it, "3").is_some_and(|row| !row.contains(&"b"))
    })?;
    for hand in HANDS {
        desk.wait_for(&hand.topic("spread"), "in sync", |partitions| {
            partitions.iter().all(|it| it.in_sync.len() == 2)
        })?;
        let generate = "BROKERS --generate --topics-to-move-json-file @spread --broker-list 1,3";
        let printed = desk.run(hand, REASSIGN, generate)?;
        ensure!(printed.contains("rack information"), "{printed}");
        desk.run_varying(hand, REASSIGN, &format!("{generate} --disable-rack-aware"))?;
    }
    Ok(())
}

fn describe(desk: &mut Desk, hand: Hand) -> Result<()> {
    for arguments in [
        "BROKERS describe --status",
        "CONTROLLERS describe --status",
        "BROKERS describe --replication",
        "BROKERS describe --replication --human-readable",
        "CONTROLLERS describe --replication",
    ] {
        desk.run_varying(hand, QUORUM, arguments)?;
    }
    for arguments in [
        "cluster-id BROKERS",
        "cluster-id CONTROLLERS",
        "list-endpoints BROKERS",
        "list-endpoints CONTROLLERS",
        "list-endpoints CONTROLLERS --include-fenced-brokers",
    ] {
        desk.run(hand, CLUSTER, arguments)?;
    }
    for arguments in ["BROKERS describe", "CONTROLLERS describe"] {
        desk.run_varying(hand, FEATURES, arguments)?;
    }
    Ok(())
}

/// The racks are `a`, `a`, `b`, so one of two replicas must be on broker 3.
fn spread_over_racks(desk: &mut Desk, hand: Hand) -> Result<()> {
    let create = "BROKERS --create --topic spread-SUBJECT --partitions 6 --replication-factor 2";
    desk.run(hand, TOPICS, create)?;
    desk.wait_for(&hand.topic("spread"), "on both racks", |partitions| {
        partitions.len() == 6 && partitions.iter().all(|it| it.replicas.contains(&3))
    })?;
    let create = "BROKERS --create --topic wide-SUBJECT --replication-factor 4";
    desk.run(hand, TOPICS, create)?;
    Ok(())
}

fn take_out(desk: &mut Desk, hand: Hand) -> Result<()> {
    let topic = hand.topic("spread");
    desk.wait_for(&topic, "led by others", |partitions| {
        partitions.iter().all(|it| it.in_sync.len() == 1)
    })?;
    desk.wait_for_state("3", Some("fenced"))?;
    let listed = "list-endpoints BROKERS --include-fenced-brokers";
    let printed = desk.run(hand, CLUSTER, listed)?;
    ensure!(state_of(&printed, "3") == Some("fenced"), "{printed}");
    let printed = desk.run(hand, CLUSTER, "unregister BROKERS --id 3")?;
    ensure!(printed.contains("no longer registered"), "{printed}");
    desk.wait_for_state("3", None)?;
    for arguments in [
        listed,
        "unregister BROKERS --id 3",
        "unregister CONTROLLERS --id 3",
    ] {
        desk.run(hand, CLUSTER, arguments)?;
    }
    Ok(())
}
