//! The command lines of `ottla bench`, and its output.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::config::MeasureConfig;
use crate::problem::Problem;

/// For commands that measure nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum bytes kept of their output, and of their errors.
const MOST_OUTPUT: u64 = 4 << 20;

/// A scenario that `ottla bench` ships.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    title: String,
}

/// The requested run.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) scenario: String,
    /// Without it, as published.
    #[serde(default)]
    is_small: bool,
    replicas: Option<u32>,
    repetitions: Option<u32>,
    seconds: Option<u32>,
}

/// Each number that a form can set, with its flag and its largest value.
const REPLICAS: (&str, u32) = ("replicas", 9);
const REPETITIONS: (&str, u32) = ("repetitions", 100);
const SECONDS: (&str, u32) = ("seconds", 24 * 60 * 60);

/// The arguments of a run, after `ottla bench`.
pub(super) fn of_run(
    wanted: &Wanted,
    scenarios: &[Scenario],
    bootstrap_servers: &str,
    config: &MeasureConfig,
) -> Result<Vec<OsString>, Problem> {
    let known = scenarios.iter().find(|it| it.name == wanted.scenario);
    let known = known.ok_or_else(|| {
        Problem::invalid(
            "scenario",
            format!(
                "{}: no such scenario; `ottla bench list` lists them",
                wanted.scenario
            ),
        )
    })?;
    let mut arguments: Vec<OsString> = vec!["run".into(), known.name.clone().into()];
    let mut option = |flag: &str, value: OsString| {
        arguments.push(flag.into());
        arguments.push(value);
    };
    option("--bootstrap-server", bootstrap_servers.into());
    if let Some(file) = &config.command_config {
        option("--command-config", file.into());
    }
    option("--out", config.dir.clone().into());
    if wanted.is_small {
        option("--scale", "small".into());
    }
    if let Some(replicas) = bounded(REPLICAS, wanted.replicas)? {
        option("--replicas", replicas.to_string().into());
    }
    if let Some(repetitions) = bounded(REPETITIONS, wanted.repetitions)? {
        option("--repetitions", repetitions.to_string().into());
    }
    if let Some(seconds) = bounded(SECONDS, wanted.seconds)? {
        option("--time", format!("{seconds}s").into());
    }
    arguments.push("--progress-lines".into());
    Ok(arguments)
}

fn bounded((field, most): (&'static str, u32), value: Option<u32>) -> Result<Option<u32>, Problem> {
    match value {
        Some(value) if !(1..=most).contains(&value) => Err(Problem::invalid(
            field,
            format!("{field}={value}: give 1 to {most}, or nothing for the scenario's"),
        )),
        value => Ok(value),
    }
}

/// The scenarios in the output of `ottla bench list`: a name and its title in each indented line.
pub(super) fn scenarios_in(text: &str) -> Vec<Scenario> {
    let indented = text.lines().filter_map(|line| line.strip_prefix("  "));
    let named = indented.filter_map(|line| line.trim().split_once(' '));
    named
        .map(|(name, title)| Scenario {
            name: name.to_owned(),
            title: title.trim().to_owned(),
        })
        .collect()
}

/// `ottla bench` with these arguments, in a separate process group. Otherwise Ctrl-C in the
/// console's terminal together with the console's request to stop would end it at once.
pub(super) fn bench(program: &Path, arguments: Vec<OsString>) -> Command {
    let mut command = Command::new(program);
    command
        .arg("bench")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    stop_with_console(&mut command);
    command
}

/// Has the process stopped if the console is killed, which can then not do it. The kernel takes the
/// end of the thread that has started the process for that of the console.
fn stop_with_console(command: &mut Command) {
    let console = getpid();
    // SAFETY: between fork and exec only async-signal-safe calls are permitted; these are system
    // calls, and converting their errors to an `io::Error` neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // It may have been killed before that.
            match getppid() == Some(console) {
                true => Ok(()),
                false => Err(Errno::SRCH.into()),
            }
        });
    }
}

/// What `ottla bench` prints, if it succeeds.
pub(super) async fn output(program: &Path, arguments: Vec<OsString>) -> Result<String, Problem> {
    let mut command = bench(program, arguments);
    command.kill_on_drop(true);
    let child = command.spawn();
    let mut child = child.map_err(|error| cannot_start(program, &error))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let running = async move {
        let (output, errors) = tokio::join!(beginning(output), beginning(errors));
        let status = child.wait().await?;
        Ok::<_, io::Error>((status, output?, errors?))
    };
    let ended = tokio::time::timeout(PATIENCE, running).await;
    let (status, output, errors) = ended
        .map_err(|_| {
            Problem::timed_out(format!(
                "ottla bench did not end within {} s",
                PATIENCE.as_secs()
            ))
        })?
        .map_err(|error| Problem::internal(format!("ottla bench is lost: {error}")))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&errors);
        return Err(Problem::conflict(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The beginning of a process's output. The rest is read and dropped, so that the process ends.
async fn beginning(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut output) = output else {
        return Ok(bytes);
    };
    let mut first = (&mut output).take(MOST_OUTPUT);
    first.read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut output, &mut tokio::io::sink()).await?;
    Ok(bytes)
}

pub(super) fn cannot_start(program: &Path, error: &std::io::Error) -> Problem {
    Problem::internal(format!("{} cannot be started: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::process::{Pid, WaitOptions, waitpid};
    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;

    fn script() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench.sh"))
    }

    #[tokio::test]
    async fn the_output_of_a_process_is_bounded_and_it_ends() {
        let printed = output(script(), vec!["flood".into()]).await.unwrap();
        assert_eq!(printed.len() as u64, MOST_OUTPUT);
    }

    #[test]
    fn a_run_is_asked_to_stop_when_its_console_is_killed() {
        // To the kernel, the end of the thread is that of the parent. Nothing is dropped, as in a
        // process that is killed.
        let console = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let pid = runtime.block_on(async {
                let mut child = bench(script(), vec!["run".into()]).spawn().unwrap();
                let mut output = BufReader::new(child.stdout.take().unwrap());
                let mut line = String::new();
                output.read_line(&mut line).await.unwrap();
                assert_eq!(line, "begun\n");
                let pid = child.id().unwrap();
                std::mem::forget((child, output));
                pid
            });
            std::mem::forget(runtime);
            pid
        });
        let pid = Pid::from_raw(console.join().unwrap().try_into().unwrap());
        let began = Instant::now();
        let status = loop {
            if let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG).unwrap() {
                break status;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.exit_status(), Some(130));
    }

    fn config() -> MeasureConfig {
        MeasureConfig {
            program: "ottla".into(),
            dir: "a dir; rm -rf".into(),
            command_config: Some("client.properties".into()),
        }
    }

    fn scenarios() -> Vec<Scenario> {
        scenarios_in("rate-ladder\n  rate-ladder/write       Delay at each rate\nRun one\n")
    }

    fn wanted(scenario: &str) -> Wanted {
        Wanted {
            scenario: scenario.to_owned(),
            is_small: true,
            replicas: Some(1),
            repetitions: None,
            seconds: Some(30),
        }
    }

    #[test]
    fn every_value_is_a_separate_argument() {
        let arguments = of_run(
            &wanted("rate-ladder/write"),
            &scenarios(),
            "a:1,b:2",
            &config(),
        );
        let expected = [
            "run",
            "rate-ladder/write",
            "--bootstrap-server",
            "a:1,b:2",
            "--command-config",
            "client.properties",
            "--out",
            "a dir; rm -rf",
            "--scale",
            "small",
            "--replicas",
            "1",
            "--time",
            "30s",
            "--progress-lines",
        ];
        assert_eq!(arguments.unwrap(), expected);
    }

    #[test]
    fn only_shipped_scenarios_are_run() {
        for other in ["", "--help", "/etc/passwd.toml", "rate-ladder", "../x.toml"] {
            let refused = of_run(&wanted(other), &scenarios(), "a:1", &config()).unwrap_err();
            assert_eq!(refused.status(), 422, "{other}");
        }
        let mut many = wanted("rate-ladder/write");
        many.seconds = Some(0);
        let refused = of_run(&many, &scenarios(), "a:1", &config()).unwrap_err();
        assert!(refused.detail().starts_with("seconds=0: give 1 to 86400"));
    }

    #[test]
    fn scenarios_are_parsed_from_their_list() {
        let all = scenarios();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "rate-ladder/write");
        assert_eq!(all[0].title, "Delay at each rate");
    }
}
