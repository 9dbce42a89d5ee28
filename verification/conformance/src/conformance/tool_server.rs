//! A Java process that runs Kafka's command-line tools one after the other. A process for each tool would take several times
//! the processor time of the tool.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use anyhow::{Context, Result, ensure};
use ottla_peers::{InstalledPeer, java};
use ottla_workspace::process::OwnedChild;
use serde::Deserialize;
use serde_json::json;

/// What a tool has printed, and how it ended.
#[derive(Deserialize)]
pub struct ToolOutput {
    /// `None` if a signal ended its process.
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

/// Runs `conformance/java/tools/ToolServer.java`, which ends with its owner.
pub struct ToolServer {
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    _process: OwnedChild,
}

impl ToolServer {
    /// The tools run in `dir`.
    pub fn start(kafka: &InstalledPeer, dir: &Path) -> Result<ToolServer> {
        let mut words = java::program(kafka, "tools", "ToolServer")?.into_iter();
        let mut command = Command::new(words.next().context("a command has a program")?);
        command.args(words).current_dir(dir);
        let (process, requests, answers) = OwnedChild::converse(&mut command)?;
        Ok(ToolServer {
            requests,
            answers: BufReader::new(answers),
            _process: process,
        })
    }

    /// Runs a tool, by its class, to its end.
    pub fn run(&mut self, class: &str, arguments: &[String], input: &str) -> Result<ToolOutput> {
        let request = json!({ "tool": class, "arguments": arguments, "input": input });
        writeln!(self.requests, "{request}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(
            !answer.is_empty(),
            "{class} ended the process that runs Kafka's tools"
        );
        serde_json::from_str(&answer).with_context(|| format!("the answer {answer:?} of {class}"))
    }
}
