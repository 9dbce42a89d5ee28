//! A running node of a peer: its folder, ports, process and output.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_ports::lease_range;
use rustix::process::Signal;

use super::description::{InstalledPeer, fill_in};
use super::probe::{self, Served};
use super::{archive, reference};
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::workspace;

/// The 16 bytes of "OttlaConformance" in Kafka's UUID encoding.
const CLUSTER_ID: &str = "T3R0bGFDb25mb3JtYW5jZQ";
/// Kafka takes a minute to start on two busy cores, and several minutes to recover thousands of
/// logs.
const START_PATIENCE: Duration = Duration::from_secs(600);
const STOP_PATIENCE: Duration = Duration::from_secs(180);
/// A start of less than this is measured to a millisecond, a longer one to a hundredth of a second.
const QUICK_START: Duration = Duration::from_secs(1);

/// Settings of a broker with which members of consumer and share groups soon get their assignments:
/// the partitions of a new share group come with its second heartbeat, by default after 5 s.
pub const QUICK_HEARTBEATS: [(&str, &str); 4] = [
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.heartbeat.interval.ms", "500"),
    ("group.share.min.heartbeat.interval.ms", "500"),
    ("group.share.heartbeat.interval.ms", "500"),
];

/// Where and how to run a node.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Holds configuration, data and output. An earlier run's data is reused.
    pub dir: PathBuf,
    /// The port of the client listener; the controller listens on the next one. Free ports are
    /// chosen by default.
    pub port: Option<u16>,
    /// Settings on top of `peers/server.properties`.
    pub overrides: Vec<(String, String)>,
    /// Feature levels `NAME=LEVEL` for formatting an empty directory; the peer's defaults
    /// otherwise.
    pub features: Vec<String>,
    /// SCRAM credentials for formatting an empty directory, as `--add-scram` takes them.
    pub scram: Vec<String>,
    /// The listener at the port expects TLS. The node counts as started when it refuses a request
    /// without TLS there.
    pub is_port_secured: bool,
    pub place: Place,
    /// Environment variables of the broker.
    pub environment: Vec<(String, String)>,
    /// A program with arguments that executes the broker, for example in another namespace.
    pub launcher: Vec<String>,
}

/// The node's role in its cluster.
#[derive(Debug, Clone, Default)]
pub enum Place {
    /// Broker and controller, in a dynamic quorum of one.
    #[default]
    Alone,
    /// The same in a quorum of static voters (`controller.quorum.voters`, `kraft.version` 0).
    AloneWithStaticVoters,
    /// One of several nodes.
    Member {
        node_id: i32,
        role: Role,
        voters: Voters,
    },
}

/// The voters of a quorum with several nodes.
#[derive(Debug, Clone)]
pub enum Voters {
    /// The value of `controller.quorum.voters`.
    Static(String),
    /// The voters in the metadata log (KIP-853).
    Dynamic {
        /// The value of `controller.quorum.bootstrap.servers`.
        bootstrap: String,
        /// Whether this node's empty directory is formatted for the only voter. Other voters are
        /// added later.
        is_first: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Broker,
    Controller,
    /// Both in one process; the controller listens on the next port.
    Combined,
}

impl Place {
    fn has_static_voters(&self) -> bool {
        match self {
            Place::Alone => false,
            Place::AloneWithStaticVoters => true,
            Place::Member { voters, .. } => matches!(voters, Voters::Static(_)),
        }
    }

    /// The option of `storage format` that determines the voters.
    fn format_flag(&self) -> Option<&'static str> {
        match self {
            Place::Alone => Some("--standalone"),
            Place::AloneWithStaticVoters => None,
            Place::Member { role, voters, .. } => match voters {
                Voters::Static(_) => None,
                Voters::Dynamic { is_first: true, .. } => Some("--standalone"),
                Voters::Dynamic { .. } if *role == Role::Broker => None,
                Voters::Dynamic { .. } => Some("--no-initial-controllers"),
            },
        }
    }

    /// Settings that replace lines of `peers/server.properties`.
    fn settings(&self, port: u16) -> Vec<(&'static str, String)> {
        let Place::Member {
            node_id,
            role,
            voters,
        } = self
        else {
            return Vec::new();
        };
        let of_broker = format!("PLAINTEXT://127.0.0.1:{port}");
        let (name, listeners, advertised) = match role {
            Role::Broker => ("broker", of_broker.clone(), of_broker),
            Role::Controller => {
                let listener = format!("CONTROLLER://127.0.0.1:{port}");
                ("controller", listener.clone(), listener)
            }
            Role::Combined => {
                let of_controller = format!("CONTROLLER://127.0.0.1:{}", port + 1);
                let both = format!("{of_broker},{of_controller}");
                ("broker,controller", both, of_broker)
            }
        };
        let of_quorum = match voters {
            Voters::Static(voters) => ("controller.quorum.voters", voters),
            Voters::Dynamic { bootstrap, .. } => ("controller.quorum.bootstrap.servers", bootstrap),
        };
        vec![
            ("node.id", node_id.to_string()),
            ("process.roles", name.to_owned()),
            ("listeners", listeners),
            ("advertised.listeners", advertised),
            (of_quorum.0, of_quorum.1.clone()),
        ]
    }
}

/// Options of the JVMs of a node in a suite, besides those of the peer's file.
#[derive(Debug, Clone, Default)]
struct JvmOptions {
    /// Of the one that formats the data directory.
    format: Vec<String>,
    start: Vec<String>,
}

/// A started broker. It is killed on drop unless it was stopped.
#[derive(Debug)]
pub struct Node {
    child: OwnedChild,
    dir: PathBuf,
    port: u16,
    began: Instant,
    time_to_first_answer: Duration,
}

impl InstalledPeer {
    /// Writes the node's configuration, formats its data directory if that is empty, starts the
    /// node, and returns when it has answered an ApiVersions request, or refused it for want of TLS.
    pub fn start(&self, options: NodeOptions) -> Result<Node> {
        self.start_with(options, &self.jvm_options()?)
    }

    fn start_with(&self, options: NodeOptions, jvms: &JvmOptions) -> Result<Node> {
        let is_up = match options.is_port_secured {
            true => probe::refuses_plaintext,
            false => probe::answers,
        };
        let (mut child, port, dir) = self.launch(options, jvms)?;
        let began = Instant::now();
        loop {
            if is_up(port) {
                let time_to_first_answer = began.elapsed();
                return Ok(Node {
                    child,
                    dir,
                    port,
                    began,
                    time_to_first_answer,
                });
            }
            if let Some(status) = child.try_wait()? {
                bail!(
                    "{} ended at its start ({status}):\n{}",
                    self.name(),
                    process::tail(&output_file(&dir))
                );
            }
            if began.elapsed() > START_PATIENCE {
                bail!(
                    "{} did not answer in {START_PATIENCE:?}:\n{}",
                    self.name(),
                    process::tail(&output_file(&dir))
                );
            }
            // A thousand attempts per second for the whole start of a JVM would cost more than they
            // measure.
            let pause = match began.elapsed() < QUICK_START {
                true => Duration::from_millis(1),
                false => Duration::from_millis(10),
            };
            std::thread::sleep(pause);
        }
    }

    /// Starts a node that is expected to refuse to start. Returns its exit status and output.
    pub fn start_refused(&self, options: NodeOptions) -> Result<(ExitStatus, String)> {
        let (mut child, _, dir) = self.launch(options, &self.jvm_options()?)?;
        match child.wait(START_PATIENCE)? {
            Some(status) => Ok((status, std::fs::read_to_string(output_file(&dir))?)),
            None => bail!(
                "{} was expected to refuse to start, and runs:\n{}",
                self.name(),
                process::tail(&output_file(&dir))
            ),
        }
    }

    /// None outside suites. The first node of a clone also makes the archive, by starting and stopping
    /// another one.
    fn jvm_options(&self) -> Result<JvmOptions> {
        let Some(of_tools) = self.archive() else {
            return Ok(JvmOptions::default());
        };
        let libs = of_tools.parent().context("the folder of the jars")?;
        let of_brokers = match self.folder() {
            reference::KAFKA => archive::of_brokers(of_tools, |unfinished| {
                self.archive_classes(libs, of_tools, unfinished)
                    .context("cannot archive the classes of a broker")
            })?,
            // Making an archive costs more than the few brokers of other versions save.
            _ => None,
        };
        let options = archive::options(of_brokers.as_deref().unwrap_or(of_tools));
        Ok(JvmOptions {
            format: options.clone(),
            start: options,
        })
    }

    /// Archives the classes that a broker has loaded when it stops after its start.
    fn archive_classes(&self, libs: &Path, of_tools: &Path, archive: &Path) -> Result<()> {
        // An archive fits every class path that begins with the one for which it was made.
        let plain = self.with_only_jars(libs)?;
        let jvms = JvmOptions {
            format: archive::options(of_tools),
            start: archive::options_to_make(archive),
        };
        let dir = libs.with_file_name("archived");
        workspace::make_empty(&dir)?;
        let node = NodeOptions {
            dir,
            ..NodeOptions::default()
        };
        let status = plain.start_with(node, &jvms)?.stop()?;
        ensure!(is_orderly(status), "it ended with {status}");
        Ok(())
    }

    fn launch(
        &self,
        options: NodeOptions,
        jvms: &JvmOptions,
    ) -> Result<(OwnedChild, u16, PathBuf)> {
        let NodeOptions {
            dir,
            port,
            overrides,
            features,
            scram,
            is_port_secured: _,
            place,
            environment,
            launcher,
        } = options;
        std::fs::create_dir_all(&dir)?;
        let dir = dir.canonicalize()?;
        let port = match port {
            Some(port) => port,
            None => lease_range(2)?,
        };
        let config = dir.join("server.properties");
        let places = BTreeMap::from([
            ("port", port.to_string()),
            ("controller_port", (port + 1).to_string()),
            ("dir", dir.display().to_string()),
            ("config", config.display().to_string()),
            ("cluster_id", CLUSTER_ID.to_owned()),
        ]);
        let template = workspace::root().join("peers/server.properties");
        let template = std::fs::read_to_string(template).context("peers/server.properties")?;
        let mut properties = fill_in(&template, &places);
        if place.has_static_voters() {
            properties = properties.replace(
                "controller.quorum.bootstrap.servers=",
                "controller.quorum.voters=1@",
            );
        }
        let of_place = place.settings(port);
        let of_place = of_place.iter().map(|(key, value)| (*key, value));
        let of_peer = self.settings().iter().map(|(key, value)| (&**key, value));
        let asked_for = overrides.iter().map(|(key, value)| (&**key, value));
        for (key, value) in of_place.chain(of_peer).chain(asked_for) {
            // The last line of a key takes effect, in Java's reader and in Ottla's.
            properties.push_str(&format!("{key}={value}\n"));
        }
        std::fs::write(&config, &properties)?;

        let log_dirs = overrides.iter().find(|(key, _)| key == "log.dirs");
        let first_log_dir = match log_dirs {
            Some((_, dirs)) => PathBuf::from(dirs.split(',').next().unwrap_or_default()),
            None => dir.join("data"),
        };
        if !first_log_dir.join("meta.properties").exists() {
            let mut format = self.format_command(&places, place.format_flag(), &jvms.format)?;
            for feature in &features {
                format.args(["--feature", feature]);
            }
            for credential in &scram {
                format.args(["--add-scram", credential]);
            }
            process::output_of(&mut format)
                .with_context(|| format!("cannot format a data directory of {}", self.name()))?;
        }
        let output = File::create(output_file(&dir))?;
        let mut command = process::started_by(&launcher, self.start_command(&places, &jvms.start));
        command
            .current_dir(&dir)
            .envs(environment)
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(output);
        Ok((OwnedChild::start(&mut command)?, port, dir))
    }
}

impl Node {
    /// Client address, `host:port`.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log directory in `peers/server.properties`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The time from process start to the first ApiVersions response.
    pub fn time_to_first_answer(&self) -> Duration {
        self.time_to_first_answer
    }

    /// Waits until at least this many partitions have leaders that answer. Returns the time since
    /// process start, and the served partitions and topics.
    pub fn wait_until_served(&mut self, partitions: usize) -> Result<(Duration, Served)> {
        let mut last = None;
        while self.began.elapsed() < START_PATIENCE {
            // A busy starting broker may not answer in time; the request is then retried.
            match probe::served(self.port) {
                Ok(Some(served)) if served.partitions >= partitions => {
                    return Ok((self.began.elapsed(), served));
                }
                other => last = Some(other),
            }
            if let Some(status) = self.ended()? {
                bail!("the broker ended ({status}):\n{}", self.output_tail());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!(
            "{partitions} partitions are not served, but {last:?}:\n{}",
            self.output_tail()
        );
    }

    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The end of the broker's output.
    pub fn output_tail(&self) -> String {
        process::tail(&output_file(&self.dir))
    }

    /// Pauses the process (SIGSTOP) until [`Node::resume`]; its connections stay open.
    pub fn pause(&mut self) -> Result<()> {
        self.child.signal(Signal::STOP)
    }

    pub fn resume(&mut self) -> Result<()> {
        self.child.signal(Signal::CONT)
    }

    /// Kills the process with SIGKILL, as in a crash.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()
    }

    /// Stops the broker with SIGTERM. It is an error if it does not exit in time.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.child.stop(STOP_PATIENCE)
    }
}

/// Whether a node that was asked to stop has done so.
pub fn is_orderly(status: ExitStatus) -> bool {
    // A JVM exits with 128 + SIGTERM.
    status.success() || status.code() == Some(143)
}

fn output_file(dir: &Path) -> PathBuf {
    dir.join("output.log")
}

/// The value parser of `--override KEY=VALUE`.
pub fn parse_override(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_needs_a_key() {
        assert_eq!(
            parse_override("a=b=c"),
            Ok(("a".to_owned(), "b=c".to_owned()))
        );
        assert!(parse_override("a").is_err());
        assert!(parse_override("=a").is_err());
    }
}
