//! The first second of new leaders and new replicas: a producer with `acks=all` at a fixed rate, from
//! the moment at which the command that made them has answered.
//!
//! Latency counts from when a record was due. A partition whose first write waits is a sixth of the
//! records, so it shows in the 99.9th percentile. The worst of several topics counts.

use anyhow::Result;
use serde_json::json;

use super::bench::{Bench, PARTITIONS, PATIENCE, RECORD_BYTES};
use crate::bench_peer::rows::producer_summary;
use crate::bench_peer::setting::BROKERS;
use crate::bench_peer::table::median;
use ottla_workspace::process;

/// Records per second, for one second.
const RATE: u64 = 20_000;
const TOPICS: usize = 5;
/// Of the topic whose replicas move to other brokers.
const MOVED_REPLICAS: usize = 2;

pub fn settings_in_words() -> String {
    format!(
        "first second: {RATE} records with acks=all right after the creation of a topic with {BROKERS} replicas, the \
         election of its preferred leaders, and the reassignment of one with {MOVED_REPLICAS}; {TOPICS} topics of \
         {PARTITIONS} partitions each"
    )
}

pub fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let (mut created, mut elected, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..TOPICS {
        let topic = format!("first-second-{number}");
        create(bench, &topic, BROKERS)?;
        created.push(p99_9_ms(bench, &topic)?);
        bench.cluster.wait_until_in_sync(&topic, BROKERS)?;

        // The preferred leader is another one of the same replicas.
        reassign(bench, &topic, BROKERS)?;
        wait_until_reassigned(bench)?;
        elect_preferred(bench)?;
        elected.push(p99_9_ms(bench, &topic)?);
        bench.delete_topic(&topic)?;

        let topic = format!("moved-{number}");
        create(bench, &topic, MOVED_REPLICAS)?;
        bench.cluster.wait_until_in_sync(&topic, MOVED_REPLICAS)?;
        reassign(bench, &topic, MOVED_REPLICAS)?;
        moved.push(p99_9_ms(bench, &topic)?);
        wait_until_reassigned(bench)?;
        bench.delete_topic(&topic)?;
    }
    for (what, mut values) in [
        ("a new topic", created),
        ("an election", elected),
        ("a reassignment", moved),
    ] {
        values.sort_by(f64::total_cmp);
        let name = |which: &str| format!("first second of {what}: p99.9, {which} of {TOPICS}, ms");
        bench.add(name("median"), median(&values));
        bench.add(name("longest"), values[TOPICS - 1]);
    }
    Ok(())
}

/// The brokers of a partition, after all of them have moved on by `steps`.
fn replicas_of(bench: &Bench<'_>, partition: usize, replicas: usize, steps: usize) -> Vec<i32> {
    let brokers = &bench.cluster.brokers;
    let of_place = |place: usize| brokers[(partition + steps + place) % brokers.len()].node_id;
    (0..replicas).map(of_place).collect()
}

/// Does not wait until the brokers know the topic.
fn create(bench: &Bench<'_>, topic: &str, replicas: usize) -> Result<()> {
    let assignment = (0..PARTITIONS).map(|partition| {
        let replicas = replicas_of(bench, partition, replicas, 0);
        let replicas: Vec<String> = replicas.iter().map(i32::to_string).collect();
        replicas.join(":")
    });
    let assignment: Vec<String> = assignment.collect();
    let mut create = bench.tool("topics");
    create
        .args(["--bootstrap-server", &bench.cluster.bootstrap(), "--create"])
        .args(["--topic", topic])
        .args(["--replica-assignment", &assignment.join(",")]);
    // The controller may not have unfenced newly started brokers yet.
    process::retried(PATIENCE, "creating a topic", || {
        process::output_of(&mut create)
    })?;
    Ok(())
}

/// Moves the replicas of each partition to the next broker each.
fn reassign(bench: &Bench<'_>, topic: &str, replicas: usize) -> Result<()> {
    let partitions = (0..PARTITIONS).map(|partition| {
        json!({
            "topic": topic,
            "partition": partition,
            "replicas": replicas_of(bench, partition, replicas, 1),
        })
    });
    let partitions: Vec<_> = partitions.collect();
    let file = bench.scratch.path().join("reassignment.json");
    let text = json!({ "version": 1, "partitions": partitions }).to_string();
    std::fs::write(&file, text)?;
    let mut execute = bench.tool("reassign-partitions");
    execute
        .args(["--bootstrap-server", &bench.cluster.bootstrap()])
        .args(["--execute", "--reassignment-json-file"])
        .arg(&file);
    process::output_of(&mut execute)?;
    Ok(())
}

fn wait_until_reassigned(bench: &Bench<'_>) -> Result<()> {
    process::retried(PATIENCE, "reassigning a topic", || {
        let mut list = bench.tool("reassign-partitions");
        list.args(["--bootstrap-server", &bench.cluster.bootstrap(), "--list"]);
        let listed = process::output_of(&mut list)?;
        anyhow::ensure!(listed.starts_with("No partition"), "{listed}");
        Ok(())
    })
}

fn elect_preferred(bench: &Bench<'_>) -> Result<()> {
    let mut elect = bench.tool("leader-election");
    elect
        .args(["--bootstrap-server", &bench.cluster.bootstrap()])
        .args(["--election-type", "preferred", "--all-topic-partitions"]);
    process::output_of(&mut elect)?;
    Ok(())
}

fn p99_9_ms(bench: &Bench<'_>, topic: &str) -> Result<f64> {
    let mut produce = bench.tool("producer-perf-test");
    produce
        .args(["--bootstrap-server", &bench.cluster.bootstrap()])
        .args(["--topic", topic, "--num-records", &RATE.to_string()])
        .args(["--record-size", &RECORD_BYTES.to_string()])
        .args(["--throughput", &RATE.to_string()])
        .args(["--command-property", "acks=all"]);
    Ok(producer_summary(&process::output_of(&mut produce)?)?.p99_9_ms)
}
