//! The console that `ottla server` serves beside its broker: it shows what Kafka's protocol does not
//! have.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use ottla_peers::{InstalledPeer, NodeOptions};
use ottla_testkit::lease_ports;
use ottla_workspace::process;
use serde_json::{Value, json};

use super::http::Http;
use super::stage::PATIENCE;

pub fn check(peer: &InstalledPeer, dir: &Path) -> Result<()> {
    let [port] = lease_ports()?;
    let address = format!("127.0.0.1:{port}");
    let listener = ("ottla.console.listener".to_owned(), address.clone());
    let mut node = peer.start(NodeOptions {
        dir: dir.join("beside"),
        overrides: vec![
            listener,
            ("ottla.console.read.only".to_owned(), "true".to_owned()),
        ],
        ..NodeOptions::default()
    })?;
    let http = Http::new(address);
    let overview = process::retried(PATIENCE, "the console shows the broker", || {
        let overview = http.get("/api/cluster")?;
        ensure!(overview["brokers"][0]["is_fenced"] == false, "{overview}");
        Ok(overview)
    })?;
    let broker = http.get(&format!("/api/brokers/{}", overview["brokers"][0]["id"]))?;
    let activity = &broker["activity"];
    let mut connections = activity["connections"].as_array().into_iter().flatten();
    ensure!(
        connections.any(|it| it["listener"] == "PLAINTEXT" && it["open"].as_i64() >= Some(1)),
        "{broker}"
    );
    let mut requests = activity["requests"].as_array().into_iter().flatten();
    ensure!(
        requests.any(|it| it["api"] == "Metadata" && it["count"].as_i64() >= Some(1)),
        "{broker}"
    );
    let slow = activity["slow_requests"].as_array();
    let slow = slow.with_context(|| format!("no slow requests: {broker}"))?;
    let is_complete = |it: &Value| {
        let is_slow = it["total_ms"].as_f64() >= Some(10.0);
        is_slow && it["api"].is_string() && it["principal"] == "User:ANONYMOUS"
    };
    ensure!(slow.iter().all(is_complete), "{broker}");
    let series = http.get("/api/series?of=cluster")?;
    ensure!(series["has_latencies"] == true, "{series}");
    let topic = json!({"name": "refused", "partitions": 1});
    let (status, detail) = http.refused("POST", "/api/topics", Some(&topic))?;
    ensure!(
        status == 403 && detail.contains("ottla.console.read.only"),
        "{status} {detail}"
    );
    node.stop()?;
    Ok(())
}
