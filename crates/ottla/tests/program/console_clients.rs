//! The console clients at a terminal: a broker that fails and returns, an unreachable broker, a
//! closed output pipe, a missing topic, a group without a coordinator.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_testkit::{BrokerBuilder, BrokerProcess, ottla_binary, words};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

/// For a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running tool, killed on drop.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Its output so far.
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
}

impl Running {
    fn start(servers: &str, arguments: &[&str]) -> Running {
        let mut child = Command::new(ottla_binary())
            .arg(arguments[0])
            .args(["--bootstrap-server", servers])
            .args(&arguments[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let out = collect(child.stdout.take().expect("it is piped"));
        let err = collect(child.stderr.take().expect("it is piped"));
        Running {
            stdin: child.stdin.take(),
            child,
            out,
            err,
        }
    }

    fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin
            .write_all(line.as_bytes())
            .expect("the tool reads its input");
    }

    /// Waits until the tool has read what was written.
    fn until_read(&self) {
        let stdin = self.stdin.as_ref().expect("it is open");
        let began = Instant::now();
        while ioctl_fionread(stdin).expect("a pipe") > 0 {
            assert!(began.elapsed() < PATIENCE, "it does not read");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits for this text on standard output or standard error.
    #[track_caller]
    fn until(&self, text: &str) {
        let began = Instant::now();
        while !self.out().contains(text) && !self.err().contains(text) {
            assert!(
                began.elapsed() < PATIENCE,
                "`{text}` is not printed:\n{}{}",
                self.out(),
                self.err()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    #[track_caller]
    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "it does not end:\n{}",
                self.err()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The number of lines of standard error that contain this text.
    fn count(&self, text: &str) -> usize {
        self.err()
            .lines()
            .filter(|line| line.contains(text))
            .count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect<R: Read + Send + 'static>(stream: R) -> Arc<Mutex<String>> {
    let collected = Arc::new(Mutex::new(String::new()));
    let into = collected.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let mut into = into.lock().unwrap();
            into.push_str(&line);
            into.push('\n');
        }
    });
    collected
}

fn broker() -> BrokerProcess {
    let broker = BrokerBuilder::new()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("offsets.topic.num.partitions", "1")
        .property("share.coordinator.state.topic.num.partitions", "1")
        .property("share.coordinator.state.topic.replication.factor", "1")
        .property("share.coordinator.state.topic.min.isr", "1")
        .start();
    broker.create_topic("orders", 1);
    broker
}

fn produce(broker: &BrokerProcess, lines: &str) {
    let servers = broker.bootstrap();
    let mut producer = Running::start(&servers, &["console-producer", "--topic", "orders"]);
    producer.write(lines);
    producer.stdin = None;
    assert!(producer.ended().success(), "{}", producer.err());
}

#[test]
fn a_broker_restart_is_two_lines_and_loses_no_records() {
    let mut broker = broker();
    let servers = broker.bootstrap();
    let mut producer = Running::start(&servers, &["console-producer", "--topic", "orders"]);
    let mut consumer = Running::start(
        &servers,
        &words("console-consumer --topic orders --partition 0 --offset earliest"),
    );
    producer.write("one\n");
    consumer.until("one\n");
    broker.kill();
    for client in [&producer, &consumer] {
        client.until(&format!("Connection to node 1 ({servers}) lost: "));
    }
    producer.write("two\n");
    broker.start_again();
    for client in [&producer, &consumer] {
        client.until(&format!("Connected to node 1 ({servers}) again after "));
    }
    consumer.until("two\n");
    producer.stdin = None;
    assert!(producer.ended().success(), "{}", producer.err());
    consumer.signal(Signal::INT);
    consumer.ended();
    consumer.until("Processed a total of 2 messages");
    for client in [&producer, &consumer] {
        assert_eq!(client.count("WARN"), 1, "{}", client.err());
        assert_eq!(client.count("INFO"), 1, "{}", client.err());
    }
}

#[test]
fn unsent_records_are_counted_and_set_the_exit_status() {
    let mut broker = broker();
    let servers = broker.bootstrap();
    let arguments = words(
        "console-producer --topic orders --request-timeout-ms 1000 --timeout 10 \
         --command-property delivery.timeout.ms=10000",
    );
    let mut producer = Running::start(&servers, &arguments);
    producer.write("one\n");
    let began = Instant::now();
    let latest = words("get-offsets --bootstrap-server {bootstrap} --topic orders");
    while broker.tool(&latest).trim() != "orders:0:1" {
        assert!(began.elapsed() < PATIENCE, "the record does not arrive");
    }
    broker.kill();
    producer.until("lost: ");
    producer.write("two\nthree\n");
    producer.stdin = None;
    let status = producer.ended();
    assert_eq!(status.code(), Some(1), "{}", producer.err());
    producer.until("2 of 3 records were not acknowledged.");
    assert_eq!(
        producer.count("Error when sending message to topic orders"),
        2
    );

    // A second Ctrl-C ends it even if it is blocked.
    broker.start_again();
    let mut waiting = Running::start(&servers, &["console-producer", "--topic", "orders"]);
    waiting.write("four\n");
    let began = Instant::now();
    while broker.tool(&latest).trim() != "orders:0:2" {
        assert!(began.elapsed() < PATIENCE, "the record does not arrive");
    }
    broker.kill();
    waiting.until("lost: ");
    waiting.write("five\n");
    waiting.until_read();
    // Nothing is printed when the line has become a record.
    std::thread::sleep(Duration::from_secs(3));
    waiting.signal(Signal::INT);
    waiting.until("1 record is still to be sent; a second Ctrl-C discards it.");
    waiting.signal(Signal::INT);
    assert_eq!(waiting.ended().code(), Some(1), "{}", waiting.err());
    waiting.until("1 of 2 records were not acknowledged.");
}

#[test]
fn a_consumer_ends_when_its_output_is_closed() {
    let broker = broker();
    produce(&broker, "one\ntwo\nthree\n");
    let mut child = Command::new(ottla_binary())
        .args([
            "console-consumer",
            "--bootstrap-server",
            &broker.bootstrap(),
        ])
        .args(["--topic", "orders", "--from-beginning"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // As with `head -2`.
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "one");
    assert_eq!(lines.next().expect("a line").expect("text"), "two");
    drop(lines);
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut err = String::new();
    let mut stderr = child.stderr.take().expect("it is piped");
    stderr.read_to_string(&mut err).expect("text");
    assert!(
        err.contains("Unable to write to standard out, closing consumer."),
        "{err}"
    );
}

/// Reads two records of the topic into a full device, and checks that the tool gives the reason.
#[track_caller]
fn read_into_a_full_device(broker: &BrokerProcess, tool: &str, arguments: &[&str]) {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = Command::new(ottla_binary())
        .args([tool, "--bootstrap-server", &broker.bootstrap()])
        .args(["--topic", "orders", "--group", "g", "--max-messages", "2"])
        .args(["--timeout-ms", "30000"])
        .args(arguments)
        .stdout(full.expect("the device"))
        .output()
        .expect("the binary starts");
    let err = String::from_utf8_lossy(&output.stderr);
    let reason = "Unable to write to standard out, closing consumer. (No space left on device";
    assert!(err.contains(reason), "{err}");
}

#[test]
fn a_consumer_commits_no_records_that_it_could_not_write() {
    let broker = broker();
    produce(&broker, "one\ntwo\nthree\n");
    read_into_a_full_device(&broker, "console-consumer", &["--from-beginning"]);
    let again = "console-consumer --bootstrap-server {bootstrap} --topic orders --group g --from-beginning \
                 --max-messages 3 --timeout-ms 30000";
    assert_eq!(broker.tool(&words(again)), "one\ntwo\nthree\n");
}

#[test]
fn a_share_consumer_acknowledges_no_records_that_it_could_not_write() {
    let broker = broker();
    produce(&broker, "one\ntwo\nthree\n");
    broker.tool(&words(
        "configs --bootstrap-server {bootstrap} --alter --entity-type groups --entity-name g \
         --add-config share.auto.offset.reset=earliest",
    ));
    read_into_a_full_device(&broker, "console-share-consumer", &[]);
    let again = "console-share-consumer --bootstrap-server {bootstrap} --topic orders --group g \
                 --max-messages 3 --timeout-ms 30000";
    assert_eq!(broker.tool(&words(again)), "one\ntwo\nthree\n");
}

#[test]
fn a_missing_topic_is_one_warning_and_a_timeout_is_no_error() {
    let broker = broker();
    let servers = broker.bootstrap();
    // Long enough to ask for the topic.
    let read = words("console-consumer --topic ordres --timeout-ms 4000");
    let mut consumer = Running::start(
        &servers,
        &[
            &read[..],
            &["--command-property", "allow.auto.create.topics=false"],
        ]
        .concat(),
    );
    assert!(consumer.ended().success(), "{}", consumer.err());
    consumer.until("Processed a total of 0 messages");
    assert_eq!(
        consumer.err(),
        "WARN topic ordres does not exist; did you mean orders? Waiting for it.\n\
         No record arrived for 4000 ms (--timeout-ms); stopping.\nProcessed a total of 0 messages\n"
    );
    let mut consumer = Running::start(&servers, &read);
    assert!(consumer.ended().success(), "{}", consumer.err());
    consumer.until("Processed a total of 0 messages");
    assert_eq!(
        consumer.count("did you mean orders? It is created"),
        1,
        "{}",
        consumer.err()
    );
}

#[test]
fn consumers_report_that_their_group_has_to_wait() {
    let broker = BrokerBuilder::new()
        .property("group.initial.rebalance.delay.ms", "0")
        .property("offsets.topic.num.partitions", "1")
        .property("offsets.topic.replication.factor", "3")
        .property("share.coordinator.state.topic.num.partitions", "1")
        .property("share.coordinator.state.topic.replication.factor", "3")
        .property("share.coordinator.state.topic.min.isr", "1")
        .start();
    broker.create_topic("orders", 1);
    let servers = broker.bootstrap();
    let tools = ["console-consumer", "console-share-consumer"];
    let consumers = tools.map(|tool| {
        let arguments = [tool, "--topic", "orders", "--group", tool];
        Running::start(&servers, &arguments)
    });
    for (group, consumer) in tools.iter().zip(&consumers) {
        consumer.until(&format!(
            "The coordinator of group {group} is not available: topic __consumer_offsets does not exist"
        ));
    }
    // With the default of one replica.
    broker.create_topic("__consumer_offsets", 1);
    for (group, consumer) in tools.iter().zip(&consumers) {
        consumer.until(&format!(
            "The coordinator of group {group} is available after "
        ));
    }
    let [consumer, sharing] = &consumers;
    let state = "The state of share group console-share-consumer is";
    let missing = "not available: topic __share_group_state does not exist";
    sharing.until(&format!("{state} {missing}"));
    broker.create_topic("__share_group_state", 1);
    sharing.until(&format!("{state} available after "));
    for (consumer, lines) in [(consumer, 1), (sharing, 2)] {
        assert_eq!(consumer.count("WARN"), lines, "{}", consumer.err());
        assert_eq!(consumer.count("INFO"), lines, "{}", consumer.err());
    }
}

#[test]
fn a_timeout_ends_a_consumer_without_a_broker() {
    for tool in ["console-consumer", "console-share-consumer"] {
        let read = [tool, "--topic", "orders", "--timeout-ms", "1000"];
        let began = Instant::now();
        let mut consumer = Running::start("127.0.0.1:1", &read);
        assert!(consumer.ended().success(), "{}", consumer.err());
        assert!(began.elapsed() < Duration::from_secs(30));
        consumer.until("No broker answered for 1000 ms (--timeout-ms); stopping.");
        consumer.until("Processed a total of 0 messages");
    }
}

#[test]
fn mistyped_settings_are_reported_but_not_those_of_shared_files() {
    let broker = broker();
    let servers = broker.bootstrap();
    let arguments = words(
        "console-producer --topic orders --command-property akcs=1 \
         --command-property group.id=g",
    );
    let mut producer = Running::start(&servers, &arguments);
    producer.stdin = None;
    assert!(producer.ended().success(), "{}", producer.err());
    producer.until("ignored");
    assert_eq!(
        producer.err(),
        "WARN akcs is not a setting and is ignored; did you mean acks?\n"
    );
}

#[test]
fn the_error_for_a_silent_address_names_the_timeout_setting() {
    // The kernel accepts connections, but no process answers on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("client.properties");
    std::fs::write(&file, "default.api.timeout.ms=2500\n").expect("a file");
    let file = file.display().to_string();
    let began = Instant::now();
    let mut list = Running::start(&address, &["topics", "--list", "--command-config", &file]);
    list.until("trying for 2500 ms (default.api.timeout.ms in the file of --command-config)");
    assert_eq!(list.ended().code(), Some(1));
    assert!(began.elapsed() >= Duration::from_millis(2500));
    list.until(&format!("no answer from {address} within 2500 ms"));
    assert_eq!(list.count("WARN"), 1, "{}", list.err());
}
