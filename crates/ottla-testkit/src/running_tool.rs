//! A command of the binary that runs while a test looks at its output.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_ports::lease_range;
use rustix::process::{Pid, Signal, kill_process};

use crate::ottla_binary;

/// For a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(10);

/// The running command. Dropping it kills it.
pub struct RunningTool {
    child: Child,
    output: PathBuf,
}

impl RunningTool {
    /// Starts a command. Its output goes to a file whose name begins with `output`.
    pub fn start(output: &Path, arguments: &[&str]) -> RunningTool {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let output = output.with_extension(format!("printed-{number}"));
        let file = File::create(&output).expect("a file");
        let child = Command::new(ottla_binary())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("one file for both"))
            .stderr(file)
            .spawn()
            .expect("starts");
        RunningTool { child, output }
    }

    /// Starts a new cluster of at most four brokers in a directory. Nothing else gets its ports while it is down, so it
    /// can be restarted with [`start_cluster`](Self::start_cluster).
    pub fn start_new_cluster(dir: &Path, arguments: &[&str]) -> RunningTool {
        // One for each broker, and one for each of three controllers.
        let port = lease_range(7).expect("free ports").to_string();
        RunningTool::start_cluster(dir, &[arguments, &["--port", &port]].concat())
    }

    /// Starts `cluster start` in a directory; its nodes exit with it.
    pub fn start_cluster(dir: &Path, arguments: &[&str]) -> RunningTool {
        let dir_argument = dir.display().to_string();
        let start = ["cluster", "start", "--dir", &dir_argument];
        RunningTool::start(dir, &[&start[..], arguments].concat())
    }

    pub fn printed(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Waits for this text in its output.
    pub fn until(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            let printed = self.printed();
            if printed.contains(text) {
                return printed;
            }
            let ended = self.child.try_wait().expect("a child");
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "`{text}` is not printed, but ({ended:?}):\n{printed}"
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the exit.
    pub fn interrupt(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it runs");
        self.ended()
    }

    /// Waits for the exit.
    pub fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "it does not end:\n{}",
                self.printed()
            );
            std::thread::sleep(PAUSE);
        }
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        self.kill();
    }
}
