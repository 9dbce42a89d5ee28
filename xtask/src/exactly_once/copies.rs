//! Three copiers in two groups: one whose partitions are assigned to it, and two that share the partitions of their group.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::application::Application;
use super::{PARTITIONS, Stage};
use crate::java;
use crate::process::{self, OwnedChild};
use crate::seeded::Seeded;

const SOURCE: &str = "source";
const TARGETS: [&str; 2] = ["copy-assigned", "copy-subscribed"];
/// Records a second.
const RATE: &str = "2000";
/// How long the copiers may take for what was written at the end, once nobody is killed any more.
const CATCH_UP_SECONDS: &str = "60";

pub(super) fn run(stage: &mut Stage, kills: usize, random: &mut Seeded) -> Result<Vec<String>> {
    let (kafka, bootstrap) = (stage.kafka.clone(), stage.cluster.bootstrap());
    let with = |class: &str, arguments: &[&str]| -> Result<Vec<String>> {
        let mut words = java::program(&kafka, "exactlyonce", class)?;
        words.push(bootstrap.clone());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        Ok(words)
    };
    let (replicas, partitions) = (stage.replicas().to_string(), PARTITIONS.to_string());
    let fill = with(
        "Fill",
        &[&replicas, &partitions, RATE, SOURCE, TARGETS[0], TARGETS[1]],
    )?;
    let mut command = Command::new(&fill[0]);
    command.args(&fill[1..]);
    let (mut filler, input, output) = OwnedChild::converse(&mut command)?;
    let mut told = BufReader::new(output).lines();
    let ready = told.next().context("the topics were not made")??;
    ensure!(ready == "ready", "the filler said {ready}");

    let mut copiers = Vec::new();
    for (name, target, way) in [
        ("alone", TARGETS[0], "assigned"),
        ("first", TARGETS[1], "subscribed"),
        ("second", TARGETS[1], "subscribed"),
    ] {
        let words = with("Copier", &[name, target, SOURCE, target, way, "classic"])?;
        copiers.push(Application::start(&stage.dir, name, words)?);
    }
    stage.say("copiers are started");
    std::thread::sleep(Duration::from_secs(3));
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(500 + random.below(2500)));
        // Each in its turn, so that a short run has all of them.
        match number % 2 {
            0 => stage.kill_broker(random)?,
            _ => {
                let at = random.below(copiers.len() as u64) as usize;
                copiers[at].kill_and_start()?;
                stage.say(&format!("copier `{}` killed", copiers[at].name));
            }
        }
    }
    std::thread::sleep(Duration::from_secs(2));
    drop(input);
    let counts: Vec<String> = told
        .map(|line| Ok(line?.split_whitespace().last().unwrap_or("0").to_owned()))
        .collect::<Result<_>>()?;
    let status = filler.wait(Duration::from_secs(60))?;
    ensure!(
        status.is_some_and(|status| status.success()) && counts.len() == PARTITIONS,
        "the filler ended with {status:?} and {counts:?}"
    );
    stage.say(&format!("filled: {}", counts.join(" + ")));

    let mut wrong = Vec::new();
    for target in TARGETS {
        let mut arguments = vec![target, CATCH_UP_SECONDS];
        arguments.extend(counts.iter().map(String::as_str));
        let words = with("CheckCopy", &arguments)?;
        wrong.extend(finish(stage, &mut copiers, target, &words)?);
    }
    let mut ended = [0; 3];
    for copier in &mut copiers {
        wrong.extend(copier.ended()?);
        for (sum, beginning) in ended
            .iter_mut()
            .zip(["committed", "aborted", "begins again"])
        {
            *sum += copier.count(beginning)?;
        }
    }
    let [committed, aborted, begun_again] = ended;
    stage.say(&format!(
        "{committed} transactions committed, {aborted} aborted, {begun_again} times begun again"
    ));
    ensure!(committed > 0, "nothing was copied");
    Ok(wrong)
}

/// Checks a copy until it is whole, and gives what is wrong with it. One that is not finished in time may have a slow copier, or
/// one that gave up, as Kafka's clients do after some errors: then all are started anew, as a supervisor would, and what they were
/// at stays in their outputs.
fn finish(
    stage: &Stage,
    copiers: &mut [Application],
    target: &str,
    check: &[String],
) -> Result<Vec<String>> {
    let first = checked(stage, target, check)?;
    if !is_unfinished(&first) {
        return Ok(first);
    }
    for copier in copiers.iter_mut() {
        copier.print_threads()?;
    }
    let second = checked(stage, target, check)?;
    if !is_unfinished(&second) {
        stage.say(&format!("{target}: its copier was slow"));
        return Ok(second);
    }
    for copier in copiers {
        copier.kill_and_start()?;
    }
    let third = checked(stage, target, check)?;
    if third.is_empty() {
        stage.say(&format!(
            "{target}: its copier had given up; one that was started anew went on with it"
        ));
    }
    Ok(third)
}

/// Nothing is there that should not be, but not all of it.
fn is_unfinished(findings: &[String]) -> bool {
    !findings.is_empty() && findings.iter().all(|it| it.contains(" ends with "))
}

/// What is wrong with a copy, after waiting for it to be whole.
fn checked(stage: &Stage, target: &str, check: &[String]) -> Result<Vec<String>> {
    let mut command = Command::new(&check[0]);
    command.args(&check[1..]).stderr(Stdio::null());
    let checked = process::run_captured(&mut command)?;
    let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
    stage.say(&format!(
        "{target}: {}",
        printed.lines().last().unwrap_or_default()
    ));
    let findings = printed
        .lines()
        .filter_map(|line| line.strip_prefix("wrong: "));
    let mut findings: Vec<String> = findings.map(str::to_owned).collect();
    if !checked.status.success() && findings.is_empty() {
        findings.push(format!(
            "the check of {target} ended with {}",
            checked.status
        ));
    }
    Ok(findings)
}
