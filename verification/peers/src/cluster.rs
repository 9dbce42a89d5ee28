//! A cluster of several nodes: controllers and brokers, each a process and of any peer.
//!
//! A cluster is first planned, which assigns folders, ports and the controllers' address, and then
//! started, so that a caller can change a node's properties in between.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ottla_ports::lease_range;

use super::{InstalledPeer, Node, NodeOptions, Peer, Place, Role, Voters, is_orderly, probe};

/// Brokers are numbered from 1, controllers from this ID.
const FIRST_CONTROLLER: i32 = 101;
/// The number of lines of each node in a report of a failure, and the length at which they are cut.
const COMPLAINTS: usize = 8;
const COMPLAINT_CHARS: usize = 400;
/// More than a broker started on two busy cores takes until its replicas are in sync.
const SYNC_PATIENCE: Duration = Duration::from_secs(180);

/// A node that can be restarted on its directory.
pub struct Member {
    /// The peer that formatted the directory.
    pub first: InstalledPeer,
    /// The peer that runs, or ran last.
    pub peer: InstalledPeer,
    /// The peer of the next start.
    pub next: InstalledPeer,
    pub options: NodeOptions,
    /// `None` while the node is down.
    pub node: Option<Node>,
    pub node_id: i32,
    pub port: u16,
}

impl Member {
    fn new(peer: &InstalledPeer, options: NodeOptions, node_id: i32, port: u16) -> Member {
        Member {
            first: peer.clone(),
            peer: peer.clone(),
            next: peer.clone(),
            options,
            node: None,
            node_id,
            port,
        }
    }

    pub fn name(&self) -> String {
        let role = match &self.options.place {
            Place::Member {
                role: Role::Controller,
                ..
            } => "controller",
            _ => "broker",
        };
        format!("{role} {} ({})", self.node_id, self.peer.name())
    }

    /// The last warnings, errors and refusals in the node's outputs, including earlier runs, each
    /// after the name of its file.
    fn complaints(&self) -> Result<Vec<String>> {
        let mut outputs = Vec::new();
        for entry in std::fs::read_dir(&self.options.dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("output") && name.ends_with(".log") {
                outputs.push(name);
            }
        }
        // `output-0.log`, `output-1.log` and so on, and then `output.log`.
        outputs.sort_by_key(|name| (name == "output.log", name.len(), name.clone()));
        let mut complaints = Vec::new();
        for name in outputs {
            let text = std::fs::read(self.options.dir.join(&name))?;
            let text = String::from_utf8_lossy(&text);
            let found = text.lines().filter(|line| is_complaint(line));
            complaints.extend(found.map(|line| {
                let line: String = line.chars().take(COMPLAINT_CHARS).collect();
                format!("{name}: {line}")
            }));
        }
        Ok(complaints.split_off(complaints.len().saturating_sub(COMPLAINTS)))
    }

    /// Adds lines to the node's properties, effective at the next start.
    pub fn set(&mut self, settings: &[(&str, String)]) {
        let settings = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()));
        self.options.overrides.extend(settings);
    }

    /// The log directories in the node's properties.
    pub fn log_dirs(&self) -> Vec<PathBuf> {
        let given = self
            .options
            .overrides
            .iter()
            .rfind(|(key, _)| key == "log.dirs");
        match given {
            Some((_, dirs)) => dirs.split(',').map(PathBuf::from).collect(),
            None => vec![self.options.dir.join("data")],
        }
    }

    /// The path of a partition's replica (`t-0`); `None` if the broker has none.
    pub fn partition_dir(&self, partition: &str) -> Option<PathBuf> {
        let mut folders = self
            .log_dirs()
            .into_iter()
            .map(|log_dir| log_dir.join(partition));
        folders.find(|folder| folder.is_dir())
    }

    /// The path of the node's properties file.
    pub fn properties(&self) -> PathBuf {
        self.options.dir.join("server.properties")
    }

    /// Starts the node. The output of an earlier run is kept under another name.
    pub fn start(&mut self) -> Result<()> {
        let output = self.options.dir.join("output.log");
        if output.exists() {
            let kept = format!("output-{}.log", kept_outputs(&self.options.dir)?);
            std::fs::rename(output, self.options.dir.join(kept))?;
        }
        self.peer = self.next.clone();
        let started = self.peer.start(self.options.clone());
        self.node = Some(started.with_context(|| self.name())?);
        Ok(())
    }

    /// Takes the running process out.
    pub fn take(&mut self) -> Result<Node> {
        let name = self.name();
        self.node
            .take()
            .with_context(|| format!("{name} does not run"))
    }
}

/// Whether a line in the log of a broker of either maker says that something went wrong, or that
/// somebody was refused.
fn is_complaint(line: &str) -> bool {
    const MARKS: [&str; 7] = [
        " WARN ",
        " ERROR ",
        "\"level\":\"WARN\"",
        "\"level\":\"ERROR\"",
        "Failed authentication",
        "connection closed",
        "is Denied",
    ];
    MARKS.iter().any(|mark| line.contains(mark))
}

/// The number of outputs that were kept of a node.
fn kept_outputs(dir: &Path) -> Result<usize> {
    let mut kept = 0;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        kept += usize::from(name.to_string_lossy().starts_with("output-"));
    }
    Ok(kept)
}

/// How the voters of the quorum are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quorum {
    /// All controllers, with `controller.quorum.voters`.
    Static,
    /// Initially only the first controller; the others can be added (KIP-853).
    Dynamic,
}

pub struct Cluster {
    pub controllers: Vec<Member>,
    pub brokers: Vec<Member>,
}

impl Cluster {
    /// Plans a cluster of these peers (names of files in `peers/`); the settings apply to every
    /// node. Without controllers the brokers are combined nodes.
    pub fn plan(
        brokers: &[String],
        controllers: &[String],
        dir: &Path,
        settings: &[(&str, String)],
    ) -> Result<Cluster> {
        Cluster::plan_with(Quorum::Static, brokers, controllers, dir, settings)
    }

    pub fn plan_with(
        quorum: Quorum,
        brokers: &[String],
        controllers: &[String],
        dir: &Path,
        settings: &[(&str, String)],
    ) -> Result<Cluster> {
        let installed = |names: &[String]| -> Result<Vec<InstalledPeer>> {
            let peers = names.iter().map(|name| Peer::load(name)?.install());
            peers.collect()
        };
        Cluster::of_peers(
            quorum,
            installed(brokers)?,
            installed(controllers)?,
            dir,
            settings,
        )
    }

    /// The same, of peers that are installed.
    pub fn of_peers(
        quorum: Quorum,
        brokers: Vec<InstalledPeer>,
        controllers: Vec<InstalledPeer>,
        dir: &Path,
        settings: &[(&str, String)],
    ) -> Result<Cluster> {
        let with_ports = |peers: Vec<InstalledPeer>| -> Result<Vec<(InstalledPeer, u16)>> {
            let peers = peers.into_iter();
            peers.map(|peer| Ok((peer, lease_range(2)?))).collect()
        };
        let (controllers, brokers) = (with_ports(controllers)?, with_ports(brokers)?);
        let (first_voter, controller_ports): (_, Vec<u16>) = if controllers.is_empty() {
            (1, brokers.iter().map(|(_, port)| port + 1).collect())
        } else {
            let ports = controllers.iter().map(|(_, port)| *port);
            (FIRST_CONTROLLER, ports.collect())
        };
        let broker_role = if controllers.is_empty() {
            Role::Combined
        } else {
            Role::Broker
        };
        let voters_known_to = |node_id| match quorum {
            Quorum::Static => {
                let voters = (first_voter..).zip(&controller_ports);
                let voters = voters.map(|(id, port)| format!("{id}@127.0.0.1:{port}"));
                Voters::Static(voters.collect::<Vec<_>>().join(","))
            }
            Quorum::Dynamic => {
                let addresses = controller_ports
                    .iter()
                    .map(|port| format!("127.0.0.1:{port}"));
                Voters::Dynamic {
                    bootstrap: addresses.collect::<Vec<_>>().join(","),
                    is_first: node_id == first_voter,
                }
            }
        };
        let member = |peer: &InstalledPeer, role, node_id: i32, port| {
            let options = NodeOptions {
                dir: dir.join(match role {
                    Role::Broker | Role::Combined => format!("broker-{node_id}"),
                    Role::Controller => format!("controller-{node_id}"),
                }),
                port: Some(port),
                place: Place::Member {
                    node_id,
                    role,
                    voters: voters_known_to(node_id),
                },
                ..NodeOptions::default()
            };
            let mut member = Member::new(peer, options, node_id, port);
            member.set(settings);
            member
        };
        let controllers = controllers
            .iter()
            .zip(FIRST_CONTROLLER..)
            .map(|((peer, port), id)| member(peer, Role::Controller, id, *port))
            .collect();
        let brokers = brokers
            .iter()
            .zip(1..)
            .map(|((peer, port), id)| member(peer, broker_role, id, *port))
            .collect();
        Ok(Cluster {
            controllers,
            brokers,
        })
    }

    fn is_combined(&self) -> bool {
        self.controllers.is_empty()
    }

    /// Starts the controllers, then the brokers. Combined nodes are started together, since each
    /// waits for the others.
    pub fn start(&mut self) -> Result<()> {
        if !self.is_combined() {
            let mut members = self.controllers.iter_mut().chain(&mut self.brokers);
            return members.try_for_each(Member::start);
        }
        std::thread::scope(|scope| {
            let start = |broker| scope.spawn(|| Member::start(broker));
            let starts: Vec<_> = self.brokers.iter_mut().map(start).collect();
            starts.into_iter().try_for_each(|start| {
                let outcome = start.join();
                outcome.unwrap_or_else(|_| bail!("the start of a broker panicked"))
            })
        })
    }

    /// The addresses of all brokers for clients, including those that are down.
    pub fn bootstrap(&self) -> String {
        addresses(&self.brokers)
    }

    pub fn controllers_bootstrap(&self) -> String {
        addresses(&self.controllers)
    }

    pub fn running(&self) -> impl Iterator<Item = &Member> + Clone {
        self.brokers.iter().filter(|broker| broker.node.is_some())
    }

    /// Waits until every running broker reports this many in-sync replicas of a topic; returns how
    /// long that took.
    pub fn wait_until_in_sync(&self, topic: &str, replicas: usize) -> Result<Duration> {
        let began = Instant::now();
        while began.elapsed() < SYNC_PATIENCE {
            let says_so = |broker: &Member| {
                probe::fewest_in_sync(broker.port, topic).is_ok_and(|fewest| fewest == replicas)
            };
            if self.running().all(says_so) {
                return Ok(began.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the replicas of {topic} are not in sync after {SYNC_PATIENCE:?}");
    }

    /// The last complaints of every node, for the report of a failed run.
    pub fn complaints(&self) -> String {
        let mut report = String::new();
        for member in self.controllers.iter().chain(&self.brokers) {
            report.push_str(&format!("{} logged last:\n", member.name()));
            match member.complaints() {
                Ok(complaints) => complaints
                    .iter()
                    .for_each(|line| report.push_str(&format!("    {line}\n"))),
                Err(error) => report.push_str(&format!("    its output cannot be read: {error}\n")),
            }
        }
        report
    }

    /// Stops the running nodes, brokers first, and returns a line about each that did not stop
    /// orderly. Of combined nodes, the last ones are killed once they are too few for a quorum:
    /// without one, a Kafka node waits five minutes for its controlled shutdown.
    pub fn stop(&mut self) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let (is_combined, brokers) = (self.is_combined(), self.brokers.len());
        let members = self.brokers.iter_mut().chain(&mut self.controllers);
        for (index, member) in members.enumerate() {
            let Some(mut node) = member.node.take() else {
                continue;
            };
            if is_combined && brokers - index <= brokers / 2 {
                node.kill()?;
                continue;
            }
            let status = node.stop()?;
            if !is_orderly(status) {
                wrong.push(format!("{} ended with {status}", member.name()));
            }
        }
        Ok(wrong)
    }
}

fn addresses(members: &[Member]) -> String {
    let addresses = members
        .iter()
        .map(|member| format!("127.0.0.1:{}", member.port));
    addresses.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complaints_of_both_brokers_are_found() {
        let complaints = [
            "[2026-11-26 04:22:16,000] WARN [SocketServer] Failed authentication (x.Selector)",
            "[2026-11-26 04:22:16,000] INFO Principal = User:w is Denied operation = READ (kafka.authorizer.logger)",
            r#"{"timestamp":"2026-11-26T04:22:16Z","level":"ERROR","message":"x"}"#,
            r#"{"level":"INFO","message":"connection closed: no such user","target":"ottla_net"}"#,
        ];
        assert!(complaints.iter().all(|line| is_complaint(line)));
        assert!(!is_complaint(
            "[2026-11-26 04:22:16,000] INFO Kafka Server started (x.K)"
        ));
        assert!(!is_complaint(
            r#"{"level":"INFO","message":"a new leader"}"#
        ));
    }
}
