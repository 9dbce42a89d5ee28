//! Whole clusters under a seed: the product's own nodes and the real client on simulated hosts, disks and a simulated
//! network. The runs are not yet the same for the same seed (`docs/simulation.md`).
//!
//! `OTTLA_SEED=17 cargo test -p ottla-testkit --test cluster three -- --nocapture` runs one seed.

mod client;
mod node;

use std::time::{Duration, Instant};

use ottla_sync::simulation::{Config, Report, now, run, stream};

use client::Client;
use node::Node;

/// One broker that is its whole cluster takes records, serves them and stops in order.
fn one_broker() -> (Duration, usize) {
    let mut node = Node::combined(1, 1);
    node.format();
    node.start();
    let client = Client::new("client", "broker-1:9092");
    let topic = |client: &Client| client.create_topic("orders", 1, 1);
    topic(&client);
    let sent = client.produce("orders", 0, 0..20);
    assert_eq!(sent.len(), 20, "{sent:?}");
    let read = client.consume("orders", 0);
    assert_eq!(read, (0..20).collect::<Vec<_>>());
    node.stop();
    (now(), read.len())
}

/// Three brokers that are controllers too. One of them is killed while records are sent and comes back: what was
/// acknowledged is there, once and in its order.
fn three_brokers() -> (Duration, usize) {
    let mut nodes: Vec<Node> = (1..=3).map(|id| Node::combined(id, 3)).collect();
    nodes.iter().for_each(Node::format);
    nodes.iter_mut().for_each(Node::start);
    let client = Client::new("client", "broker-1:9092,broker-2:9092,broker-3:9092");
    client.create_topic("orders", 1, 3);
    let mut sent = client.produce("orders", 0, 0..20);
    assert_eq!(
        sent.len(),
        20,
        "without a fault all are acknowledged: {sent:?}"
    );
    nodes[stream("victim").index(3)].kill_and_start();
    sent.extend(client.produce("orders", 0, 20..40));
    let acknowledged: Vec<u64> = sent.iter().map(|(number, _)| *number).collect();
    let read = client.consume("orders", 0);
    let is_acknowledged = |number: &&u64| acknowledged.contains(number);
    let kept: Vec<u64> = read.iter().filter(is_acknowledged).copied().collect();
    assert_eq!(kept, acknowledged);
    nodes.iter_mut().for_each(Node::stop);
    (now(), read.len())
}

fn run_one(seed: u64) -> Report<(Duration, usize)> {
    run(Config::new(seed), one_broker)
}

fn run_three(seed: u64) -> Report<(Duration, usize)> {
    run(Config::new(seed), three_brokers)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn one_broker_takes_records_serves_them_and_stops() {
    for seed in 1..4 {
        run_one(seed).unwrap();
    }
}

#[test]
fn three_brokers_keep_what_they_acknowledge() {
    let seeds = match number("OTTLA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..3,
    };
    for seed in seeds {
        let began = Instant::now();
        let report = run_three(seed);
        println!(
            "seed {seed}: {} switch points, {:?} simulated in {:?}",
            report.steps,
            report.simulated,
            began.elapsed()
        );
        report.unwrap();
    }
}

/// The first switch points in which two runs of a seed differ, with those before them.
fn first_difference(one: &str, other: &str) -> Option<String> {
    let index = one.lines().zip(other.lines()).position(|(a, b)| a != b)?;
    let around = |trace: &str| -> Vec<String> {
        let lines = trace.lines().skip(index.saturating_sub(12)).take(16);
        lines.map(str::to_owned).collect()
    };
    let (one, other) = (around(one).join("\n"), around(other).join("\n"));
    Some(format!(
        "from switch point {index} on:\n{one}\nand then\n{other}"
    ))
}

#[test]
fn a_seed_is_one_run() {
    let seed = number("OTTLA_SEED").unwrap_or(2);
    let config = Config::new(seed).recorded();
    let config = match number("OTTLA_STEPS") {
        Some(steps) => config.with_step_limit(steps),
        None => config,
    };
    let one = run(config, three_brokers);
    let other = run(config, three_brokers);
    println!("{} switch points, {:?}", one.steps, one.simulated);
    if let Some(difference) = first_difference(&one.trace, &other.trace) {
        panic!("two runs of seed {seed} differ {difference}");
    }
    assert_eq!(one.hash, other.hash);
}
