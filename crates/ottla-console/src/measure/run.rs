//! One run of `ottla bench` as a child process: its output, and its end.
//!
//! The first request to stop lets it save its measurements and clean up, as Ctrl-C does; the second
//! ends it at once. It is stopped when the console ends, and when the console is killed. One that
//! does not end in time is killed, with all processes that it has started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::command::{bench, cannot_start};
use crate::problem::Problem;
use crate::view::now_ms;

/// Lines that are kept of the output; the oldest go first.
const LINES: usize = 1000;
/// The bytes of a line that are kept, and the bytes after which a line is taken for two.
const LINE_BYTES: usize = 1000;
const LONGEST_LINE: u64 = 64 << 10;
/// How long its output is read after its end. A remaining child process can keep the output open.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// How long a run may take to end, once it is asked to.
#[derive(Clone, Copy)]
struct Patience {
    stopping: Duration,
    /// When the console ends, which waits for it.
    last: Duration,
}

/// It saves its measurements, and deletes its topics.
const PATIENCE: Patience = Patience {
    stopping: Duration::from_secs(120),
    last: Duration::from_secs(15),
};
/// Between two looks at a process that is to end.
const LOOK: Duration = Duration::from_millis(20);
/// What `ottla bench` prints before a progress line, with `--progress-lines`.
const PROGRESS: &str = "progress: ";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    Running,
    Stopping,
    Ended,
}

/// The state of a run at a moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Moment {
    pub(crate) state: RunState,
    /// The newest progress line.
    progress: Option<String>,
    /// The name of the result.
    result: Option<String>,
    /// Whether it ended with success.
    is_ok: Option<bool>,
    /// The last lines of its output.
    #[serde(skip)]
    lines: VecDeque<String>,
    /// How many lines there were before these.
    #[serde(skip)]
    lines_before: usize,
}

pub(crate) struct Run {
    pub(crate) scenario: String,
    /// Milliseconds since 1970.
    pub(crate) started: i64,
    moment: watch::Sender<Moment>,
    stop: Notify,
}

impl Run {
    /// Needs a tokio runtime, on which the process is watched.
    pub(super) fn start(
        program: &Path,
        arguments: Vec<OsString>,
        scenario: &str,
    ) -> Result<Arc<Run>, Problem> {
        Run::start_with(program, arguments, scenario, PATIENCE)
    }

    fn start_with(
        program: &Path,
        arguments: Vec<OsString>,
        scenario: &str,
        patience: Patience,
    ) -> Result<Arc<Run>, Problem> {
        let started = start_process(bench(program, arguments));
        let (child, starter) = started.map_err(|error| cannot_start(program, &error))?;
        let run = Arc::new(Run {
            scenario: scenario.to_owned(),
            started: now_ms(),
            moment: watch::Sender::new(Moment {
                state: RunState::Running,
                progress: None,
                result: None,
                is_ok: None,
                lines: VecDeque::new(),
                lines_before: 0,
            }),
            stop: Notify::new(),
        });
        let process = Process {
            child,
            patience,
            _starter: starter,
        };
        tokio::spawn(run.clone().follow(process));
        Ok(run)
    }

    pub(crate) fn state(&self) -> RunState {
        self.moment.borrow().state
    }

    /// The moments from now on.
    pub(crate) fn moments(&self) -> watch::Receiver<Moment> {
        let mut moments = self.moment.subscribe();
        moments.mark_changed();
        moments
    }

    /// Stops it, unless it has ended.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    async fn follow(self: Arc<Run>, mut process: Process) {
        let child = &mut process.child;
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let reader = self.clone();
        let mut reading = tokio::spawn(async move {
            tokio::join!(reader.read(output), reader.read(errors));
        });
        let mut killed_at: Option<Instant> = None;
        let ended = loop {
            let overdue = async move {
                match killed_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = process.child.wait() => break ended,
                () = self.stop.notified() => {
                    process.ask_to_stop();
                    let stopping = process.patience.stopping;
                    killed_at.get_or_insert_with(|| Instant::now() + stopping);
                    self.moment.send_modify(|it| it.state = RunState::Stopping);
                }
                () = overdue => {
                    process.kill();
                    killed_at = None;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_OUTPUT, &mut reading).await;
        reading.abort();
        self.moment.send_modify(|it| it.end(ended));
    }

    async fn read(&self, output: Option<impl AsyncRead + Unpin>) {
        let Some(output) = output else { return };
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        // Read to the end: the process would fail if its output were not read.
        loop {
            line.clear();
            let mut rest = (&mut output).take(LONGEST_LINE);
            match rest.read_until(b'\n', &mut line).await {
                Ok(bytes) if bytes > 0 => {}
                _ => return,
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\r', '\n']);
            self.moment.send_modify(|it| it.add(text));
        }
    }
}

impl Moment {
    fn add(&mut self, line: &str) {
        let mut end = line.len().min(LINE_BYTES);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let line = &line[..end];
        if let Some(progress) = line.strip_prefix(PROGRESS) {
            self.progress = Some(progress.to_owned());
            return;
        }
        // `ottla bench` prints the path of the result after all else.
        if let Some(path) = line.strip_suffix(".json") {
            let name = Path::new(path).file_name().and_then(|it| it.to_str());
            self.result = name.map(str::to_owned);
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
            self.lines_before += 1;
        }
        self.lines.push_back(line.to_owned());
    }

    fn end(&mut self, ended: std::io::Result<ExitStatus>) {
        self.state = RunState::Ended;
        self.progress = None;
        self.is_ok = Some(ended.as_ref().is_ok_and(ExitStatus::success));
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => self.add(&format!("ottla bench ended: {status}")),
            Err(error) => self.add(&format!("ottla bench is lost: {error}")),
        }
    }

    /// The lines of the whole output after the first `seen`.
    pub(crate) fn lines_after(&self, seen: usize) -> Vec<&str> {
        let skipped = seen.saturating_sub(self.lines_before);
        self.lines.iter().skip(skipped).map(|it| &**it).collect()
    }

    /// The number of all lines so far.
    pub(crate) fn line_count(&self) -> usize {
        self.lines_before + self.lines.len()
    }

    /// The same without its lines.
    pub(crate) fn without_lines(&self) -> Moment {
        Moment {
            state: self.state,
            progress: self.progress.clone(),
            result: self.result.clone(),
            is_ok: self.is_ok,
            lines: VecDeque::new(),
            lines_before: self.lines_before,
        }
    }
}

/// Starts a process on a separate thread, which runs until the sender is dropped. A thread of the
/// runtime may end before the others, and the process would be asked to stop a second time.
fn start_process(mut command: Command) -> io::Result<(Child, mpsc::Sender<()>)> {
    let runtime = Handle::current();
    let (started, is_started) = mpsc::channel();
    let (starter, is_done) = mpsc::channel();
    std::thread::Builder::new().spawn(move || {
        let _entered = runtime.enter();
        let _ = started.send(command.spawn());
        // Nothing is sent: it ends when there is no sender any more.
        let _: Result<(), _> = is_done.recv();
    })?;
    let child = is_started.recv().map_err(io::Error::other)??;
    Ok((child, starter))
}

/// The child, which is stopped when the console ends before it.
struct Process {
    child: Child,
    patience: Patience,
    /// Of the thread that has started it.
    _starter: mpsc::Sender<()>,
}

impl Process {
    /// Only before it is waited for: until then, no other process gets its number.
    fn pid(&self) -> Option<Pid> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        pid.and_then(Pid::from_raw)
    }

    fn ask_to_stop(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// With all of its group.
    fn kill(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Whether it ends in this time. Blocks.
    fn ends_within(&mut self, time: Duration) -> bool {
        let until = std::time::Instant::now() + time;
        while let Ok(None) = self.child.try_wait() {
            if std::time::Instant::now() >= until {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.pid().is_none() {
            return;
        }
        self.ask_to_stop();
        if !self.ends_within(self.patience.last) {
            self.kill();
            self.ends_within(LAST_OUTPUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in place of `ottla`.
    fn start(command: &str) -> Arc<Run> {
        let program = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench.sh"));
        Run::start(program, vec![command.into()], "a").unwrap()
    }

    async fn until(run: &Run, holds: impl FnMut(&Moment) -> bool) -> Moment {
        let mut moments = run.moments();
        let waiting = moments.wait_for(holds);
        let moment = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        moment.expect("the run reaches this state").unwrap().clone()
    }

    #[tokio::test]
    async fn a_run_says_what_it_prints_and_where_its_result_is() {
        let run = start("print");
        let end = until(&run, |it| it.state == RunState::Ended).await;
        assert_eq!(end.lines, ["bench print", "out/a-1.json"]);
        assert_eq!(
            (end.result.as_deref(), end.is_ok),
            (Some("a-1"), Some(true))
        );
        assert_eq!(end.lines_after(1), ["out/a-1.json"]);
        assert_eq!(end.line_count(), 2);
    }

    #[tokio::test]
    async fn a_run_is_asked_to_stop_and_may_end_in_its_own_time() {
        let run = start("run");
        until(&run, |it| it.line_count() == 1).await;
        run.stop();
        let end = until(&run, |it| it.state == RunState::Ended).await;
        assert_eq!(end.lines_after(0)[..2], ["begun", "saved"]);
        assert_eq!(end.is_ok, Some(false));
    }

    const SHORT: Patience = Patience {
        stopping: Duration::from_millis(100),
        last: Duration::from_millis(100),
    };

    #[tokio::test]
    async fn a_run_that_does_not_end_is_killed() {
        let program = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench.sh"));
        let run = Run::start_with(program, vec!["stubborn".into()], "a", SHORT).unwrap();
        until(&run, |it| it.line_count() == 1).await;
        run.stop();
        let end = until(&run, |it| it.state == RunState::Ended).await;
        assert_eq!(end.is_ok, Some(false));

        // Nor does it outlive the console.
        let (mut child, starter) = start_process(bench(program, vec!["stubborn".into()])).unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).await.unwrap();
        let process = Process {
            child,
            patience: SHORT,
            _starter: starter,
        };
        let pid = process.pid().unwrap();
        drop(process);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[tokio::test]
    async fn output_of_any_kind_is_read_to_its_end() {
        let run = start("bytes");
        let end = until(&run, |it| it.state == RunState::Ended).await;
        assert_eq!(end.lines, ["\u{fffd}", "after"]);
        assert_eq!(end.is_ok, Some(true));
    }

    #[tokio::test]
    async fn a_run_ends_although_its_output_is_still_open() {
        let run = start("orphan");
        let end = until(&run, |it| it.state == RunState::Ended).await;
        assert_eq!(end.lines[0], "begun");
        assert_eq!(end.is_ok, Some(false));
    }

    #[test]
    fn old_and_long_lines_are_cut() {
        let mut moment = Moment {
            state: RunState::Running,
            progress: None,
            result: None,
            is_ok: None,
            lines: VecDeque::new(),
            lines_before: 0,
        };
        for line in 0..LINES + 5 {
            moment.add(&line.to_string());
        }
        moment.add(&"é".repeat(LINE_BYTES));
        assert_eq!((moment.lines.len(), moment.lines_before), (LINES, 6));
        assert_eq!(moment.lines[0], "6");
        assert_eq!(moment.lines[LINES - 1].len(), LINE_BYTES);
        assert_eq!(moment.lines_after(0).len(), LINES);
        assert_eq!(moment.lines_after(LINES + 5).len(), 1);
    }
}
