//! The environment of a test step: the API, and the cluster of the console.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_workspace::process::{LoggedChild, OwnedChild};
use serde_json::Value;

use super::http::Http;

/// How long the cluster may take to show a change. It is several times the age that the console's
/// snapshot can reach, 60 s: on a busy machine a snapshot takes seconds, and the console then waits
/// for a multiple of that before it takes the next one.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// How long a console may take to stop, on a busy machine.
pub const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// Statuses of a `GET` that may be followed by success: something does not exist yet, or the cluster
/// does not answer in time.
const PASSING: [u16; 4] = [404, 502, 503, 504];

/// The environment of a step.
pub struct Stage {
    pub http: Http,
    pub binary: PathBuf,
    pub bootstrap: String,
    pub dir: PathBuf,
}

impl Stage {
    /// The output of a tool about the cluster. Invalid UTF-8 is replaced.
    pub fn tool(&self, arguments: &[&str]) -> Result<String> {
        self.run(arguments, Stdio::null())
    }

    /// Waits until a tool prints something as wanted. It may fail until then: a broker of Kafka answers before it
    /// knows a topic that it has created.
    pub fn tool_shows(&self, arguments: &[&str], wanted: &[&str]) -> Result<String> {
        self.tool_until(arguments, &format!("show {wanted:?}"), |printed| {
            wanted.iter().all(|it| printed.contains(it))
        })
    }

    /// Waits until a tool no longer prints something. It may fail until then.
    pub fn tool_hides(&self, arguments: &[&str], unwanted: &str) -> Result<String> {
        self.tool_until(arguments, &format!("hide {unwanted}"), |it| {
            !it.contains(unwanted)
        })
    }

    /// Waits until a tool ends well and prints something as wanted. `what` it is to do then is for the error.
    pub fn tool_until(
        &self,
        arguments: &[&str],
        what: &str,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let began = Instant::now();
        loop {
            let outcome = self.tool(arguments);
            let has_ended_well = outcome.is_ok();
            let printed = outcome.unwrap_or_else(|error| format!("{error:#}"));
            if has_ended_well && is_wanted(&printed) {
                return Ok(printed);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{arguments:?} does not {what}:\n{printed}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the API answers as wanted.
    pub fn shows(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        shows(&self.http, path, None, is_wanted)
    }

    /// As [`Stage::shows`], of what a process is to bring about. The error shows how it is.
    pub fn shows_by(
        &self,
        process: &mut LoggedChild,
        path: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        shows(&self.http, path, Some(process), is_wanted)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.http.json("POST", path, Some(body))
    }

    /// Runs a tool that reads standard input from a file.
    pub fn tool_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let path = self.dir.join("input");
        std::fs::write(&path, input)?;
        self.run(arguments, File::open(path)?.into())
    }

    fn run(&self, arguments: &[&str], input: Stdio) -> Result<String> {
        let (first, rest) = arguments.split_first().context("no tool is named")?;
        let bootstrap = ["--bootstrap-server", &self.bootstrap];
        let mut command = Command::new(&self.binary);
        command.arg(first).stdin(input);
        // Some of Kafka's tools have the option before their subcommand, and some after it.
        match *first {
            "cluster" => command.args(rest).args(bootstrap),
            _ => command.args(bootstrap).args(rest),
        };
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{arguments:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Waits until a console answers a `GET` as wanted, while `process` runs that is to bring it about.
pub fn shows(
    http: &Http,
    path: &str,
    mut process: Option<&mut LoggedChild>,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let began = Instant::now();
    loop {
        if let Some(process) = &mut process {
            process.check_running()?;
        }
        let answer = http.send("GET", path, None)?;
        let status = answer.status;
        let text = answer.text()?;
        match status {
            200 => {
                let found: Value =
                    serde_json::from_str(&text).with_context(|| format!("GET {path}: {text}"))?;
                if is_wanted(&found) {
                    return Ok(found);
                }
            }
            _ => ensure!(
                PASSING.contains(&status),
                "GET {path}: status {status}: {text}"
            ),
        }
        if began.elapsed() > PATIENCE {
            let state = process.map_or_else(String::new, |it| format!("; {}", it.state()));
            bail!("GET {path} stays {status}: {text}{state}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The setting of this name; `null` if it is not listed.
pub fn setting<'a>(settings: &'a Value, name: &str) -> &'a Value {
    let mut items = settings["items"].as_array().into_iter().flatten();
    items.find(|it| it["name"] == name).unwrap_or(&Value::Null)
}

/// Starts a console, and returns its address as soon as it has printed it.
pub fn start_console(command: &mut Command) -> Result<(OwnedChild, String)> {
    let (console, _input, output) = OwnedChild::converse(command)?;
    let mut line = String::new();
    let mut output = BufReader::new(output);
    output.read_line(&mut line)?;
    let address = line
        .trim()
        .rsplit_once("http://")
        .map(|(_, it)| it.to_owned());
    let address = address.with_context(|| format!("the console said {line:?}"))?;
    // It must not find its output closed.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok((console, address))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    /// A console that gives these answers, one per connection.
    fn answering(answers: &'static [(u16, &'static str)]) -> Http {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for (status, text) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines
                    .next()
                    .is_some_and(|line| line.is_ok_and(|it| !it.is_empty()))
                {}
                let length = text.len();
                write!(
                    stream,
                    "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n\r\n{text}"
                )
                .unwrap();
            }
        });
        Http::new(address)
    }

    #[test]
    fn what_is_not_there_yet_is_awaited() {
        let http = answering(&[
            (404, "{}"),
            (504, "{}"),
            (200, r#"{"total":0}"#),
            (200, r#"{"total":1}"#),
        ]);
        let found = shows(&http, "/", None, |it| it["total"] == 1).unwrap();
        assert_eq!(found["total"], 1);
    }

    #[test]
    fn a_failure_that_does_not_pass_ends_the_wait() {
        let http = answering(&[(500, r#"{"detail":"broken"}"#)]);
        let error = shows(&http, "/", None, |_| true).unwrap_err().to_string();
        assert!(
            error.contains("status 500") && error.contains("broken"),
            "{error}"
        );
    }

    #[test]
    fn the_end_of_the_process_ends_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no topic; exit 7"]);
        let output = dir.path().join("output");
        let mut process = LoggedChild::start(&mut command, "the job", &output).unwrap();
        assert!(process.succeed(Duration::from_secs(60)).is_err());
        let http = answering(&[]);
        let error = shows(&http, "/", Some(&mut process), |_| true).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("status: 7") && error.contains("no topic"),
            "{error}"
        );
    }
}
