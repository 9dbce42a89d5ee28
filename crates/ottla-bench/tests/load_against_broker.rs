//! Every mode of the load generator against the real broker.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ottla_bench::load::cluster::{create_topic, delete_topic, find_topic};
use ottla_bench::load::fetch::{self, FetchOptions};
use ottla_bench::load::groups::Protocol;
use ottla_bench::load::heartbeats::{self, HeartbeatsOptions};
use ottla_bench::load::large_group::{self, LargeGroupOptions};
use ottla_bench::load::latency::{self, EndToEndOptions};
use ottla_bench::load::prepared::BatchShape;
use ottla_bench::load::produce::{self, ProduceOptions, RunLength};
use ottla_bench::workload::latencies::LatencyReport;
use ottla_records::{Compression, CompressionType};
use ottla_testkit::BrokerBuilder;

fn options() -> ProduceOptions {
    ProduceOptions {
        shape: BatchShape {
            batch_bytes: 8 * 1024,
            record_bytes: 100,
            compression: Compression::None,
        },
        connections: 3,
        in_flight: 4,
        acks: 1,
        until: RunLength::Bytes(1_000_000),
        requests_per_second: None,
    }
}

#[test]
fn what_is_produced_is_read_back_in_every_codec() {
    let broker = BrokerBuilder::new().start();
    for codec in CompressionType::ALL {
        let topic = create_topic(&broker.bootstrap(), codec.name(), 4, &[]).unwrap();
        let mut options = options();
        options.shape.compression = Compression::from(codec);
        let produced = produce::run(&topic, options).unwrap();
        assert!(produced.bytes >= 1_000_000 && produced.records * 100 == produced.payload_bytes);
        assert_eq!(
            produced.latencies.report().unwrap().count,
            produced.requests
        );
        for connections in [1, 3, 4] {
            let fetch_options = FetchOptions {
                connections,
                fetch_bytes: 64 * 1024,
                passes: 1,
            };
            let fetched = fetch::run(&topic, fetch_options).unwrap();
            assert_eq!(
                (fetched.records, fetched.bytes),
                (produced.records, produced.bytes),
                "{codec}"
            );
        }
    }
}

#[test]
fn a_fixed_rate_is_kept() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&broker.bootstrap(), "paced", 2, &[]).unwrap();
    let produced = produce::run(
        &topic,
        ProduceOptions {
            until: RunLength::Time(Duration::from_secs(2)),
            requests_per_second: Some(100.0),
            ..options()
        },
    )
    .unwrap();
    assert_eq!(produced.requests, 200);
    // The last one is due 10 ms before the end.
    assert!(
        produced.elapsed >= Duration::from_millis(1990),
        "{:?}",
        produced.elapsed
    );
    assert_eq!(produced.latencies.report().unwrap().count, 200);
    let due: BTreeSet<Instant> = produced.each.iter().map(|request| request.due).collect();
    assert_eq!(due.len(), 200);
    let (first, last) = (due.first().unwrap(), due.last().unwrap());
    // Each connection starts when its thread does.
    let apart = (*last - *first).abs_diff(Duration::from_millis(1990));
    assert!(apart < Duration::from_millis(500), "{apart:?}");
}

#[test]
fn records_go_from_end_to_end_one_by_one() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&broker.bootstrap(), "single", 1, &[]).unwrap();
    let options = EndToEndOptions {
        records: 50,
        record_bytes: 100,
        acks: -1,
    };
    for _ in 0..2 {
        let outcome = latency::run(&topic, options).unwrap();
        assert_eq!((outcome.records, outcome.payload_bytes), (50, 5000));
        let (whole, part) = (
            outcome.end_to_end.report(),
            outcome.acknowledgement.report(),
        );
        assert!(whole.unwrap().p50_us >= part.unwrap().p50_us);
    }
}

#[test]
fn members_of_many_groups_share_connections() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&broker.bootstrap(), "groups", 4, &[]).unwrap();
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        let options = HeartbeatsOptions {
            prefix: format!("{protocol:?}"),
            groups: 3,
            members_of_each: 2,
            protocol,
            connections: 4,
            interval: Duration::from_millis(100),
            warmup: Duration::from_millis(200),
            measured: Duration::from_secs(1),
            broker_pid: None,
        };
        let report = heartbeats::run(&topic, &broker.bootstrap(), &options).unwrap();
        assert_eq!((report.heartbeats, report.refused), (60, 0), "{protocol:?}");
    }
}

#[test]
fn members_leave_a_group_while_producers_write() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&broker.bootstrap(), "read", 20, &[]).unwrap();
    let produced = create_topic(&broker.bootstrap(), "written", 2, &[]).unwrap();
    let options = LargeGroupOptions {
        group_id: "large".to_owned(),
        members: 20,
        connections: 3,
        interval: Duration::from_millis(200),
        leaves: 2,
        quiet: Duration::from_secs(1),
        produce: ProduceOptions {
            requests_per_second: Some(200.0),
            ..options()
        },
    };
    let report = large_group::run(&topic, &produced, &broker.bootstrap(), &options).unwrap();
    assert_eq!(report.settled_after_ms.len(), 2);
    let count = |latency: Option<LatencyReport>| latency.map_or(0, |latency| latency.count);
    // Half a second of each, and what was due until the group had settled.
    assert!(count(report.quiet) >= 150, "{:?}", report.quiet);
    assert!(count(report.meanwhile) > 0, "{:?}", report.meanwhile);
}

#[test]
fn errors_name_the_broker_and_the_way_out() {
    let broker = BrokerBuilder::new().start();
    let bootstrap = broker.bootstrap();
    create_topic(&bootstrap, "four", 4, &[]).unwrap();
    let other_count = create_topic(&bootstrap, "four", 2, &[])
        .unwrap_err()
        .to_string();
    assert!(other_count.contains("--partitions 4"), "{other_count}");
    assert_eq!(find_topic(&bootstrap, "four").unwrap().partitions.len(), 4);

    let topic = create_topic(
        &bootstrap,
        "small",
        1,
        &[("max.message.bytes".into(), "1000".into())],
    );
    let refused = produce::run(&topic.unwrap(), options())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains(&bootstrap) && refused.contains("MESSAGE_TOO_LARGE"),
        "{refused}"
    );

    delete_topic(&bootstrap, "four").unwrap();
    let nobody = find_topic("127.0.0.1:1", "four").unwrap_err().to_string();
    assert!(
        nobody.contains("127.0.0.1:1") && nobody.contains("--bootstrap"),
        "{nobody}"
    );
}
