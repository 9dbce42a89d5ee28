//! The command-line tools against a running broker, each as a process.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ToolOutput, lease_ports, ottla_binary, words};

/// A broker whose groups start without a delay.
fn broker() -> BrokerProcess {
    BrokerBuilder::new()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("offsets.topic.num.partitions", "3")
        .start()
}

fn run(arguments: &[&str]) -> ToolOutput {
    ToolOutput::of(arguments, "")
}

/// Runs a tool against the broker, with this standard input.
fn run_on(broker: &BrokerProcess, line: &str, input: &str) -> ToolOutput {
    let servers = broker.bootstrap();
    let line = words(line);
    let (tool, rest) = line.split_at(1);
    let arguments = [tool, &["--bootstrap-server", &servers], rest].concat();
    ToolOutput::of(&arguments, input)
}

fn create(broker: &BrokerProcess, topic: &str, partitions: &str) {
    let made = run_on(
        broker,
        &format!("topics --create --topic {topic} --partitions {partitions}"),
        "",
    );
    assert_eq!(made.lines(), [format!("Created topic {topic}.")]);
}

#[test]
fn topics_are_created_changed_and_deleted() {
    let broker = broker();
    create(&broker, "orders", "2");
    let again = run_on(&broker, "topics --create --topic orders", "");
    assert_eq!(again.status, 1);
    assert_eq!(
        again.out.trim_end(),
        "Error while executing topic command : Topic 'orders' already exists."
    );
    let tolerated = run_on(
        &broker,
        "topics --create --topic orders --if-not-exists",
        "",
    );
    assert_eq!(tolerated.lines(), Vec::<&str>::new());

    assert_eq!(run_on(&broker, "topics --list", "").lines(), ["orders"]);
    let grown = run_on(&broker, "topics --alter --topic orders --partitions 3", "");
    assert_eq!(grown.lines(), Vec::<&str>::new());
    let described = run_on(&broker, "topics --describe --topic ord.*", "");
    let lines = described.lines();
    assert_eq!(lines.len(), 4, "{}", described.out);
    assert!(lines[0].starts_with("Topic: orders\tTopicId: "));
    assert!(lines[0].contains("\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: "));
    assert!(
        lines[3]
            .starts_with("\tTopic: orders\tPartition: 2\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: ")
    );
    let under = run_on(
        &broker,
        "topics --describe --under-replicated-partitions",
        "",
    );
    assert_eq!(under.lines(), Vec::<&str>::new());

    run_on(&broker, "topics --delete --topic orders", "").lines();
    let gone = run_on(&broker, "topics --describe --topic orders", "");
    assert_eq!(gone.status, 1);
    assert_eq!(
        gone.out.trim_end(),
        "Error while executing topic command : Topic 'orders' does not exist as expected"
    );
    let tolerated = run_on(&broker, "topics --delete --topic orders --if-exists", "");
    assert_eq!(tolerated.status, 0);
    let bad = run_on(&broker, "topics --create --topic x --config colour=red", "");
    assert_eq!(bad.status, 1);
    assert!(
        bad.out.contains("Unknown topic config name: colour"),
        "{}",
        bad.out
    );
}

#[test]
fn records_are_produced_and_consumed() {
    let broker = broker();
    create(&broker, "t", "1");
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let line = format!("h:{codec}|key={codec}\n");
        let arguments = format!(
            "console-producer --topic t --compression-codec {codec} \
             --reader-property parse.key=true --reader-property key.separator== \
             --reader-property parse.headers=true --reader-property headers.delimiter=|"
        );
        assert_eq!(
            run_on(&broker, &arguments, &line).lines(),
            Vec::<&str>::new()
        );
    }
    assert_eq!(
        run_on(&broker, "get-offsets --topic t", "").lines(),
        ["t:0:5"]
    );
    let earliest = "get-offsets --topic-partitions t:0 --time -2";
    assert_eq!(run_on(&broker, earliest, "").lines(), ["t:0:0"]);
    let none = run_on(&broker, "get-offsets --topic other", "");
    assert_eq!(none.status, 1);
    assert!(
        none.err.contains("Could not match any topic-partitions"),
        "{}",
        none.err
    );

    let arguments = "console-consumer --topic t --partition 0 --offset 3 --max-messages 2 \
         --formatter-property print.key=true --formatter-property print.offset=true \
         --formatter-property print.headers=true";
    let read = run_on(&broker, arguments, "");
    assert_eq!(
        read.lines(),
        ["Offset:3\th:lz4\tkey\tlz4", "Offset:4\th:zstd\tkey\tzstd"]
    );
    assert_eq!(read.err.trim_end(), "Processed a total of 2 messages");
    let broken = run_on(
        &broker,
        "console-producer --topic t --reader-property parse.key=true",
        "no key\n",
    );
    assert_eq!(broken.status, 1);
    assert!(
        broken
            .err
            .contains("No key separator found on line number 1: 'no key'")
    );
}

#[test]
fn a_consumer_creates_its_topic_and_leaves_its_group() {
    let broker = BrokerBuilder::new()
        .property("group.initial.rebalance.delay.ms", "20000")
        .property("offsets.topic.num.partitions", "1")
        .start();
    let read = "console-consumer --topic new --partition 0 --timeout-ms 4000";
    assert_eq!(run_on(&broker, read, "").lines(), Vec::<&str>::new());
    assert_eq!(run_on(&broker, "topics --list", "").lines(), ["new"]);

    // The timeout expires while the coordinator still waits for other members.
    let read = "console-consumer --topic new --group g --timeout-ms 4000";
    assert_eq!(run_on(&broker, read, "").lines(), Vec::<&str>::new());
    let members = "consumer-groups --describe --group g --members";
    let members = run_on(&broker, members, "");
    assert!(
        !members.out.contains("console-consumer-"),
        "{}",
        members.out
    );
}

#[test]
fn committed_offsets_are_printed_by_their_formatter() {
    let broker = broker();
    create(&broker, "t", "1");
    run_on(&broker, "console-producer --topic t", "a\nb\n").lines();
    let read = "console-consumer --topic t --group g --from-beginning";
    run_on(&broker, &format!("{read} --max-messages 2"), "").lines();
    let shown = run_on(
        &broker,
        "console-consumer --topic __consumer_offsets --from-beginning \
             --timeout-ms 10000 \
             --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
        "",
    );
    let key =
        r#"{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":{"version":"#;
    assert!(shown.out.starts_with(key), "{}", shown.out);
    assert!(
        shown.out.contains(r#""data":{"offset":2,"#),
        "{}",
        shown.out
    );
}

#[test]
fn groups_are_described_and_reset() {
    let broker = broker();
    create(&broker, "t", "2");
    let lines: String = (0..100).map(|number| format!("{number}\n")).collect();
    run_on(&broker, "console-producer --topic t", &lines).lines();
    let read = "console-consumer --topic t --group g --from-beginning";
    let all = run_on(&broker, &format!("{read} --max-messages 100"), "");
    assert_eq!(all.lines().len(), 100);
    // The offsets were committed, so the second run prints nothing.
    let again = run_on(&broker, &format!("{read} --timeout-ms 3000"), "");
    assert_eq!(again.lines().len(), 0);

    assert_eq!(run_on(&broker, "consumer-groups --list", "").lines(), ["g"]);
    let state = run_on(&broker, "consumer-groups --list --state", "");
    let state: Vec<Vec<&str>> = state
        .lines()
        .iter()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(state, [["GROUP", "STATE"], ["g", "Empty"]]);
    assert_eq!(total_lag(&broker), 0);

    let reset = |scenario: &str| {
        let line = "consumer-groups --reset-offsets --group g --all-topics";
        run_on(&broker, &format!("{line} {scenario}"), "")
    };
    reset("--to-earliest --dry-run").lines();
    assert_eq!(total_lag(&broker), 0, "a dry run moves nothing");
    let moved = reset("--to-earliest --execute");
    let columns: Vec<&str> = moved.lines()[1].split_whitespace().collect();
    assert_eq!(columns, ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]);
    assert_eq!(total_lag(&broker), 100);

    let forgotten = "consumer-groups --delete-offsets --group g --topic t";
    let forgotten = run_on(&broker, forgotten, "");
    assert_eq!(
        forgotten.lines()[0],
        "Request succeeded for deleting offsets from group g."
    );
    let of_nothing = "consumer-groups --delete-offsets --group g --topic nowhere";
    let of_nothing = run_on(&broker, of_nothing, "").out;
    let row = "nowhere         -          Error: \
               org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this \
               topic-partition.";
    assert!(of_nothing.contains(row), "{of_nothing}");
    let unknown = run_on(&broker, "consumer-groups --describe --group unknown", "");
    assert!(
        unknown
            .out
            .contains("failed due to org.apache.kafka.common.errors.GroupIdNotFoundException"),
        "{}",
        unknown.out
    );
}

/// The sum of the LAG column in the table of a group's offsets.
fn total_lag(broker: &BrokerProcess) -> i64 {
    let described = run_on(broker, "consumer-groups --describe --group g", "");
    let lines = described.lines();
    assert!(
        described
            .err
            .contains("Consumer group 'g' has no active members."),
        "{}",
        described.err
    );
    let columns: Vec<&str> = lines[1].split_whitespace().collect();
    let lag = columns
        .iter()
        .position(|title| *title == "LAG")
        .expect("the column");
    let rows = lines[2..]
        .iter()
        .map(|line| line.split_whitespace().nth(lag).expect("the cell"));
    rows.map(|cell| cell.parse::<i64>().expect("a number"))
        .sum()
}

#[test]
fn settings_are_described_and_changed() {
    let broker = broker();
    create(&broker, "t", "1");
    let change = "configs --alter --topic t \
         --add-config retention.ms=1000,cleanup.policy=[delete]";
    assert_eq!(
        run_on(&broker, change, "").lines(),
        ["Completed updating config for topic t."]
    );
    let shown = run_on(&broker, "configs --describe --topic t", "");
    assert_eq!(
        shown.lines(),
        [
            "Dynamic configs for topic t are:",
            "  cleanup.policy=delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete, \
             DEFAULT_CONFIG:log.cleanup.policy=delete}",
            "  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}",
        ]
    );
    let remove = "configs --alter --entity-type topics --entity-name t \
         --delete-config retention.ms,cleanup.policy";
    run_on(&broker, remove, "").lines();
    let shown = run_on(&broker, "configs --describe --topic t", "");
    assert_eq!(shown.lines(), ["Dynamic configs for topic t are:"]);
    let bad = run_on(
        &broker,
        "configs --alter --topic t --add-config retention.ms=soon",
        "",
    );
    assert_eq!(bad.status, 1);
    assert!(bad.err.contains("Not a number of type LONG"), "{}", bad.err);
    let all = run_on(&broker, "configs --describe --broker 1 --all", "");
    assert!(all.lines().len() > 300, "{}", all.out);
    assert!(
        all.out
            .contains("\n  node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1}\n")
    );
}

#[test]
fn files_of_a_broker_can_be_dumped() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = BrokerBuilder::new().dir(folder.path()).start();
    create(&broker, "t", "1");
    run_on(&broker, "console-producer --topic t", "first\nsecond\n").lines();
    assert!(broker.stop().success());

    let file = |name: &str| -> String {
        let path: PathBuf = folder.path().join("data").join(name);
        path.display().to_string()
    };
    let segment = file("t-0/00000000000000000000.log");
    let dumped = run(&["dump-log", "--files", &segment, "--print-data-log"]);
    let lines = dumped.lines();
    assert_eq!(lines[0], format!("Dumping {segment}"));
    assert_eq!(lines[1], "Log starting offset: 0");
    assert!(
        lines[2].starts_with("baseOffset: 0 lastOffset: ") && lines[2].ends_with(" isvalid: true")
    );
    let payloads: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once(" payload: ").map(|(_, value)| value))
        .collect();
    assert_eq!(payloads, ["first", "second"]);
    for index in ["index", "timeindex"] {
        let path = file(&format!("t-0/00000000000000000000.{index}"));
        let checked = run(&["dump-log", "--files", &path, "--verify-index-only"]);
        checked.lines();
        assert_eq!(checked.err, "", "{index} does not agree with its segment");
    }
    let metadata = file("__cluster_metadata-0/00000000000000000000.log");
    let dumped = run(&words(&format!(
        "dump-log --files {metadata} --cluster-metadata-decoder"
    )));
    dumped.lines();
    assert!(
        dumped
            .out
            .contains(r#"payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t","#)
    );
    assert!(!dumped.out.contains("skipping"), "{}", dumped.out);

    let config = folder
        .path()
        .join("server.properties")
        .display()
        .to_string();
    let info = run(&["storage", "info", "--config", &config]);
    assert!(
        info.out.contains("Found metadata: {cluster.id="),
        "{}",
        info.out
    );
    assert_eq!(info.status, 0);
    let again = run(&words(&format!(
        "storage format --standalone -t T3R0bGFQcm9jZXNzVGVzdA -c {config}"
    )));
    assert_eq!(again.status, 1);
    assert!(
        again
            .err
            .contains("is already formatted. Use --ignore-formatted"),
        "{}",
        again.err
    );
}

#[test]
fn a_directory_is_formatted_with_credentials_and_overrides() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("server.properties");
    let text = |voters: &str| {
        format!(
            "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\n\
             controller.listener.names=CONTROLLER\ncontroller.quorum.voters={voters}\nlog.dirs={}\n",
            folder.path().join("data").display()
        )
    };
    std::fs::write(&config, text("1@a:9093,2@b:9093,3@c:9093")).expect("the properties");
    let config_path = config.display().to_string();
    let format = [
        "storage",
        "format",
        "-t",
        "T3R0bGFQcm9jZXNzVGVzdA",
        "-c",
        &config_path,
    ];
    let wrong = run(&[&format[..], &["--add-scram", "SCRAM-SHA-256=[name=alice]"]].concat());
    assert_eq!(wrong.status, 1);
    assert!(
        wrong.err.contains("one of 'password' or 'saltedpassword'"),
        "{}",
        wrong.err
    );
    let secret = "SCRAM-SHA-256=[name=alice,password=alice-secret]";
    let formatted = run(&[&format[..], &["--add-scram", secret]].concat());
    assert_eq!(formatted.status, 0, "{}", formatted.err);
    assert_eq!(formatted.err, "");
    let checkpoint = folder
        .path()
        .join("data/bootstrap.checkpoint")
        .display()
        .to_string();
    let dumped = run(&words(&format!(
        "dump-log --files {checkpoint} --cluster-metadata-decoder"
    )));
    assert!(
        dumped.out.contains(r#"{"type":"USER_SCRAM_CREDENTIAL_RECORD","version":0,"data":{"name":"alice","mechanism":1,"#),
        "{}",
        dumped.out
    );
    let other = folder.path().join("other");
    let over = format!("log.dirs={}", other.display());
    let elsewhere = run(&[&format[..], &["--override", &over]].concat());
    assert_eq!(elsewhere.status, 0, "{}", elsewhere.err);
    assert!(other.join("meta.properties").exists(), "{}", elsewhere.out);
    let wrong = run(&[&format[..], &["--override", "log.dirs"]].concat());
    assert_eq!(wrong.status, 1);
    assert!(
        wrong.err.starts_with("--override log.dirs: give it as"),
        "{}",
        wrong.err
    );
}

#[test]
fn storage_works_without_a_broker() {
    let mapping = run(&["storage", "version-mapping", "--release-version", "4.0"]);
    assert_eq!(
        mapping.lines()[..2],
        ["metadata.version=25 (4.0)", "kraft.version=1"]
    );
    let dependencies = run(&words(
        "storage feature-dependencies --feature eligible.leader.replicas.version=1",
    ));
    assert_eq!(
        dependencies.lines(),
        [
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)"
        ]
    );
    let id = run(&["storage", "random-uuid"]);
    assert_eq!(id.lines()[0].len(), 22);
}

#[test]
fn a_tool_whose_output_is_closed_ends_quietly() {
    // Prints far more than a pipe holds, so that it is still printing when the reader exits.
    let folder = tempfile::tempdir().expect("a folder");
    let index = folder.path().join("00000000000000000000.txnindex");
    std::fs::write(&index, vec![0; 34 * 20_000]).expect("the file");
    let mut child = Command::new(ottla_binary())
        .args(["dump-log", "--files"])
        .arg(&index)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("the tool ends");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

#[test]
fn an_address_without_a_broker_is_reported_at_once() {
    let [port] = lease_ports().expect("a free port");
    let address = format!("127.0.0.1:{port}");
    let produce =
        format!("console-producer --bootstrap-server {address} --topic t --max-block-ms 3000");
    let ran = ToolOutput::of(&words(&produce), "x\n");
    // Kafka's tool prints it too, many times, and exits with 0.
    assert_eq!(ran.status, 1);
    assert!(
        ran.err.ends_with("1 of 1 records were not acknowledged.\n"),
        "{}",
        ran.err
    );
    let warnings = ran.err.matches("could not be established").count();
    assert_eq!(warnings, 1, "{}", ran.err);
    let warning = format!(
        "WARN [Producer clientId=console-producer] Connection to node -1 ({address}) could not be established."
    );
    assert!(ran.err.starts_with(&warning), "{}", ran.err);
    assert!(
        ran.err
            .contains("Error when sending message to topic t with key: null, value: 1 bytes"),
        "{}",
        ran.err
    );
}

/// A pipe whose reader is gone.
fn closed_pipe() -> std::io::PipeWriter {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer
}

#[test]
fn a_tool_ends_silently_if_its_output_is_not_read() {
    for arguments in [
        &["version"][..],
        &["topics", "--version"],
        &["--help"],
        &["topics", "--help"],
        &["storage", "random-uuid"],
    ] {
        let output = Command::new(ottla_binary())
            .args(arguments)
            .stdout(closed_pipe())
            .stderr(Stdio::piped())
            .output()
            .expect("the binary starts");
        // The exit status that a shell reports for a process that SIGPIPE has ended.
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

#[test]
fn a_tool_whose_output_does_not_fit_on_the_disk_gives_the_reason() {
    for arguments in [
        &["version"][..],
        &["--help"],
        &["storage", "random-uuid"],
        &["completions", "bash"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = Command::new(ottla_binary())
            .args(arguments)
            .stdout(full.expect("the device"))
            .stderr(Stdio::piped())
            .output()
            .expect("the binary starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "ottla: cannot write the output: No space left on device (os error 28)\n"
        );
    }
}

#[test]
fn a_closed_connection_does_not_kill_a_tool_with_a_signal() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let mut child = Command::new(ottla_binary())
        .args(["topics", "--list", "--bootstrap-server", &address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let connected = silent.accept().expect("a connection");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    drop(connected);
    let _ = child.kill();
    child.wait().expect("it was killed");
    let status = status.expect("it runs");
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    // SIGPIPE is signal 13. A vectored write to a closed connection raises it.
    let ignored = ignored.expect("a set of signals");
    assert_eq!((ignored >> 12) & 1, 1, "{ignored:x}");
}
