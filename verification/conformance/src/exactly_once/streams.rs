//! A Kafka Streams application with kills, and a second run of it on the same input without.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::application::Application;
use super::{PARTITIONS, Stage};
use crate::seeded::Seeded;
use ottla_peers::Peer;
use ottla_peers::java;
use ottla_workspace::process::{self, OwnedChild};

/// With kills, and without.
const RUNS: [&str; 2] = ["harmed", "spared"];
/// Orders per second.
const RATE: usize = 300;
/// Approximate time from one kill to the next, including recovery.
const SECONDS_PER_KILL: usize = 5;
/// After its last line, the source of orders only ends.
const SOURCE_PATIENCE: Duration = Duration::from_secs(120);
/// Number of comparisons, half a second apart, that may find both runs unchanged after the last
/// kill.
const PATIENCE_ROUNDS: &str = "120";

/// Runs with the application in a group of this protocol.
pub(super) fn run(
    stage: &mut Stage,
    kills: usize,
    random: &mut Seeded,
    protocol: &str,
) -> Result<Vec<String>> {
    let peer = Peer::load("kafka")?
        .with_artefact("kafka-streams")
        .install()?;
    let bootstrap = stage.cluster.bootstrap();
    let with = |class: &str, arguments: &[&str]| -> Result<Vec<String>> {
        let mut words = java::program(&peer, "streams", class)?;
        words.push(bootstrap.clone());
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        Ok(words)
    };
    let (replicas, partitions) = (stage.replicas().to_string(), PARTITIONS.to_string());
    let (seconds, rate) = (10 + kills * SECONDS_PER_KILL, RATE.to_string());
    let orders = with(
        "Orders",
        &[
            &replicas,
            &partitions,
            &seconds.to_string(),
            &rate,
            RUNS[0],
            RUNS[1],
        ],
    )?;
    let mut command = Command::new(&orders[0]);
    command.args(&orders[1..]);
    let (mut source, _input, output) = OwnedChild::converse(&mut command)?;
    let mut output_lines = BufReader::new(output).lines();
    let ready = output_lines
        .next()
        .context("the topics were not created")??;
    ensure!(ready == "ready", "the source of orders said {ready}");

    let dir = stage.dir.clone();
    let start = |run: &str| {
        let folder = dir.join(format!("state-{run}")).display().to_string();
        let words = with("StreamsApp", &[run, &folder, &replicas, protocol])?;
        Application::start(&dir, run, words)
    };
    let mut harmed = start(RUNS[0])?;
    stage.say("the application is started");
    std::thread::sleep(Duration::from_secs(6));
    for number in 0..kills {
        std::thread::sleep(Duration::from_millis(1000 + random.below(4000)));
        match number % 3 {
            2 => {
                harmed.kill_and_start()?;
                stage.say("the application killed");
            }
            _ => stage.kill_broker(random)?,
        }
    }
    let written = output_lines
        .next()
        .context("the orders were not all written")??;
    let written = written.trim_start_matches("written ").to_owned();
    let status = source.wait(SOURCE_PATIENCE)?;
    ensure!(
        status.is_some_and(|status| status.success()),
        "the source of orders ended with {status:?}"
    );
    stage.say(&format!("{written} orders written"));
    let mut spared = start(RUNS[1])?;

    let arguments = [written.as_str(), PATIENCE_ROUNDS, RUNS[0], RUNS[1]];
    let words = with("CompareOutput", &arguments)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let compared = process::run_captured(&mut command)?;
    let printed = String::from_utf8_lossy(&compared.stdout).into_owned();
    let mut wrong = Vec::new();
    for line in printed.lines() {
        match line.strip_prefix("wrong: ") {
            Some(finding) => wrong.push(finding.to_owned()),
            None => stage.say(line),
        }
    }
    if !compared.status.success() && wrong.is_empty() {
        let errors = String::from_utf8_lossy(&compared.stderr);
        wrong.push(format!(
            "the comparison ended with {}: {errors}",
            compared.status
        ));
    }
    stage.say(&format!(
        "{} threads of the harmed application were replaced",
        harmed.count("thread replaced")?
    ));
    for application in [&mut harmed, &mut spared] {
        wrong.extend(application.ended()?);
    }
    Ok(wrong)
}
