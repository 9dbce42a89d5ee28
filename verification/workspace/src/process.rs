//! Child processes that run to completion with captured output, or that are killed when their owner
//! is dropped.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, getrlimit, setrlimit};

/// Has this process and the processes that it starts leave no core dumps, which would contain the
/// secrets of tests. A program that raises its soft limit again gets dumps.
pub fn forbid_core_dumps() -> Result<()> {
    let limit = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    setrlimit(Resource::Core, limit).context("cannot set the limit of core dumps to 0")
}

/// Runs a command to completion and returns its standard output. On failure the error contains all
/// of its output.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = run_captured(command)?;
    if !output.status.success() {
        bail!(
            "{} ended with {}:\n{}{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} printed other than UTF-8", shown(command)))
}

/// Retries a failing attempt until `patience` has passed, then returns the last error.
pub fn retried<T>(
    patience: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < patience => std::thread::sleep(Duration::from_millis(200)),
            outcome => return outcome.with_context(|| format!("{what}, after {patience:?}")),
        }
    }
}

/// Runs a command to completion with empty standard input, and accepts any exit status.
pub fn run_captured(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null());
    command
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))
}

/// Wraps a command in the words of a launcher; without any, returns it unchanged.
pub fn started_by(launcher: &[String], command: Command) -> Command {
    let [program, arguments @ ..] = launcher else {
        return command;
    };
    let mut outer = Command::new(program);
    outer.args(arguments).arg(command.get_program());
    outer.args(command.get_args());
    outer
}

/// The command line, for messages.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// Whether a program with this name is on the `PATH`.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A child process that is killed when its owner is dropped.
#[derive(Debug)]
pub struct OwnedChild {
    child: Child,
}

impl OwnedChild {
    /// Starts the command with empty standard input; the caller determines where its output goes.
    pub fn start(command: &mut Command) -> Result<OwnedChild> {
        command.stdin(Stdio::null());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", shown(command)))?;
        Ok(OwnedChild { child })
    }

    /// Starts a command for a dialogue: lines are written to the first pipe and read from the
    /// second.
    pub fn converse(command: &mut Command) -> Result<(OwnedChild, ChildStdin, ChildStdout)> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", shown(command)))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            bail!("{} was started without pipes", shown(command));
        };
        Ok((OwnedChild { child }, input, output))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process with SIGKILL, as in a crash.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// The exit status, if the process has exited.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Sends SIGTERM and waits; kills the process if it does not exit in time.
    pub fn stop(&mut self, patience: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.signal(Signal::TERM)?;
        match self.wait(patience)? {
            Some(status) => Ok(status),
            None => {
                self.child.kill()?;
                let status = self.child.wait()?;
                bail!(
                    "process {} did not end within {patience:?} of SIGTERM: {status}",
                    self.id()
                );
            }
        }
    }

    /// Waits until the process exits, at most for `patience`.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Lines of a process's output in a message.
const SHOWN_LINES: usize = 40;

/// The end of a file that a process prints into; empty without such a file.
pub fn tail(file: &Path) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

/// As [`tail`], as a part of a message.
pub fn last_lines(file: &Path) -> String {
    match tail(file) {
        last if last.is_empty() => "it printed nothing".to_owned(),
        last => format!("it printed last:\n{last}"),
    }
}

/// A child process whose output is in a file, for the message when something that it was to do does
/// not happen. It is killed when its owner is dropped.
#[derive(Debug)]
pub struct LoggedChild {
    child: OwnedChild,
    name: String,
    output: PathBuf,
}

impl LoggedChild {
    /// Starts the command with empty standard input. Standard output and standard error are appended
    /// to the file.
    pub fn start(command: &mut Command, name: &str, output: &Path) -> Result<LoggedChild> {
        let file = OpenOptions::new().create(true).append(true).open(output);
        let file = file.with_context(|| output.display().to_string())?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = OwnedChild::start(command).with_context(|| name.to_owned())?;
        Ok(LoggedChild {
            child,
            name: name.to_owned(),
            output: output.to_owned(),
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything that was printed so far. Invalid UTF-8 is replaced.
    pub fn printed(&self) -> Result<String> {
        let bytes =
            std::fs::read(&self.output).with_context(|| self.output.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the process runs, or how it ended, and the end of its output.
    pub fn state(&mut self) -> String {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => format!("ended ({status})"),
            Ok(None) => "runs".to_owned(),
            Err(error) => format!("is in an unknown state ({error:#})"),
        };
        format!("{} {status}; {}", self.name, last_lines(&self.output))
    }

    /// It is an error if the process has ended. It contains the exit status and the last lines.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(_) => bail!("{}", self.state()),
            None => Ok(()),
        }
    }

    /// Waits until the process exits with success. Otherwise the error contains its last lines.
    pub fn succeed(&mut self, patience: Duration) -> Result<()> {
        match self.child.wait(patience)? {
            Some(status) if status.success() => Ok(()),
            Some(_) => bail!("{}", self.state()),
            None => bail!("after {patience:?}, {}", self.state()),
        }
    }

    /// Kills the process with SIGKILL, as in a crash.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()
    }

    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }

    /// The exit status, if the process has exited.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

/// How a child process ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    pub status: ExitStatus,
    /// Processor time of the process and of all its descendants that were waited for.
    pub processor_time: Duration,
}

impl OwnedChild {
    /// As [`OwnedChild::wait`], with the processor time that was used.
    pub fn wait_measured(&mut self, patience: Duration) -> Result<Option<Ended>> {
        let deadline = Instant::now() + patience;
        let pid = Pid::from_child(&self.child);
        // The process must stay a zombie until its times are read.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            if rustix::process::waitid(WaitId::Pid(pid), options)?.is_some() {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
                let ticks = ticks_in(&stat).context("times in /proc/PID/stat")?;
                let per_second = rustix::param::clock_ticks_per_second();
                let processor_time = Duration::from_millis(ticks * 1000 / per_second);
                let status = self.child.wait()?;
                return Ok(Some(Ended {
                    status,
                    processor_time,
                }));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The sum of `utime`, `stime`, `cutime` and `cstime` (proc(5), fields 14 to 17).
fn ticks_in(stat: &str) -> Option<u64> {
    // The second field is the name, which may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(4);
    let times: Vec<u64> = times.map_while(|time| time.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_failed_command_shows_its_output_and_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo said; echo complained >&2; exit 3"]);
        let error = output_of(&mut command).unwrap_err().to_string();
        assert!(
            error.contains("said") && error.contains("complained"),
            "{error}"
        );
        assert!(error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn a_child_is_stopped_with_sigterm_and_killed_when_that_is_ignored() {
        let mut polite = OwnedChild::start(Command::new("sleep").arg("60")).unwrap();
        let status = polite.stop(Duration::from_secs(30)).unwrap();
        assert!(!status.success());

        let dir = tempfile::tempdir().unwrap();
        let is_set = dir.path().join("set");
        let mut command = Command::new("sh");
        let script = "trap '' TERM; : > \"$0\"; while :; do sleep 0.05; done";
        command.args(["-c", script]).arg(&is_set);
        let mut stubborn = OwnedChild::start(&mut command).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_set.exists() {
            assert!(Instant::now() < deadline, "it does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let error = stubborn
            .stop(Duration::from_millis(200))
            .unwrap_err()
            .to_string();
        assert!(error.contains("did not end"), "{error}");
    }

    #[test]
    fn a_logged_process_shows_its_status_and_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("output");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "for i in $(seq 50); do echo line $i; done; echo bad >&2; exit 3",
        ]);
        let mut child = LoggedChild::start(&mut command, "the job", &output).unwrap();
        let error = child.succeed(Duration::from_secs(60)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("the job ended (exit status: 3)"),
            "{error}"
        );
        assert!(error.ends_with("line 50\nbad"), "{error}");
        assert!(!error.contains("line 11\n"), "{error}");
        assert_eq!(child.check_running().unwrap_err().to_string(), error);
        assert_eq!(child.printed().unwrap().lines().count(), 51);

        // A second run appends.
        let mut command = Command::new("sh");
        command.args(["-c", "echo again; exec sleep 60"]);
        let mut child = LoggedChild::start(&mut command, "the job", &output).unwrap();
        let began = Instant::now();
        while !child.printed().unwrap().ends_with("bad\nagain\n") {
            child.check_running().unwrap();
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{}",
                child.state()
            );
        }
        assert!(
            child.state().starts_with("the job runs; "),
            "{}",
            child.state()
        );
        let error = child.succeed(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("after 0ns, the job runs"), "{error}");
    }

    #[test]
    fn a_silent_process_is_said_to_be_silent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(last_lines(&dir.path().join("none")), "it printed nothing");
    }

    #[test]
    fn processor_time_includes_descendants_but_no_sleep() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; sleep 0.2; exit 3",
        ]);
        let began = Instant::now();
        let mut child = OwnedChild::start(&mut command).unwrap();
        let ended = child
            .wait_measured(Duration::from_secs(60))
            .unwrap()
            .unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.processor_time > Duration::ZERO, "{ended:?}");
        assert!(ended.processor_time < began.elapsed(), "{ended:?}");
    }

    #[test]
    fn the_times_of_a_process_are_parsed_after_its_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 5 6 7";
        assert_eq!(ticks_in(stat), Some(4330));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }

    #[test]
    fn programs_are_looked_up_on_the_path() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-such-program-anywhere"));
    }
}
