//! A broker as an operator runs it: the real binary with its own ports and folder, stopped with
//! SIGTERM or SIGKILL, and restarted on the same data.
//!
//! ```no_run
//! use ottla_testkit::BrokerBuilder;
//!
//! let mut broker = BrokerBuilder::new().property("num.partitions", "3").start();
//! let address = broker.bootstrap();
//! broker.kill();
//! broker.start_again();
//! assert!(broker.stop().success());
//! ```
//!
//! A broker that does not start, or exits unexpectedly, panics with its complete output.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ottla_ports::lease_range;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::binary::{ottla_binary, words};

/// A debug build on a busy machine takes far longer to start than a release build.
const PATIENCE: Duration = Duration::from_secs(60);
const CLUSTER_ID: &str = "T3R0bGFQcm9jZXNzVGVzdA";

/// Configures and starts a broker.
#[derive(Debug, Clone, Default)]
pub struct BrokerBuilder {
    properties: Vec<(String, String)>,
    log_dirs: Vec<String>,
    dir: Option<PathBuf>,
    port: Option<u16>,
    is_unformatted: bool,
    release: Option<String>,
    environment: Vec<(String, String)>,
    open_files: Option<u32>,
    is_on_one_processor: bool,
}

/// The result of a start that the broker refused.
#[derive(Debug)]
pub struct Refusal {
    pub status: ExitStatus,
    /// Standard output and standard error, interleaved.
    pub output: String,
}

/// A running broker, or a stopped one that can be restarted. It is killed on drop.
#[derive(Debug)]
pub struct BrokerProcess {
    child: Option<Child>,
    dir: PathBuf,
    port: u16,
    environment: Vec<(String, String)>,
    open_files: Option<u32>,
    is_on_one_processor: bool,
    /// Deletes the folder after the broker has exited.
    _temporary: Option<TempDir>,
}

impl BrokerBuilder {
    /// A combined node with one log directory, on free ports, in a temporary folder.
    pub fn new() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// Sets a line of `server.properties`. A later value of a key replaces an earlier one, and also
    /// the builder's own.
    pub fn property(mut self, key: &str, value: &str) -> BrokerBuilder {
        self.properties.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Names of the log directories, relative to the broker's folder. The default is one directory,
    /// `data`.
    pub fn log_dirs(mut self, names: &[&str]) -> BrokerBuilder {
        self.log_dirs = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Uses this folder for configuration and data, and keeps it afterwards.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> BrokerBuilder {
        self.dir = Some(dir.into());
        self
    }

    /// The port of the client listener; the controller listens on the next one.
    pub fn port(mut self, port: u16) -> BrokerBuilder {
        self.port = Some(port);
        self
    }

    /// Skips `storage format`, for tests of an unformatted directory.
    pub fn unformatted(mut self) -> BrokerBuilder {
        self.is_unformatted = true;
        self
    }

    /// Formats with the feature levels of this Kafka release.
    pub fn release(mut self, release: &str) -> BrokerBuilder {
        self.release = Some(release.to_owned());
        self
    }

    /// Sets an environment variable of the broker.
    pub fn environment(mut self, name: &str, value: &str) -> BrokerBuilder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the number of open files and sockets of the process (soft and hard limit).
    pub fn open_files(mut self, limit: u32) -> BrokerBuilder {
        self.open_files = Some(limit);
        self
    }

    /// Lets the broker run on one processor.
    pub fn on_one_processor(mut self) -> BrokerBuilder {
        self.is_on_one_processor = true;
        self
    }

    /// Starts the broker and returns when it answers on its client port.
    pub fn start(self) -> BrokerProcess {
        let mut broker = self.prepare();
        broker.start_again();
        broker
    }

    /// Starts a broker that is expected to refuse to start.
    pub fn start_refused(self) -> Refusal {
        let mut broker = self.prepare();
        broker.launch();
        let Some(status) = broker.wait_for_end(PATIENCE) else {
            panic!(
                "the broker was expected to refuse to start, and runs:\n{}",
                broker.output()
            );
        };
        Refusal {
            status,
            output: broker.output(),
        }
    }

    fn prepare(self) -> BrokerProcess {
        let (dir, temporary) = match self.dir {
            Some(dir) => (dir, None),
            None => {
                let temporary = tempfile::Builder::new().prefix("ottla-test-").tempdir();
                let temporary = temporary.expect("a temporary folder");
                (temporary.path().to_path_buf(), Some(temporary))
            }
        };
        std::fs::create_dir_all(&dir).expect("the broker's folder");
        let port = self
            .port
            .unwrap_or_else(|| lease_range(2).expect("free ports"));
        let controller_port = port + 1;
        let names = if self.log_dirs.is_empty() {
            vec!["data".to_owned()]
        } else {
            self.log_dirs
        };
        let log_dirs: Vec<String> = names
            .iter()
            .map(|name| dir.join(name).display().to_string())
            .collect();
        let mut text = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n\
             controller.listener.names=CONTROLLER\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             log.dirs={}\n",
            log_dirs.join(",")
        );
        for (key, value) in &self.properties {
            text.push_str(&format!("{key}={value}\n"));
        }
        let config = dir.join("server.properties");
        std::fs::write(&config, text).expect("server.properties can be written");
        if !self.is_unformatted && !Path::new(&log_dirs[0]).join("meta.properties").exists() {
            format(&config, self.release.as_deref());
        }
        BrokerProcess {
            child: None,
            dir,
            port,
            environment: self.environment,
            open_files: self.open_files,
            is_on_one_processor: self.is_on_one_processor,
            _temporary: temporary,
        }
    }
}

/// Runs without the node's environment, because formatting needs no secrets of the node.
fn format(config: &Path, release: Option<&str>) {
    let mut command = Command::new(ottla_binary());
    command
        .args([
            "storage",
            "format",
            "--standalone",
            "--cluster-id",
            CLUSTER_ID,
            "--config",
        ])
        .arg(config);
    if let Some(release) = release {
        command.args(["--release-version", release]);
    }
    let output = command
        .output()
        .expect("the broker's binary can be started");
    assert!(
        output.status.success(),
        "`ottla storage format` failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

impl BrokerProcess {
    /// Client address, `host:port`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The broker's folder, which holds `server.properties` and the log directories.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The log directory of a broker that has the default one.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The process ID of the running broker.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the broker runs").id()
    }

    /// The number of files and sockets that the running broker has open.
    pub fn open_handles(&self) -> usize {
        let handles = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        handles.expect("the broker runs").count()
    }

    /// The memory of the running broker.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid()));
        let statm = statm.expect("the broker runs");
        let pages = statm.split(' ').nth(1).expect("the resident pages");
        pages.parse::<u64>().expect("a number") * 4096
    }

    /// Waits until the memory of a burst is released.
    pub fn shrinks_to(&self, bytes: u64) {
        const MIB: u64 = 1024 * 1024;
        let began = Instant::now();
        while self.resident_bytes() > bytes {
            assert!(
                began.elapsed() < PATIENCE,
                "it still has {} MiB of {} MiB",
                self.resident_bytes() / MIB,
                bytes / MIB
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The complete output of the broker since its last start.
    pub fn output(&self) -> String {
        let bytes = std::fs::read(self.output_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Restarts the broker in its folder and returns when it answers on its client port.
    pub fn start_again(&mut self) {
        self.launch();
        let deadline = Instant::now() + PATIENCE;
        while !answers(self.port) {
            if let Some(status) = self.wait_for_end(Duration::ZERO) {
                panic!(
                    "the broker ended at its start ({status}):\n{}",
                    self.output()
                );
            }
            assert!(
                Instant::now() < deadline,
                "the broker does not answer after {PATIENCE:?}:\n{}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the broker with SIGTERM and waits until it exits.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        match self.wait_for_end(PATIENCE) {
            Some(status) => status,
            None => panic!("the broker did not end after SIGTERM:\n{}", self.output()),
        }
    }

    /// Waits until the broker exits by itself.
    pub fn wait(&mut self) -> ExitStatus {
        match self.wait_for_end(PATIENCE) {
            Some(status) => status,
            None => panic!("the broker still runs:\n{}", self.output()),
        }
    }

    /// Kills the broker with SIGKILL, as in a crash.
    pub fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait_for_end(PATIENCE).expect("a killed process ends");
    }

    /// Sends a signal to the running broker.
    pub fn signal(&mut self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("the broker runs");
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal)
            .expect("the broker's process is there");
    }

    /// Runs a tool of the binary against this broker and returns its output. `{bootstrap}` in an
    /// argument is replaced with the broker's address. Panics with the output if the tool fails.
    pub fn tool(&self, arguments: &[&str]) -> String {
        let arguments = arguments
            .iter()
            .map(|argument| argument.replace("{bootstrap}", &self.bootstrap()));
        let output = Command::new(ottla_binary())
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("the broker's binary can be started");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "the tool failed:\n{printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    /// Creates a topic with one replica.
    pub fn create_topic(&self, topic: &str, partitions: i32) {
        let servers = self.bootstrap();
        let line = format!(
            "topics --bootstrap-server {servers} --create --topic {topic} --partitions {partitions}"
        );
        self.tool(&words(&line));
    }

    /// Restarts the broker in its folder without waiting until it answers.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "the broker runs already");
        let output = File::create(self.output_file()).expect("the output can be kept");
        let mut command = match self.open_files {
            None => Command::new(ottla_binary()),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                shell.args(["-c", &limited]).arg(ottla_binary());
                shell
            }
        };
        command
            .arg("server")
            .arg(self.dir.join("server.properties"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("one file for both streams"))
            .stderr(output);
        let child = match self.is_on_one_processor {
            true => spawn_on_one_processor(&mut command),
            false => command.spawn(),
        };
        self.child = Some(child.expect("the broker's binary can be started"));
    }

    /// The exit status, or `None` if the process is still running after `patience`.
    fn wait_for_end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            let child = self.child.as_mut().expect("the broker was started");
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                self.child = None;
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn output_file(&self) -> PathBuf {
        self.dir.join("output.log")
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A child inherits the processors of the thread that starts it.
fn spawn_on_one_processor(command: &mut Command) -> std::io::Result<Child> {
    std::thread::scope(|scope| {
        let spawning = scope.spawn(|| {
            let allowed = sched_getaffinity(None)?;
            let mut processors = 0..CpuSet::MAX_CPU;
            let first = processors.find(|&it| allowed.is_set(it));
            let mut one = CpuSet::new();
            one.set(first.expect("this thread runs on a processor"));
            sched_setaffinity(None, &one)?;
            command.spawn()
        });
        spawning.join().expect("starting it does not panic")
    })
}

/// Whether a broker on this port answers ApiVersions v0 without an error.
fn answers(port: u16) -> bool {
    // API key 18, version 0, correlation ID 1, null client ID.
    const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let mut answer = [0; 10];
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .is_ok()
        && stream.write_all(&REQUEST).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer[4..] == [0, 0, 0, 1, 0, 0]
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_without_a_kafka_broker_does_not_answer() {
        let port = lease_range(1).unwrap();
        let silent = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let speaker = std::thread::spawn(move || {
            let (mut stream, _) = silent.accept().unwrap();
            stream.write_all(b"220 mail.example\r\n").unwrap();
        });
        assert!(!answers(port));
        speaker.join().unwrap();
        assert!(!answers(port));
    }
}
