//! A cluster in trouble: without its controller, and without its broker. The console says so, shows
//! what is left, and shows everything when they are back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use ottla_peers::{Cluster, InstalledPeer};
use serde_json::{Value, json};

use super::http::Http;
use super::stage::{PATIENCE, STOP_PATIENCE, Stage, start_console};

const CLUSTER: &str = "/api/cluster";
/// Pages that wait for the cluster at the same time. With an attempt for each, one after the other,
/// most would have no answer before the console's limit.
const PAGES: usize = 20;
/// The properties of the console's client. By default, it waits for an unreachable cluster for
/// twice as long.
const IMPATIENT: &str = "default.api.timeout.ms=5000\nrequest.timeout.ms=5000\n";

pub fn check(peer: &InstalledPeer, binary: &Path, dir: &Path) -> Result<()> {
    let names = [peer.id().to_owned()];
    // A broker that was killed registers again when the session of its previous process has expired.
    let settings = [
        ("offsets.topic.num.partitions", "1".to_owned()),
        ("broker.session.timeout.ms", "4000".to_owned()),
        ("broker.heartbeat.interval.ms", "500".to_owned()),
    ];
    let mut cluster = Cluster::plan(&names, &names, &dir.join("trouble"), &settings)?;
    cluster.start()?;
    let client = dir.join("impatient.properties");
    std::fs::write(&client, IMPATIENT)?;
    let mut command = Command::new(binary);
    command
        .args(["console", "--bootstrap-server", &cluster.bootstrap()])
        .args(["--listen", "127.0.0.1:0", "--command-config"])
        .arg(client)
        .stdout(Stdio::piped());
    let (mut console, address) = start_console(&mut command)?;
    let stage = Stage {
        http: Http::new(address),
        binary: binary.to_owned(),
        bootstrap: cluster.bootstrap(),
        dir: dir.to_owned(),
    };
    without_controller(&stage, &mut cluster)?;
    without_broker(&stage, &mut cluster)?;
    console.stop(STOP_PATIENCE)?;
    cluster.stop()?;
    Ok(())
}

/// Whether the quorum needs attention.
fn names_quorum(overview: &Value) -> bool {
    let mut items = overview["attention"].as_array().into_iter().flatten();
    items.any(|it| {
        let text = it["text"].as_str().unwrap_or_default();
        it["severity"] == "critical" && text.contains("quorum")
    })
}

fn without_controller(stage: &Stage, cluster: &mut Cluster) -> Result<()> {
    stage.shows(CLUSTER, |it| {
        it["brokers"][0]["is_fenced"] == false && !names_quorum(it)
    })?;
    stage.post("/api/topics", &json!({"name": "orders", "partitions": 1}))?;
    stage.tool_shows(
        &["topics", "--describe", "--topic", "orders"],
        &["PartitionCount: 1"],
    )?;
    let path = "/api/topics/orders/records";
    stage.post(path, &json!({"records": [{"value": "early"}]}))?;

    cluster.controllers[0].take()?.kill()?;
    let overview = stage.shows(CLUSTER, names_quorum)?;
    ensure!(overview["health"] == "critical", "{overview}");
    // Brokers serve records without a controller.
    let (found, _) = stage.http.records(&format!("{path}?from=beginning"))?;
    ensure!(found.len() == 1, "{found:?}");
    let late = json!({"name": "late", "partitions": 1});
    let (status, detail) = stage.http.refused("POST", "/api/topics", Some(&late))?;
    ensure!(status == 502, "{status} {detail}");

    cluster.controllers[0].start()?;
    stage.shows(CLUSTER, |it| !names_quorum(it))?;
    Ok(())
}

fn without_broker(stage: &Stage, cluster: &mut Cluster) -> Result<()> {
    let follow = "/api/topics/orders/records?from=end&follow=true";
    let mut tail = stage.http.send("GET", follow, None)?;
    tail.wait_for("the start of the tail", |event, _| event == "progress")?;
    cluster.brokers[0].take()?.kill()?;
    wait_for_status(stage, 502)?;
    let problem = tail.wait_for("the tail's problem", |event, _| event == "problem")?;
    ensure!(problem["status"] == 502, "{problem}");
    let statuses = std::thread::scope(|scope| -> Result<Vec<u16>> {
        let ask = || stage.http.send("GET", CLUSTER, None);
        let asked: Vec<_> = (0..PAGES).map(|_| scope.spawn(ask)).collect();
        let mut statuses = Vec::new();
        for page in asked {
            let answer = page.join().map_err(|_| anyhow!("a page has panicked"))??;
            statuses.push(answer.status);
        }
        Ok(statuses)
    })?;
    ensure!(statuses == [502; PAGES], "{statuses:?}");

    cluster.brokers[0].start()?;
    wait_for_status(stage, 200)?;
    let mut tail = stage.http.send("GET", follow, None)?;
    tail.wait_for("the start of the tail", |event, _| event == "progress")?;
    stage.tool_with_input(&["console-producer", "--topic", "orders"], "late\n")?;
    let records = tail.wait_for("records", |event, _| event == "records")?;
    ensure!(records[0]["value"]["text"] == "late", "{records}");
    Ok(())
}

fn wait_for_status(stage: &Stage, wanted: u16) -> Result<()> {
    let began = Instant::now();
    loop {
        let status = stage.http.send("GET", CLUSTER, None)?.status;
        if status == wanted {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "GET {CLUSTER} is answered with {status}, not {wanted}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}
