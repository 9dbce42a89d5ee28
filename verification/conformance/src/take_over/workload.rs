//! The workload process, `conformance/java/takeover`: one Java process for a whole run, controlled
//! with lines of JSON.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use ottla_peers::InstalledPeer;
use ottla_peers::java;
use ottla_workspace::process::{self, OwnedChild};

/// More than every client timeout in it.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct Workload {
    child: OwnedChild,
    /// What the process complains about.
    log: PathBuf,
    commands: ChildStdin,
    answers: Receiver<String>,
}

/// A rejected command: the client's exception class and message.
#[derive(Debug)]
pub struct Refusal(pub String);

impl Workload {
    /// Starts the process against this address, at which each broker listens in turn. `login` is a file
    /// with the settings that its clients need to log in.
    pub fn start(
        kafka: &InstalledPeer,
        bootstrap: &str,
        login: Option<&Path>,
        dir: &Path,
    ) -> Result<Workload> {
        let words = java::program(kafka, "takeover", "Workload")?;
        let log = dir.join("workload.log");
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(bootstrap)
            .args(login)
            .current_dir(dir)
            .stderr(File::create(&log)?);
        let (child, commands, output) = OwnedChild::converse(&mut command)?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Workload {
            child,
            log,
            commands,
            answers,
        })
    }

    /// Runs a command. Returns its result, or the client's error.
    pub fn attempt(&mut self, op: &str, mut arguments: Value) -> Result<Result<Value, Refusal>> {
        arguments["op"] = json!(op);
        let mut line = arguments.to_string();
        line.push('\n');
        if let Err(error) = self.commands.write_all(line.as_bytes()) {
            bail!("before `{op}`: {error}; {}", self.state());
        }
        let answer = match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                bail!("`{op}` was not answered in {PATIENCE:?}; {}", self.state())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("in `{op}`: {}", self.state()),
        };
        let mut answer: Value = serde_json::from_str(&answer)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Ok(Err(Refusal(error.to_owned()))),
            None => Ok(Ok(answer["ok"].take())),
        }
    }

    /// How the process ended, if it has, and its last complaints.
    fn state(&mut self) -> String {
        // Its output ends a moment before the process.
        let status = match self.child.wait(Duration::from_secs(5)) {
            Ok(Some(status)) => format!("ended ({status})"),
            Ok(None) => "runs".to_owned(),
            Err(error) => format!("is in an unknown state ({error:#})"),
        };
        let complaints = process::last_lines(&self.log);
        format!("the workload's process {status}; {complaints}")
    }

    /// Runs a command that must succeed.
    pub fn perform(&mut self, op: &str, arguments: Value) -> Result<Value> {
        let shown = arguments.to_string();
        match self.attempt(op, arguments)? {
            Ok(result) => Ok(result),
            Err(Refusal(why)) => bail!("{op} {shown}: {why}"),
        }
    }
}
