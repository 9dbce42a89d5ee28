use clap::{Args, Command, FromArgMatches};

use super::*;

fn args(line: &str) -> ProducerPerfTestArgs {
    let command = ProducerPerfTestArgs::augment_args(Command::new("t"));
    let words = std::iter::once("t").chain(line.split_whitespace());
    ProducerPerfTestArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
}

fn planned(line: &str) -> Plan {
    plan(&args(line)).unwrap()
}

#[track_caller]
fn refused(line: &str) -> String {
    match plan(&args(line)).unwrap_err() {
        Refusal::Usage(text) => text,
        Refusal::Trouble(Trouble::Uncaught(_, text)) => text,
        Refusal::Trouble(Trouble::Other(error)) => error.to_string(),
    }
}

const USUAL: &str = "--topic t --num-records 5 --throughput -1 --bootstrap-server h:1";

#[test]
fn the_usual_command_line_is_accepted() {
    let plan = planned(&format!("{USUAL} --record-size 100"));
    assert_eq!(
        (plan.topic.as_str(), plan.records, plan.threads),
        ("t", 5, 1)
    );
    assert_eq!((plan.records_per_second, plan.warmup_records), (None, 0));
    assert_eq!(
        (plan.keys, plan.reporting_interval),
        (KeyDistribution::None, 5000)
    );
    let Payload::Random { content, sizes } = plan.payload else {
        panic!("{plan:?}")
    };
    assert_eq!((content, sizes), (Content::Letters, ValueSizes::fixed(100)));
    assert_eq!(plan.settings["bootstrap.servers"], "h:1");
    assert_eq!(plan.settings["client.id"], "perf-producer-client");
}

/// The published command of 2014.
#[test]
fn the_command_line_of_kafka_0_8_is_accepted() {
    let plan = planned(
        "test7 50000000 100 -1 acks=1 bootstrap.servers=h:9092 buffer.memory=67108864 batch.size=8196",
    );
    assert_eq!((plan.topic.as_str(), plan.records), ("test7", 50_000_000));
    assert_eq!(plan.records_per_second, None);
    assert_eq!(plan.settings["batch.size"], "8196");
    assert_eq!(plan.settings["bootstrap.servers"], "h:9092");
    assert_eq!(refused("test7 5"), "unrecognized arguments: 'test7 5'");
    assert_eq!(
        refused(&format!("{USUAL} --record-size 5 more")),
        "unrecognized arguments: 'more'"
    );
}

#[test]
fn properties_override_the_file_and_the_servers_override_both() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "acks=all\nlinger.ms=7\nclient.id=mine\n").unwrap();
    let plan = planned(&format!(
        "{USUAL} --record-size 1 --command-config {} --command-property acks=1 bootstrap.servers=other:2",
        file.path().display()
    ));
    for (key, value) in [
        ("acks", "1"),
        ("linger.ms", "7"),
        ("client.id", "mine"),
        ("bootstrap.servers", "h:1"),
    ] {
        assert_eq!(plan.settings[key], value);
    }
}

#[test]
fn invalid_arguments_have_the_messages_of_kafka() {
    for (rest, text) in [
        (
            "",
            "one of the arguments --record-size --payload-file --payload-monotonic is required",
        ),
        (
            "--record-size 5 --payload-monotonic",
            "argument --payload-monotonic: not allowed with argument --record-size",
        ),
        (
            "--record-size x",
            "argument --record-size: could not convert 'x' to Integer (For input string: \"x\")",
        ),
        (
            "--record-size 5 --num-records x",
            "argument --num-records: could not convert 'x' to Long (For input string: \"x\")",
        ),
        (
            "--record-size 0",
            "--record-size should be greater than zero.",
        ),
        (
            "--record-size 0-0",
            "--record-size should be greater than zero.",
        ),
        (
            "--record-size 5 --num-records 0",
            "--num-records should be greater than zero.",
        ),
        (
            "--record-size 5 --warmup-records 5",
            "The value for --warmup-records must be strictly fewer than the number of records in the test, \
             --num-records.",
        ),
        (
            "--record-size 5 --command-property a=b --producer-props a=b",
            "--command-property and --producer-props cannot be specified together.",
        ),
        (
            "--record-size 5 --command-config a --producer.config b",
            "--command-config and --producer.config cannot be specified together.",
        ),
        (
            "--record-size 5 --transaction-duration-ms 0",
            "--transaction-duration-ms should be greater than zero.",
        ),
        (
            "--record-size 5 --reporting-interval 0",
            "--reporting-interval should be greater than zero.",
        ),
        (
            "--record-size 5 --command-property a=b=c",
            "Invalid property: a=b=c",
        ),
        ("--record-size 5 --command-config /missing/x", "/missing/x"),
        (
            "--payload-file /missing/x",
            "File does not exist or empty file provided.",
        ),
        (
            "--record-size 5 --key-distribution range",
            "--record-key-range is required with --key-distribution range or random.",
        ),
        (
            "--record-size 5 --record-key-range 5",
            "--record-key-range can only be used with --key-distribution range or random.",
        ),
        (
            "--record-size 5 --num-threads 2 --transactional-id x",
            "--num-threads should be 1 with transactions: a producer can have only one open transaction.",
        ),
        (
            "--record-size 5 --num-threads 0",
            "--num-threads should be from 1 to 1024.",
        ),
    ] {
        assert_eq!(refused(&format!("{USUAL} {rest}")), text, "{rest}");
    }
    assert_eq!(
        refused("--topic t --num-records 5"),
        "argument --throughput is required"
    );
    assert!(
        refused("--topic t --num-records 5 --throughput -1 --record-size 5")
            .starts_with("At least one of --bootstrap-server,")
    );
}

#[test]
fn each_of_three_settings_enables_transactions() {
    for (rest, id, milliseconds) in [
        ("--transactional-id x", "x", 3000),
        ("--transaction-duration-ms 7", "performance-producer-", 7),
        ("--command-property transactional.id=y", "y", 3000),
        (
            "--command-property transactional.id=y --transactional-id x",
            "x",
            3000,
        ),
    ] {
        let plan = planned(&format!("{USUAL} --record-size 1 {rest}"));
        assert!(
            plan.settings["transactional.id"].starts_with(id),
            "{plan:?}"
        );
        assert_eq!(
            plan.transaction_duration,
            Some(Duration::from_millis(milliseconds))
        );
    }
    let without = planned(&format!("{USUAL} --record-size 1"));
    assert_eq!(without.transaction_duration, None);
}

#[test]
fn options_that_kafka_does_not_have() {
    let plan = planned(&format!(
        "{USUAL} --record-size 0-1800 --value-bound 5000 --num-threads 10 --key-distribution random \
         --record-key-range 9 --random-seed -3 --throughput 12.5"
    ));
    assert_eq!((plan.threads, plan.seed), (10, (-3_i64).cast_unsigned()));
    assert_eq!(plan.keys, KeyDistribution::Random(9));
    assert_eq!(plan.records_per_second, Some(12.5));
    let Payload::Random { content, sizes } = plan.payload else {
        panic!("{plan:?}")
    };
    assert_eq!(content, Content::Numbers { bound: 5000 });
    assert_eq!((sizes.least, sizes.most), (0, 1800));
}

#[test]
fn a_payload_file_is_split_as_by_the_scanner_of_java() {
    let cut = |text: &str, delimiter: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let parts = read_payload_file(&file.path().display().to_string(), delimiter).unwrap();
        let parts = parts
            .into_iter()
            .map(|part| String::from_utf8(part).unwrap());
        parts.collect::<Vec<String>>()
    };
    assert_eq!(cut("a\n\nb\n", "\\n"), ["a", "", "b"]);
    assert_eq!(cut("\na", "\\n"), ["a"]);
    assert_eq!(cut("a,;b", "[,;]+"), ["a", "b"]);
    assert!(cut("\n", "\\n").is_empty());
}
