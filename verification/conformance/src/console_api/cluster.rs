//! The cluster: its overview, transactions, security, brokers and series.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use ottla_testkit::words;
use ottla_workspace::process::LoggedChild;
use serde_json::{Value, json};

use super::stage::{Stage, setting};

pub fn overview(stage: &Stage) -> Result<()> {
    let cluster = stage.http.get("/api/cluster")?;
    let id = stage.tool(&["cluster", "cluster-id"])?;
    let shown = cluster["cluster_id"].as_str().unwrap_or_default();
    ensure!(id.contains(shown) && !shown.is_empty(), "{cluster}\n{id}");
    ensure!(
        cluster["brokers"].as_array().map_or(0, Vec::len) == 1,
        "{cluster}"
    );
    // The disk of this machine may be nearly full.
    let mut attention = cluster["attention"].as_array().into_iter().flatten();
    ensure!(
        attention.all(|it| it["text"].as_str().is_some_and(|it| it.contains("volume"))),
        "{cluster}"
    );
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

pub fn transactions(stage: &Stage) -> Result<()> {
    // One record a second in a transaction that lasts for minutes.
    let mut command = Command::new(&stage.binary);
    command
        .args(words(
            "producer-perf-test --topic again --num-records 1000 --record-size 10",
        ))
        .args(words(
            "--throughput 1 --transactional-id long --transaction-duration-ms 800000 \
             --command-property transaction.timeout.ms=900000",
        ))
        .args(["--bootstrap-server", &stage.bootstrap]);
    let output = stage.dir.join("producer.out");
    let mut producer = LoggedChild::start(&mut command, "the producer", &output)?;
    let open = |it: &Value| {
        it["items"][0]["state"] == "Ongoing" && it["items"][0]["topics"][0]["topic"] == "again"
    };
    let listed = stage.shows_by(&mut producer, "/api/transactions?search=long", open)?;
    ensure!(listed["items"][0]["started"].is_number(), "{listed}");
    let holds = |it: &Value| {
        let mut items = it["items"].as_array().into_iter().flatten();
        items.any(|it| {
            it["transactional_id"] == "long"
                && it["holds_back"].as_i64() >= Some(1)
                && it["is_hanging"] == false
        })
    };
    stage.shows_by(&mut producer, "/api/topics/again/producers", holds)?;
    let printed = stage.tool(&["transactions", "list"])?;
    ensure!(
        printed.contains("long") && printed.contains("Ongoing"),
        "{printed}"
    );
    stage
        .http
        .json("POST", "/api/transactions/long/abort", None)?;
    let describe = ["transactions", "describe", "--transactional-id", "long"];
    stage.tool_until(&describe, "show the end of the transaction", |it| {
        !it.contains("Ongoing") && !it.contains("PrepareAbort")
    })?;
    stage.shows("/api/transactions/long", |it| it["state"] != "Ongoing")?;
    producer.kill()?;
    let (status, _) = stage
        .http
        .refused("POST", "/api/transactions/unknown/abort", None)?;
    ensure!(status == 404, "{status}");
    Ok(())
}

pub fn quotas(stage: &Stage) -> Result<()> {
    let quota = json!({"entity": {"user": "alice", "client-id": null}, "quotas": {"producer_byte_rate": 1024.0}});
    stage.http.json("PATCH", "/api/quotas", Some(&quota))?;
    let describe = words(
        "configs --describe --entity-type users --entity-name alice \
         --entity-type clients --entity-default",
    );
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

pub fn acls(stage: &Stage) -> Result<()> {
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
    let question = "/api/acls/explanation?principal=User:alice&resource_type=topic&resource_name=orders\
                    &operation=read";
    let allowed = stage.http.get(question)?;
    let decision = &allowed["items"][0];
    ensure!(
        decision["is_allowed"] == true && decision["acl"]["resource_name"] == "ord",
        "{allowed}"
    );
    stage.http.json("DELETE", "/api/acls", Some(&acl))?;
    stage.shows("/api/acls?search=alice", |it| it["total"] == 0)?;
    let denied = stage.http.get(question)?;
    let decision = &denied["items"][0];
    let command = "ottla acls --add --allow-principal User:alice --operation Read --topic orders";
    ensure!(
        decision["is_allowed"] == false && decision["to_allow"] == json!([command]),
        "{denied}"
    );
    stage.tool_hides(&list, "READ")?;
    let (status, _) = stage.http.refused("DELETE", "/api/acls", Some(&acl))?;
    ensure!(status == 404, "{status}");
    Ok(())
}

pub fn users(stage: &Stage) -> Result<()> {
    let password = json!({"mechanism": "SCRAM-SHA-256", "password": "hush", "iterations": 4096});
    stage
        .http
        .json("PUT", "/api/users/alice", Some(&password))?;
    let describe = words("configs --describe --entity-type users --entity-name alice");
    stage.tool_shows(&describe, &["SCRAM-SHA-256=iterations=4096"])?;
    let listed = stage.shows("/api/users", |it| it["total"] == 1)?;
    ensure!(
        listed["items"][0]["credentials"][0]["mechanism"] == "SCRAM-SHA-256",
        "{listed}"
    );
    stage.http.json("DELETE", "/api/users/alice", None)?;
    stage.shows("/api/users", |it| it["total"] == 0)?;
    stage.tool_hides(&describe, "SCRAM-SHA-256=iterations")?;
    Ok(())
}

pub fn broker(stage: &Stage) -> Result<()> {
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
    // `ottla console` is beside no broker.
    ensure!(detail["activity"].is_null(), "{detail}");
    let dirs = format!("/api/brokers/{id}/log-dirs");
    for is_cordoned in [true, false] {
        let mut cordon = json!({"path": path, "is_cordoned": is_cordoned, "preview": true});
        let previewed = stage.http.json("PATCH", &dirs, Some(&cordon))?;
        let all = detail["dirs"].as_array().map_or(0, Vec::len);
        let open = all - usize::from(is_cordoned);
        ensure!(previewed["open_dirs"] == open, "{previewed}");
        let detail = stage.http.get(&format!("/api/brokers/{id}"))?;
        ensure!(detail["dirs"][0]["is_cordoned"] == !is_cordoned, "{detail}");
        cordon["preview"] = json!(false);
        stage.http.json("PATCH", &dirs, Some(&cordon))?;
        stage.shows(&format!("/api/brokers/{id}"), |it| {
            it["dirs"][0]["is_cordoned"] == is_cordoned
        })?;
    }
    let unknown = json!({"path": "/elsewhere", "is_cordoned": true});
    let (status, detail) = stage.http.refused("PATCH", &dirs, Some(&unknown))?;
    ensure!(
        status == 422 && detail.contains("/elsewhere") && detail.contains(path),
        "{status} {detail}"
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

pub fn elections(stage: &Stage) -> Result<()> {
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
    let plan = json!({"throttle": 1_000_000, "partitions":
        [{"topic": "orders", "partition": 0, "replicas": [id]}]});
    let started = stage.post("/api/reassignments", &plan)?;
    ensure!(started["items"][0]["problem"].is_null(), "{started}");
    stage.shows("/api/reassignments", |it| it["total"] == 0)?;
    let describe = words("configs --describe --entity-type topics --entity-name orders");
    stage.tool_shows(&describe, &["leader.replication.throttled.replicas=0:"])?;
    let removed = stage.http.json("DELETE", "/api/throttles", None)?;
    ensure!(
        removed["topics"] == 1 && removed["brokers"] == 1,
        "{removed}"
    );
    stage.tool_hides(&describe, "throttled.replicas=0:")?;
    let plan = json!({"partitions": [{"topic": "orders", "partition": 0, "replicas": [id]},
        {"topic": "orders", "partition": 1, "replicas": [4711]}]});
    let started = stage.post("/api/reassignments", &plan)?;
    ensure!(started["items"][0]["problem"].is_null(), "{started}");
    ensure!(started["items"][1]["problem"].is_string(), "{started}");
    stage.shows("/api/reassignments", |it| it["total"] == 0)?;
    let plan = stage.http.get("/api/rebalance-plan?rate=1000")?;
    ensure!(
        plan["changes"] == json!([]) && plan["moves"] == 0 && plan["seconds"] == 0,
        "{plan}"
    );
    let replicas = &plan["brokers"][0]["before"]["replicas"];
    ensure!(replicas.as_u64().is_some_and(|it| it > 0), "{plan}");
    let plan = json!({"throttle": 1_000_000, "partitions":
        [{"topic": "orders", "partition": 0, "replicas": [id]},
         {"topic": "no-such-topic", "partition": 0, "replicas": [id]}]});
    let started = stage.post("/api/rebalance", &plan)?;
    ensure!(started["rebalance"]["missing"] == 1, "{started}");
    let done = stage.shows("/api/rebalance", |it| it["rebalance"]["state"] == "done")?;
    ensure!(done["rebalance"]["moves"] == 0, "{done}");
    let plan = json!({"partitions": [{"topic": "orders", "partition": 0, "replicas": [4711]}]});
    let (status, detail) = stage.http.refused("POST", "/api/rebalance", Some(&plan))?;
    ensure!(
        status == 409 && detail.contains("broker 4711") && detail.contains("does not run"),
        "{status} {detail}"
    );
    let (status, detail) = stage.http.refused("DELETE", "/api/rebalance", None)?;
    ensure!(
        status == 409 && detail.contains("has ended"),
        "{status} {detail}"
    );
    let emptied = format!("/api/rebalance-plan?emptied={id}");
    let (status, detail) = stage.http.refused("GET", &emptied, None)?;
    ensure!(
        status == 409 && detail.contains("no broker that runs would be left"),
        "{status} {detail}"
    );
    Ok(())
}

pub fn series(stage: &Stage) -> Result<()> {
    let cluster = stage.http.get("/api/cluster")?;
    let disk = format!("disk/{}", cluster["brokers"][0]["id"]);
    let expected = [
        "bytes",
        &*disk,
        "lag",
        "records_in",
        "records_out",
        "under_replicated",
    ];
    // A rate needs two samples that are some time apart.
    let series = stage.shows("/api/series?of=cluster", |it| {
        let all = it["series"].as_array().into_iter().flatten();
        let names: Vec<&str> = all.filter_map(|it| it["name"].as_str()).collect();
        names == expected
    })?;
    ensure!(series["is_full"] == false, "{series}");
    // `ottla console` is beside no broker.
    ensure!(series["has_latencies"] == false, "{series}");
    let coarse = "/api/series?of=cluster&step_ms=86400000";
    let coarse = stage.http.get(coarse)?;
    let steps = coarse["times"].as_array().map_or(0, Vec::len);
    // The run may pass midnight.
    ensure!((1..=2).contains(&steps), "{coarse}");
    let length = series["times"].as_array().map_or(0, Vec::len);
    ensure!(length >= 2, "{series}");
    ensure!(steps < length || length == 2, "{series}\n{coarse}");
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
