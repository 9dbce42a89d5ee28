//! The administrative tools for whole clusters, each run as a process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput, ottla_binary, words};

fn run(arguments: &[&str]) -> ToolOutput {
    ToolOutput::of(arguments, "")
}

/// The standard output of a tool, which must succeed.
#[track_caller]
fn out(broker: &BrokerProcess, before: &str, after: &str) -> String {
    on(broker, before, after).succeeded()
}

fn on(broker: &BrokerProcess, before: &str, after: &str) -> ToolOutput {
    let servers = broker.bootstrap();
    let line = format!("{before} --bootstrap-server {servers} {after}");
    run(&words(&line))
}

#[test]
fn the_cluster_is_described() {
    let broker = BrokerBuilder::new().start();
    let id = out(&broker, "cluster cluster-id", "");
    assert!(
        id.starts_with("Cluster ID: ") && id.trim_end().len() == 34,
        "{id}"
    );
    let nodes = out(&broker, "cluster list-endpoints", "");
    let lines: Vec<&str> = nodes.lines().collect();
    assert_eq!(
        lines[0],
        "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  "
    );
    assert!(lines[1].starts_with("1          127.0.0.1 "), "{nodes}");
    assert!(lines[1].ends_with(" unfenced   broker         "), "{nodes}");

    let status = out(&broker, "metadata-quorum", "describe --status");
    assert!(status.contains("\nLeaderId:               1\n"), "{status}");
    assert!(status.contains("\nMaxFollowerLagTimeMs:   0\n"), "{status}");
    let replication = out(&broker, "metadata-quorum", "describe --replication");
    assert!(
        replication.starts_with("NodeId\tDirectoryId"),
        "{replication}"
    );
    assert!(replication.ends_with("\tLeader\t\n"), "{replication}");
    let neither = on(&broker, "metadata-quorum", "describe");
    assert_eq!(neither.status, 1);
    assert!(neither.err.contains("One of --status or --replication"));

    let versions = out(&broker, "broker-api-versions", "");
    assert!(
        versions.contains(
            "(id: 1 rack: null isFenced: false) -> (\n\tProduce(0): 0 to 13 [usable: 13],"
        ),
        "{versions}"
    );
    assert_eq!(out(&broker, "cluster api-versions", ""), versions);
    let directories = out(&broker, "log-dirs", "--describe");
    assert!(
        directories.contains("\"error\":null,\"logDir\":"),
        "{directories}"
    );
    let unknown = on(&broker, "log-dirs", "--describe --broker-list 7");
    assert_eq!(unknown.status, 1);
    assert!(
        unknown
            .err
            .contains("do not exist from --broker-list: 7. Current existent brokers: 1"),
        "{}",
        unknown.err
    );
    assert_eq!(
        out(&broker, "groups", "--list"),
        format!("{:<20} {:<20} {:<20}\n", "GROUP", "TYPE", "PROTOCOL")
    );
}

/// The feature levels of a cluster, without the epoch, which differs from run to run.
fn levels(broker: &BrokerProcess) -> Vec<String> {
    let described = out(broker, "features", "describe");
    let lines = described
        .lines()
        .filter_map(|line| line.split_once("Epoch:"));
    lines.map(|(levels, _)| levels.to_owned()).collect()
}

#[test]
fn feature_levels_change_only_on_request() {
    let releases = [("4.0", "4.0-IV3"), ("4.3", "4.3-IV0"), ("4.4", "4.4-IV2")];
    for (release, level) in releases {
        let mut broker = BrokerBuilder::new().release(release).start();
        let before = levels(&broker);
        let line = before.iter().find(|line| line.contains("metadata.version"));
        let is_of_release = line.is_some_and(|line| line.trim_end().ends_with(level));
        assert!(is_of_release, "{release}: {before:?}");
        broker.stop();
        broker.start_again();
        assert_eq!(levels(&broker), before, "{release}, after a stop");
        broker.kill();
        broker.start_again();
        assert_eq!(levels(&broker), before, "{release}, after a kill");
    }
}

#[test]
fn features_are_described_and_changed() {
    let broker = BrokerBuilder::new().start();
    let described = out(&broker, "features", "describe");
    let line = described
        .lines()
        .find(|line| line.contains("metadata.version"))
        .expect("the feature");
    assert!(line.contains("FinalizedVersionLevel: 4.3-IV0"), "{line}");
    let lowered = out(
        &broker,
        "features",
        "downgrade --feature group.version=0 --dry-run",
    );
    assert_eq!(lowered, "group.version can be downgraded to 0.\n");
    let refused = on(&broker, "features", "upgrade --feature metadata.version=99");
    assert_eq!(refused.status, 1);
    assert!(
        refused
            .out
            .starts_with("Could not upgrade metadata.version to 99. "),
        "{}",
        refused.out
    );
    assert_eq!(refused.err, "1 out of 1 operation(s) failed.\n");
    let mapping = run(&["features", "version-mapping", "--release-version", "4.0"]);
    assert!(
        mapping.out.starts_with("metadata.version=25 (4.0)\n"),
        "{}",
        mapping.out
    );
    let nowhere = run(&["features", "describe"]);
    assert_eq!(nowhere.status, 1);
    assert!(
        nowhere.err.contains("--bootstrap-server"),
        "{}",
        nowhere.err
    );
}

#[test]
fn records_are_deleted_and_leaders_elected() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("partitions.json");
    let path = file.display().to_string();
    let broker = BrokerBuilder::new().start();
    out(&broker, "topics", "--create --topic t");
    std::fs::write(
        &file,
        r#"{"partitions":[{"topic":"t","partition":0,"offset":-1},{"topic":"t","partition":7,"offset":1}]}"#,
    )
    .expect("the file");
    let offsets = format!("--offset-json-file {path}");
    let deleted = on(&broker, "delete-records", &offsets);
    let lines: Vec<&str> = deleted.out.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "Executing records delete operation",
            "Records delete operation completed:"
        ]
    );
    assert_eq!(lines[2], "partition: t-0\tlow_watermark: 0");
    assert!(
        lines[3].starts_with("partition: t-7\terror: org.apache.kafka.common.errors."),
        "{}",
        deleted.out
    );
    let elected = out(
        &broker,
        "leader-election",
        "--election-type preferred --topic t --partition 0",
    );
    assert_eq!(
        elected,
        "Valid replica already elected for partitions t-0\n"
    );
    let unknown = on(
        &broker,
        "leader-election",
        &format!("--election-type preferred --path-to-json-file {path}"),
    );
    assert_eq!(unknown.status, 1);
    assert!(
        unknown
            .out
            .contains("Error completing leader election (PREFERRED) for partition: t-7: "),
        "{}",
        unknown.out
    );
    assert_eq!(unknown.err, "1 replica(s) could not be elected\n");
    std::fs::write(&file, "{").expect("the file");
    let broken = on(&broker, "delete-records", &offsets);
    assert_eq!(broken.status, 1);
    assert!(broken.err.contains("not a valid JSON") && broken.err.contains(&path));

    let config = folder.path().join("client.properties");
    std::fs::write(&config, "default.api.timeout.ms=5000\n").expect("the file");
    let config = config.display().to_string();
    let of_no_topic = r#"{"partitions":[{"topic":"nowhere","partition":0,"offset":1}]}"#;
    std::fs::write(&file, of_no_topic).expect("the file");
    let flags = format!("--offset-json-file {path} --command-config {config}");
    let unknown = on(&broker, "delete-records", &flags);
    assert_eq!(
        unknown.err,
        "WARN topic nowhere does not exist; waiting for it for up to 5000 ms\n"
    );
    let why = "UnknownTopicOrPartitionException: topic nowhere does not exist";
    assert!(unknown.out.contains(why), "{}", unknown.out);
}

#[test]
fn metrics_subscriptions_are_created_and_deleted() {
    let broker = BrokerBuilder::new().start();
    let subscriptions = |arguments: &str| out(&broker, "client-metrics", arguments);
    let altered =
        subscriptions("--alter --name m --metrics a.,b. --interval 10000 --match client_id=x");
    assert_eq!(altered, "Altered client metrics config for m.\n");
    assert_eq!(subscriptions("--list"), "m\n");
    assert_eq!(
        subscriptions("--describe"),
        "Client metrics configs for m are:\n  interval.ms=10000\n  match=client_id=x\n  metrics=a.,b.\n"
    );
    assert_eq!(
        subscriptions("--delete --name m"),
        "Deleted client metrics config for m.\n"
    );
    assert_eq!(subscriptions("--list"), "\n");
    let bad = on(
        &broker,
        "client-metrics",
        "--alter --name m --interval soon",
    );
    assert_eq!(bad.status, 1);
    assert!(
        bad.err.contains("Invalid interval value soon"),
        "{}",
        bad.err
    );
}

#[test]
fn quotas_and_credentials_are_stored() {
    let broker = BrokerBuilder::new().start();
    let configs = |arguments: &str| out(&broker, "configs", arguments);
    let rates = "producer_byte_rate=10485760,consumer_byte_rate=2048";
    assert_eq!(
        configs(&format!("--alter --user bob --add-config {rates}")),
        "Completed updating config for user bob.\n"
    );
    let both = "--entity-type users --entity-default --entity-type clients";
    let set = "--entity-name c --alter --add-config request_percentage=12.5";
    assert_eq!(
        configs(&format!("{both} {set}")),
        "Completed updating default config for users in the cluster.\n"
    );
    let secret = "SCRAM-SHA-256=[iterations=8192,password=bob-secret]";
    configs(&format!("--alter --user bob --add-config {secret}"));
    assert_eq!(
        configs("--describe --entity-type users"),
        "Quota configs for user-principal 'bob' are consumer_byte_rate=2048.0, producer_byte_rate=1.048576E7\n\
         SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192\n"
    );
    assert_eq!(
        configs("--describe --entity-type users --entity-type clients"),
        "Quota configs for the default user-principal, client-id 'c' are request_percentage=12.5\n"
    );
    configs("--alter --user bob --delete-config SCRAM-SHA-256");
    configs("--alter --user bob --delete-config producer_byte_rate");
    assert_eq!(
        configs("--describe --user bob"),
        "Quota configs for user-principal 'bob' are consumer_byte_rate=2048.0\n"
    );
    let gone = on(
        &broker,
        "configs",
        "--alter --user bob --delete-config SCRAM-SHA-256",
    );
    assert_eq!(gone.status, 1);
    assert!(
        gone.err.contains("bob has no such credential"),
        "{}",
        gone.err
    );
}

#[test]
fn replicas_are_verified_until_the_tool_is_stopped() {
    let broker = BrokerBuilder::new().start();
    out(&broker, "topics", "--create --topic t");
    let servers = broker.bootstrap();
    let produce = format!("console-producer --bootstrap-server {servers} --topic t");
    ToolOutput::of(&words(&produce), "a\nb\n").succeeded();

    let verification = ["replica-verification", "--broker-list", &servers];
    let mut tool = Command::new(ottla_binary())
        .args(verification)
        .args(["--topics-include", "t", "--time", "-2"])
        .args(["--report-interval-ms", "1", "--max-wait-ms", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tool starts");
    let lines = BufReader::new(tool.stdout.take().expect("its output")).lines();
    let printed: Vec<String> = lines
        .map(|line| line.expect("text"))
        .take_while(|line| {
            !line.ends_with(": max lag is 0 for partition t-0 at offset 2 among 1 partitions")
        })
        .take(1000)
        .collect();
    tool.kill().expect("it still runs");
    tool.wait().expect("it ends");
    assert!(
        printed[0].ends_with(": verification process is started"),
        "{printed:?}"
    );
    assert!(printed.len() < 1000, "{}", printed[1]);

    let nothing = run(&[&verification[..], &["--topics-include", "none"]].concat());
    assert_eq!(nothing.status, 1);
    assert!(nothing.err.contains("No topics found"), "{}", nothing.err);
}

#[test]
fn replicas_move_between_directories_and_throttles_are_lifted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("assignment.json");
    let path = file.display().to_string();
    let broker = BrokerBuilder::new().log_dirs(&["a", "b"]).start();
    let reassign = |arguments: &str| on(&broker, "reassign-partitions", arguments);
    out(&broker, "topics", "--create --topic t");

    let topics = folder.path().join("topics.json");
    std::fs::write(&topics, r#"{"topics":[{"topic":"t"}],"version":1}"#).expect("the file");
    let topics = topics.display().to_string();
    let generate = format!("--generate --topics-to-move-json-file {topics} --broker-list 1");
    let generated = reassign(&generate);
    let lines: Vec<&str> = generated.out.lines().collect();
    assert_eq!(generated.status, 0, "{}", generated.out);
    assert_eq!(lines[0], "Current partition replica assignment");
    let begin =
        r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":[""#;
    let from = lines[1].strip_prefix(begin).expect("the assignment");
    let from = from.strip_suffix("\"]}]}").expect("one directory");
    assert_eq!(lines[3], "Proposed partition reassignment configuration");
    assert_eq!(lines[4], format!("{begin}any\"]}}]}}"));

    let (stem, name) = from.split_at(from.len() - 1);
    let to = format!("{stem}{}", if name == "a" { "b" } else { "a" });
    std::fs::write(&file, format!("{begin}{to}\"]}}]}}")).expect("the file");
    let execute = format!("--execute --reassignment-json-file {path}");
    let throttles = "--throttle 4096 --replica-alter-log-dirs-throttle 8192";
    let started = reassign(&format!("{execute} {throttles}"));
    let end = format!(
        "Save this to use as the --reassignment-json-file option during rollback\n\
         Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle \
         is removed.\n\
         The inter-broker throttle limit was set to 4096 B/s\n\
         The replica-alter-dir throttle limit was set to 8192 B/s\n\
         Successfully started partition reassignment for t-0\n\
         Successfully started moving log directory to {to} for replica t-0 with broker 1 \n"
    );
    assert!(started.out.ends_with(&end), "{}", started.out);
    let settings = || out(&broker, "configs", "--describe --broker 1");
    assert!(
        settings().contains("leader.replication.throttled.rate=4096"),
        "{}",
        settings()
    );

    let verify = format!("--verify --reassignment-json-file {path}");
    let done = "Status of partition reassignment:\n\
         Reassignment of partition t-0 is completed.\n\
         Reassignment of replica t-0-1 completed successfully.\n\
         Clearing broker-level throttles on broker 1\n\
         Clearing topic-level throttles on topic t\n";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let verified = reassign(&verify);
        if verified.out == done {
            break;
        }
        assert!(
            verified.out.contains("is still in progress") && std::time::Instant::now() < deadline,
            "{}{}",
            verified.out,
            verified.err
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(!settings().contains("throttled.rate"), "{}", settings());
    let cancelled = reassign(&format!(
        "--cancel --reassignment-json-file {path} --preserve-throttles"
    ));
    assert_eq!(
        cancelled.out,
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are \
         active."
    );
    assert_eq!(
        reassign("--list").out,
        "No partition reassignments found.\n"
    );

    std::fs::write(&file, begin.replace("[1]", "[7]") + "any\"]}]}").expect("the file");
    let unknown = reassign(&execute);
    assert_eq!(
        (unknown.status, &*unknown.out),
        (1, "Error: Unknown broker id 7\n")
    );
    std::fs::write(&file, begin.replace("\"t\"", "\"nothing\"") + "any\"]}]}").expect("the file");
    let unknown = reassign(&execute);
    assert_eq!(
        unknown.out,
        "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Topic nothing not found.\n"
    );
    let both = reassign("--list --execute");
    assert_eq!(both.status, 1);
}

#[test]
fn errors_without_a_message_get_the_message_of_kafka() {
    let broker = BrokerBuilder::new()
        .property("delete.topic.enable", "false")
        .start();
    out(&broker, "topics", "--create --topic orders");
    let refused = on(&broker, "topics", "--delete --topic orders");
    assert_eq!(refused.status, 1);
    assert_eq!(
        refused.out,
        "Error while executing topic command : Topic deletion is disabled.\n"
    );
    let skipped = on(&broker, "get-offsets", "--topic orders --time -9");
    assert_eq!((skipped.status, skipped.out.as_str()), (0, ""));
    assert_eq!(
        skipped.err,
        "Skip getting offsets for topic-partition orders-0 due to error: \
         org.apache.kafka.common.errors.UnsupportedVersionException: \
         The version of API is not supported.\n"
    );
}

#[test]
fn errors_for_wrong_arguments_suggest_valid_ones() {
    let old = run(&["topics", "--zookeeper", "localhost:2181", "--list"]);
    assert_eq!(old.status, 1);
    assert!(old.err.contains("write --bootstrap-server"), "{}", old.err);
    let setting = words(
        "topics --bootstrap-server 127.0.0.1:1 --alter --topic t \
         --config retention.ms=1",
    );
    let setting = run(&setting);
    assert_eq!(setting.status, 1);
    assert!(
        setting
            .err
            .contains("ottla configs --alter --topic t --add-config retention.ms=1"),
        "{}",
        setting.err
    );
    let missing = run(&["topics", "--list"]);
    assert_eq!(missing.status, 1);
    assert!(
        missing.err.contains("--bootstrap-server"),
        "{}",
        missing.err
    );
    let wrong = words("topics --bootstrap-server 127.0.0.1:1 --create --topic t --partitions abc");
    let wrong = run(&wrong);
    assert!(
        wrong
            .err
            .contains("'abc' for '--partitions <NUMBER>': not a whole number"),
        "{}",
        wrong.err
    );
    let unknown = run(&["server-start", "s.properties", "--bogus"]);
    assert!(unknown.err.contains("--bogus"), "{}", unknown.err);
    assert!(!unknown.err.contains("-- --bogus"), "{}", unknown.err);
    let help = run(&["install-scripts", "--help"]);
    assert!(
        help.out.contains("ottla install-scripts <DIR>"),
        "{}",
        help.out
    );
    // The text above a tool's arguments is printed too.
    let help = run(&["console-consumer", "--help"]);
    assert!(help.out.contains("OffsetsMessageFormatter"), "{}", help.out);
    for tool in [
        "topics",
        "configs",
        "consumer-groups",
        "get-offsets",
        "storage",
        "dump-log",
        "console-producer",
        "console-consumer",
        "groups",
        "delete-records",
        "leader-election",
        "log-dirs",
        "cluster",
        "metadata-quorum",
        "features",
        "broker-api-versions",
        "client-metrics",
        "server-start",
        "server-stop",
        "install-scripts",
        "doctor",
    ] {
        assert_eq!(run(&[tool, "--version"]).out, "4.3.1\n", "{tool}");
        let help = run(&[tool, "--help"]);
        assert_eq!(help.status, 0, "{tool}");
        assert!(help.out.contains("Usage: ottla "), "{tool}: {}", help.out);
    }
}
