//! `ottla rebalance` on a cluster of four brokers in two racks: a skewed cluster is balanced, with
//! the tool killed in between; a broker is emptied, cancelled, and emptied again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_testkit::{RunningTool, ToolOutput, ottla_binary, words};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
const RECORDS: usize = 1200;
const PARTITIONS: usize = 12;

struct Cluster {
    running: RunningTool,
    servers: String,
}

impl Cluster {
    /// Starts four brokers, two in each of two racks.
    fn start(dir: &Path) -> Cluster {
        let mut first = RunningTool::start_new_cluster(dir, &["--brokers", "4"]);
        first.until("Ctrl-C stops every node");
        assert!(first.interrupt().success(), "{}", first.printed());
        for (node, rack) in [(1, "a"), (2, "a"), (3, "b"), (4, "b")] {
            let path = dir.join(format!("node-{node}/server.properties"));
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .expect("the file");
            write!(file, "\nbroker.rack={rack}\n").expect("it is written");
        }
        let mut running = RunningTool::start_cluster(dir, &[]);
        let printed = running.until("Ctrl-C stops every node");
        let line = printed
            .lines()
            .find(|line| line.contains("--bootstrap-server"));
        let servers = line
            .and_then(|line| line.split_whitespace().last())
            .expect("servers");
        Cluster {
            servers: servers.to_owned(),
            running,
        }
    }

    /// The command line of a tool on this cluster.
    fn on(&self, tool: &str, rest: &str) -> String {
        format!("{tool} --bootstrap-server {} {rest}", self.servers)
    }

    /// The output of a tool, which must succeed.
    #[track_caller]
    fn tool(&self, tool: &str, rest: &str, input: &str) -> String {
        ToolOutput::of(&words(&self.on(tool, rest)), input).succeeded()
    }

    /// The output of a tool, which must fail.
    #[track_caller]
    fn refused(&self, tool: &str, rest: &str) -> String {
        ToolOutput::of(&words(&self.on(tool, rest)), "").failed()
    }

    fn reassignments(&self) -> String {
        self.tool("reassign-partitions", "--list", "")
    }

    /// The throttles on brokers and on the topic.
    fn throttles(&self) -> String {
        let mut found = String::new();
        for node in ["1", "2", "3", "4"] {
            found += &self.tool("configs --describe", &format!("--broker {node}"), "");
        }
        found += &self.tool("configs --describe", "--topic orders", "");
        let lines = found.lines().filter(|line| line.contains("throttled"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Waits until the throttles are as wanted. Each broker applies a change to its settings after the
    /// controller has answered.
    #[track_caller]
    fn wait_for_throttles(&self, is_wanted: impl Fn(&str) -> bool) {
        let began = Instant::now();
        loop {
            let throttles = self.throttles();
            if is_wanted(&throttles) {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the throttles stay:\n{throttles}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Replicas and leaders by broker.
    fn counts(&self) -> BTreeMap<String, (usize, usize)> {
        let described = self.tool("topics", "--describe --topic orders", "");
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let field = |line: &str, name: &str| {
            let mut fields = line.split('\t').map(str::trim);
            fields.find_map(|it| it.strip_prefix(name).map(|it| it.trim().to_owned()))
        };
        for line in described
            .lines()
            .filter(|line| line.contains("Partition: "))
        {
            let replicas = field(line, "Replicas:").expect("replicas");
            let in_a = replicas
                .split(',')
                .filter(|id| *id == "1" || *id == "2")
                .count();
            // While replicas move, there are more.
            let is_settled = replicas.split(',').count() == 2;
            assert!(!is_settled || in_a == 1, "not one in each rack: {line}");
            for id in replicas.split(',') {
                counts.entry(id.to_owned()).or_default().0 += 1;
            }
            counts
                .entry(field(line, "Leader:").expect("a leader"))
                .or_default()
                .1 += 1;
        }
        counts
    }

    /// The number of records in all partitions.
    fn records(&self) -> usize {
        let offsets = self.tool("get-offsets", "--topic orders", "");
        let end = |line: &str| line.rsplit(':').next()?.parse::<usize>().ok();
        offsets.lines().filter_map(end).sum()
    }
}

/// Waits until the condition holds. Panics with its message at the timeout.
#[track_caller]
fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_skewed_cluster_is_balanced_and_a_broker_emptied() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::start(&folder.path().join("cluster"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let output = folder.path().join("apply");

    // All replicas are on brokers 1 and 3, and 1 leads all partitions.
    let placed = ["1:3"; PARTITIONS].join(",");
    cluster.tool(
        "topics",
        &format!("--create --topic orders --replica-assignment {placed}"),
        "",
    );
    let record = |number: usize| format!("{number}\t{number}-{}\n", "x".repeat(1000));
    let records: String = (0..RECORDS).map(record).collect();
    let keyed = "--topic orders --reader-property parse.key=true";
    cluster.tool("console-producer", keyed, &records);
    assert_eq!(cluster.records(), RECORDS);

    // An unknown broker is refused before anything is measured.
    let unknown = cluster.refused("rebalance plan", "--add-brokers 9");
    assert!(
        unknown.contains("broker 9 is not part of the cluster") && !unknown.contains("Measuring"),
        "{unknown}"
    );

    // The plan states its cost, and changes nothing.
    let file = path("balance.json");
    // All brokers share the disk of this machine, which may be nearly full.
    let full = "--max-disk-used 100";
    let plan = format!("{full} --sample 1 --plan {file} --throttle 1000000");
    let shown = cluster.tool("rebalance plan", &plan, "");
    assert!(
        shown.contains("4 brokers, 12 partitions with 24 replicas\n"),
        "{shown}"
    );
    assert!(
        shown.contains("\n1       a     12 → 7    12 → 4 "),
        "{shown}"
    );
    assert!(shown.contains("\nMoves:    10 replicas of "), "{shown}");
    assert!(shown.contains("\nTime:     at least "), "{shown}");
    for line in shown
        .lines()
        .filter(|line| !line.contains("ottla rebalance apply"))
    {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert_eq!(
        cluster.reassignments(),
        "No partition reassignments found.\n"
    );
    let again = cluster.refused("rebalance plan", &format!("--plan {file}"));
    assert!(
        again.contains("the file exists; apply the plan in it, remove it"),
        "{again}"
    );
    let mistyped = cluster.refused("rebalance plan", "--sample 0 --topics ordres");
    assert!(mistyped.contains("did you mean orders?"), "{mistyped}");
    let json = cluster.tool("rebalance plan", &format!("{full} --sample 0 --json"), "");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (
            json["moves"].as_u64(),
            json["brokers"][1]["after"]["replicas"].as_u64()
        ),
        (Some(10), Some(5))
    );

    // Killed while it moves, it leaves the throttle; a second run does the rest and removes it.
    let slowly = format!("--plan {file} --throttle 1024 --max-moves-per-broker 1");
    let mut apply = RunningTool::start(&output, &words(&cluster.on("rebalance apply", &slowly)));
    apply.until("of 10 replicas moved");
    wait_for("a move", || cluster.reassignments().contains("adding: "));
    apply.kill();
    cluster.wait_for_throttles(|it| {
        it.contains("leader.replication.throttled.rate=1024")
            && it.contains("follower.replication.throttled.replicas=")
    });
    let counts = cluster.counts();
    let moved = counts.iter().filter(|(id, _)| *id == "2" || *id == "4");
    let moved: usize = moved.map(|(_, (replicas, _))| replicas).sum();
    assert!(moved < 10, "all has moved before the kill: {counts:?}");
    let quickly = format!("--plan {file} --throttle -1");
    let applied = cluster.tool("rebalance apply", &quickly, "");
    assert!(applied.contains("The throttles are removed."), "{applied}");
    assert!(applied.contains("without a throttle"), "{applied}");
    cluster.wait_for_throttles(str::is_empty);
    assert_eq!(
        cluster.reassignments(),
        "No partition reassignments found.\n"
    );
    let counts = cluster.counts();
    for (broker, (replicas, leaders)) in &counts {
        assert!(
            (5..=7).contains(replicas) && (2..=4).contains(leaders),
            "{broker}: {counts:?}"
        );
    }
    assert_eq!((counts.len(), cluster.records()), (4, RECORDS));
    let nothing = cluster.tool("rebalance plan", &format!("{full} --sample 0"), "");
    assert!(nothing.contains("Nothing to do"), "{nothing}");
    let nothing = cluster.tool("rebalance apply", &quickly, "");
    assert!(
        nothing.contains(" done, 0 moving.\nDone: 0 replicas moved, "),
        "{nothing}"
    );

    // Emptying a broker is cancelled, and then done.
    let file = path("empty.json");
    let empty = format!("{full} --empty-brokers 4 --sample 0 --plan {file}");
    cluster.tool("rebalance plan", &empty, "");
    let slowly = format!("--plan {file} --throttle 1024 --max-moves-per-broker 1");
    let mut apply = RunningTool::start(&output, &words(&cluster.on("rebalance apply", &slowly)));
    // After the first move, the throttle holds the second one back for seconds.
    apply.until("1 of 5 replicas moved");
    wait_for("a move", || cluster.reassignments().contains("adding: "));
    let other = cluster.refused("rebalance plan", "--sample 0");
    assert!(other.contains("being reassigned"), "{other}");
    // After Ctrl-C, the command reports the moves that continue.
    assert!(!apply.interrupt().success(), "{}", apply.printed());
    let printed = apply.printed();
    assert!(
        printed.contains("moves in progress continue") && printed.contains("rebalance cancel"),
        "{printed}"
    );
    let cancelled = cluster.tool("rebalance cancel", &format!("--plan {file}"), "");
    assert!(
        cancelled.starts_with("Cancelled 1 move. The throttles are removed. "),
        "{cancelled}"
    );
    cluster.wait_for_throttles(str::is_empty);
    assert_eq!(
        cluster.reassignments(),
        "No partition reassignments found.\n"
    );
    assert!(
        cluster.counts().contains_key("4"),
        "all has moved before the cancellation"
    );
    assert_eq!(cluster.records(), RECORDS);
    cluster.tool("rebalance apply", &format!("--plan {file}"), "");
    assert!(!cluster.counts().contains_key("4"));
    cluster.wait_for_throttles(str::is_empty);
    by_console(&cluster);
    assert_eq!(cluster.records(), RECORDS);

    let consume =
        format!("--topic orders --from-beginning --timeout-ms 60000 --max-messages {RECORDS}");
    let consumed = cluster.tool("console-consumer", &consume, "");
    let mut numbers: Vec<usize> = consumed
        .lines()
        .filter_map(|line| line.split_once('-')?.0.parse().ok())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..RECORDS).collect::<Vec<_>>());
    assert!(cluster.running.interrupt().success());
}

/// A running console, killed on drop.
struct Console {
    child: Child,
    /// It may print more than its address.
    _stdout: BufReader<ChildStdout>,
    address: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Console {
    fn start(servers: &str) -> Console {
        let mut child = Command::new(ottla_binary())
            .args(["console", "--bootstrap-server", servers])
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let (_, address) = line.trim().rsplit_once("http://").expect("its address");
        Console {
            address: address.to_owned(),
            child,
            _stdout: stdout,
        }
    }

    /// The answer to a request, which must succeed.
    #[track_caller]
    fn ask(&self, request: &str, body: &Value) -> Value {
        let body = match body.is_null() {
            true => String::new(),
            false => body.to_string(),
        };
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nX-Ottla-Console: 1\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.write_all((head + &body).as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200"), "{request}: {answer}");
        serde_json::from_str(body).expect("JSON")
    }

    /// Applies the current plan of the console, with this throttle.
    fn rebalance(&self, throttle: &Value) -> Value {
        // As for the tool: all brokers share a disk that may be nearly full.
        let plan = self.ask("GET /api/rebalance-plan?max_disk_percent=100", &Value::Null);
        let changes = plan["changes"].as_array().expect("changes").iter();
        let partitions = changes.map(|it| {
            json!({ "topic": it["topic"], "partition": it["partition"], "replicas": it["replicas"] })
        });
        let partitions: Vec<Value> = partitions.collect();
        let wanted =
            json!({ "partitions": partitions, "throttle": throttle, "moves_per_broker": 1 });
        self.ask("POST /api/rebalance", &wanted)["rebalance"].clone()
    }

    /// Waits until the rebalance is in this state.
    #[track_caller]
    fn until(&self, state: &str) -> Value {
        let began = Instant::now();
        loop {
            let run = self.ask("GET /api/rebalance", &Value::Null)["rebalance"].clone();
            if run["state"] == state {
                return run;
            }
            assert!(began.elapsed() < PATIENCE, "not {state}: {run}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The emptied broker gets replicas again: first cancelled, and then done to the end.
fn by_console(cluster: &Cluster) {
    let console = Console::start(&cluster.servers);
    let started = console.rebalance(&json!(1024));
    assert_eq!(started["state"], "running", "{started}");
    assert!(started["moves"].as_u64() > Some(0), "{started}");
    wait_for("a move", || cluster.reassignments().contains("adding: "));
    cluster.wait_for_throttles(|it| it.contains("throttled.rate=1024"));
    console.ask("DELETE /api/rebalance", &Value::Null);
    console.until("cancelled");
    cluster.wait_for_throttles(str::is_empty);
    assert_eq!(
        cluster.reassignments(),
        "No partition reassignments found.\n"
    );
    console.rebalance(&Value::Null);
    let done = console.until("done");
    assert_eq!(done["moved"], done["moves"], "{done}");
    assert!(done["moved"].as_u64() > Some(0), "{done}");
    assert!(cluster.counts().contains_key("4"));
    cluster.wait_for_throttles(str::is_empty);
}

#[test]
fn errors_name_the_mistake() {
    let refused = |tool: &str, rest: &str| {
        let line = format!("{tool} --bootstrap-server 127.0.0.1:1 {rest}");
        ToolOutput::of(&words(&line), "").failed()
    };
    let slow = refused("rebalance plan", "--throttle 5");
    assert!(
        slow.contains("--throttle 5: give at least 1024 bytes per second, or -1"),
        "{slow}"
    );
    let pattern = refused("rebalance plan", "--topics (");
    assert!(
        pattern.contains("--topics (: not a regular expression"),
        "{pattern}"
    );
    let missing = refused("rebalance apply", "--plan no-such-plan.json");
    assert!(
        missing.contains("--plan no-such-plan.json: cannot be read: ")
            && missing.contains("check the path"),
        "{missing}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("plan.json");
    let text = r#"{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}]}"#;
    std::fs::write(&file, text).expect("a file");
    let named = refused("rebalance apply", &format!("--plan {}", file.display()));
    assert!(
        named.contains("names a log directory for t-0 on broker 1"),
        "{named}"
    );
    let help = ToolOutput::of(&["rebalance", "plan", "--help"], "").out;
    assert!(help.contains("--empty-brokers <IDS>"), "{help}");
}
