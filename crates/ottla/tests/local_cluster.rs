//! `ottla cluster start` at a terminal: its output, a killed node, Ctrl-C, and a restart.

use std::time::{Duration, Instant};

use ottla_testkit::{RunningTool, ToolOutput, words};
use rustix::process::{Pid, Signal, kill_process};

/// For a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The words of a node's row in the table. A cluster that starts slowly prints lines before it that begin
/// with the number of its brokers.
fn row(printed: &str, node: &str) -> Vec<String> {
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let table = printed
        .lines()
        .skip_while(|line| !line.starts_with("NODE "));
    let mut rows = table.map(words);
    let row = rows.find(|row| row.first().is_some_and(|first| first == node));
    row.unwrap_or_else(|| panic!("there is no node {node} in:\n{printed}"))
}

fn bootstrap(printed: &str) -> String {
    let line = printed
        .lines()
        .find(|line| line.contains("--bootstrap-server"));
    line.and_then(|line| line.split_whitespace().last())
        .expect("it says where clients come in")
        .to_owned()
}

/// Runs a tool, which must succeed; returns its output.
fn tool(arguments: &[&str], input: &str) -> String {
    ToolOutput::of(arguments, input).succeeded()
}

#[test]
fn a_cluster_starts_loses_a_node_stops_and_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("cluster");
    let mut cluster = RunningTool::start_new_cluster(&dir, &["--brokers", "3"]);
    let printed = cluster.until("Ctrl-C stops every node");
    let servers = bootstrap(&printed);
    let with = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        format!("{name} --bootstrap-server {servers} {rest}")
    };
    let create = with("topics --create --topic orders --partitions 3");
    tool(&words(&create), "");
    // A record sent while the killed node is still in the ISR waits until the controller has fenced
    // the node.
    let produce = with(
        "console-producer --topic orders --request-timeout-ms 30000 \
         --message-send-max-retries 100",
    );
    tool(&words(&produce), "one\ntwo\n");
    let consume = |count: &str| {
        let line = "console-consumer --topic orders --from-beginning --timeout-ms 60000";
        let line = with(&format!("{line} --max-messages {count}"));
        let printed = tool(&words(&line), "");
        let mut lines: Vec<_> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    // The first group creates the offsets topic with three replicas, which is impossible once one
    // of the three brokers is fenced.
    assert_eq!(consume("2"), ["one", "two"]);

    // The node to kill also leads the metadata quorum, so the other voters elect a new leader.
    let quorum = tool(&words(&with("metadata-quorum describe --status")), "");
    let leader = quorum
        .lines()
        .find_map(|line| line.strip_prefix("LeaderId:"))
        .expect("somebody leads")
        .trim();
    let of_leader = row(&printed, leader);
    assert_eq!(of_leader[1..3], ["broker,", "controller"], "{of_leader:?}");
    let process: i32 = of_leader[5].parse().expect("a process id");
    kill_process(Pid::from_raw(process).expect("an id"), Signal::KILL).expect("it runs");
    let summary = cluster.until("The other 2 keep running");
    let expected = format!("node {leader} exited (signal: 9 (SIGKILL)");
    assert!(summary.contains(&expected), "{summary}");
    tool(&words(&produce), "three\n");
    assert_eq!(consume("3"), ["one", "three", "two"]);

    let second = failed(RunningTool::start_cluster(&dir, &[]));
    assert!(
        second.contains("is in use by another `ottla cluster start`"),
        "{second}"
    );
    let status = cluster.interrupt();
    let printed = cluster.printed();
    assert!(status.success(), "{status}:\n{printed}");
    assert!(printed.contains("Stopped ("), "{printed}");

    let mistyped = ["--override", "num.partition=6"];
    let mut cluster = RunningTool::start_cluster(&dir, &mistyped);
    let printed = cluster.until("Ctrl-C stops every node");
    let warnings = printed.matches("did you mean num.partitions?").count();
    assert_eq!(warnings, 1, "{printed}");
    assert_eq!(bootstrap(&printed), servers);
    assert_eq!(consume("3"), ["one", "three", "two"]);

    // A node that stops without a quorum waits, and reports the pending step.
    let process = |node: &str| {
        let process: i32 = row(&printed, node)[5].parse().expect("a process id");
        Pid::from_raw(process).expect("an id")
    };
    kill_process(process("2"), Signal::KILL).expect("it runs");
    kill_process(process("3"), Signal::KILL).expect("it runs");
    cluster.until("The other one keeps running");
    kill_process(process("1"), Signal::TERM).expect("it runs");
    let output = dir.join("node-1/output.log");
    let began = Instant::now();
    while !std::fs::read_to_string(&output)
        .expect("it is there")
        .contains("Waiting for ")
    {
        assert!(began.elapsed() < PATIENCE, "it says nothing while it waits");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(process("1"), Signal::TERM).expect("it runs");
    let status = cluster.ended();
    let printed = cluster.printed();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("all nodes have exited"), "{printed}");
    // The output of a killed node contains nothing about this.
    assert!(!printed.contains("(SIGKILL)); see"), "{printed}");
}

/// The output of a command that must fail.
fn failed(mut command: RunningTool) -> String {
    let status = command.ended();
    assert_eq!(status.code(), Some(1), "{}", command.printed());
    command.printed()
}

/// The words of a command in the output, without `ottla`.
fn printed_command(printed: &str, name: &str) -> Vec<String> {
    let start = format!("ottla {name} ");
    let mut lines = printed.lines().map(str::trim);
    let line = lines.find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("there is no {start}in:\n{printed}"));
    let words = line.split_whitespace().skip(1);
    words
        .map(|word| word.trim_matches('\'').to_owned())
        .collect()
}

fn run_printed(printed: &str, name: &str) -> String {
    let words = printed_command(printed, name);
    tool(&words.iter().map(String::as_str).collect::<Vec<_>>(), "")
}

#[test]
fn a_secure_cluster_serves_authorized_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("cluster");
    let mut cluster = RunningTool::start_new_cluster(&dir, &["--secure"]);
    let printed = cluster.until("Ctrl-C stops every node");
    run_printed(&printed, "topics");
    let printed_words = printed_command(&printed, "topics");
    let after = |flag: &str| {
        let index = printed_words.iter().position(|word| word == flag);
        printed_words[index.expect("it is printed") + 1].clone()
    };
    let (servers, admin) = (after("--bootstrap-server"), after("--command-config"));
    let at = |name: &str| dir.join("clients").join(name).display().to_string();
    assert_eq!(admin, at("admin.properties"));
    let alice = at("alice.properties");
    let with = |tool: &str, settings: &str, more: &[&str]| {
        let given = [
            tool,
            "--bootstrap-server",
            &servers,
            "--command-config",
            settings,
        ];
        let words = given.iter().chain(more).map(|word| (*word).to_owned());
        words.collect::<Vec<String>>()
    };
    let run = |tool_and_words: &[String], input: &str| {
        let words: Vec<&str> = tool_and_words.iter().map(String::as_str).collect();
        tool(&words, input)
    };
    // A broker applies a change after the controller has answered, and clients connect to each.
    let known_to_each = |tool: &str, rest: &str, wanted: &[&str]| {
        for server in servers.split(',') {
            let line =
                format!("{tool} --bootstrap-server {server} --command-config {admin} {rest}");
            let began = Instant::now();
            loop {
                let listed = ToolOutput::of(&words(&line), "").succeeded();
                if wanted.iter().all(|it| listed.contains(it)) {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{server}:\n{listed}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    let fails = |tool_and_words: &[String], input: &str| {
        let words: Vec<&str> = tool_and_words.iter().map(String::as_str).collect();
        ToolOutput::of(&words, input).failed()
    };
    let create = words("--create --topic orders --partitions 3");
    run(&with("topics", &admin, &create), "");
    let produce = |settings: &str| {
        with(
            "console-producer",
            settings,
            &words("--topic orders --request-timeout-ms 30000"),
        )
    };
    let consume = |settings: &str| {
        let more =
            "--topic orders --group readers --from-beginning --max-messages 2 --timeout-ms 60000";
        with("console-consumer", settings, &words(more))
    };

    // An authenticated user has no permission until an ACL grants it.
    let denied = ToolOutput::of(
        &produce(&alice)
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
        "lost\n",
    );
    let denied = denied.err;
    assert!(denied.to_lowercase().contains("authoriz"), "{denied}");
    run_printed(&printed, "acls");
    known_to_each("acls", "--list", &["=TOPIC", "=GROUP", "User:alice"]);
    run(&produce(&alice), "one\ntwo\n");
    let read = run(&consume(&alice), "");
    let mut read: Vec<&str> = read.lines().collect();
    read.sort_unstable();
    assert_eq!(read, ["one", "two"]);

    // A new user with a password has no permissions either.
    let add = words(
        "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-512=[password=b0b]",
    );
    run(&with("configs", &admin, &add), "");
    known_to_each("configs", "--describe --entity-type users", &["'bob'"]);
    let text = std::fs::read_to_string(&alice).expect("the settings of alice");
    let login = |user: &str, password: &str| {
        let file = at(&format!("{user}-{password}.properties"));
        let lines = text.lines().map(|line| match line.split_once('=') {
            Some(("sasl.jaas.config", entry)) => {
                let module = entry.split(' ').next().expect("a module");
                format!(
                    "sasl.jaas.config={module} required username=\"{user}\" password=\"{password}\";\n"
                )
            }
            _ => format!("{line}\n"),
        });
        std::fs::write(&file, lines.collect::<String>()).expect("written");
        file
    };
    let bob = login("bob", "b0b");
    // Kafka's console consumer exits with 0 in this case.
    let words_of_bob = consume(&bob);
    let words_of_bob: Vec<&str> = words_of_bob.iter().map(String::as_str).collect();
    let denied = ToolOutput::of(&words_of_bob, "");
    assert_eq!(denied.out, "");
    let denied = denied.err;
    assert!(denied.to_lowercase().contains("authoriz"), "{denied}");
    let seen = run(&with("topics", &bob, &["--list"]), "");
    assert!(!seen.contains("orders"), "{seen}");

    // Access is refused without credentials, with a wrong password, and without TLS.
    let wrong = fails(&with("topics", &login("bob", "bob"), &["--list"]), "");
    assert!(
        wrong.contains("invalid credentials with SASL mechanism SCRAM-SHA-512"),
        "{wrong}"
    );
    let anonymous = at("anonymous.properties");
    let without_login = text.replace("SASL_SSL", "SSL");
    std::fs::write(&anonymous, without_login + "default.api.timeout.ms=3000\n").expect("written");
    fails(&with("topics", &anonymous, &["--list"]), "");
    std::fs::write(&anonymous, "default.api.timeout.ms=3000\n").expect("written");
    let plain = fails(&with("topics", &anonymous, &["--list"]), "");
    assert!(plain.contains("set security.protocol=SSL"), "{plain}");

    let status = cluster.interrupt();
    assert!(status.success(), "{status}:\n{}", cluster.printed());
    // After a restart the cluster is still secured, with its users, ACLs and records.
    let mut cluster = RunningTool::start_cluster(&dir, &[]);
    let again = cluster.until("Ctrl-C stops every node");
    assert_eq!(printed_command(&again, "topics")[2], servers);
    let offsets = with("get-offsets", &alice, &words("--topic orders"));
    let total: u64 = run(&offsets, "")
        .lines()
        .filter_map(|line| line.rsplit(':').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(total, 2);
    assert!(cluster.interrupt().success());
}
