//! A node of a local cluster as a process: the same binary, in its own process group, so that
//! Ctrl-C at the terminal reaches the command that runs the cluster and not its nodes. Its output
//! is kept in `output.log`; its warnings are also shown once the cluster is up, because nodes
//! report each other as missing before.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr};
use tokio::task::JoinHandle;

/// Number of last lines that are shown when a node exits.
const LAST_LINES: usize = 5;

/// A node, running or exited.
#[derive(Debug)]
pub struct NodeProcess {
    pub id: u16,
    child: Child,
    /// The last lines of its standard error.
    showing: Option<JoinHandle<Vec<String>>>,
    pub status: Option<ExitStatus>,
    pub output: PathBuf,
}

impl NodeProcess {
    /// Starts `ottla server` with this file. Must be called on a thread that lives as long as this
    /// process, because the kernel treats the end of that thread as the parent's exit.
    pub fn start(
        id: u16,
        dir: &Path,
        properties: &Path,
        overrides: &[String],
        is_shown: &Arc<AtomicBool>,
    ) -> std::io::Result<NodeProcess> {
        let output = dir.join("output.log");
        let log = OpenOptions::new().create(true).append(true).open(&output)?;
        let mut command = std::process::Command::new(std::env::current_exe()?);
        command
            .arg("server")
            .arg(properties)
            .arg(format!("--ends-with={}", std::process::id()))
            .args(overrides.iter().flat_map(|it| ["--override", it]))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(Stdio::piped())
            .process_group(0);
        if std::env::var_os("OTTLA_LOG_FORMAT").is_none() {
            command.env("OTTLA_LOG_FORMAT", "text");
        }
        let mut child = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()?;
        let is_shown = Arc::clone(is_shown);
        let showing = child
            .stderr
            .take()
            .map(|lines| tokio::spawn(show(id, lines, log, is_shown)));
        Ok(NodeProcess {
            id,
            child,
            showing,
            status: None,
            output,
        })
    }

    pub fn process_id(&self) -> Option<u32> {
        self.child.id()
    }

    pub fn is_running(&self) -> bool {
        self.status.is_none()
    }

    /// Waits until the process has exited.
    pub async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        let status = self.child.wait().await?;
        self.status = Some(status);
        Ok(status)
    }

    /// Sends a stop signal; a second one makes the node stop waiting for other nodes.
    pub fn ask_to_stop(&self) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32));
        if let Some(pid) = pid {
            // The process may have exited in the meantime.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// The last lines of its standard error, after it has exited.
    pub async fn last_words(&mut self) -> Vec<String> {
        match self.showing.take() {
            // A panic in the task was already reported.
            Some(showing) => showing.await.unwrap_or_default(),
            None => Vec::new(),
        }
    }
}

/// Keeps the last lines, and prints new ones if they are to be shown. Returns the kept lines at the
/// end of the stream.
async fn show(id: u16, lines: ChildStderr, log: File, is_shown: Arc<AtomicBool>) -> Vec<String> {
    let mut lines = BufReader::new(lines).lines();
    let mut last = std::collections::VecDeque::new();
    while let Ok(Some(line)) = lines.next_line().await {
        // An error of the terminal or the disk must not stop the node.
        let _ = writeln!(&log, "{line}");
        if is_shown.load(Ordering::Relaxed) {
            let _ = writeln!(std::io::stderr(), "node {id}: {line}");
        }
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(line);
    }
    last.into()
}
