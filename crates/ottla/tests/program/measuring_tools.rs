//! The performance tools against a running broker, each as a process: all sent records are
//! consumed, with every flag. `cargo xtask conformance` compares their output with Kafka's tools.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ottla_binary};

fn broker() -> BrokerProcess {
    BrokerBuilder::new()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("offsets.topic.num.partitions", "3")
        .property("num.partitions", "3")
        .start()
}

fn run(broker: &BrokerProcess, line: &str) -> Output {
    Command::new(ottla_binary())
        .args(
            line.replace(
                "BROKER",
                &format!("--bootstrap-server {}", broker.bootstrap()),
            )
            .replace("ADDRESS", &broker.bootstrap())
            .split_whitespace(),
        )
        .output()
        .expect("the binary starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{err}", out(output));
    out(output)
}

/// The keys and values of a topic's records.
fn records_of(broker: &BrokerProcess, topic: &str, count: usize) -> Vec<(String, String)> {
    let printed = succeeded(&run(
        broker,
        &format!(
            "console-consumer BROKER --topic {topic} --from-beginning --max-messages {count} --timeout-ms 20000 \
             --formatter-property print.key=true --formatter-property key.separator=|"
        ),
    ));
    let split = |line: &str| {
        let (key, value) = line.split_once('|').expect("a key and a value");
        (key.to_owned(), value.to_owned())
    };
    printed.lines().map(split).collect()
}

#[test]
fn all_sent_records_are_consumed() {
    let broker = broker();
    let sent = succeeded(&run(
        &broker,
        "producer-perf-test positional 3000 100 -1 acks=1 bootstrap.servers=ADDRESS buffer.memory=67108864 \
         batch.size=8196",
    ));
    assert!(sent.starts_with("3000 records sent, "), "{sent}");
    assert_eq!(sent.lines().count(), 1, "{sent}");

    let consumed = succeeded(&run(
        &broker,
        "consumer-perf-test BROKER --topic positional --num-records 3000 --timeout 20000 --hide-header",
    ));
    let columns: Vec<&str> = consumed.trim().split(", ").collect();
    assert_eq!(columns.len(), 10, "{consumed}");
    assert_eq!((columns[2], columns[4]), ("0.2861", "3000"), "{consumed}");

    let latency = succeeded(&run(&broker, "e2e-latency ADDRESS latency 20 all 100"));
    let mut lines: Vec<&str> = latency.lines().collect();
    assert!(
        lines
            .remove(0)
            .starts_with("WARNING: Positional argument usage is deprecated")
    );
    assert_eq!(lines.len(), 4, "{latency}");
    assert!(lines[0].starts_with("Topic \"latency\" does not exist."));
    assert!(lines[1].starts_with("0\t") && lines[2].starts_with("Avg latency: "));
    assert!(lines[3].starts_with("Percentiles: 50th = "));
}

#[test]
fn threads_divide_the_records_and_their_keys() {
    let broker = broker();
    let sent = succeeded(&run(
        &broker,
        "producer-perf-test BROKER --topic shared --num-records 500 --payload-monotonic --throughput 2000 \
         --num-threads 3 --key-distribution range --record-key-range 7 --warmup-records 100",
    ));
    let lines: Vec<&str> = sent.lines().collect();
    assert!(lines[0].starts_with("Warmup first 100 records."), "{sent}");
    assert!(lines[1].starts_with("500 records sent, "), "{sent}");
    assert!(
        lines[2].starts_with("400 steady state records sent, "),
        "{sent}"
    );
    let records = records_of(&broker, "shared", 500);
    let values: BTreeSet<u64> = records.iter().map(|(_, it)| it.parse().unwrap()).collect();
    assert_eq!(values, (0..500).collect());
    for (key, value) in &records {
        assert_eq!(
            key.parse::<u64>().unwrap(),
            value.parse::<u64>().unwrap() % 7
        );
    }
}

#[test]
fn one_seed_sends_the_same_records_again() {
    let broker = broker();
    let sent = |topic: &str, seed: u64| {
        succeeded(&run(
            &broker,
            &format!(
                "producer-perf-test BROKER --topic {topic} --num-records 200 --record-size 0-40 --throughput -1 \
                 --key-distribution random --record-key-range 50 --random-seed {seed}"
            ),
        ));
        let mut counts = BTreeMap::new();
        for record in records_of(&broker, topic, 200) {
            *counts.entry(record).or_insert(0) += 1;
        }
        counts
    };
    let first = sent("first", 5);
    assert!(first.keys().any(|(_, value)| value.len() > 35));
    assert!(first.keys().all(|(_, value)| value.len() <= 40));
    assert_eq!(first, sent("second", 5));
    assert_ne!(first, sent("third", 6));
}

#[test]
fn unsent_records_are_counted_but_not_as_sent() {
    let broker = broker();
    let sent = run(
        &broker,
        "producer-perf-test BROKER --topic large --num-records 3 --record-size 2000000 --throughput -1",
    );
    assert!(
        succeeded(&sent).starts_with("0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms")
    );
    let err = String::from_utf8_lossy(&sent.stderr);
    assert!(err.contains("3 records could not be sent:"), "{err}");
    assert!(err.contains("RecordTooLargeException"), "{err}");
}
