//! Clients that send and poll in transactions while brokers are killed. Their results are checked
//! as a history.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Stage;
use crate::seeded::Seeded;
use ottla_workspace::process::OwnedChild;
use ottla_workspace::workspace;

/// The time before the first kill and after the last.
const PEACE: Duration = Duration::from_secs(3);
/// After they have closed their output, the clients only end.
const END_PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(stage: &mut Stage, kills: usize, random: &mut Seeded) -> Result<Vec<String>> {
    let arguments = [
        stage.cluster.bootstrap(),
        stage.replicas().to_string(),
        random.below(1_000_000).to_string(),
        stage.dir.join("history").display().to_string(),
    ];
    let mut command = program()?;
    command.args(&arguments);
    let (mut clients, input, output) = OwnedChild::converse(&mut command)?;
    let mut output_lines = BufReader::new(output).lines();
    let ready = output_lines
        .next()
        .context("the topics were not created")??;
    ensure!(ready == "ready", "the clients said {ready}");
    stage.say("clients are started");
    std::thread::sleep(PEACE);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(500 + random.below(2500)));
        stage.kill_broker(random)?;
    }
    std::thread::sleep(PEACE);
    drop(input);
    let mut wrong = Vec::new();
    for line in output_lines {
        let line = line?;
        match line.strip_prefix("wrong: ") {
            Some(finding) => wrong.push(finding.to_owned()),
            None => stage.say(&line),
        }
    }
    let status = clients.wait(END_PATIENCE)?;
    if wrong.is_empty() && !status.is_some_and(|status| status.success()) {
        wrong.push(format!("the clients ended with {status:?}"));
    }
    Ok(wrong)
}

/// A separate program: linking it in would make every command wait for the build of the client and
/// half of the product.
fn program() -> Result<Command> {
    const NAME: &str = "client_histories";
    if !workspace::is_suite() {
        let mut build = workspace::cargo();
        build.args(["build", "--quiet", "--locked", "--bin", NAME]);
        build.args(workspace::selection("ottla-testkit", &["client-histories"]));
        let status = build.status()?;
        ensure!(status.success(), "{NAME} cannot be built");
    }
    Ok(Command::new(workspace::debug_program(NAME)))
}
