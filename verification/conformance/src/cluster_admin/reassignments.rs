//! Reassignments: rejected for invalid files, throttled, cancelled, unthrottled, and to another log
//! directory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::desk::{Desk, HANDS, Hand, LARGEST_FETCH, PATIENCE};
use crate::conformance::tools::{CONFIGS, REASSIGN, TOPICS};
use ottla_peers::replicas;

const RECORDS: usize = 16_000;
/// Bytes per second. At this rate the rest of two partitions takes minutes.
const THROTTLE: u64 = 30_000;
/// In addition to the rate, a throttled broker may use the whole window of Kafka's quota at once,
/// plus one fetch of both partitions.
const THROTTLE_WINDOW_S: u64 = 11;
/// How long a throttled reassignment is observed at least.
const WATCHED: Duration = Duration::from_secs(5);

/// Files that the tool must reject.
const REFUSED: [(&str, &str); 8] = [
    (
        "unknown-broker",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[77]}]}"#,
    ),
    (
        "unknown-topic",
        r#"{"version":1,"partitions":[{"topic":"nothing-SUBJECT","partition":0,"replicas":[1]}]}"#,
    ),
    (
        "unknown-partition",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":9,"replicas":[1]}]}"#,
    ),
    (
        "partition-twice",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[1]},{"topic":"moves-SUBJECT","partition":0,"replicas":[2]}]}"#,
    ),
    (
        "replica-twice",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[1,1]}]}"#,
    ),
    (
        "no-replicas",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[]}]}"#,
    ),
    (
        "directories-missing",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[1,2],"log_dirs":["any"]}]}"#,
    ),
    ("newer-version", r#"{"version":2,"partitions":[]}"#),
];

pub fn run(desk: &mut Desk) -> Result<()> {
    desk.file(
        "topics",
        r#"{"topics":[{"topic":"single-SUBJECT"}],"version":1}"#,
    )?;
    desk.file(
        "move",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[2,3]},{"topic":"moves-SUBJECT","partition":1,"replicas":[3,1]}]}"#,
    )?;
    desk.file(
        "grow",
        r#"{"version":1,"partitions":[{"topic":"moves-SUBJECT","partition":0,"replicas":[1,2,3]}]}"#,
    )?;
    let second = &desk.cluster.brokers[2].log_dirs()[1];
    let directory = format!(
        r#"{{"version":1,"partitions":[{{"topic":"moves-SUBJECT","partition":0,"replicas":[2,3],"log_dirs":["any","{}"]}}]}}"#,
        second.display()
    );
    desk.file("directory", &directory)?;
    for (name, contents) in REFUSED {
        desk.file(name, contents)?;
    }
    for hand in HANDS {
        propose(desk, hand).with_context(|| format!("{hand:?}: proposed"))?;
        refuse(desk, hand).with_context(|| format!("{hand:?}: refused"))?;
        move_slowly(desk, hand).with_context(|| format!("{hand:?}: moved slowly"))?;
        call_off(desk, hand).with_context(|| format!("{hand:?}: called off"))?;
        move_at_once(desk, hand).with_context(|| format!("{hand:?}: moved at once"))?;
        change_factor(desk, hand).with_context(|| format!("{hand:?}: more replicas"))?;
        move_to_directory(desk, hand).with_context(|| format!("{hand:?}: another directory"))?;
    }
    Ok(())
}

fn propose(desk: &mut Desk, hand: Hand) -> Result<()> {
    for create in [
        "BROKERS --create --topic moves-SUBJECT --replica-assignment 1:2,2:1",
        "BROKERS --create --topic single-SUBJECT --replica-assignment 1",
    ] {
        desk.run(hand, TOPICS, create)?;
    }
    desk.wait_for_replicas(&hand.topic("moves"), &[&[1, 2], &[2, 1]])?;
    desk.wait_for_replicas(&hand.topic("single"), &[&[1]])?;
    desk.fill(&hand.topic("moves"), RECORDS)?;
    for brokers in ["3", "3,3", "77"] {
        let arguments = format!(
            "BROKERS --generate --topics-to-move-json-file @topics --broker-list {brokers}"
        );
        let printed = desk.run(hand, REASSIGN, &arguments)?;
        ensure!(
            brokers != "3" || printed.contains(r#""replicas":[3]"#),
            "nothing is proposed: {printed}"
        );
    }
    Ok(())
}

fn refuse(desk: &mut Desk, hand: Hand) -> Result<()> {
    for (name, _) in REFUSED {
        let arguments = format!("BROKERS --execute --reassignment-json-file @{name}");
        desk.run(hand, REASSIGN, &arguments)?;
    }
    let wanted: [&[i32]; 2] = [&[1, 2], &[2, 1]];
    desk.wait_for_replicas(&hand.topic("moves"), &wanted)
}

/// Slow enough that every command finds the reassignment in progress.
fn move_slowly(desk: &mut Desk, hand: Hand) -> Result<()> {
    let execute = format!("BROKERS --execute --reassignment-json-file @move --throttle {THROTTLE}");
    desk.run(hand, REASSIGN, &execute)?;
    let began = Instant::now();
    let mut copied = 0;
    while began.elapsed() < WATCHED || copied == 0 {
        ensure!(
            began.elapsed() < PATIENCE,
            "nothing is copied in {PATIENCE:?}, though throttled replicas continue"
        );
        std::thread::sleep(Duration::from_millis(200));
        copied = replica_bytes(desk, hand, 3)?;
    }
    let allowed = THROTTLE * (began.elapsed().as_secs() + THROTTLE_WINDOW_S) + 2 * LARGEST_FETCH;
    println!(
        "{hand:?}: {copied} bytes copied in {:.1?} at {THROTTLE} B/s",
        began.elapsed()
    );
    ensure!(
        copied <= allowed,
        "{copied} bytes are copied, where the throttle lets {allowed} through"
    );
    for list in ["BROKERS --list", "CONTROLLERS --list"] {
        let printed = desk.run(hand, REASSIGN, list)?;
        ensure!(printed.contains("adding: 3"), "{printed}");
    }
    desk.run(hand, TOPICS, "BROKERS --describe --topic moves-SUBJECT")?;
    desk.run(
        hand,
        TOPICS,
        "BROKERS --describe --under-replicated-partitions",
    )?;
    desk.run(hand, REASSIGN, &execute)?;
    let more = execute.replace("--execute", "--execute --additional");
    let more = more.replace(&THROTTLE.to_string(), "36000");
    desk.run(hand, REASSIGN, &more)?;
    for broker in 1..=3 {
        desk.wait_for_settings(broker, |it| it.contains("throttled.rate=36000"))?;
        let describe = format!("BROKERS --describe --broker {broker}");
        let printed = desk.run(hand, CONFIGS, &describe)?;
        ensure!(
            printed.contains("follower.replication.throttled.rate=36000"),
            "{printed}"
        );
    }
    let printed = desk.run(hand, CONFIGS, "BROKERS --describe --topic moves-SUBJECT")?;
    ensure!(
        printed.contains("leader.replication.throttled.replicas=0:1,0:2,1:1,1:2"),
        "{printed}"
    );
    let verify = "BROKERS --verify --reassignment-json-file @move";
    let printed = desk.run(hand, REASSIGN, verify)?;
    ensure!(printed.contains("still in progress"), "{printed}");
    Ok(())
}

fn call_off(desk: &mut Desk, hand: Hand) -> Result<()> {
    desk.run(
        hand,
        REASSIGN,
        "BROKERS --cancel --reassignment-json-file @move",
    )?;
    desk.wait_for_replicas(&hand.topic("moves"), &[&[1, 2], &[2, 1]])?;
    for partition in ["moves-SUBJECT-0", "moves-SUBJECT-1"] {
        let partition = partition.replace("SUBJECT", hand.subject());
        desk.check_directories(&partition, &[1, 2])?;
    }
    // The throttles are removed after the cancellation.
    let of_topic = format!("configs --describe --topic {}", hand.topic("moves"));
    desk.wait_for_each(&of_topic, |it| !it.contains("throttled"))?;
    desk.wait_for_settings(3, |it| !it.contains("throttled"))?;
    let printed = desk.run(hand, CONFIGS, "BROKERS --describe --topic moves-SUBJECT")?;
    ensure!(!printed.contains("throttled"), "{printed}");
    let printed = desk.run(hand, CONFIGS, "BROKERS --describe --broker 3")?;
    ensure!(!printed.contains("throttled"), "{printed}");
    for again in [
        "BROKERS --verify --reassignment-json-file @move --preserve-throttles",
        "CONTROLLERS --cancel --reassignment-json-file @move --preserve-throttles",
        "CONTROLLERS --cancel --reassignment-json-file @move",
        "BROKERS --list",
    ] {
        desk.run(hand, REASSIGN, again)?;
    }
    desk.run(hand, TOPICS, "BROKERS --describe --topic moves-SUBJECT")?;
    Ok(())
}

fn move_at_once(desk: &mut Desk, hand: Hand) -> Result<()> {
    desk.run(
        hand,
        REASSIGN,
        "BROKERS --execute --reassignment-json-file @move",
    )?;
    let topic = hand.topic("moves");
    let began = Instant::now();
    desk.wait_for_replicas(&topic, &[&[2, 3], &[3, 1]])?;
    println!("{hand:?}: moved in {:.1?}", began.elapsed());
    for (partition, wanted) in [(0, [2, 3]), (1, [1, 3])] {
        let partition = format!("{topic}-{partition}");
        desk.check_directories(&partition, &wanted)?;
        let (bytes, wrong) = replicas::compare(&desk.cluster.brokers, &partition)?;
        ensure!(wrong.is_empty() && bytes > 0, "{bytes} bytes, {wrong:?}");
    }
    let verify = "BROKERS --verify --reassignment-json-file @move";
    let printed = desk.run(hand, REASSIGN, verify)?;
    ensure!(printed.contains("is completed"), "{printed}");
    Ok(())
}

fn change_factor(desk: &mut Desk, hand: Hand) -> Result<()> {
    let execute = "BROKERS --execute --reassignment-json-file @grow";
    let refused = format!("{execute} --disallow-replication-factor-change");
    desk.run(hand, REASSIGN, &refused)?;
    desk.run(hand, REASSIGN, execute)?;
    desk.wait_for_replicas(&hand.topic("moves"), &[&[1, 2, 3], &[3, 1]])?;
    let verify = "BROKERS --verify --reassignment-json-file @grow";
    desk.run(hand, REASSIGN, verify)?;
    Ok(())
}

fn move_to_directory(desk: &mut Desk, hand: Hand) -> Result<()> {
    desk.run(
        hand,
        REASSIGN,
        "BROKERS --execute --reassignment-json-file @directory --replica-alter-log-dirs-throttle 100000000",
    )?;
    let topic = hand.topic("moves");
    desk.wait_for_replicas(&topic, &[&[2, 3], &[3, 1]])?;
    let broker = &desk.cluster.brokers[2];
    let second = broker.log_dirs()[1].clone();
    let partition = format!("{topic}-0");
    let began = Instant::now();
    while desk.cluster.brokers[2].partition_dir(&partition) != Some(second.join(&partition)) {
        ensure!(
            began.elapsed() < PATIENCE,
            "{partition} does not come to {}",
            second.display()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let verify = "BROKERS --verify --reassignment-json-file @directory";
    let printed = desk.run(hand, REASSIGN, verify)?;
    ensure!(printed.contains("completed successfully"), "{printed}");
    desk.wait_for_settings(3, |it| !it.contains("alter.log.dirs.io"))?;
    desk.run(hand, CONFIGS, "BROKERS --describe --broker 3")?;
    let (bytes, wrong) = replicas::compare(&desk.cluster.brokers, &partition)?;
    ensure!(wrong.is_empty() && bytes > 0, "{bytes} bytes, {wrong:?}");
    Ok(())
}

/// Bytes of the topic that a broker holds.
fn replica_bytes(desk: &Desk, hand: Hand, broker: usize) -> Result<u64> {
    let mut bytes = 0;
    for partition in 0..2 {
        let partition = format!("{}-{partition}", hand.topic("moves"));
        let Some(folder) = desk.cluster.brokers[broker - 1].partition_dir(&partition) else {
            continue;
        };
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.path().extension().is_some_and(|it| it == "log") {
                bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}
