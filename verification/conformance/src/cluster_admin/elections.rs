//! Leader elections: of preferred leaders, and unclean ones where no in-sync replica is left.

use anyhow::{Context, Result, ensure};

use super::desk::{Desk, HANDS, Hand};
use crate::conformance::tools::{CLUSTER, ELECTION, TOPICS};
use ottla_peers::{Partition, replicas};

/// In `elect`, each broker is the preferred leader of one partition. `unclean` has two replicas;
/// one has fewer records than the other.
const TOPICS_MADE: [&str; 2] = [
    "BROKERS --create --topic elect-SUBJECT --replica-assignment 1:2:3,2:3:1,3:1:2 --config min.insync.replicas=2",
    "BROKERS --create --topic unclean-SUBJECT --replica-assignment 1:2",
];

/// Selections of partitions that are invalid.
const SELECTIONS: [&str; 4] = [
    "BROKERS --describe --under-replicated-partitions",
    "BROKERS --describe --at-min-isr-partitions",
    "BROKERS --describe --under-min-isr-partitions",
    "BROKERS --describe --unavailable-partitions",
];

pub fn run(desk: &mut Desk) -> Result<()> {
    desk.file(
        "elect",
        r#"{"partitions":[{"topic":"elect-SUBJECT","partition":0},{"topic":"elect-SUBJECT","partition":1}]}"#,
    )?;
    desk.file(
        "unclean",
        r#"{"partitions":[{"topic":"unclean-SUBJECT","partition":0}]}"#,
    )?;
    desk.file(
        "elect-twice",
        r#"{"partitions":[{"topic":"elect-SUBJECT","partition":0},{"topic":"elect-SUBJECT","partition":0}]}"#,
    )?;
    for hand in HANDS {
        not_needed(desk, hand)?;
    }
    println!("broker 1 is stopped");
    desk.cluster.brokers[0].take()?.stop()?;
    for hand in HANDS {
        without_the_preferred(desk, hand).context("without the preferred leader")?;
    }
    println!("broker 2, which alone has the newest records, is killed, and broker 1 is back");
    desk.cluster.brokers[1].take()?.kill()?;
    desk.cluster.brokers[0].start()?;
    for hand in HANDS {
        unclean(desk, hand).context("with no replica in sync")?;
    }
    desk.cluster.brokers[1].start()?;
    for hand in HANDS {
        all_back(desk, hand).context("with all brokers")?;
    }
    Ok(())
}

/// The topics of this tool set that `--describe` selects from: those of this part and of the one
/// before it.
fn topics_of(hand: Hand) -> [String; 4] {
    ["elect", "unclean", "moves", "single"].map(|name| hand.topic(name))
}

fn is_led_by(partition: usize, leader: Option<i32>) -> impl Fn(&[Partition]) -> bool {
    move |partitions| partitions[partition].leader == leader
}

fn not_needed(desk: &mut Desk, hand: Hand) -> Result<()> {
    for create in TOPICS_MADE {
        desk.run(hand, TOPICS, create)?;
    }
    desk.wait_for_replicas(&hand.topic("elect"), &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]])?;
    desk.wait_for_replicas(&hand.topic("unclean"), &[&[1, 2]])?;
    desk.fill(&hand.topic("unclean"), 500)?;
    for arguments in [
        "BROKERS --election-type preferred --topic elect-SUBJECT --partition 0",
        "BROKERS --election-type unclean --topic elect-SUBJECT --partition 0",
        "BROKERS --election-type preferred --topic elect-SUBJECT --partition 9",
        "BROKERS --election-type preferred --path-to-json-file @elect",
        "BROKERS --election-type preferred --path-to-json-file @elect-twice",
        "BROKERS --election-type preferred --all-topic-partitions",
    ] {
        desk.run(hand, ELECTION, arguments)?;
    }
    Ok(())
}

fn without_the_preferred(desk: &mut Desk, hand: Hand) -> Result<()> {
    let topic = hand.topic("elect");
    desk.wait_for(&topic, "led by another", |partitions| {
        partitions[0].leader == Some(2) && partitions.iter().all(|it| it.in_sync.len() == 2)
    })?;
    desk.wait_for(&hand.topic("unclean"), "led by 2", is_led_by(0, Some(2)))?;
    desk.fill(&hand.topic("unclean"), 500)?;
    desk.wait_until_settled(&topics_of(hand))?;
    desk.wait_for_state("1", Some("fenced"))?;
    for arguments in SELECTIONS {
        desk.run(hand, TOPICS, arguments)?;
    }
    let printed = desk.run(hand, TOPICS, "BROKERS --describe --topic elect-SUBJECT")?;
    ensure!(printed.contains("Leader: 2"), "{printed}");
    for arguments in [
        "list-endpoints BROKERS",
        "list-endpoints BROKERS --include-fenced-brokers",
    ] {
        desk.run(hand, CLUSTER, arguments)?;
    }
    let preferred = "BROKERS --election-type preferred --path-to-json-file @elect";
    let printed = desk.run(hand, ELECTION, preferred)?;
    ensure!(printed.contains("could not be elected"), "{printed}");
    Ok(())
}

fn unclean(desk: &mut Desk, hand: Hand) -> Result<()> {
    let topic = hand.topic("unclean");
    desk.wait_for(&topic, "without a leader", is_led_by(0, None))?;
    // Broker 1 is back, and catches up with the leaders of its other partitions.
    desk.wait_until_settled(&topics_of(hand))?;
    for arguments in SELECTIONS {
        desk.run(hand, TOPICS, arguments)?;
    }
    let preferred = "BROKERS --election-type preferred --topic unclean-SUBJECT --partition 0";
    desk.run(hand, ELECTION, preferred)?;
    let unclean = "BROKERS --election-type unclean --path-to-json-file @unclean";
    let printed = desk.run(hand, ELECTION, unclean)?;
    ensure!(printed.contains("Successfully"), "{printed}");
    desk.wait_for(&topic, "led by 1", is_led_by(0, Some(1)))?;
    desk.run(hand, TOPICS, "BROKERS --describe --topic unclean-SUBJECT")?;
    // Fewer records than broker 2 had, so that its log must be truncated and refilled.
    desk.fill(&topic, 100)
}

fn all_back(desk: &mut Desk, hand: Hand) -> Result<()> {
    let topic = hand.topic("unclean");
    desk.wait_for_replicas(&topic, &[&[1, 2]])?;
    let partition = format!("{topic}-0");
    let (bytes, wrong) = replicas::compare(&desk.cluster.brokers, &partition)?;
    ensure!(wrong.is_empty() && bytes > 0, "{bytes} bytes, {wrong:?}");
    check_that_the_cut_is_told(desk, &partition)?;
    let elect = hand.topic("elect");
    desk.wait_for(&elect, "in sync", |partitions| {
        partitions.iter().all(|it| it.in_sync.len() == 3)
    })?;
    let preferred = "BROKERS --election-type preferred --path-to-json-file @elect";
    let printed = desk.run(hand, ELECTION, preferred)?;
    ensure!(printed.contains("Successfully"), "{printed}");
    for (partition, leader) in [(0, 1), (1, 2)] {
        desk.wait_for(
            &elect,
            "led by the preferred",
            is_led_by(partition, Some(leader)),
        )?;
    }
    desk.run(hand, TOPICS, "BROKERS --describe --topic elect-SUBJECT")?;
    desk.run(hand, ELECTION, preferred)?;
    Ok(())
}

/// Broker 2 had committed records that the new leader lacked. Its log must report that they were
/// truncated.
fn check_that_the_cut_is_told(desk: &Desk, partition: &str) -> Result<()> {
    let broker = &desk.cluster.brokers[1];
    if broker.peer.id() != "ottla" {
        return Ok(());
    }
    let printed = std::fs::read_to_string(broker.options.dir.join("output.log"))?;
    let tells =
        |line: &str| line.contains("the log was truncated from") && line.contains(partition);
    ensure!(
        printed.lines().any(tells),
        "{} does not report that it has truncated {partition}",
        broker.name()
    );
    Ok(())
}
