//! Tiered storage of a running broker: the priority of its work, and `ottla tier restore` of a topic that
//! was spoilt, and then deleted.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput, words};

const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps the objects of deleted segments, as a bucket with versions does.
fn broker(store: &str) -> BrokerProcess {
    BrokerBuilder::new()
        .property("remote.log.storage.system.enable", "true")
        .property(
            "remote.log.storage.manager.class.name",
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        )
        .property("rsm.config.dir", store)
        .property("rsm.config.delete.enable", "false")
        .property(
            "rlmm.config.remote.log.metadata.topic.replication.factor",
            "1",
        )
        .property("rlmm.config.remote.log.metadata.topic.min.isr", "1")
        .property("rlmm.config.remote.log.metadata.topic.num.partitions", "3")
        .property("remote.log.manager.task.interval.ms", "100")
        .start()
}

/// Whether the tool succeeded, and its output.
fn run(broker: &BrokerProcess, arguments: &[&str], input: &str) -> (bool, String) {
    let servers = broker.bootstrap();
    let ran = ToolOutput::of(
        &[arguments, &["--bootstrap-server", &servers]].concat(),
        input,
    );
    (ran.status == 0, ran.out + &ran.err)
}

#[track_caller]
fn succeed(broker: &BrokerProcess, arguments: &[&str], input: &str) -> String {
    let (succeeded, printed) = run(broker, arguments, input);
    assert!(succeeded, "{arguments:?}: {printed}");
    printed
}

/// Ten records, in segments of their own.
fn produce(broker: &BrokerProcess, what: &str) -> Vec<String> {
    let values: Vec<String> = (0..10).map(|number| format!("{what} {number}")).collect();
    let input = values.join("\n") + "\n";
    succeed(broker, &["console-producer", "--topic", "orders"], &input);
    // The next record is more than a millisecond younger.
    std::thread::sleep(Duration::from_millis(50));
    values
}

/// Waits until the description of the topic's remote storage satisfies the condition.
fn wait_for(broker: &BrokerProcess, is_so: impl Fn(&serde_json::Value) -> bool) {
    let began = Instant::now();
    loop {
        let described = ["tier", "describe", "--json", "--topic", "orders"];
        let (_, printed) = run(broker, &described, "");
        // Warnings may come after it.
        let mut values = serde_json::Deserializer::from_str(&printed).into_iter();
        let json: Option<serde_json::Value> = values.next().and_then(Result::ok);
        if json.is_some_and(|json| is_so(&json["partitions"][0])) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{printed}\n{}", broker.output());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The name and the niceness of each thread of the broker.
fn threads(broker: &BrokerProcess) -> Vec<(String, i32)> {
    let tasks = format!("/proc/{}/task", broker.pid());
    let tasks = std::fs::read_dir(tasks).expect("the broker runs");
    // A thread may end meanwhile.
    let stats = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
        // The 19th field of `stat`; the third is the first after the name.
        let niceness = fields.split_whitespace().nth(16)?;
        Some((name.to_owned(), niceness.parse().ok()?))
    });
    stats.collect()
}

#[test]
fn work_at_the_store_has_a_lower_priority() {
    let store = tempfile::tempdir().expect("a folder");
    let broker = broker(store.path().to_str().expect("a path of characters"));
    let topic = "topics --create --topic orders --partitions 1 \
                 --config remote.storage.enable=true --config segment.ms=1";
    succeed(&broker, &words(topic), "");
    produce(&broker, "copied");
    produce(&broker, "last");
    wait_for(&broker, |it| it["remoteEndOffset"].as_i64() >= Some(9));
    let threads = threads(&broker);
    let (of_store, others): (Vec<_>, Vec<_>) = threads
        .iter()
        .partition(|(name, _)| name == "remote-storage");
    // Those that serve the requests to the store, and one for the files.
    assert!(of_store.len() >= 2, "{threads:?}");
    assert!(others.len() >= 2, "{threads:?}");
    let lowest = others.iter().map(|(_, niceness)| niceness).max();
    let highest = of_store.iter().map(|(_, niceness)| niceness).min();
    assert!(lowest < highest, "{threads:?}");
}

#[test]
fn a_deleted_topic_is_restored_to_a_time_before_the_damage() {
    let store = tempfile::tempdir().expect("a folder");
    let broker = broker(store.path().to_str().expect("a path of characters"));
    succeed(
        &broker,
        &words(
            "topics --create --topic orders --partitions 1 \
             --config remote.storage.enable=true --config segment.ms=1",
        ),
        "",
    );
    let now_ms = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("after 1970").as_millis().to_string()
    };
    let mut good = produce(&broker, "good");
    let between = now_ms();
    good.extend(produce(&broker, "fine"));
    let to_time = now_ms();
    std::thread::sleep(Duration::from_millis(50));
    produce(&broker, "spoilt");
    // Closes the segment before it, and is itself never copied.
    produce(&broker, "last");
    wait_for(&broker, |it| {
        it["remoteEndOffset"].as_i64() >= Some(29) && it["copying"] == 0
    });
    succeed(&broker, &["topics", "--delete", "--topic", "orders"], "");
    wait_for(&broker, |it| {
        it["segments"] == 0 && it["deleting"] == 0 && it["deleted"].as_u64() >= Some(3)
    });

    let config: PathBuf = broker.dir().join("server.properties");
    let restore = [
        "tier",
        "restore",
        "--config",
        config.to_str().expect("a path of characters"),
        "--topic",
        "orders",
        "--to-time",
        &to_time,
    ];
    let planned = [&restore[..], &["--dry-run"]].concat();
    let planned = succeed(&broker, &planned, "");
    assert!(planned.contains(" 20 records, "), "{planned}");
    assert!(!planned.contains("MISSING"), "{planned}");
    let listed = succeed(&broker, &["topics", "--list"], "");
    assert!(!listed.contains("orders"), "{listed}");

    for (written, before) in [(20, 0), (0, 20)] {
        let printed = succeed(&broker, &restore, "");
        let expected = format!(
            "orders-restored: {written} records written, {before} of an earlier run, 20 in all"
        );
        assert!(printed.contains(&expected), "{printed}");
    }
    let consumed = succeed(
        &broker,
        &words(
            "console-consumer --topic orders-restored --from-beginning \
             --max-messages 20 --timeout-ms 30000",
        ),
        "",
    );
    let consumed: Vec<&str> = consumed.lines().take(20).collect();
    assert_eq!(consumed, good);

    // Refused before a segment is read.
    for (more, says) in [
        (["--as", "a/b"], "a/b"),
        (["--topic-config", "retention.ms=5"], "retention.ms"),
        (["--throttle", "0"], "give at least 1024"),
        (["--parallel", "0"], "give 1 to 65535"),
    ] {
        let (succeeded, printed) = run(&broker, &[&restore[..], &more].concat(), "");
        assert!(!succeeded && printed.contains(says), "{printed}");
        assert!(!printed.contains("partition 0"), "{printed}");
    }

    // Before every record.
    let mut earlier = restore;
    earlier[7] = "1000";
    let never = [&earlier[..], &["--as", "never"]].concat();
    let (succeeded, printed) = run(&broker, &never, "");
    assert!(
        !succeeded && printed.contains("the earliest time with a record is 2"),
        "{printed}"
    );
    let listed = succeed(&broker, &["topics", "--list"], "");
    assert!(!listed.contains("never"), "{listed}");

    // Another time is another restore.
    earlier[7] = &between;
    let (succeeded, printed) = run(&broker, &earlier, "");
    assert!(
        !succeeded && printed.contains("does not hold the begin of this restore"),
        "{printed}"
    );
}

#[test]
fn the_error_without_tiered_storage_names_the_setting_that_enables_it() {
    let broker = BrokerBuilder::new().start();
    let (succeeded, printed) = run(&broker, &["tier", "describe"], "");
    assert!(!succeeded, "{printed}");
    let way_out = "set remote.log.storage.system.enable=true";
    assert!(printed.contains(way_out), "{printed}");
    assert!(!printed.contains("UNKNOWN_TOPIC"), "{printed}");
}
