//! A Kafka Streams application in a streams group (KIP-1071), while it runs and after its end.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_peers::{Peer, java};
use ottla_workspace::process::{LoggedChild, OwnedChild};
use serde_json::{Value, json};

use super::groups::reset;
use super::stage::{PATIENCE, Stage};

/// Also the ID of its group.
const APPLICATION: &str = "totals";
const GROUP: &str = "/api/groups/totals";
const INPUTS: [&str; 3] = ["customers", "orders", "payments"];
const PARTITIONS: usize = 2;
/// Stream threads of the application, each of which is a member.
const MEMBERS: usize = 2;
/// A subtopology reads the inputs, and one reads the orders that were partitioned anew by region.
const SUBTOPOLOGIES: usize = 2;
/// Orders are written for this time, at this rate.
const SECONDS: &str = "3";
const RATE: &str = "200";
/// More than they and the start of a JVM take on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);

pub fn application(stage: &Stage) -> Result<()> {
    let kafka = Peer::load("kafka")?
        .with_artefact("kafka-streams")
        .install()?;
    let program = |class: &str, arguments: &[&str]| -> Result<Command> {
        let words = java::program(&kafka, "streams", class)?;
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(&stage.bootstrap)
            .args(arguments);
        Ok(command)
    };
    let partitions = PARTITIONS.to_string();
    let arguments = ["1", &*partitions, SECONDS, RATE, APPLICATION];
    let mut orders = program("Orders", &arguments)?;
    let (mut orders, _input, output) = OwnedChild::converse(&mut orders)?;
    let ready = BufReader::new(output).lines().next();
    let ready = ready.context("the topics were not created")??;
    ensure!(ready == "ready", "the source of orders said {ready}");
    let folder = stage.dir.join("streams").display().to_string();
    let mut application = program("StreamsApp", &[APPLICATION, &folder, "1", "streams"])?;
    let output = stage.dir.join("streams.out");
    let mut application = LoggedChild::start(&mut application, "the application", &output)?;
    let ended = orders.wait(LONGEST)?;
    ensure!(
        ended.is_some_and(|status| status.success()),
        "the source of orders ended with {ended:?}"
    );

    let listed = "/api/groups?type=streams";
    let listed = stage.shows_by(&mut application, listed, |it| it["total"] == 1)?;
    ensure!(listed["items"][0]["group_id"] == APPLICATION, "{listed}");
    let running = running_as_the_tool_shows(stage, &mut application)?;
    check_topology(&running)?;
    refuses_changes(stage, &running)?;
    application.kill()?;
    offsets_after_its_end(stage)
}

/// The items of an array of the answer.
fn items<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

/// The tasks of a member in a role, with the numbers of their subtopologies.
fn tasks(member: &Value, role: &str) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    for task in items(member, "tasks").filter(|it| it["role"] == role) {
        let of = task["subtopology"].as_str().unwrap_or_default();
        let numbers = items(task, "partitions").filter_map(Value::as_i64);
        found.extend(numbers.map(|number| (of.to_owned(), number)));
    }
    found
}

fn is_input(partition: &Value) -> bool {
    INPUTS.iter().any(|topic| partition["topic"] == *topic)
}

/// Each task is active in one member, and the inputs are read to their ends.
fn is_running(group: &Value) -> bool {
    let members = items(group, "member_list");
    let mut active: Vec<_> = members.flat_map(|it| tasks(it, "active")).collect();
    active.sort();
    active.dedup();
    let inputs: Vec<&Value> = items(group, "partition_list")
        .filter(|it| is_input(it))
        .collect();
    group["type"] == "streams"
        && group["state"] == "Stable"
        && group["members"] == MEMBERS
        && active.len() == SUBTOPOLOGIES * PARTITIONS
        && inputs.len() == INPUTS.len() * PARTITIONS
        && inputs
            .iter()
            .all(|it| it["lag"] == 0 && it["member_id"].is_string())
}

fn check_topology(group: &Value) -> Result<()> {
    let parts: Vec<&Value> = items(&group["topology"], "subtopologies").collect();
    ensure!(parts.len() == SUBTOPOLOGIES, "{group}");
    let mut sources: Vec<&Value> = Vec::new();
    let mut anew: Vec<&Value> = Vec::new();
    for part in parts {
        sources.extend(items(part, "source_topics"));
        anew.extend(items(part, "repartition_source_topics"));
        ensure!(
            items(part, "state_changelog_topics").next().is_some(),
            "{part}"
        );
    }
    sources.sort_by_key(|it| it.as_str());
    ensure!(sources == INPUTS, "{group}");
    let name = |it: &&Value| it.as_str().is_some_and(|it| it.ends_with("-repartition"));
    ensure!(anew.len() == 1 && anew.iter().all(name), "{group}");
    // The group reads it as well.
    let mut partitions = items(group, "partition_list");
    ensure!(partitions.any(|it| it["topic"] == *anew[0]), "{group}");
    Ok(())
}

/// The group while it runs, once the tool shows the same members. Between the two, a member may lose
/// its session on a busy machine, and join again.
fn running_as_the_tool_shows(stage: &Stage, application: &mut LoggedChild) -> Result<Value> {
    let describe = ["streams-groups", "--describe", "--group", APPLICATION];
    let began = Instant::now();
    loop {
        let group = stage.shows_by(application, GROUP, is_running)?;
        let members = stage.tool(&[&describe[..], &["--members"]].concat())?;
        let state = stage.tool(&[&describe[..], &["--state"]].concat())?;
        let is_shown = |member: &Value| {
            let id = member["member_id"].as_str();
            id.is_some_and(|id| members.contains(id))
        };
        if items(&group, "member_list").all(is_shown) && state.contains("Stable") {
            return Ok(group);
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "{group}\n{members}\n{state}\n{}",
            application.state()
        );
    }
}

/// While it runs, offsets can be previewed, not reset; those of its internal topics neither.
fn refuses_changes(stage: &Stage, group: &Value) -> Result<()> {
    let path = format!("{GROUP}/offsets");
    let mut wanted = json!({"to": "earliest", "preview": true});
    let preview = stage.post(&path, &wanted)?;
    let changed: Vec<&Value> = items(&preview, "items").collect();
    ensure!(
        changed.len() == INPUTS.len() * PARTITIONS && changed.iter().all(|it| is_input(it)),
        "{preview}"
    );
    let changes = json!({"changes": preview["items"]});
    let (status, detail) = stage.http.refused("POST", &path, Some(&changes))?;
    ensure!(
        status == 409 && detail.contains("it has members"),
        "{status} {detail}"
    );
    let mut internal = items(group, "partition_list").filter(|it| !is_input(it));
    let internal = internal.next().context("no internal topic")?;
    wanted["topics"] = json!([{"topic": internal["topic"]}]);
    let (status, detail) = stage.http.refused("POST", &path, Some(&wanted))?;
    ensure!(
        status == 422 && detail.contains("no input topic"),
        "{status} {detail}"
    );
    let delete = format!("{GROUP}?confirm={APPLICATION}");
    let (status, detail) = stage.http.refused("DELETE", &delete, None)?;
    ensure!(
        status == 409 && detail.contains("it has members"),
        "{status} {detail}"
    );
    Ok(())
}

/// The application was killed: its members leave when their sessions end. Its offsets are reset,
/// and the group is deleted.
fn offsets_after_its_end(stage: &Stage) -> Result<()> {
    let ended = stage.shows(GROUP, |it| it["state"] == "Empty" && it["members"] == 0)?;
    check_topology(&ended)?;
    ensure!(ended["why"].is_string(), "{ended}");
    let done = reset(
        stage,
        &format!("{GROUP}/offsets"),
        json!({"to": "earliest"}),
    )?;
    ensure!(items(&done, "items").all(is_input), "{done}");
    let current = [
        "streams-groups",
        "--reset-offsets",
        "--group",
        APPLICATION,
        "--all-input-topics",
        "--to-current",
        "--dry-run",
        "--export",
    ];
    let printed = stage.tool(&current)?;
    for topic in INPUTS {
        for partition in 0..PARTITIONS {
            let row = format!("{topic},{partition},0");
            ensure!(printed.lines().any(|it| it == row), "no {row}:\n{printed}");
        }
    }
    stage.shows(GROUP, |it| it["lag"].as_i64() > Some(0))?;
    let delete = format!("{GROUP}?confirm={APPLICATION}");
    stage.http.json("DELETE", &delete, None)?;
    let listed = stage.tool(&["groups", "--list"])?;
    ensure!(!listed.contains(APPLICATION), "{listed}");
    Ok(())
}
