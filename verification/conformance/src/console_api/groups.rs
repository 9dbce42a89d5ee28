//! Groups: their lag, their offsets, and their end.

use anyhow::{Result, ensure};
use ottla_testkit::words;
use serde_json::{Value, json};

use super::stage::{Stage, setting};

pub fn group_lag(stage: &Stage) -> Result<()> {
    stage.tool(&words(
        "console-consumer --topic again --group readers --from-beginning \
         --max-messages 3 --timeout-ms 120000",
    ))?;
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
            .is_some_and(|it| it.contains("no consumer runs")),
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

/// Previews a reset, and executes the previewed changes.
pub(super) fn reset(stage: &Stage, path: &str, mut wanted: Value) -> Result<Value> {
    wanted["preview"] = json!(true);
    let preview = stage.post(path, &wanted)?;
    let done = stage.post(path, &json!({"changes": preview["items"]}))?;
    ensure!(done["items"] == preview["items"], "{preview}\n{done}");
    Ok(done)
}

pub fn reset_offsets(stage: &Stage) -> Result<()> {
    let path = "/api/groups/readers/offsets";
    let before = committed(stage)?;
    ensure!(before == [1, 1, 1], "{before:?}");
    let preview = stage.post(path, &json!({"to": "earliest", "preview": true}))?;
    ensure!(
        preview["items"][1]["old"] == 1 && preview["items"][1]["new"] == 0,
        "{preview}"
    );
    ensure!(committed(stage)? == before, "the preview changed offsets");
    let (status, detail) = stage
        .http
        .refused("POST", path, Some(&json!({"to": "earliest"})))?;
    ensure!(
        status == 422 && detail.contains("the preview answered"),
        "{status} {detail}"
    );
    reset(stage, path, json!({"to": "earliest"}))?;
    // The offsets differ from the first preview.
    let stale = json!({"changes": preview["items"]});
    let (status, detail) = stage.http.refused("POST", path, Some(&stale))?;
    ensure!(
        status == 409 && detail.contains("was 1 in the preview"),
        "{status} {detail}"
    );
    ensure!(committed(stage)? == [0, 0, 0], "{:?}", committed(stage)?);
    let one =
        json!({"to": "offset", "value": 1, "topics": [{"topic": "again", "partitions": [2]}]});
    reset(stage, path, one)?;
    ensure!(committed(stage)? == [0, 0, 1], "{:?}", committed(stage)?);
    reset(
        stage,
        path,
        json!({"to": "shift", "value": 1, "topics": [{"topic": "again", "partitions": [0]}]}),
    )?;
    ensure!(committed(stage)? == [1, 0, 1], "{:?}", committed(stage)?);
    reset(
        stage,
        path,
        json!({"to": "offsets", "offsets": [{"topic": "again", "partition": 1, "offset": 1}]}),
    )?;
    ensure!(committed(stage)? == [1, 1, 1], "{:?}", committed(stage)?);
    reset(
        stage,
        path,
        json!({"to": "timestamp", "value": 1_700_000_000_008_i64, "topics": [{"topic": "again", "partitions": [2]}]}),
    )?;
    ensure!(committed(stage)? == [1, 1, 0], "{:?}", committed(stage)?);
    let latest = reset(stage, path, json!({"to": "latest"}))?;
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
    let missing = json!({"to": "earliest", "preview": true, "topics": [{"topic": "again", "partitions": [9]}]});
    let (status, detail) = stage.http.refused("POST", path, Some(&missing))?;
    ensure!(
        status == 422 && detail.contains("no partition 9"),
        "{status} {detail}"
    );
    Ok(())
}

pub fn delete_group(stage: &Stage) -> Result<()> {
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

/// A share group: its settings are changed, a tool reads with it, its offsets are shown and reset.
pub fn share_group(stage: &Stage) -> Result<()> {
    let path = "/api/groups/sharers";
    let settings = format!("{path}/settings");
    let name = "share.auto.offset.reset";
    let change = json!({"set": {name: "earliest"}});
    stage.http.json("PATCH", &settings, Some(&change))?;
    stage.shows(&settings, |it| setting(it, name)["source"] == "group")?;
    stage.tool(&words(
        "console-share-consumer --topic again --group sharers --max-messages 3 \
         --timeout-ms 120000",
    ))?;
    // The start offset may stay where it is: the lag does not count the accepted records behind it.
    let is_read = |it: &Value| {
        let offset = |name: &str| it[name].as_i64().unwrap_or(-1);
        let records = offset("log_end_offset") - offset("log_start_offset");
        it["lag"].as_i64().is_some_and(|lag| lag < records)
    };
    let has_read = |it: &Value| {
        let mut partitions = it["partition_list"].as_array().into_iter().flatten();
        it["state"] == "Empty" && partitions.any(is_read)
    };
    let group = stage.shows(path, has_read)?;
    ensure!(
        group["type"] == "share" && group["lag"].is_number() && group["why"].is_string(),
        "{group}"
    );
    let listed = stage.shows("/api/groups?type=share", |it| it["total"] == 1)?;
    ensure!(listed["items"][0]["group_id"] == "sharers", "{listed}");
    let whole = json!([{"topic": "again", "partitions": null}]);
    let wanted = json!({"to": "earliest", "topics": whole});
    let done = reset(stage, &format!("{path}/offsets"), wanted)?;
    ensure!(done["items"].as_array().map_or(0, Vec::len) == 3, "{done}");
    let printed = stage.tool(&["share-groups", "--describe", "--group", "sharers"])?;
    let rows = printed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["sharers", "again", _, start, ..] => Some(start),
            _ => None,
        }
    });
    let starts: Vec<&str> = rows.collect();
    ensure!(starts == ["0", "0", "0"], "{printed}");
    stage
        .http
        .json("DELETE", &format!("{path}?confirm=sharers"), None)?;
    let listed = stage.tool(&["groups", "--list"])?;
    ensure!(!listed.contains("sharers"), "{listed}");
    Ok(())
}
