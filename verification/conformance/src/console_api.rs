//! `cargo xtask console-api`: does everything that the console's API offers, against Ottla and
//! against Apache Kafka, and asks the cluster with the command-line tools whether it happened.

mod http;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_peers::{NodeOptions, Peer};
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::report::Tally;
use ottla_workspace::workspace;
use serde_json::{Value, json};

use http::Http;

#[derive(clap::Args)]
pub struct Options {
    /// Only against this broker: the name of a file in peers/, without `.toml`.
    #[arg(long)]
    broker: Option<String>,
    /// Only steps with this in their names. Later steps need what earlier ones have made.
    #[arg(long)]
    until: Option<String>,
}

const SETTINGS: [(&str, &str); 7] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
    (
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    ),
    ("super.users", "User:ANONYMOUS"),
    ("log.initial.task.delay.ms", "3600000"),
];
/// How long the cluster may take to show a change.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a step works with.
struct Stage {
    http: Http,
    binary: PathBuf,
    bootstrap: String,
    dir: PathBuf,
}

type Step = (&'static str, fn(&Stage) -> Result<()>);

/// In this order, because later steps use what earlier ones have made.
const STEPS: &[Step] = &[
    ("the overview", overview),
    ("a topic is created", create_topic),
    ("settings are changed", change_settings),
    ("partitions are added", add_partitions),
    ("records are produced", produce),
    ("records are read page by page", read_pages),
    ("records are found", search),
    ("a live tail", live_tail),
    ("records are exported", export),
    ("records are sent again", redrive),
    ("a group and its lag", group_lag),
    ("offsets are reset", reset_offsets),
    ("a group is deleted", delete_group),
    ("transactions", transactions),
    ("quotas", quotas),
    ("ACLs", acls),
    ("SCRAM users", users),
    ("a broker and its settings", broker),
    ("leaders are elected, replicas assigned", elections),
    ("a topic is emptied", empty_topic),
    ("a topic is deleted", delete_topic),
    ("series", series),
];

pub fn run(options: &Options) -> Result<()> {
    let brokers = match &options.broker {
        Some(broker) => vec![broker.as_str()],
        None => vec!["ottla", "kafka"],
    };
    let binary = match std::env::var_os("OTTLA_BINARY") {
        Some(named) => PathBuf::from(named),
        None => workspace::release_binary("ottla", "ottla")?,
    };
    let mut tally = Tally::default();
    for broker in brokers {
        tally.add(against(broker, &binary, options)?);
    }
    println!("{tally}");
    ensure!(
        tally.failed == 0,
        "the console differs from what the tools say"
    );
    Ok(())
}

fn against(broker: &str, binary: &std::path::Path, options: &Options) -> Result<Tally> {
    let peer = Peer::load(broker)?.install()?;
    let dir = tempfile::Builder::new()
        .prefix("ottla-console-")
        .tempdir()?;
    let overrides = SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut node = peer.start(NodeOptions {
        dir: dir.path().join("node"),
        overrides: overrides.to_vec(),
        ..NodeOptions::default()
    })?;
    let mut command = Command::new(binary);
    command
        .args(["console", "--bootstrap-server", &node.bootstrap()])
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped());
    let (mut console, address) = start_console(&mut command)?;
    let stage = Stage {
        http: Http { address },
        binary: binary.to_owned(),
        bootstrap: node.bootstrap(),
        dir: dir.path().to_owned(),
    };
    let mut tally = Tally::default();
    for (name, step) in STEPS {
        let began = Instant::now();
        let result = step(&stage);
        let verdict = if result.is_ok() { "ok  " } else { "FAIL" };
        let seconds = began.elapsed().as_secs_f64();
        println!("{verdict} {}: {name} ({seconds:.1} s)", peer.name());
        if let Err(error) = &result {
            println!("FAIL {}: {name}: {error:#}", peer.name());
        }
        tally.add(Tally::of(result.is_ok()));
        if options
            .until
            .as_ref()
            .is_some_and(|until| name.contains(until.as_str()))
        {
            break;
        }
    }
    console.stop(Duration::from_secs(10))?;
    node.stop()?;
    Ok(tally)
}

fn start_console(command: &mut Command) -> Result<(OwnedChild, String)> {
    let (console, _input, output) = OwnedChild::converse(command)?;
    let mut line = String::new();
    let mut output = BufReader::new(output);
    output.read_line(&mut line)?;
    let address = line
        .trim()
        .rsplit_once("http://")
        .map(|(_, it)| it.to_owned());
    let address = address.with_context(|| format!("the console said {line:?}"))?;
    // It must not find its output closed.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok((console, address))
}

impl Stage {
    /// What a tool prints about the cluster.
    fn tool(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .args(["--bootstrap-server", &self.bootstrap]);
        process::output_of(&mut command)
    }

    /// Waits until a tool prints something as wanted.
    fn tool_shows(&self, arguments: &[&str], wanted: &[&str]) -> Result<String> {
        let began = Instant::now();
        loop {
            let printed = self.tool(arguments)?;
            if wanted.iter().all(|it| printed.contains(it)) {
                return Ok(printed);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{arguments:?} does not show {wanted:?}:\n{printed}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the API answers as wanted.
    fn shows(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let began = Instant::now();
        loop {
            let found = self.http.get(path)?;
            if is_wanted(&found) {
                return Ok(found);
            }
            ensure!(began.elapsed() < PATIENCE, "GET {path} stays {found}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.http.json("POST", path, Some(body))
    }

    /// Runs a tool that reads standard input from a file.
    fn tool_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let path = self.dir.join("input");
        std::fs::write(&path, input)?;
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .args(["--bootstrap-server", &self.bootstrap])
            .stdin(std::fs::File::open(path)?);
        process::output_of(&mut command)
    }
}

fn overview(stage: &Stage) -> Result<()> {
    let cluster = stage.http.get("/api/cluster")?;
    let id = stage.tool(&["cluster", "cluster-id"])?;
    let shown = cluster["cluster_id"].as_str().unwrap_or_default();
    ensure!(id.contains(shown) && !shown.is_empty(), "{cluster}\n{id}");
    ensure!(
        cluster["brokers"].as_array().map_or(0, Vec::len) == 1,
        "{cluster}"
    );
    ensure!(cluster["health"] == "ok", "{cluster}");
    ensure!(
        cluster["quorum"]["leader"] == cluster["brokers"][0]["id"],
        "{cluster}"
    );
    let session = stage.http.get("/api/session")?;
    ensure!(
        session["login"] == "none" && session["read_only"] == false,
        "{session}"
    );
    Ok(())
}

fn create_topic(stage: &Stage) -> Result<()> {
    let mut topic = json!({"name": "orders", "partitions": 2, "replication_factor": 1,
        "configs": {"retention.ms": "86400000"}, "preview": true});
    stage.post("/api/topics", &topic)?;
    ensure!(
        !stage.tool(&["topics", "--list"])?.contains("orders"),
        "the preview created it"
    );
    topic["preview"] = json!(false);
    stage.post("/api/topics", &topic)?;
    let describe = ["topics", "--describe", "--topic", "orders"];
    stage.tool_shows(&describe, &["PartitionCount: 2", "retention.ms=86400000"])?;
    let topics = stage.shows("/api/topics", |it| it["total"] == 1)?;
    let row = &topics["items"][0];
    ensure!(
        row["name"] == "orders" && row["retention_ms"] == 86_400_000,
        "{topics}"
    );
    let (status, detail) = stage.http.refused("POST", "/api/topics", Some(&topic))?;
    ensure!(
        status == 409 && detail.contains("orders"),
        "{status} {detail}"
    );
    let (status, _) = stage.http.refused("GET", "/api/topics/missing", None)?;
    ensure!(status == 404, "{status}");
    Ok(())
}

fn change_settings(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/settings";
    let change = json!({"set": {"max.message.bytes": "2000000"}, "delete": ["retention.ms"]});
    stage.http.json("PATCH", path, Some(&change))?;
    let describe = [
        "configs",
        "--describe",
        "--entity-type",
        "topics",
        "--entity-name",
        "orders",
    ];
    let printed = stage.tool_shows(&describe, &["max.message.bytes=2000000"])?;
    ensure!(!printed.contains("retention.ms=86400000"), "{printed}");
    let settings = stage.shows(path, |it| {
        setting(it, "max.message.bytes")["value"] == "2000000"
    })?;
    let changed = setting(&settings, "max.message.bytes");
    ensure!(
        changed["source"] == "topic" && changed["type"] == "int",
        "{changed}"
    );
    let untouched = setting(&settings, "retention.ms");
    ensure!(
        untouched["is_default"] == true && untouched["value"] == "604800000",
        "{untouched}"
    );
    let wrong = json!({"set": {"max.message.bytes": "many"}});
    let (status, detail) = stage.http.refused("PATCH", path, Some(&wrong))?;
    ensure!(
        status == 422 && detail.contains("max.message.bytes"),
        "{status} {detail}"
    );
    let of_new = stage.http.get("/api/topic-settings")?;
    ensure!(
        setting(&of_new, "cleanup.policy")["value"] == "delete",
        "{of_new}"
    );
    Ok(())
}

fn setting<'a>(settings: &'a Value, name: &str) -> &'a Value {
    let mut items = settings["items"].as_array().into_iter().flatten();
    items.find(|it| it["name"] == name).unwrap_or(&Value::Null)
}

fn add_partitions(stage: &Stage) -> Result<()> {
    stage.post("/api/topics/orders/partitions", &json!({"count": 3}))?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "orders"],
        &["PartitionCount: 3"],
    )?;
    let topic = stage.shows("/api/topics/orders", |it| it["partitions"] == 3)?;
    ensure!(topic["partition_list"][2]["leader"].is_number(), "{topic}");
    let (status, _) = stage.http.refused(
        "POST",
        "/api/topics/orders/partitions",
        Some(&json!({"count": 1})),
    )?;
    ensure!(status == 422, "{status}");
    Ok(())
}

fn produce(stage: &Stage) -> Result<()> {
    let record = |number: i32| {
        json!({"partition": number % 3, "key": format!("user-{number}"),
            "value": format!("{{\"amount\": {number}, \"name\": \"<b>{number}</b>\"}}"),
            "headers": [{"key": "source", "value": "web"}], "timestamp": 1_700_000_000_000_i64 + i64::from(number)})
    };
    let records: Vec<Value> = (0..9).map(record).collect();
    let produced = stage.post("/api/topics/orders/records", &json!({"records": records}))?;
    ensure!(produced["items"][8]["offset"] == 2, "{produced}");
    let binary =
        json!({"records": [{"partition": 0, "key": null, "value": "fffe00", "encoding": "hex"}]});
    stage.post("/api/topics/orders/records", &binary)?;
    let tombstone = json!({"records": [{"partition": 1, "key": "gone", "value": null}]});
    stage.post("/api/topics/orders/records", &tombstone)?;
    stage.tool_shows(
        &["get-offsets", "--topic", "orders"],
        &["orders:0:4", "orders:1:4", "orders:2:3"],
    )?;
    let printed = stage.tool(&[
        "console-consumer",
        "--topic",
        "orders",
        "--partition",
        "2",
        "--offset",
        "earliest",
        "--max-messages",
        "3",
        "--property",
        "print.key=true",
        "--property",
        "print.headers=true",
        "--property",
        "print.timestamp=true",
    ])?;
    let line =
        "CreateTime:1700000000005\tsource:web\tuser-5\t{\"amount\": 5, \"name\": \"<b>5</b>\"}";
    ensure!(printed.contains(line), "{printed}");
    let wrong = json!({"records": [{"partition": 7, "value": "x"}]});
    let (status, detail) =
        stage
            .http
            .refused("POST", "/api/topics/orders/records", Some(&wrong))?;
    ensure!(
        status == 422 && detail.contains("no partition 7"),
        "{status} {detail}"
    );
    Ok(())
}

fn read_pages(stage: &Stage) -> Result<()> {
    let records = "/api/topics/orders/records";
    let (mut found, mut from, mut pages) = (Vec::new(), "beginning".to_owned(), 0);
    loop {
        let (page, done) = stage
            .http
            .records(&format!("{records}?from={from}&limit=4"))?;
        ensure!(page.len() <= 4, "{page:?}");
        found.extend(page);
        pages += 1;
        match done["next"].as_str() {
            Some(next) => from = next.to_owned(),
            None => break,
        }
        ensure!(pages < 10, "no end of pages");
    }
    let mut places: Vec<(i64, i64)> = found.iter().map(place).collect();
    places.sort_unstable();
    let expected: Vec<(i64, i64)> = [(0, 4), (1, 4), (2, 3)]
        .iter()
        .flat_map(|(partition, end)| (0..*end).map(|offset| (*partition, offset)))
        .collect();
    ensure!(
        places == expected && pages >= 3,
        "{pages} pages: {places:?}"
    );
    let binary = found
        .iter()
        .find(|it| place(it) == (0, 3))
        .context("the binary record")?;
    ensure!(
        binary["value"]["format"] == "hex" && binary["value"]["text"] == "fffe00",
        "{binary}"
    );
    ensure!(binary["key"].is_null(), "{binary}");
    let tombstone = found
        .iter()
        .find(|it| place(it) == (1, 3))
        .context("the tombstone")?;
    ensure!(
        tombstone["value"].is_null() && tombstone["key"]["text"] == "gone",
        "{tombstone}"
    );
    let count =
        |query: &str| anyhow::Ok(stage.http.records(&format!("{records}?{query}"))?.0.len());
    ensure!(count("from=offset:2&partitions=2")? == 1);
    ensure!(count("from=timestamp:1700000000007&until=timestamp:1700000000009")? == 2);
    ensure!(count("from=last:3")? == 3);
    ensure!(count("from=end")? == 0);
    let one = stage.http.get("/api/topics/orders/records/2/1")?;
    ensure!(
        one["key"]["text"] == "user-5" && one["headers"][0]["value"]["text"] == "web",
        "{one}"
    );
    ensure!(one["value"]["format"] == "json", "{one}");
    let (status, detail) = stage
        .http
        .refused("GET", "/api/topics/orders/records/2/99", None)?;
    ensure!(
        status == 404 && detail.contains("offset 99"),
        "{status} {detail}"
    );
    Ok(())
}

fn place(record: &Value) -> (i64, i64) {
    let number = |name: &str| record[name].as_i64().unwrap_or(-1);
    (number("partition"), number("offset"))
}

fn search(stage: &Stage) -> Result<()> {
    let count = |filter: &str| {
        let path = format!("/api/topics/orders/records?from=beginning&{filter}");
        let (found, done) = stage.http.records(&path)?;
        ensure!(
            done["scanned"] == 11 && done["fraction"] == 1.0,
            "{filter}: {done}"
        );
        anyhow::Ok(found.len())
    };
    ensure!(count("text=USER-3")? == 1, "by text");
    ensure!(count("key=user-4")? == 1, "by key");
    // $.amount > 6
    ensure!(
        count("json_path=%24.amount%20%3E%206")? == 2,
        "by JSON path"
    );
    // value.amount < 3 && headers.source == "web" || key == "gone"
    let expression = "value.amount%20%3C%203%20%26%26%20headers.source%20%3D%3D%20%22web%22%20%7C%7C%20key%20%3D%3D%20%22gone%22";
    ensure!(
        count(&format!("expression={expression}"))? == 4,
        "by expression"
    );
    ensure!(count("text=nothing-like-it")? == 0);
    Ok(())
}

fn live_tail(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/records?from=end&follow=true&text=late";
    let mut tail = stage.http.send("GET", path, None)?;
    ensure!(tail.status == 200, "status {}", tail.status);
    tail.wait_for("progress", |event, _| event == "progress")?;
    stage.tool_with_input(&["console-producer", "--topic", "orders"], "early\nlate\n")?;
    let records = tail.wait_for("records", |event, _| event == "records")?;
    ensure!(records[0]["value"]["text"] == "late", "{records}");
    let progress = tail.wait_for("progress", |event, data| {
        event == "progress" && data["scanned"] == 2
    })?;
    ensure!(
        progress["matched"] == 1 && progress["fraction"].is_null(),
        "{progress}"
    );
    Ok(())
}

fn export(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/export?from=beginning&partitions=0,1&download=1";
    let lines = stage.http.send("GET", path, None)?.text()?;
    let records: Vec<Value> = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let binary = records
        .iter()
        .find(|it| place(it) == (0, 3))
        .context("the binary record")?;
    ensure!(
        binary["value"] == "//4A" && binary["base64"][0] == "value",
        "{binary}"
    );
    ensure!(records.iter().any(|it| it["key"] == "user-4"), "{lines}");
    let csv = stage
        .http
        .send("GET", &format!("{path}&as=csv&text=user-4"), None)?
        .text()?;
    let wanted =
        "1,1,1700000000004,\"user-4\",\"{\"\"amount\"\": 4, \"\"name\"\": \"\"<b>4</b>\"\"}\"";
    ensure!(csv.contains(wanted), "{csv}");
    Ok(())
}

fn redrive(stage: &Stage) -> Result<()> {
    stage.post("/api/topics", &json!({"name": "again", "partitions": 3}))?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "again"],
        &["PartitionCount: 3"],
    )?;
    let path = "/api/topics/orders/redrive";
    let matching = json!({"from": "beginning", "expression": "value.amount >= 7"});
    let mut redrive =
        json!({"to": "again", "matching": matching, "keep_partition": true, "preview": true});
    let (_, done) = stage.http.stream("POST", path, Some(&redrive))?;
    ensure!(done["matched"] == 2 && done["sent"] == 0, "{done}");
    let offsets = ["get-offsets", "--topic", "again"];
    stage.tool_shows(&offsets, &["again:0:0", "again:1:0", "again:2:0"])?;
    redrive["preview"] = json!(false);
    let (_, done) = stage.http.stream("POST", path, Some(&redrive))?;
    ensure!(done["sent"] == 2, "{done}");
    // 7 was in partition 1, 8 in partition 2.
    stage.tool_shows(&offsets, &["again:0:0", "again:1:1", "again:2:1"])?;
    let named =
        json!({"to": "again", "records": [{"partition": 0, "offset": 3}], "keep_partition": true});
    let (_, done) = stage.http.stream("POST", path, Some(&named))?;
    ensure!(done["sent"] == 1, "{done}");
    stage.tool_shows(&offsets, &["again:0:1"])?;
    let printed = stage.tool(&[
        "console-consumer",
        "--topic",
        "again",
        "--partition",
        "2",
        "--offset",
        "earliest",
        "--max-messages",
        "1",
        "--property",
        "print.key=true",
        "--property",
        "print.headers=true",
        "--property",
        "print.timestamp=true",
    ])?;
    ensure!(
        printed.contains("CreateTime:1700000000008\tsource:web\tuser-8\t"),
        "{printed}"
    );
    Ok(())
}

fn group_lag(stage: &Stage) -> Result<()> {
    stage.tool(&[
        "console-consumer",
        "--topic",
        "again",
        "--group",
        "readers",
        "--from-beginning",
        "--max-messages",
        "3",
        "--timeout-ms",
        "20000",
    ])?;
    stage.tool_with_input(&["console-producer", "--topic", "again"], "one\ntwo\n")?;
    let describe = ["consumer-groups", "--describe", "--group", "readers"];
    stage.tool_shows(&describe, &["again"])?;
    let group = stage.shows("/api/groups/readers", |it| {
        it["lag"] == 2 && it["state"] == "Empty"
    })?;
    ensure!(
        group["partition_list"].as_array().map_or(0, Vec::len) == 3,
        "{group}"
    );
    ensure!(
        group["why"]
            .as_str()
            .is_some_and(|it| it.contains("nobody consumes")),
        "{group}"
    );
    let groups = stage.shows("/api/groups?search=read", |it| it["items"][0]["lag"] == 2)?;
    ensure!(groups["total"] == 1, "{groups}");
    let topics = stage.shows("/api/topics?search=again", |it| it["items"][0]["lag"] == 2)?;
    ensure!(
        topics["items"][0]["groups"][0]["group_id"] == "readers",
        "{topics}"
    );
    Ok(())
}

/// The committed offsets of the group as the tool prints them, by partition.
fn committed(stage: &Stage) -> Result<Vec<i64>> {
    let printed = stage.tool(&["consumer-groups", "--describe", "--group", "readers"])?;
    let mut offsets: Vec<(i64, i64)> = Vec::new();
    for line in printed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["readers", "again", partition, offset, ..] = words[..] {
            offsets.push((partition.parse()?, offset.parse()?));
        }
    }
    offsets.sort_unstable();
    Ok(offsets.into_iter().map(|(_, offset)| offset).collect())
}

fn reset_offsets(stage: &Stage) -> Result<()> {
    let path = "/api/groups/readers/offsets";
    let before = committed(stage)?;
    ensure!(before == [1, 1, 1], "{before:?}");
    let preview = stage.post(path, &json!({"to": "earliest", "preview": true}))?;
    ensure!(
        preview["items"][1]["old"] == 1 && preview["items"][1]["new"] == 0,
        "{preview}"
    );
    ensure!(committed(stage)? == before, "the preview changed offsets");
    stage.post(path, &json!({"to": "earliest"}))?;
    ensure!(committed(stage)? == [0, 0, 0], "{:?}", committed(stage)?);
    let one =
        json!({"to": "offset", "value": 1, "topics": [{"topic": "again", "partitions": [2]}]});
    stage.post(path, &one)?;
    ensure!(committed(stage)? == [0, 0, 1], "{:?}", committed(stage)?);
    stage.post(
        path,
        &json!({"to": "shift", "value": 1, "topics": [{"topic": "again", "partitions": [0]}]}),
    )?;
    ensure!(committed(stage)? == [1, 0, 1], "{:?}", committed(stage)?);
    stage.post(
        path,
        &json!({"to": "offsets", "offsets": [{"topic": "again", "partition": 1, "offset": 1}]}),
    )?;
    ensure!(committed(stage)? == [1, 1, 1], "{:?}", committed(stage)?);
    stage.post(path, &json!({"to": "timestamp", "value": 1_700_000_000_008_i64, "topics": [{"topic": "again", "partitions": [2]}]}))?;
    ensure!(committed(stage)? == [1, 1, 0], "{:?}", committed(stage)?);
    let latest = stage.post(path, &json!({"to": "latest"}))?;
    let ends: Vec<i64> = latest["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["log_end_offset"].as_i64())
        .collect();
    ensure!(
        committed(stage)? == ends,
        "{:?} and {ends:?}",
        committed(stage)?
    );
    let missing = json!({"to": "earliest", "topics": [{"topic": "again", "partitions": [9]}]});
    let (status, detail) = stage.http.refused("POST", path, Some(&missing))?;
    ensure!(
        status == 422 && detail.contains("no partition 9"),
        "{status} {detail}"
    );
    Ok(())
}

fn delete_group(stage: &Stage) -> Result<()> {
    let only = json!({"topics": [{"topic": "again", "partitions": [0]}]});
    stage
        .http
        .json("DELETE", "/api/groups/readers/offsets", Some(&only))?;
    ensure!(committed(stage)?.len() == 2, "{:?}", committed(stage)?);
    stage
        .http
        .json("DELETE", "/api/groups/readers?confirm=readers", None)?;
    let listed = stage.tool(&["groups", "--list"])?;
    ensure!(!listed.contains("readers"), "{listed}");
    let (status, _) = stage.http.refused("GET", "/api/groups/readers", None)?;
    ensure!(status == 404, "{status}");
    Ok(())
}

fn transactions(stage: &Stage) -> Result<()> {
    // One record a second in a transaction that lasts for minutes.
    let mut command = Command::new(&stage.binary);
    command
        .args([
            "producer-perf-test",
            "--topic",
            "again",
            "--num-records",
            "1000",
            "--record-size",
            "10",
        ])
        .args([
            "--throughput",
            "1",
            "--transactional-id",
            "long",
            "--transaction-duration-ms",
            "50000",
        ])
        .args(["--bootstrap-server", &stage.bootstrap])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut producer = OwnedChild::start(&mut command)?;
    let open = |it: &Value| {
        it["items"][0]["state"] == "Ongoing" && it["items"][0]["topics"][0]["topic"] == "again"
    };
    let listed = stage.shows("/api/transactions?search=long", open)?;
    ensure!(listed["items"][0]["started"].is_number(), "{listed}");
    let holds = |it: &Value| {
        let mut items = it["items"].as_array().into_iter().flatten();
        items.any(|it| {
            it["transactional_id"] == "long"
                && it["holds_back"].as_i64() >= Some(1)
                && it["is_hanging"] == false
        })
    };
    stage.shows("/api/topics/again/producers", holds)?;
    let printed = stage.tool(&["transactions", "list"])?;
    ensure!(
        printed.contains("long") && printed.contains("Ongoing"),
        "{printed}"
    );
    stage
        .http
        .json("POST", "/api/transactions/long/abort", None)?;
    let describe = ["transactions", "describe", "--transactional-id", "long"];
    let began = Instant::now();
    loop {
        let printed = stage.tool(&describe)?;
        if !printed.contains("Ongoing") && !printed.contains("PrepareAbort") {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "{printed}");
    }
    stage.shows("/api/transactions/long", |it| it["state"] != "Ongoing")?;
    producer.kill()?;
    let (status, _) = stage
        .http
        .refused("POST", "/api/transactions/unknown/abort", None)?;
    ensure!(status == 404, "{status}");
    Ok(())
}

fn quotas(stage: &Stage) -> Result<()> {
    let quota = json!({"entity": {"user": "alice", "client-id": null}, "quotas": {"producer_byte_rate": 1024.0}});
    stage.http.json("PATCH", "/api/quotas", Some(&quota))?;
    let describe = [
        "configs",
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
        "--entity-type",
        "clients",
        "--entity-default",
    ];
    stage.tool_shows(&describe, &["producer_byte_rate=1024"])?;
    let listed = stage.shows("/api/quotas", |it| it["total"] == 1)?;
    ensure!(
        listed["items"][0]["quotas"]["producer_byte_rate"] == 1024.0,
        "{listed}"
    );
    let removed = json!({"entity": {"user": "alice", "client-id": null}, "quotas": {"producer_byte_rate": null}});
    stage.http.json("PATCH", "/api/quotas", Some(&removed))?;
    stage.shows("/api/quotas", |it| it["total"] == 0)?;
    Ok(())
}

fn acls(stage: &Stage) -> Result<()> {
    let acl = json!({"resource_type": "topic", "resource_name": "ord", "pattern_type": "prefixed",
        "principal": "User:alice", "operation": "read", "permission": "allow"});
    stage.post("/api/acls", &acl)?;
    let list = ["acls", "--list", "--principal", "User:alice"];
    stage.tool_shows(
        &list,
        &[
            "resourceType=TOPIC, name=ord, patternType=PREFIXED",
            "operation=READ",
        ],
    )?;
    let listed = stage.shows("/api/acls?search=alice", |it| it["total"] == 1)?;
    ensure!(
        listed["items"][0]["host"] == "*" && listed["items"][0]["operation"] == "read",
        "{listed}"
    );
    stage.http.json("DELETE", "/api/acls", Some(&acl))?;
    stage.shows("/api/acls?search=alice", |it| it["total"] == 0)?;
    ensure!(!stage.tool(&list)?.contains("READ"), "still there");
    let (status, _) = stage.http.refused("DELETE", "/api/acls", Some(&acl))?;
    ensure!(status == 404, "{status}");
    Ok(())
}

fn users(stage: &Stage) -> Result<()> {
    let password = json!({"mechanism": "SCRAM-SHA-256", "password": "hush", "iterations": 4096});
    stage
        .http
        .json("PUT", "/api/users/alice", Some(&password))?;
    let describe = [
        "configs",
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
    ];
    stage.tool_shows(&describe, &["SCRAM-SHA-256=iterations=4096"])?;
    let listed = stage.shows("/api/users", |it| it["total"] == 1)?;
    ensure!(
        listed["items"][0]["credentials"][0]["mechanism"] == "SCRAM-SHA-256",
        "{listed}"
    );
    stage.http.json("DELETE", "/api/users/alice", None)?;
    stage.shows("/api/users", |it| it["total"] == 0)?;
    ensure!(
        !stage.tool(&describe)?.contains("SCRAM-SHA-256=iterations"),
        "still there"
    );
    Ok(())
}

fn broker(stage: &Stage) -> Result<()> {
    let cluster = stage.http.get("/api/cluster")?;
    let id = cluster["brokers"][0]["id"].as_i64().context("a broker")?;
    let detail = stage.http.get(&format!("/api/brokers/{id}"))?;
    let dirs = stage.tool(&["log-dirs", "--describe"])?;
    let path = detail["dirs"][0]["path"].as_str().unwrap_or_default();
    ensure!(!path.is_empty() && dirs.contains(path), "{detail}\n{dirs}");
    ensure!(
        detail["api_versions"].as_array().map_or(0, Vec::len) > 30,
        "{detail}"
    );
    let settings = format!("/api/brokers/{id}/settings");
    let change = json!({"set": {"log.retention.ms": "7200000"}});
    stage.http.json("PATCH", &settings, Some(&change))?;
    let name = id.to_string();
    let describe = [
        "configs",
        "--describe",
        "--entity-type",
        "brokers",
        "--entity-name",
        &name,
    ];
    stage.tool_shows(&describe, &["log.retention.ms=7200000"])?;
    let shown = stage.shows(&settings, |it| {
        setting(it, "log.retention.ms")["source"] == "broker"
    })?;
    ensure!(
        setting(&shown, "log.retention.ms")["value"] == "7200000",
        "{shown}"
    );
    stage.http.json(
        "PATCH",
        &settings,
        Some(&json!({"delete": ["log.retention.ms"]})),
    )?;
    stage.shows(&settings, |it| {
        setting(it, "log.retention.ms")["source"] != "broker"
    })?;
    let (status, _) = stage.http.refused("GET", "/api/brokers/77", None)?;
    ensure!(status == 404, "{status}");
    Ok(())
}

fn elections(stage: &Stage) -> Result<()> {
    let partitions = json!([{"topic": "orders", "partition": 0}]);
    let elected = stage.post(
        "/api/elections",
        &json!({"type": "preferred", "partitions": partitions}),
    )?;
    ensure!(
        elected["items"][0]["problem"].is_null() && elected["items"][0]["topic"] == "orders",
        "{elected}"
    );
    let cluster = stage.http.get("/api/cluster")?;
    let id = cluster["brokers"][0]["id"].clone();
    let plan = json!({"partitions": [{"topic": "orders", "partition": 0, "replicas": [id]},
        {"topic": "orders", "partition": 1, "replicas": [4711]}]});
    let started = stage.post("/api/reassignments", &plan)?;
    ensure!(started["items"][0]["problem"].is_null(), "{started}");
    ensure!(started["items"][1]["problem"].is_string(), "{started}");
    stage.shows("/api/reassignments", |it| it["total"] == 0)?;
    Ok(())
}

fn empty_topic(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/empty";
    let preview = stage.post(path, &json!({"preview": true}))?;
    ensure!(preview["records"] == 13, "{preview}");
    let earliest = ["get-offsets", "--topic", "orders", "--time", "earliest"];
    stage.tool_shows(&earliest, &["orders:0:0", "orders:1:0", "orders:2:0"])?;
    let (status, _) = stage
        .http
        .refused("POST", path, Some(&json!({"confirm": "order"})))?;
    ensure!(status == 422, "{status}");
    let some = json!({"before": {"1": 2}, "confirm": "orders"});
    let emptied = stage.post(path, &some)?;
    ensure!(emptied["records"] == 2, "{emptied}");
    stage.tool_shows(&earliest, &["orders:0:0", "orders:1:2"])?;
    stage.post(path, &json!({"confirm": "orders"}))?;
    let starts = stage.tool(&earliest)?;
    let ends = stage.tool(&["get-offsets", "--topic", "orders"])?;
    ensure!(starts == ends, "{starts}\n{ends}");
    stage.shows("/api/topics?search=orders", |it| {
        it["items"][0]["records"] == 0
    })?;
    Ok(())
}

fn delete_topic(stage: &Stage) -> Result<()> {
    let (status, _) = stage
        .http
        .refused("DELETE", "/api/topics/orders?confirm=order", None)?;
    ensure!(status == 422, "{status}");
    stage
        .http
        .json("DELETE", "/api/topics/orders?confirm=orders", None)?;
    let began = Instant::now();
    while stage.tool(&["topics", "--list"])?.contains("orders") {
        ensure!(began.elapsed() < PATIENCE, "the topic is still there");
    }
    stage.shows("/api/topics", |it| it["total"] == 1)?;
    Ok(())
}

fn series(stage: &Stage) -> Result<()> {
    let series = stage.shows("/api/series?of=cluster", |it| {
        it["times"].as_array().is_some_and(|times| times.len() >= 2)
    })?;
    let length = series["times"].as_array().map_or(0, Vec::len);
    let names: Vec<&str> = series["series"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    ensure!(
        names == ["bytes", "lag", "records_in", "under_replicated"],
        "{names:?}"
    );
    let is_whole = |it: &Value| it["values"].as_array().map_or(0, Vec::len) == length;
    if !series["series"]
        .as_array()
        .into_iter()
        .flatten()
        .all(is_whole)
    {
        bail!("{series}");
    }
    Ok(())
}
