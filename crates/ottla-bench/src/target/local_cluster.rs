//! Brokers that are started for a run, on free ports and in a temporary directory, and removed
//! afterwards.
//!
//! The first node is a combined node, further ones are brokers. They run in their own process
//! group, so that Ctrl-C at the terminal reaches only the run, which then ends them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ottla_ports::lease_ports;

use super::TargetSpec;
use super::kafka_artefacts::KafkaArtefacts;
use crate::load::process_usage::ProcessUsage;

/// A Java broker on a busy machine takes a minute to start.
const START: Duration = Duration::from_secs(180);
const STOP: Duration = Duration::from_secs(30);
/// Timeout for the deletion of a topic's files.
const DELETION: Duration = Duration::from_secs(30);
/// 16 bytes in Kafka's UUID encoding.
const CLUSTER_ID: &str = "T3R0bGFCZW5jaENsdXN0ZQ";

/// The required brokers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BrokerRequirements {
    pub brokers: usize,
    pub settings: BTreeMap<String, String>,
    /// The directory of their files; the system's temporary directory by default.
    pub dir: Option<PathBuf>,
}

/// The running brokers and their directories, for a process that must exit at once.
static RUNNING: Mutex<(BTreeSet<u32>, BTreeSet<PathBuf>)> =
    Mutex::new((BTreeSet::new(), BTreeSet::new()));

fn running() -> MutexGuard<'static, (BTreeSet<u32>, BTreeSet<PathBuf>)> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two seconds in total.
const REMOVAL_ATTEMPTS: u32 = 400;

/// Kills all started brokers and removes their files; the process is about to exit.
pub fn end_all_at_once() {
    let (brokers, dirs) = &*running();
    brokers.iter().for_each(|id| kill(*id));
    for dir in dirs {
        // A broker that is being killed may write a last file.
        for _ in 0..REMOVAL_ATTEMPTS {
            if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn kill(process: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(process as i32) {
        // Their data is not needed: a clean stop would first write it to disk.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Running brokers.
pub struct LocalCluster {
    nodes: Vec<Node>,
    program: Program,
    needs: BrokerRequirements,
    /// Removed with its contents on drop.
    dir: tempfile::TempDir,
}

struct Node {
    /// Replaced when the broker is killed and restarted.
    child: Mutex<Child>,
    port: u16,
    data: PathBuf,
    output: PathBuf,
}

impl LocalCluster {
    pub fn start(spec: &TargetSpec, needs: &BrokerRequirements) -> Result<LocalCluster> {
        let program = Program::find(spec)?;
        let mut prefix = tempfile::Builder::new();
        let prefix = prefix.prefix("ottla-bench-");
        let dir = match &needs.dir {
            Some(dir) => prefix.tempdir_in(dir),
            None => prefix.tempdir(),
        };
        let dir = dir.context("cannot create a temporary directory for the brokers")?;
        running().1.insert(dir.path().to_owned());
        let mut cluster = LocalCluster {
            nodes: Vec::new(),
            program,
            needs: needs.clone(),
            dir,
        };
        let [controller] = lease_ports()?;
        for id in 1..=needs.brokers.max(1) {
            let node = cluster.launch(id, controller)?;
            cluster.nodes.push(node);
        }
        for node in &cluster.nodes {
            node.wait_until_it_answers()?;
        }
        Ok(cluster)
    }

    pub fn bootstrap(&self) -> String {
        let addresses = self
            .nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port));
        addresses.collect::<Vec<_>>().join(",")
    }

    pub fn description(&self) -> String {
        self.program.description()
    }

    pub fn needs(&self) -> &BrokerRequirements {
        &self.needs
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The log directories of all nodes.
    pub fn data_dirs(&self) -> impl Iterator<Item = &Path> {
        self.nodes.iter().map(|node| node.data.as_path())
    }

    /// Waits until the files of a deleted topic are gone, because their deletion would affect the
    /// next round, which also needs their disk space.
    pub async fn wait_until_deleted(&self, topic: &str) {
        let began = Instant::now();
        while began.elapsed() < DELETION && self.data_dirs().any(|dir| has_files_of(dir, topic)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The total resource usage of all brokers so far.
    pub fn usage(&self) -> Result<ProcessUsage> {
        let mut total = ProcessUsage::default();
        for node in &self.nodes {
            total = total.plus(&ProcessUsage::of(node.id())?);
        }
        Ok(total)
    }

    /// Kills a broker by its node.id, without a clean stop. The first broker is never killed,
    /// because it is also the controller, which must elect new leaders.
    pub fn kill_broker(&self, id: i32) -> Result<()> {
        let node = self.follower(id)?;
        node.kill();
        node.wait_until_it_is_gone();
        running().0.remove(&node.id());
        Ok(())
    }

    /// Restarts a killed broker on its data, and waits until it responds.
    pub fn revive_broker(&self, id: i32) -> Result<()> {
        let node = self.follower(id)?;
        let dir = self.dir_of(id as usize);
        let child = self.spawn(&dir, File::options().append(true).open(&node.output)?)?;
        *node.locked() = child;
        node.wait_until_it_answers()
    }

    fn follower(&self, id: i32) -> Result<&Node> {
        let index = usize::try_from(id - 1).ok().filter(|index| *index > 0);
        let node = index.and_then(|index| self.nodes.get(index));
        node.with_context(|| format!("node {id} is none of the brokers that may die"))
    }

    fn dir_of(&self, id: usize) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    fn launch(&self, id: usize, controller: u16) -> Result<Node> {
        let dir = self.dir_of(id);
        std::fs::create_dir_all(&dir)?;
        let [port] = lease_ports()?;
        let data = dir.join("data");
        let config = config_in(&dir);
        let text = properties(
            id,
            self.needs.brokers.max(1),
            port,
            controller,
            &data,
            &self.needs.settings,
        );
        std::fs::write(&config, text)?;
        self.program.format(&config, id)?;
        let output = dir.join("output.log");
        let child = self.spawn(&dir, File::create(&output)?)?;
        Ok(Node {
            child: Mutex::new(child),
            port,
            data,
            output,
        })
    }

    /// Starts the broker with its existing configuration.
    fn spawn(&self, dir: &Path, output: File) -> Result<Child> {
        let mut command = self.program.command(&config_in(dir), dir)?;
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        // Held during the start, so that a concurrent kill of all brokers cannot miss this one.
        let mut running = running();
        let child = command
            .spawn()
            .with_context(|| format!("{} cannot be started", self.program.description()))?;
        running.0.insert(child.id());
        Ok(child)
    }
}

fn config_in(dir: &Path) -> PathBuf {
    dir.join("server.properties")
}

/// Also matches the names of directories that are being deleted.
fn has_files_of(dir: &Path, topic: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| {
            let rest = name.strip_prefix(topic);
            rest.is_some_and(|rest| rest.starts_with('-'))
        })
}

impl Drop for LocalCluster {
    /// The directory is removed afterwards.
    fn drop(&mut self) {
        for node in &self.nodes {
            node.kill();
        }
        for node in &self.nodes {
            node.wait_until_it_is_gone();
        }
        let (brokers, dirs) = &mut *running();
        for node in &self.nodes {
            brokers.remove(&node.id());
        }
        dirs.remove(self.dir.path());
    }
}

impl Node {
    fn locked(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its data is not needed: a clean stop would first write it to disk.
    fn kill(&self) {
        let _ = self.locked().kill();
    }

    /// The process ID.
    fn id(&self) -> u32 {
        self.locked().id()
    }

    fn wait_until_it_is_gone(&self) {
        let began = Instant::now();
        while began.elapsed() < STOP && matches!(self.locked().try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_until_it_answers(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < START {
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(());
            }
            let ended = self.locked().try_wait()?;
            if let Some(status) = ended {
                bail!(
                    "a broker ended at its start ({status}):\n{}",
                    self.output_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!(
            "a broker did not answer in {} s:\n{}",
            START.as_secs(),
            self.output_tail()
        )
    }

    fn output_tail(&self) -> String {
        let text = std::fs::read(&self.output).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// How to run a broker.
enum Program {
    Ottla(PathBuf),
    Kafka(KafkaArtefacts),
}

impl Program {
    fn find(spec: &TargetSpec) -> Result<Program> {
        match spec {
            TargetSpec::Ottla { binary } => Ok(Program::Ottla(binary.clone())),
            TargetSpec::Kafka => Ok(Program::Kafka(KafkaArtefacts::find()?)),
            TargetSpec::Remote { bootstrap, .. } => bail!("{bootstrap} runs already"),
        }
    }

    fn description(&self) -> String {
        match self {
            Program::Ottla(_) => format!("Ottla {}", env!("CARGO_PKG_VERSION")),
            Program::Kafka(artefacts) => format!("Apache Kafka {}", artefacts.version),
        }
    }

    fn format(&self, config: &Path, id: usize) -> Result<()> {
        let mut command = match self {
            Program::Ottla(binary) => {
                let mut command = Command::new(binary);
                command.args(["storage", "format"]);
                command
            }
            Program::Kafka(artefacts) => {
                let mut command = Command::new("java");
                command
                    .args(["-XX:TieredStopAtLevel=1", "-cp", &artefacts.class_path])
                    .args(["kafka.tools.StorageTool", "format"]);
                command
            }
        };
        if id == 1 {
            command.arg("--standalone");
        }
        command.args(["-t", CLUSTER_ID, "-c"]).arg(config);
        let output = command
            .output()
            .with_context(|| format!("{} cannot be started", self.description()))?;
        if !output.status.success() {
            bail!(
                "{} cannot format its directory: {}",
                self.description(),
                reason_in(&output, config)
            );
        }
        Ok(())
    }

    fn command(&self, config: &Path, dir: &Path) -> Result<Command> {
        Ok(match self {
            Program::Ottla(binary) => {
                let mut command = Command::new(binary);
                command.arg("server").arg(config);
                command
            }
            Program::Kafka(artefacts) => {
                let logging = dir.join("log4j2.properties");
                std::fs::write(&logging, LOGGING)?;
                let mut command = Command::new("java");
                // The defaults of kafka-server-start.sh.
                command
                    .args(["-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC"])
                    .args([
                        "-XX:MaxGCPauseMillis=20",
                        "-XX:InitiatingHeapOccupancyPercent=35",
                    ])
                    .args([
                        "-XX:+ExplicitGCInvokesConcurrent",
                        "-Djava.awt.headless=true",
                    ])
                    .arg(format!("-Dkafka.logs.dir={}", dir.display()))
                    .arg(format!("-Dlog4j2.configurationFile={}", logging.display()))
                    .args(["-cp", &artefacts.class_path, "kafka.Kafka"])
                    .arg(config);
                command
            }
        })
    }
}

/// Why a program failed, in one line: from its standard error, otherwise from its standard output,
/// without Java stack traces and without the path of the temporary configuration.
fn reason_in(output: &Output, config: &Path) -> String {
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let said = |line: &&str| !line.is_empty() && !line.starts_with("at ");
        let lines: Vec<&str> = text.lines().map(str::trim).filter(said).collect();
        lines.join("; ")
    };
    let said = match text(&output.stderr) {
        said if said.is_empty() => text(&output.stdout),
        said => said,
    };
    let config = config.display().to_string();
    match said.split_once(&config) {
        Some((before, after)) => {
            let after = after.split_once(": ").map_or(after, |(_, after)| after);
            format!("{before}{after}")
        }
        None if said.is_empty() => output.status.to_string(),
        None => said,
    }
}

const LOGGING: &str = "rootLogger.level=WARN\n\
    rootLogger.appenderRef.stdout.ref=STDOUT\n\
    appender.stdout.type=Console\n\
    appender.stdout.name=STDOUT\n\
    appender.stdout.layout.type=PatternLayout\n\
    appender.stdout.layout.pattern=[%d] %p %m (%c)%n\n";

/// The configuration of one node; the first is also the controller.
fn properties(
    id: usize,
    brokers: usize,
    port: u16,
    controller: u16,
    data: &Path,
    settings: &BTreeMap<String, String>,
) -> String {
    let replicas = brokers.min(3);
    let mut lines = vec![
        format!("node.id={id}"),
        format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
        "controller.listener.names=CONTROLLER".to_owned(),
        "inter.broker.listener.name=PLAINTEXT".to_owned(),
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned(),
        format!("advertised.listeners=PLAINTEXT://127.0.0.1:{port}"),
        format!("log.dirs={}", data.display()),
        format!("offsets.topic.replication.factor={replicas}"),
        format!("transaction.state.log.replication.factor={replicas}"),
        format!("transaction.state.log.min.isr={}", replicas.min(2)),
        format!("share.coordinator.state.topic.replication.factor={replicas}"),
        "share.coordinator.state.topic.min.isr=1".to_owned(),
        // Otherwise the data of the last minute would still occupy disk space.
        "log.segment.delete.delay.ms=100".to_owned(),
    ];
    match id {
        1 => lines.extend([
            "process.roles=broker,controller".to_owned(),
            format!("listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"),
        ]),
        _ => lines.extend([
            "process.roles=broker".to_owned(),
            format!("listeners=PLAINTEXT://127.0.0.1:{port}"),
        ]),
    }
    // The last line of a key takes effect.
    lines.extend(settings.iter().map(|(key, value)| format!("{key}={value}")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_first_node_leads_and_settings_come_last() {
        let settings = BTreeMap::from([("num.io.threads".to_owned(), "8".to_owned())]);
        let first = properties(1, 3, 5, 6, Path::new("d"), &settings);
        assert!(first.contains("process.roles=broker,controller\n"));
        assert!(first.ends_with("num.io.threads=8\n"));
        let second = properties(2, 3, 7, 6, Path::new("d"), &settings);
        assert!(second.contains("process.roles=broker\n") && !second.contains("CONTROLLER://"));
        assert!(second.contains("offsets.topic.replication.factor=3\n"));
    }

    #[test]
    fn files_of_a_topic_are_found_until_they_are_gone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("t-10-0")).unwrap();
        assert!(!has_files_of(dir.path(), "t-1"));
        std::fs::create_dir(dir.path().join("t-1-0.0123456789abcdef-delete")).unwrap();
        assert!(has_files_of(dir.path(), "t-1"));
        assert!(!has_files_of(&dir.path().join("none"), "t-1"));
    }

    #[test]
    fn a_failure_is_one_line_without_traces_and_files_that_are_gone() {
        let output = |stdout: &str, stderr: &str| Output {
            status: ExitStatusExt::from_raw(256),
            stdout: stdout.into(),
            stderr: stderr.into(),
        };
        let config = Path::new("/t/server.properties");
        let refused = "/t/server.properties line 15: log.segment.bytes=abc: not a number\n";
        assert_eq!(
            reason_in(&output("", refused), config),
            "log.segment.bytes=abc: not a number"
        );
        let trace = "Exception: Invalid value\n\tat a.B.c(B.java:5)\nCaused by: x\n\tat d\n";
        assert_eq!(
            reason_in(&output("Formatting", trace), config),
            "Exception: Invalid value; Caused by: x"
        );
        assert_eq!(reason_in(&output("", ""), config), "exit status: 1");
    }

    #[test]
    fn a_broker_that_ends_at_its_start_says_why_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let needs = BrokerRequirements {
            brokers: 1,
            dir: Some(dir.path().to_owned()),
            ..BrokerRequirements::default()
        };
        let spec = TargetSpec::Ottla {
            binary: PathBuf::from("/bin/false"),
        };
        let error = LocalCluster::start(&spec, &needs).err().expect("refused");
        assert!(error.to_string().contains("cannot format"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
