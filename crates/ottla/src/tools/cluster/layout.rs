//! The nodes of a local cluster and their files: `cluster.properties`, and a directory for each
//! node with its `server.properties` and its data.
//!
//! `cluster.properties` is written first and never changed. Everything else is derived from it, so
//! an interrupted start can be resumed, and a start on the same directory is a start of the same
//! cluster. A node's `server.properties` belongs to the user after it is created.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use ottla_config::{BrokerConfig, Properties, property_line};
use ottla_metadata::MetadataVersion;
use ottla_ports::LeasedElsewhere;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_storage::format::{FormatOptions, InitialController, InitialQuorum, format};
use ottla_storage::random_uuid;
use ottla_types::{BrokerId, Uuid};

use super::secured::Secured;
use crate::owner_file::write_for_owner;
use crate::port_user;

const CLUSTER_FILE: &str = "cluster.properties";
const LOCK_FILE: &str = ".cluster.lock";
const HOST: &str = "127.0.0.1";
/// A quorum of three tolerates the loss of one voter; more voters would slow it down.
const MOST_COMBINED: u16 = 3;
/// Node IDs of separate controllers start here.
const FIRST_CONTROLLER: u16 = 101;
/// How to resolve a port in use, for a new cluster and for an existing one.
const WAY_OUT_NEW: &str = "give other ports with --port PORT (0 for free ports)";
const WAY_OUT_EXISTING: &str =
    "start another cluster with --dir DIRECTORY --port 0, because this one keeps its ports";

/// The command-line options; an absent one keeps the cluster's value, or the default of a new
/// cluster.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub brokers: Option<u16>,
    pub controllers: Option<u16>,
    pub port: Option<u16>,
    /// Whether to use TLS, SASL users and ACLs.
    pub is_secure: bool,
}

impl Wanted {
    const BROKERS: u16 = 3;
    const PORT: u16 = 9092;
}

/// A local cluster on disk, locked while this value exists.
#[derive(Debug)]
pub struct Layout {
    pub dir: PathBuf,
    pub cluster_id: String,
    pub nodes: Vec<NodeLayout>,
    /// Whether free ports were requested for a cluster that already has ports.
    pub keeps_ports: bool,
    /// Ports that another process may take while a node is down.
    pub warnings: Vec<String>,
    /// The security set-up, if any.
    pub secured: Option<Secured>,
    _lock: File,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeLayout {
    pub id: u16,
    /// The client port; `None` for a node that is not a broker.
    pub port: Option<u16>,
    /// The controller port; `None` for a node that is not a controller.
    pub controller_port: Option<u16>,
    /// The directory ID, which distinguishes a voter from the same node with a new disk.
    directory_id: Uuid,
}

impl NodeLayout {
    pub fn roles(&self) -> &'static str {
        match (self.port, self.controller_port) {
            (Some(_), Some(_)) => "broker, controller",
            (Some(_), None) => "broker",
            (None, _) => "controller",
        }
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        self.port.into_iter().chain(self.controller_port)
    }
}

impl Layout {
    /// Opens the cluster in a directory, or creates one.
    pub fn open(dir: &Path, wanted: Wanted) -> Result<Layout, String> {
        let at = |error: std::io::Error| {
            format!(
                "{}: {error}; give another directory with --dir",
                dir.display()
            )
        };
        let file = dir.join(CLUSTER_FILE);
        if !file.exists() && is_inhabited(dir).map_err(at)? {
            return Err(format!(
                "{} is not empty and does not contain a cluster created by `ottla cluster start`; \
                 give another directory with --dir",
                dir.display()
            ));
        }
        // Ports are checked before anything is written, because a cluster keeps its ports.
        let is_old = file.exists();
        let mut warnings = Vec::new();
        let new = if is_old {
            None
        } else {
            let nodes = new_nodes(wanted)?;
            warnings = take_ports(&nodes, WAY_OUT_NEW)?;
            Some(Written {
                cluster_id: random_uuid().to_string(),
                is_secure: wanted.is_secure,
                nodes,
            })
        };
        fs::create_dir_all(dir).map_err(at)?;
        let dir = &dir.canonicalize().map_err(at)?;
        let lock = take_lock(dir)?;
        let written = match (fs::read_to_string(&file), new) {
            (Ok(text), _) => {
                let read = read(&text, &file).map_err(|reason| {
                    format!(
                        "{}: {reason}; fix it, or give another directory with --dir",
                        file.display()
                    )
                })?;
                check_same(&read, wanted, dir)?;
                warnings = take_ports(&read.nodes, WAY_OUT_EXISTING)?;
                read
            }
            (Err(error), Some(new)) if error.kind() == ErrorKind::NotFound => {
                write_for_owner(&file, &text_of(&new)).map_err(at)?;
                new
            }
            (Err(error), _) => return Err(at(error)),
        };
        let mut layout = Layout {
            keeps_ports: is_old && wanted.port == Some(0),
            warnings,
            dir: dir.clone(),
            cluster_id: written.cluster_id,
            nodes: written.nodes,
            secured: None,
            _lock: lock,
        };
        if written.is_secure {
            let servers = layout.bootstrap_servers();
            let nodes = layout.nodes.iter().map(|node| node.id);
            layout.secured = Some(Secured::open(dir, &servers, nodes)?);
        }
        Ok(layout)
    }

    pub fn brokers(&self) -> impl Iterator<Item = &NodeLayout> {
        self.nodes.iter().filter(|node| node.port.is_some())
    }

    fn controllers(&self) -> impl Iterator<Item = (&NodeLayout, u16)> {
        self.nodes
            .iter()
            .filter_map(|node| Some((node, node.controller_port?)))
    }

    /// The clients' `bootstrap.servers`.
    pub fn bootstrap_servers(&self) -> String {
        let ports = self.brokers().filter_map(|node| node.port);
        let servers: Vec<String> = ports.map(|port| format!("{HOST}:{port}")).collect();
        servers.join(",")
    }

    pub fn node_dir(&self, node: &NodeLayout) -> PathBuf {
        self.dir.join(format!("node-{}", node.id))
    }

    pub fn properties_file(&self, node: &NodeLayout) -> PathBuf {
        self.node_dir(node).join("server.properties")
    }

    /// Writes the configuration files and formats the directories that do not exist yet.
    pub fn prepare(&self) -> Result<(), String> {
        let voters: Vec<InitialController> = self
            .controllers()
            .map(|(node, port)| InitialController {
                id: BrokerId(node.id.into()),
                host: HOST.to_owned(),
                port,
                directory_id: node.directory_id,
            })
            .collect();
        let mut credentials = None;
        for node in &self.nodes {
            let file = self.properties_file(node);
            let at = |error: std::io::Error| format!("{}: {error}", file.display());
            fs::create_dir_all(self.node_dir(node)).map_err(at)?;
            if !file.exists() {
                write_for_owner(&file, &self.server_properties(node)).map_err(at)?;
            }
            let name = file.display().to_string();
            let properties = Properties::parse_bytes(&fs::read(&file).map_err(at)?, &name)
                .map_err(|error| error.to_string())?;
            let (config, _) =
                BrokerConfig::from_properties(&properties).map_err(|error| error.to_string())?;
            let options = FormatOptions {
                cluster_id: self.cluster_id.clone(),
                quorum: match node.controller_port {
                    Some(_) => InitialQuorum::Controllers(voters.clone()),
                    None => InitialQuorum::None,
                },
                metadata_version: MetadataVersion::DEFAULT,
                feature_levels: Default::default(),
                scram_records: match is_formatted(&config) {
                    true => Vec::new(),
                    false => self.credentials(&mut credentials)?,
                },
                ignore_formatted: true,
            };
            format(&config, &options).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The credentials with which every node's directory is formatted. Created once, because
    /// hashing a password takes thousands of iterations.
    fn credentials(
        &self,
        made: &mut Option<Vec<MetadataRecord>>,
    ) -> Result<Vec<MetadataRecord>, String> {
        if made.is_none() {
            let credentials = self.secured.as_ref().map(Secured::credentials);
            *made = Some(credentials.transpose()?.unwrap_or_default());
        }
        Ok(made.clone().unwrap_or_default())
    }

    fn server_properties(&self, node: &NodeLayout) -> String {
        let protocol = match self.secured {
            Some(_) => "SASL_SSL",
            None => "PLAINTEXT",
        };
        let listeners: Vec<String> = [(protocol, node.port), ("CONTROLLER", node.controller_port)]
            .into_iter()
            .filter_map(|(name, port)| Some(format!("{name}://{HOST}:{}", port?)))
            .collect();
        let voters: Vec<String> = self
            .controllers()
            .map(|(_, port)| format!("{HOST}:{port}"))
            .collect();
        let brokers = self.brokers().count();
        let replicas = brokers.min(3);
        // With three replicas one may be down, and acknowledged records are on two.
        let in_sync = if replicas == 3 { 2 } else { 1 };
        format!(
            "# Written once by `ottla cluster start`; edit it freely.\n\
             process.roles={}\n\
             node.id={}\n\
             listeners={}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map={protocol}:{protocol},CONTROLLER:{protocol}\n\
             controller.quorum.bootstrap.servers={}\n{}\
             default.replication.factor={replicas}\n\
             min.insync.replicas={in_sync}\n\
             offsets.topic.replication.factor={replicas}\n\
             transaction.state.log.replication.factor={replicas}\n\
             transaction.state.log.min.isr={in_sync}\n\
             share.coordinator.state.topic.replication.factor={replicas}\n\
             share.coordinator.state.topic.min.isr={in_sync}\n\
             group.initial.rebalance.delay.ms=0\n{}",
            node.roles().replace(", ", ","),
            node.id,
            listeners.join(","),
            voters.join(","),
            property_line(
                "log.dirs",
                &self.node_dir(node).join("data").display().to_string()
            ),
            self.secured
                .as_ref()
                .map_or(String::new(), |secured| secured.node_lines(node.id)),
        )
    }
}

fn is_formatted(config: &BrokerConfig) -> bool {
    let dir = Path::new(&config.metadata_log_dir);
    dir.join("meta.properties").exists()
}

/// Leases the ports as far as they can be leased, so that no other cluster takes the port of a node
/// that is down, and fails if one is in use. Returns warnings about ports that it could not lease.
fn take_ports(nodes: &[NodeLayout], way_out: &str) -> Result<Vec<String>, String> {
    let leased = ottla_ports::lease_again(nodes.iter().flat_map(NodeLayout::ports));
    for node in nodes {
        for port in node.ports() {
            let Err(error) = TcpListener::bind((HOST, port)) else {
                continue;
            };
            let user = match port_user::listener_at(port) {
                Some(process) if error.kind() == ErrorKind::AddrInUse => {
                    format!("{process} uses it; stop that process")
                }
                _ => format!("{error}; stop the process that uses it"),
            };
            return Err(format!(
                "node {} cannot listen on {HOST}:{port}: {user}, or {way_out}",
                node.id
            ));
        }
    }
    Ok(warnings_of_leases(leased))
}

/// The warnings about ports that could not be leased. The cluster runs without leases too.
fn warnings_of_leases(leased: std::io::Result<Vec<LeasedElsewhere>>) -> Vec<String> {
    let risk = "may take the port of a node that is down";
    let elsewhere = match leased {
        Ok(elsewhere) => elsewhere,
        Err(error) => {
            return vec![format!(
                "cannot lease the ports of the cluster: {error}; another process {risk}"
            )];
        }
    };
    let warnings = elsewhere.iter().map(|block| {
        let holder = port_user::user_of_udp(block.udp_port);
        format!(
            "ports {} to {} are leased by {}, which {risk}",
            block.ports.start(),
            block.ports.end(),
            holder.as_deref().unwrap_or("another process")
        )
    });
    warnings.collect()
}

fn is_inhabited(dir: &Path) -> std::io::Result<bool> {
    match fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries {
                if entry?.file_name() != LOCK_FILE {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn take_lock(dir: &Path) -> Result<File, String> {
    let path = dir.join(LOCK_FILE);
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::create(&path).map_err(at)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(format!(
            "{} is in use by another `ottla cluster start`; stop it, or give another directory with --dir",
            dir.display()
        )),
        Err(TryLockError::Error(error)) => Err(at(error)),
    }
}

fn new_nodes(wanted: Wanted) -> Result<Vec<NodeLayout>, String> {
    let brokers = wanted.brokers.unwrap_or(Wanted::BROKERS);
    let (combined, controllers) = match wanted.controllers {
        Some(controllers) => (0, controllers),
        None => (brokers.min(MOST_COMBINED), 0),
    };
    let count = brokers + combined + controllers;
    let first = match wanted.port.unwrap_or(Wanted::PORT) {
        // This process leases them while it runs its nodes.
        0 => ottla_ports::lease_range(count)
            .map_err(|error| format!("{error}; give the first of {count} ports with --port"))?,
        port => port,
    };
    if first.checked_add(count - 1).is_none() {
        return Err(format!(
            "--port {first} leaves no room for {count} ports; give a lower port"
        ));
    }
    // Client ports come first, so that they are easy to remember.
    let broker = |index: u16| NodeLayout {
        id: 1 + index,
        port: Some(first + index),
        controller_port: (index < combined).then_some(first + brokers + index),
        directory_id: random_uuid(),
    };
    let controller = |index: u16| NodeLayout {
        id: FIRST_CONTROLLER + index,
        port: None,
        controller_port: Some(first + brokers + index),
        directory_id: random_uuid(),
    };
    Ok((0..brokers)
        .map(broker)
        .chain((0..controllers).map(controller))
        .collect())
}

/// Rejects options that would change the shape of an existing cluster.
fn check_same(written: &Written, wanted: Wanted, dir: &Path) -> Result<(), String> {
    if wanted.is_secure && !written.is_secure {
        return Err(format!(
            "--secure: the cluster in {} was created without it, which cannot change; omit the flag, or give another \
             directory with --dir",
            dir.display()
        ));
    }
    let nodes = &written.nodes;
    let brokers = nodes.iter().filter_map(|node| node.port);
    let first_port = brokers.clone().next().unwrap_or_default();
    let controllers = nodes.iter().filter(|node| node.port.is_none()).count() as u16;
    let had = [
        ("brokers", wanted.brokers, brokers.count() as u16),
        ("controllers", wanted.controllers, controllers),
        ("port", wanted.port.filter(|port| *port != 0), first_port),
    ];
    for (flag, wanted, had) in had {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != had) {
            return Err(format!(
                "--{flag} {wanted}: the cluster in {} was created with {had}, which cannot change; \
                 omit the flag, or give another directory with --dir",
                dir.display()
            ));
        }
    }
    Ok(())
}

/// The contents of `cluster.properties`.
struct Written {
    cluster_id: String,
    is_secure: bool,
    nodes: Vec<NodeLayout>,
}

fn text_of(written: &Written) -> String {
    let Written {
        cluster_id,
        is_secure,
        nodes,
    } = written;
    let mut text = format!(
        "# The nodes of a cluster created by `ottla cluster start`.\ncluster.id={cluster_id}\nsecure={is_secure}\n"
    );
    let ids: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    text.push_str(&format!("nodes={}\n", ids.join(",")));
    for node in nodes {
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(&format!("node.{}.{key}={value}\n", node.id));
            }
        };
        line("port", node.port.map(|port| port.to_string()));
        line(
            "controller.port",
            node.controller_port.map(|port| port.to_string()),
        );
        line("directory.id", Some(node.directory_id.to_string()));
    }
    text
}

fn read(text: &str, file: &Path) -> Result<Written, String> {
    let properties =
        Properties::parse(text, &file.display().to_string()).map_err(|error| error.to_string())?;
    let find = |key: &str| properties.get(key).map(|found| found.value.clone());
    let get = |key: &str| find(key).ok_or_else(|| format!("{key} is missing"));
    let port = |key: &str| match find(key) {
        Some(text) => text
            .parse::<u16>()
            .map(Some)
            .map_err(|_| format!("{key}={text} is not a port")),
        None => Ok(None),
    };
    let mut nodes = Vec::new();
    for id in get("nodes")?.split(',') {
        let node = NodeLayout {
            id: id
                .parse()
                .map_err(|_| format!("nodes: {id} is not a node ID"))?,
            port: port(&format!("node.{id}.port"))?,
            controller_port: port(&format!("node.{id}.controller.port"))?,
            directory_id: get(&format!("node.{id}.directory.id"))?
                .parse()
                .map_err(|error| format!("node.{id}.directory.id: {error}"))?,
        };
        nodes.push(node);
    }
    let is_secure = match find("secure").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(format!("secure={other} is neither true nor false")),
    };
    Ok(Written {
        cluster_id: get("cluster.id")?,
        is_secure,
        nodes,
    })
}

#[cfg(test)]
mod tests;
