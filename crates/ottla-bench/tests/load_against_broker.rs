//! Every mode of the load generator against the real broker.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ottla_bench::load::access::Access;
use ottla_bench::load::cluster::{create_topic, delete_topic, find_topic};
use ottla_bench::load::connect::{self, ConnectOptions};
use ottla_bench::load::fetch::{self, FetchOptions};
use ottla_bench::load::groups::Protocol;
use ottla_bench::load::heartbeats::{self, HeartbeatsOptions};
use ottla_bench::load::large_group::{self, LargeGroupOptions};
use ottla_bench::load::latency::{self, EndToEndOptions};
use ottla_bench::load::prepared::BatchShape;
use ottla_bench::load::produce::{self, ProduceOptions, RunLength};
use ottla_bench::load::security::Security;
use ottla_bench::workload::latencies::LatencyReport;
use ottla_records::{Compression, CompressionType};
use ottla_testkit::certificates::{Authority, Wanted};
use ottla_testkit::{BrokerBuilder, BrokerProcess, lease_ports, words};

fn access(broker: &BrokerProcess) -> Access {
    Access::plain(&broker.bootstrap())
}

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
fn produced_records_are_read_back_with_every_codec() {
    let broker = BrokerBuilder::new().start();
    for codec in CompressionType::ALL {
        let topic = create_topic(&access(&broker), codec.name(), 4, &[]).unwrap();
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
                partition_bytes: u64::MAX,
                megabytes_per_second: None,
                stop: None,
            };
            let fetched = fetch::run(&topic, fetch_options).unwrap();
            assert_eq!(
                (fetched.records, fetched.bytes),
                (produced.records, produced.bytes),
                "{codec}"
            );
        }
        static STOP: AtomicBool = AtomicBool::new(true);
        let endless = FetchOptions {
            connections: 1,
            fetch_bytes: 64 * 1024,
            passes: usize::MAX,
            partition_bytes: u64::MAX,
            megabytes_per_second: None,
            stop: Some(&STOP),
        };
        assert_eq!(fetch::run(&topic, endless).unwrap().requests, 1);
    }
}

#[test]
fn a_fixed_rate_is_kept() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&access(&broker), "paced", 2, &[]).unwrap();
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
    // The three connections take turns. Each counts from the start of its thread, which a busy machine
    // may delay.
    let mut rest = &produced.each[..];
    for count in [67, 67, 66] {
        let of_connection = rest.split_off(..count).unwrap();
        let span = of_connection[count - 1].due - of_connection[0].due;
        assert_eq!(span, Duration::from_millis(30) * (count as u32 - 1));
    }

    let options = FetchOptions {
        connections: 2,
        fetch_bytes: 64 * 1024,
        passes: 1,
        partition_bytes: u64::MAX,
        megabytes_per_second: Some(2.0),
        stop: None,
    };
    let fetched = fetch::run(&topic, options).unwrap();
    assert_eq!(fetched.records, produced.records);
    // One of them reads half or more, at half of the rate. The last fetch is sent when the bytes before
    // it are paid for.
    let paid = fetched.bytes / 2 - options.fetch_bytes as u64;
    let least = Duration::from_secs_f64(paid as f64 / 1e6);
    assert!(fetched.elapsed >= least, "{fetched:?}");
}

#[test]
fn records_are_measured_end_to_end_one_by_one() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&access(&broker), "single", 1, &[]).unwrap();
    for rate in [None, None, Some(100.0), Some(1e6)] {
        let options = EndToEndOptions {
            records: 50,
            record_bytes: 100,
            acks: -1,
            rate,
        };
        let outcome = latency::run(&topic, options).unwrap();
        assert_eq!((outcome.records, outcome.payload_bytes), (50, 5000));
        let (whole, part) = (
            outcome.end_to_end.report(),
            outcome.acknowledgement.report(),
        );
        let (whole, part) = (whole.unwrap(), part.unwrap());
        assert!(whole.p50_us >= part.p50_us);
        match rate {
            Some(100.0) => assert!(outcome.elapsed >= Duration::from_millis(490)),
            // All are due at once, and each waits for those before it.
            Some(_) => assert!(whole.max_us > outcome.elapsed.as_micros() as f64 / 2.0),
            None => {}
        }
    }
}

#[test]
fn members_of_many_groups_share_connections() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&access(&broker), "groups", 4, &[]).unwrap();
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        let options = HeartbeatsOptions {
            prefix: format!("{protocol:?}"),
            groups: 3,
            members_of_each: 2,
            protocol,
            connections: 4,
            interval: Duration::from_millis(100),
            // A member is counted from the start if its thread knows it by then.
            warmup: Duration::from_secs(2),
            measured: Duration::from_secs(1),
            broker_pid: None,
        };
        let report = heartbeats::run(&topic, &options).unwrap();
        assert_eq!((report.heartbeats, report.refused), (60, 0), "{protocol:?}");
    }
}

#[test]
fn members_leave_a_group_while_producers_write() {
    let broker = BrokerBuilder::new().start();
    let topic = create_topic(&access(&broker), "read", 20, &[]).unwrap();
    let produced = create_topic(&access(&broker), "written", 2, &[]).unwrap();
    let options = LargeGroupOptions {
        group_id: "large".to_owned(),
        members: 20,
        connections: 3,
        interval: Duration::from_millis(200),
        leaves: 2,
        quiet: Duration::from_secs(2),
        produce: ProduceOptions {
            requests_per_second: Some(200.0),
            ..options()
        },
    };
    let report = large_group::run(&topic, &produced, &options).unwrap();
    assert_eq!(report.settled_after_ms.len(), 2);
    let count = |latency: Option<LatencyReport>| latency.map_or(0, |latency| latency.count);
    // Requests count by their due time, so a slow machine has as many: one and a half seconds of each of
    // the two members, and the requests that were due until the group had settled. The rest of the 600
    // may be missing if a producer's thread starts late.
    assert!(count(report.quiet) >= 300, "{:?}", report.quiet);
    assert!(count(report.meanwhile) > 0, "{:?}", report.meanwhile);
}

#[test]
fn errors_name_the_broker_and_the_way_out() {
    let broker = BrokerBuilder::new().start();
    let bootstrap = broker.bootstrap();
    let access = Access::plain(&bootstrap);
    create_topic(&access, "four", 4, &[]).unwrap();
    let other_count = create_topic(&access, "four", 2, &[])
        .unwrap_err()
        .to_string();
    assert!(other_count.contains("--partitions 4"), "{other_count}");
    assert_eq!(find_topic(&access, "four").unwrap().partitions.len(), 4);

    let topic = create_topic(
        &access,
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

    delete_topic(&access, "four").unwrap();
    let nobody = find_topic(&Access::plain("127.0.0.1:1"), "four")
        .unwrap_err()
        .to_string();
    assert!(
        nobody.contains("127.0.0.1:1") && nobody.contains("--bootstrap"),
        "{nobody}"
    );
}

/// A broker with a second listener for TLS and SCRAM, and the access of its user `alice`.
fn secured(dir: &Path) -> (BrokerProcess, Access) {
    let authority = Authority::new("authority");
    authority.write(&dir.join("authority.pem"));
    let broker = authority.issue(Wanted::default());
    broker.write(&dir.join("broker.pem"));
    let path = |name: &str| dir.join(name).display().to_string();
    let [plain, port, controller] = lease_ports().unwrap();
    let clients = format!("PLAINTEXT://127.0.0.1:{plain},CLIENTS://127.0.0.1:{port}");
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required";
    let broker = BrokerBuilder::new()
        .port(plain)
        .property(
            "controller.quorum.bootstrap.servers",
            &format!("127.0.0.1:{controller}"),
        )
        .property(
            "listeners",
            &format!("{clients},CONTROLLER://127.0.0.1:{controller}"),
        )
        .property("advertised.listeners", &clients)
        .property(
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT",
        )
        .property("ssl.keystore.type", "PEM")
        .property("ssl.keystore.location", &path("broker.pem"))
        .property("sasl.enabled.mechanisms", "SCRAM-SHA-256")
        .property(
            "listener.name.clients.scram-sha-256.sasl.jaas.config",
            &format!("{scram};"),
        )
        .start();
    broker.tool(&words(
        "configs --bootstrap-server {bootstrap} --alter --entity-type users --entity-name alice \
         --add-config SCRAM-SHA-256=[iterations=4096,password=alice-secret]",
    ));
    let settings = [
        ("security.protocol", "SASL_SSL".to_owned()),
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", path("authority.pem")),
        ("sasl.mechanism", "SCRAM-SHA-256".to_owned()),
        (
            "sasl.jaas.config",
            format!("{scram} username=\"alice\" password=\"alice-secret\";"),
        ),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let security = Security::load(&settings.into()).unwrap();
    let access = Access::secured(&format!("127.0.0.1:{port}"), security);
    // The user is in the metadata before the broker has read it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = access.open_bootstrap() {
        assert!(Instant::now() < deadline, "{error:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
    (broker, access)
}

#[test]
fn load_runs_against_a_secured_listener() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, access) = secured(dir.path());
    let topic = create_topic(&access, "secured", 2, &[]).unwrap();
    let produced = produce::run(&topic, options()).unwrap();
    let paced = ProduceOptions {
        until: RunLength::Time(Duration::from_secs(1)),
        requests_per_second: Some(100.0),
        ..options()
    };
    let paced = produce::run(&topic, paced).unwrap();
    assert_eq!(paced.latencies.report().unwrap().count, 100);
    let fetched = fetch::run(
        &topic,
        FetchOptions {
            connections: 2,
            fetch_bytes: 256 * 1024,
            passes: 1,
            partition_bytes: u64::MAX,
            megabytes_per_second: None,
            stop: None,
        },
    )
    .unwrap();
    assert_eq!(
        (fetched.records, fetched.bytes),
        (
            produced.records + paced.records,
            produced.bytes + paced.bytes
        )
    );
}

#[test]
fn new_connections_resume_tls_sessions_by_default() {
    let dir = tempfile::tempdir().unwrap();
    let (_broker, access) = secured(dir.path());
    let options = ConnectOptions {
        threads: 2,
        time: Duration::from_secs(3),
    };
    let connected = connect::run(&access, options).unwrap();
    // Each thread begins with a full handshake.
    let full = connected.connections - connected.resumed;
    assert!(
        connected.resumed > 0 && full <= options.threads as u64,
        "{connected:?}"
    );
    let security = [
        ("security.protocol", "SSL".to_owned()),
        ("ssl.truststore.type", "PEM".to_owned()),
        (
            "ssl.truststore.location",
            dir.path().join("authority.pem").display().to_string(),
        ),
    ];
    let security = security.map(|(key, value)| (key.to_owned(), value));
    let security = Security::load(&security.into()).unwrap();
    // ApiVersions is answered before the login.
    let access = Access::secured(access.bootstrap(), security.without_resumption());
    let connected = connect::run(&access, options).unwrap();
    assert!(connected.connections > 0 && connected.resumed == 0);
}
