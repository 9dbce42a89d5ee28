//! `ottla bench` against the real broker: its measurements, its clean-up, and its error messages.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ottla_bench::results::{MarkKind, ResultFile};
use ottla_testkit::{BrokerBuilder, lease_ports, ottla_binary, words};

struct Ran {
    output: Output,
    dir: tempfile::TempDir,
}

impl Ran {
    fn bench(arguments: &[&str]) -> Ran {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Ran::command(dir.path(), arguments);
        let output = command.output().expect("the binary can be started");
        Ran { output, dir }
    }

    fn command(dir: &Path, arguments: &[&str]) -> Command {
        let brokers = dir.join("brokers");
        std::fs::create_dir_all(&brokers).expect("a directory");
        let mut command = Command::new(ottla_binary());
        command.arg("bench").args(arguments);
        if arguments[0] == "run" {
            command
                .arg("--dir")
                .arg(&brokers)
                .arg("--out")
                .arg(dir.join("out"));
        }
        command.current_dir(dir);
        command
    }

    fn error(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn printed(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    fn result(&self) -> ResultFile {
        let files = std::fs::read_dir(self.dir.path().join("out")).expect("results");
        let json = files
            .flatten()
            .map(|it| it.path())
            .find(|it| it.extension().is_some_and(|it| it == "json"))
            .unwrap_or_else(|| panic!("no result: {}", self.error()));
        ResultFile::read(&json).expect("a result")
    }

    /// Checks that started brokers and their directories are gone.
    fn left_nothing(&self) {
        let left = std::fs::read_dir(self.dir.path().join("brokers")).expect("a directory");
        assert_eq!(left.count(), 0);
    }
}

/// Total size of all segments below a directory, in bytes.
fn written_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => written_below(&entry.path()),
            Ok(metadata) if entry.path().extension().is_some_and(|it| it == "log") => {
                metadata.len()
            }
            _ => 0,
        })
        .sum()
}

const FILE: &str = r#"
title = "Both"
[topic]
partitions = 3
[topic.settings]
"segment.bytes" = 1048576
[records]
size = 1000
count = 20_000
[producers]
count = 2
[producers.settings]
"acks" = "1"
[consumers]
count = 2
shared = true
[measure]
end_to_end = true
repetitions = 2
[load]
kind = "rate"
rate = 10_000
[[published]]
figures = { "produce.records_per_second" = 1000 }
"#;

#[test]
fn a_broker_is_started_measured_and_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("both.toml");
    std::fs::write(&file, FILE).expect("written");
    let ran = Ran::bench(&["run", &file.display().to_string()]);
    assert!(ran.output.status.success(), "{}", ran.error());
    ran.left_nothing();
    let result = ran.result();
    let run = &result.scenarios[0].points[0].runs[0];
    assert_eq!((run.target.as_str(), run.rounds.len()), ("ottla", 2));
    let figure = |name: &str| {
        run.summaries
            .get(name)
            .unwrap_or_else(|| panic!("{name}"))
            .median
    };
    let rate = figure("produce.records_per_second");
    // Less than was asked for if the machine is busy; the curves have the number of records.
    assert!((100.0..=10_100.0).contains(&rate), "{rate}");
    assert_eq!(figure("produce.failed"), 0.0);
    assert!(figure("consume.records_per_second") > 100.0);
    assert!(figure("broker.cpu_seconds_per_gb") > 0.0 && figure("broker.peak_memory_mb") > 1.0);
    // Records are acknowledged and consumed after they were due, and not before they were sent.
    for name in ["ack", "ack_from_send", "e2e", "e2e_from_send"] {
        assert_eq!(run.curves[name].count, 40_000, "{name}");
    }
    assert!(figure("ack.p99_ms") >= figure("ack_from_send.p99_ms"));
    assert!(figure("e2e.max_ms") < 60_000.0);
    // 20 MB in segments of 1 MB must cause rolls, which are recorded.
    let marks = run.rounds.iter().flat_map(|it| &it.marks);
    assert!(marks.filter(|it| it.kind == MarkKind::SegmentRoll).count() >= 5);
    assert!(ran.printed().contains("published"), "{}", ran.printed());
    compare_with_a_slower_one(&ran, &result);
    let html = std::fs::read_dir(ran.dir.path().join("out"))
        .expect("results")
        .flatten();
    assert!(
        html.map(|it| it.path())
            .any(|it| it.extension().is_some_and(|it| it == "html"))
    );
}

/// Brokers are restarted for each value of a swept broker setting.
#[test]
fn broker_settings_can_be_swept() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("segments.toml");
    let text = "title = 'Segments'\n[records]\nsize = 1000\ncount = 5_000\n[measure]\nrepetitions = 1\n\
        [broker.settings]\n'num.io.threads' = 2\n\
        [[sweep]]\nkey = 'broker.settings.log.segment.bytes'\nvalues = [1048576, 1073741824]\n";
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let ran = Ran::bench(&["run", &file]);
    assert!(ran.output.status.success(), "{}", ran.error());
    ran.left_nothing();
    let result = ran.result();
    assert_eq!(result.targets.len(), 1);
    let rolls = |index: usize| {
        let marks = &result.scenarios[0].points[index].runs[0].rounds[0].marks;
        let of_segments = marks.iter().filter(|it| it.kind == MarkKind::SegmentRoll);
        of_segments.count()
    };
    assert!(rolls(0) >= 3 && rolls(1) == 0, "{} {}", rolls(0), rolls(1));
    // Settings of a running cluster cannot be swept.
    let ran = Ran::bench(&["run", &file, "--bootstrap-server", "127.0.0.1:1"]);
    assert!(
        ran.error()
            .contains("the brokers at 127.0.0.1:1 keep theirs"),
        "{}",
        ran.error()
    );
}

/// As many brokers are started as there are replicas, and their resource usage is summed.
#[test]
fn three_replicas_are_three_brokers() {
    let ran = Ran::bench(&words(
        "run linkedin-2014/synchronous-replication --scale small --time 3s \
         --repetitions 1",
    ));
    assert!(ran.output.status.success(), "{}", ran.error());
    ran.left_nothing();
    let result = ran.result();
    assert_eq!(result.targets[0].brokers, 3);
    assert_eq!(result.targets[0].bootstrap.split(',').count(), 3);
    let point = &result.scenarios[0].points[0];
    assert_eq!(point.shape.replicas, 3);
    let figures = &point.runs[0].rounds[0].figures;
    assert!(figures["produce.records_per_second"] > 0.0);
    assert_eq!(figures["produce.failed"], 0.0);
    // A record of 100 bytes takes about 110 in a batch. Each partition is counted once, not per
    // replica.
    let ratio = figures["produce.compression_ratio"];
    assert!((0.8..1.0).contains(&ratio), "{ratio}");
    // Each of the three processes uses at least 5 MB.
    assert!(figures["broker.peak_memory_mb"] > 15.0);
}

/// Replicas do not fetch a new topic for up to a second, which must not count as latency of a
/// record.
#[test]
fn messages_of_a_new_topic_do_not_wait_for_its_replicas() {
    let ran = Ran::bench(&words(
        "run linkedin-2014/end-to-end-latency --repetitions 6 --set records.count=100",
    ));
    assert!(ran.output.status.success(), "{}", ran.error());
    let result = ran.result();
    let rounds = &result.scenarios[0].points[0].runs[0].rounds;
    let longest: Vec<f64> = rounds.iter().map(|it| it.figures["e2e.max_ms"]).collect();
    // Other work on the machine may delay most of them.
    assert!(longest.iter().any(|it| *it < 700.0), "{longest:?}");
}

/// A leader is killed during a round. No acknowledged record is lost, and the broker is restarted.
#[test]
fn records_lost_when_a_leader_dies_are_counted() {
    let ran = Ran::bench(&words(
        "run linkedin-2014/leader-dies --scale small --set load.kind=rate \
         --set load.rate=2000 --set producers.settings.acks=all --repetitions 2",
    ));
    assert!(ran.output.status.success(), "{}", ran.error());
    ran.left_nothing();
    let result = ran.result();
    let rounds = &result.scenarios[0].points[0].runs[0].rounds;
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        assert_eq!(round.figures["produce.lost"], 0.0);
        assert_eq!(round.figures["produce.failed"], 0.0);
        let deaths = round
            .marks
            .iter()
            .filter(|it| it.kind == MarkKind::LeaderDeath);
        assert_eq!(deaths.count(), 1, "{:?}", round.marks);
        // Another broker leads before the session of the dead one has expired. The rate is low, so that no
        // records wait for a busy machine for as long.
        assert!(round.figures["ack.max_ms"] < 9_000.0, "{:?}", round.figures);
    }
    assert!(
        ran.printed().contains("acknowledged and lost, records"),
        "{}",
        ran.printed()
    );
    let refused = Ran::bench(&words(
        "run linkedin-2014/leader-dies --scale small --bootstrap-server 127.0.0.1:1",
    ));
    assert!(
        refused.error().contains("are not the run's"),
        "{}",
        refused.error()
    );
}

/// A member joins its group and leaves again. Every record is read exactly once, and nothing is
/// left on a running cluster, including the groups.
#[test]
fn members_of_groups_join_and_leave() {
    let broker = BrokerBuilder::new().start();
    let ran = Ran::bench(&words(&format!(
        "run producer-tuning/rebalances --bootstrap-server {} --repetitions 1 \
         --set load.rate=2000 --set measure.warm_up=4s --set measure.time=12s \
         --set measure.rebalance=2s --set consumers.settings.group.protocol=classic",
        broker.bootstrap()
    )));
    assert!(ran.output.status.success(), "{}", ran.error());
    let result = ran.result();
    let run = &result.scenarios[0].points[0].runs[0];
    let marks = run.rounds[0].marks.iter();
    let rebalances = marks.filter(|it| it.kind == MarkKind::Rebalance);
    assert_eq!(rebalances.count(), 2, "{:?}", run.rounds[0].marks);
    assert_eq!(run.rounds[0].figures["produce.failed"], 0.0);
    assert_eq!(run.curves["e2e"].count, run.curves["ack"].count);
    for tool in ["consumer-groups", "topics"] {
        let listed = broker.tool(&[tool, "--bootstrap-server", "{bootstrap}", "--list"]);
        assert!(!listed.contains("ottla-bench"), "{listed}");
    }
}

/// A result equals itself, and one with half the rate is worse, which causes exit status 1 with
/// `--fail-on-regression`.
fn compare_with_a_slower_one(ran: &Ran, result: &ResultFile) {
    let [first, second] = ["first.json", "second.json"].map(|name| ran.dir.path().join(name));
    // Rates that differ by more than any noise of the machine.
    let with_rates = |rates: [f64; 2]| {
        let mut changed = result.clone();
        changed.machine.noise = 0.01;
        let rounds = &mut changed.scenarios[0].points[0].runs[0].rounds;
        for (round, rate) in rounds.iter_mut().zip(rates) {
            let figures = &mut round.figures;
            figures.insert("produce.records_per_second".to_owned(), rate);
        }
        changed
    };
    with_rates([1000.0, 1010.0]).write(&first).expect("written");
    let slower = with_rates([500.0, 505.0]);
    slower.write(&second).expect("written");
    let compare = |other: &Path| {
        let [first, other] = [first.as_path(), other].map(|it| it.display().to_string());
        Ran::bench(&["compare", &first, &other, "--fail-on-regression"])
    };
    let same = compare(&first);
    assert!(same.output.status.success(), "{}", same.printed());
    assert!(!same.printed().contains("worse"), "{}", same.printed());
    let worse = compare(&second);
    assert_eq!(worse.output.status.code(), Some(1), "{}", worse.printed());
    let line = worse.printed();
    let line = line.lines().find(|it| it.ends_with("worse"));
    let line = line.expect("a figure that is worse");
    assert!(
        line.contains("produced, rec/s") && line.contains("x0.50"),
        "{line}"
    );
}

#[test]
fn a_running_cluster_is_measured_and_topics_are_deleted() {
    let broker = BrokerBuilder::new().start();
    let bootstrap = broker.bootstrap();
    let ran = Ran::bench(&words(&format!(
        "run linkedin-2014/single-consumer linkedin-2014/end-to-end-latency \
         --bootstrap-server {bootstrap} --replicas 1 --repetitions 1 \
         --set records.count=300"
    )));
    assert!(ran.output.status.success(), "{}", ran.error());
    let result = ran.result();
    assert_eq!(result.targets[0].name, bootstrap);
    let network = result.targets[0].network_mb_per_second;
    assert!(network.is_some_and(|it| it > 1.0), "{network:?}");
    assert!(
        result.scenarios[0]
            .differences
            .contains(&"topic.replicas 1 instead of 3".to_owned()),
        "{:?}",
        result.scenarios[0].differences
    );
    // The broker's settings differ from the published ones.
    let other = format!("{bootstrap} has num.network.threads=3 instead of 4");
    assert!(
        result.scenarios[0].differences.contains(&other),
        "{:?}",
        result.scenarios[0].differences
    );
    let run = &result.scenarios[1].points[0].runs[0];
    assert_eq!(run.curves["e2e"].count, 300);
    assert_eq!(run.curves["ack"].count, 300);
    let topics = Command::new(ottla_binary())
        .args(["topics", "--bootstrap-server", &bootstrap, "--list"])
        .output()
        .expect("the binary can be started");
    assert_eq!(String::from_utf8_lossy(&topics.stdout).trim(), "");
}

#[test]
fn an_interrupted_run_keeps_and_marks_its_results() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = words(
        "run linkedin-2014/single-producer --time 60s --set load.kind=rate \
         --set load.rate=20000",
    );
    let child = Ran::command(dir.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
    let began = Instant::now();
    while written_below(&dir.path().join("brokers")) < 1 << 20 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "nothing is written"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(1));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
    let output = child.wait_with_output().expect("it ends");
    let ran = Ran { output, dir };
    assert_eq!(ran.output.status.code(), Some(130), "{}", ran.error());
    ran.left_nothing();
    let result = ran.result();
    assert_eq!(result.partial.as_deref(), Some("interrupted"));
    let broker: SocketAddr = result.targets[0].bootstrap.parse().expect("an address");
    assert!(TcpStream::connect(broker).is_err(), "the broker still runs");
    let run = &result.scenarios[0].points[0].runs[0];
    assert!(run.summaries["produce.records_per_second"].median > 0.0);
}

#[test]
fn errors_are_one_sentence_and_leave_no_files() {
    let [unused] = lease_ports().expect("a free port");
    let unused = format!("127.0.0.1:{unused}");
    let broker = BrokerBuilder::new().start();
    let alone = broker.bootstrap();
    let dir = tempfile::tempdir().expect("a directory");
    let bad = dir.path().join("bad.toml");
    std::fs::write(&bad, "title = 'x'\n[records]\nsize = 'big'\n").expect("written");
    let bad = bad.display().to_string();
    let small = "run linkedin-2014/single-producer --scale small";
    let cases = [
        (
            format!("run {bad}"),
            "bad.toml: records.size = \"big\": not accepted",
        ),
        (
            format!(
                "run linkedin-2014/single-producer linkedin-2014/three-producers --scale small \
                 --bootstrap-server {alone}"
            ),
            "3 replicas need as many brokers",
        ),
        (
            "run linkedin-2014/stored-data --replicas 1".to_owned(),
            "give --scale small",
        ),
        ("run linkedin-2014/nothing".to_owned(), "did you mean"),
        (
            "run linkedin-2014 --scale huge".to_owned(),
            "--scale huge: linkedin-2014/single-producer has no such scale; it has small",
        ),
        (
            "compare nowhere.json nowhere.json".to_owned(),
            "cannot be read",
        ),
        ("size --daily much".to_owned(), "--daily much: not a size"),
        (
            format!("{small} --bootstrap-server {unused}"),
            "cannot be measured",
        ),
        (format!("{small} --set producers.settings.acks=2"), "acks"),
        (
            format!("{small} --set producers.settings.linger=5"),
            "linger=5: the producer has no such setting",
        ),
        (
            format!("{small} --set broker.settings.log.segment.bytes=abc"),
            "cannot format its directory: log.segment.bytes=abc: not a number",
        ),
        (
            format!("{small} --bootstrap-server {unused} --command-config nowhere.properties"),
            "nowhere.properties cannot be read",
        ),
    ];
    for (line, sentence) in cases {
        let ran = Ran::bench(&words(&line));
        assert_eq!(ran.output.status.code(), Some(1), "{line}");
        let error = ran.error();
        assert!(error.contains(sentence), "{line}\n{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{line}\n{error}");
        assert!(!ran.printed().contains("nothing was measured"));
        ran.left_nothing();
        assert!(!ran.dir.path().join("out").exists(), "{line}");
    }
}

#[test]
fn a_topic_with_other_settings_is_not_used() {
    let broker = BrokerBuilder::new().start();
    let bootstrap = broker.bootstrap();
    let topics = |arguments: &[&str]| {
        let output = Command::new(ottla_binary())
            .args(["topics", "--bootstrap-server", &bootstrap])
            .args(arguments)
            .output()
            .expect("the binary can be started");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    topics(&["--create", "--topic", "mine", "--partitions", "2"]);
    topics(&["--create", "--topic", "theirs", "--partitions", "6"]);
    for (topic, sentence) in [
        ("mine", "topic mine exists with 2 partitions"),
        (
            "theirs",
            "topic theirs exists with retention.ms=604800000, and the scenario has 5000",
        ),
    ] {
        let ran = Ran::bench(&words(&format!(
            "run linkedin-2014/single-producer --scale small \
             --bootstrap-server {bootstrap} --topic {topic} \
             --set topic.settings.retention.ms=5000"
        )));
        assert!(ran.error().contains(sentence), "{}", ran.error());
    }
    assert_eq!(topics(&["--list"]), "mine\ntheirs\n");
}

/// A workload and a driver of the OpenMessaging Benchmark, on a broker whose metrics are scraped.
/// The result contains everything that the benchmark's charts read.
#[test]
fn files_of_the_openmessaging_benchmark_are_run() {
    let [http] = lease_ports().expect("a free port");
    let http = format!("127.0.0.1:{http}");
    let broker = BrokerBuilder::new()
        .property("ottla.http.listener", &http)
        .start();
    let files = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let workload = "name: simple\ntopics: 2\npartitionsPerTopic: 2\nkeyDistributor: \"KEY_ROUND_ROBIN\"\n\
        messageSize: 100\nsubscriptionsPerTopic: 2\nconsumerPerSubscription: 1\nproducersPerTopic: 1\n\
        producerRate: 2000\nwarmupDurationMinutes: 0\ntestDurationMinutes: 0.1\n";
    let driver = format!(
        "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\
         replicationFactor: 1\ntopicConfig: |\n  min.insync.replicas=1\ncommonConfig: |\n  \
         bootstrap.servers={}\nproducerConfig: |\n  acks=all\n  linger.ms=1\nconsumerConfig: |\n  \
         auto.offset.reset=earliest\n  enable.auto.commit=false\n",
        broker.bootstrap()
    );
    let charts = files.path().join("charts").display().to_string();
    let ran = Ran::bench(&[
        "run",
        "--workload",
        &file("simple.yaml", workload),
        "--driver",
        &file("kafka.yaml", &driver),
        "--metrics",
        &format!("http://{http}/metrics"),
        "--openmessaging-out",
        &charts,
    ]);
    assert!(ran.output.status.success(), "{}", ran.error());
    let result = ran.result();
    let run = &result.scenarios[0].points[0].runs[0];
    assert!(run.summaries["broker.cpu_seconds_per_gb"].median > 0.0);
    assert!(!run.rounds[0].metrics.is_empty());
    // Each of the two subscriptions has read all records.
    assert_eq!(run.curves["e2e"].count, 2 * run.curves["ack"].count);

    let entries = std::fs::read_dir(&charts).expect("results").flatten();
    let paths: Vec<_> = entries.map(|it| it.path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    let text = std::fs::read(&paths[0]).expect("a result");
    let chart: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(chart["workload"], "simple");
    assert_eq!(chart["driver"], broker.bootstrap());
    for series in [
        "publishLatency99pct",
        "publishDelayLatency99pct",
        "publishRate",
        "endToEndLatency95pct",
        "consumeRate",
        "endToEndLatencyAvg",
    ] {
        let first = chart[series][0].as_f64();
        let first = first.unwrap_or_else(|| panic!("{series}: {}", chart[series]));
        assert!(
            first > 0.0 || series == "publishDelayLatency99pct",
            "{series}"
        );
    }
    let rate =
        chart["consumeRate"][0].as_f64().unwrap() / chart["publishRate"][0].as_f64().unwrap();
    // Consumers that fall behind or catch up change it. It is 1 if one subscription is counted, and 4 if each
    // is counted for both topics.
    assert!((1.3..=2.9).contains(&rate), "{rate}");
    for quantiles in [
        "aggregatedPublishLatencyQuantiles",
        "aggregatedPublishDelayLatencyQuantiles",
        "aggregatedEndToEndLatencyQuantiles",
    ] {
        let points = chart[quantiles].as_object().expect("an object");
        assert!(points.len() > 10, "{quantiles}");
        assert!(
            points
                .keys()
                .all(|it| (0.0..=100.0).contains(&it.parse::<f64>().unwrap()))
        );
    }
}
