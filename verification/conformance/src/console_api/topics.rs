//! Topics: created, changed, emptied and deleted.

use anyhow::{Result, ensure};
use ottla_testkit::words;
use serde_json::json;

use super::stage::{Stage, setting};

pub fn create_topic(stage: &Stage) -> Result<()> {
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

pub fn change_settings(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/settings";
    let change = json!({"set": {"max.message.bytes": "2000000"}, "delete": ["retention.ms"]});
    stage.http.json("PATCH", path, Some(&change))?;
    let describe = words("configs --describe --entity-type topics --entity-name orders");
    stage.tool_shows(&describe, &["max.message.bytes=2000000"])?;
    stage.tool_hides(&describe, "retention.ms=86400000")?;
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

pub fn add_partitions(stage: &Stage) -> Result<()> {
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

pub fn empty_topic(stage: &Stage) -> Result<()> {
    let path = "/api/topics/orders/empty";
    let preview = stage.post(path, &json!({"preview": true}))?;
    ensure!(preview["records"] == 14, "{preview}");
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
    let (status, detail) = stage
        .http
        .refused("POST", path, Some(&json!({"confirm": "orders"})))?;
    ensure!(
        status == 422 && detail.contains("the preview answered"),
        "{status} {detail}"
    );
    let ends = stage.tool(&["get-offsets", "--topic", "orders"])?;
    // A record that is written after the preview stays.
    let late = json!({"records": [{"partition": 0, "value": "late"}]});
    stage.post("/api/topics/orders/records", &late)?;
    let mut before = json!({});
    for it in preview["partitions"].as_array().into_iter().flatten() {
        before[it["partition"].to_string()] = it["log_start_offset"].clone();
    }
    let mut all =
        json!({"before": before, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "confirm": "orders"});
    let (status, detail) = stage.http.refused("POST", path, Some(&all))?;
    ensure!(
        status == 409 && detail.contains("created again"),
        "{status} {detail}"
    );
    all["topic_id"] = preview["topic_id"].clone();
    stage.post(path, &all)?;
    let starts = stage.tool(&earliest)?;
    ensure!(starts == ends, "{starts}\n{ends}");
    stage.shows("/api/topics?search=orders", |it| {
        it["items"][0]["records"] == 1
    })?;
    Ok(())
}

pub fn delete_topic(stage: &Stage) -> Result<()> {
    let (status, _) = stage
        .http
        .refused("DELETE", "/api/topics/orders?confirm=order", None)?;
    ensure!(status == 422, "{status}");
    stage
        .http
        .json("DELETE", "/api/topics/orders?confirm=orders", None)?;
    stage.tool_hides(&["topics", "--list"], "orders")?;
    stage.shows("/api/topics", |it| it["total"] == 1)?;
    Ok(())
}
