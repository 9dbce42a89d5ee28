//! `metadata-quorum`: Kafka's `kafka-metadata-quorum.sh`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use ottla_client::Admin;
use ottla_client::admin::{EndpointType, QuorumDescription};
use ottla_protocol::messages::describe_quorum_response::{Node, ReplicaState};
use ottla_types::Uuid;

use super::admin_client::Bootstrap;
use super::{block_on, load_client_properties, load_properties, report_on_stderr, tabbed_table};

/// Show the metadata quorum, and change its voters.
#[derive(Args, Debug)]
pub struct MetadataQuorumArgs {
    #[command(flatten)]
    bootstrap: Bootstrap,
    /// Properties file with settings of the client; with add-controller, the configuration file of
    /// the new controller.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    #[command(subcommand)]
    command: QuorumCommand,
}

#[derive(Subcommand, Debug)]
enum QuorumCommand {
    /// Show the quorum.
    Describe {
        /// A summary.
        #[arg(long)]
        status: bool,
        /// The progress of each voter and observer.
        #[arg(long)]
        replication: bool,
        /// Print times relative to now.
        #[arg(long)]
        human_readable: bool,
    },
    /// Add a controller to the quorum.
    AddController {
        /// Show the change without making it.
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove a controller from the quorum.
    RemoveController {
        /// The id of the controller.
        #[arg(long, short = 'i', value_name = "ID")]
        controller_id: i32,
        /// The id of the controller's metadata directory.
        #[arg(long, short = 'd', value_name = "ID", allow_hyphen_values = true)]
        controller_directory_id: String,
        /// Show the change without making it.
        #[arg(long)]
        dry_run: bool,
    },
}

pub fn run(args: MetadataQuorumArgs) -> ExitCode {
    block_on(async { report_on_stderr(act(&args).await) })
}

async fn act(args: &MetadataQuorumArgs) -> anyhow::Result<()> {
    let config = args.command_config.as_deref();
    if let Some(path) = config
        && !Path::new(path).exists()
    {
        bail!("Properties file {path} does not exists!");
    }
    let connect = async || {
        args.bootstrap
            .connect(config, "ottla-metadata-quorum")
            .await
    };
    match &args.command {
        QuorumCommand::Describe {
            status,
            replication,
            human_readable,
        } => match (status, replication) {
            (true, true) => bail!(
                "Only one of --status or --replication should be specified with describe sub-command"
            ),
            (false, false) => bail!(
                "One of --status or --replication must be specified with describe sub-command"
            ),
            (true, false) if *human_readable => {
                bail!("The option --human-readable is only supported along with --replication")
            }
            (true, false) => print_status(&connect().await?, args.bootstrap.endpoint_type()).await,
            (false, true) => {
                let quorum = connect().await?.describe_quorum().await?;
                print_replication(&quorum, *human_readable)
            }
        },
        QuorumCommand::AddController { dry_run } => {
            let Some(path) = config else {
                bail!(
                    "You must supply the configuration file of the controller you are adding when using \
                     add-controller."
                );
            };
            let controller = NewController::from_properties(&load_client_properties(path)?)?;
            if !dry_run {
                connect()
                    .await?
                    .add_raft_voter(
                        controller.id,
                        controller.directory_id,
                        &controller.endpoints,
                    )
                    .await?;
            }
            println!("{}", controller.report(*dry_run));
            Ok(())
        }
        QuorumCommand::RemoveController {
            controller_id,
            controller_directory_id,
            dry_run,
        } => {
            if *controller_id < 0 {
                bail!("Invalid negative --controller-id: {controller_id}");
            }
            let directory_id: Uuid = controller_directory_id
                .parse()
                .context("Failed to parse --controller-directory-id")?;
            if !dry_run {
                let admin = connect().await?;
                admin
                    .remove_raft_voter(*controller_id, directory_id)
                    .await?;
            }
            // Kafka prints this additional blank.
            let what = if *dry_run {
                "DRY RUN of removing "
            } else {
                "Removed "
            };
            println!("{what} KRaft controller {controller_id} with directory id {directory_id}");
            Ok(())
        }
    }
}

fn leader(quorum: &QuorumDescription) -> anyhow::Result<&ReplicaState> {
    let state = &quorum.state;
    state
        .current_voters
        .iter()
        .find(|voter| voter.replica_id == state.leader_id)
        .with_context(|| {
            format!(
                "the metadata quorum has no leader at the moment (leader id {}); try again",
                state.leader_id
            )
        })
}

async fn print_status(admin: &Admin, nodes: EndpointType) -> anyhow::Result<()> {
    let cluster = admin.describe_cluster(nodes, false).await?;
    let quorum = admin.describe_quorum().await?;
    let state = &quorum.state;
    let leader = leader(&quorum)?;
    // The leader is one of the voters.
    let furthest_behind = state
        .current_voters
        .iter()
        .min_by_key(|voter| voter.log_end_offset)
        .unwrap_or(leader);
    let lag_ms = if furthest_behind.replica_id == leader.replica_id {
        0
    } else if leader.last_caught_up_timestamp >= 0 && furthest_behind.last_caught_up_timestamp >= 0
    {
        leader.last_caught_up_timestamp - furthest_behind.last_caught_up_timestamp
    } else {
        -1
    };
    println!("ClusterId:              {}", &*cluster.cluster_id);
    println!("LeaderId:               {}", state.leader_id);
    println!("LeaderEpoch:            {}", state.leader_epoch);
    println!("HighWatermark:          {}", state.high_watermark);
    println!(
        "MaxFollowerLag:         {}",
        leader.log_end_offset - furthest_behind.log_end_offset
    );
    println!("MaxFollowerLagTimeMs:   {lag_ms}");
    println!(
        "CurrentVoters:          {}",
        shown(&state.current_voters, &quorum.nodes)
    );
    println!(
        "CurrentObservers:       {}",
        shown(&state.observers, &quorum.nodes)
    );
    Ok(())
}

/// Formats `[{"id": 0, "directoryId": "…", "endpoints": ["CONTROLLER://host:9093"]}]`.
fn shown(replicas: &[ReplicaState], nodes: &[Node]) -> String {
    let replica = |replica: &ReplicaState| {
        let mut text = format!("{{\"id\": {}", replica.replica_id);
        if !replica.replica_directory_id.is_zero() {
            text += &format!(", \"directoryId\": \"{}\"", replica.replica_directory_id);
        }
        let node = nodes.iter().find(|node| node.node_id == replica.replica_id);
        let endpoints: Vec<String> = node
            .into_iter()
            .flat_map(|node| &node.listeners)
            .map(|it| format!("\"{}\"", endpoint(&it.name, &it.host, it.port)))
            .collect();
        if !endpoints.is_empty() {
            text += &format!(", \"endpoints\": [{}]", endpoints.join(", "));
        }
        text + "}"
    };
    let texts: Vec<String> = replicas.iter().map(replica).collect();
    format!("[{}]", texts.join(", "))
}

fn endpoint(listener: &str, host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("{listener}://[{host}]:{port}")
    } else {
        format!("{listener}://{host}:{port}")
    }
}

fn print_replication(quorum: &QuorumDescription, human_readable: bool) -> anyhow::Result<()> {
    let state = &quorum.state;
    let leader = leader(quorum)?;
    let time = |timestamp: i64| -> anyhow::Result<String> {
        Ok(match timestamp {
            ..0 => "-1".to_owned(),
            _ if human_readable => format!("{} ms ago", ms_since(timestamp)?),
            _ => timestamp.to_string(),
        })
    };
    let titles = [
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    ];
    let mut rows = Vec::new();
    let followers = state
        .current_voters
        .iter()
        .filter(|voter| voter.replica_id != state.leader_id);
    let replicas = std::iter::once((leader, "Leader"))
        .chain(followers.map(|voter| (voter, "Follower")))
        .chain(state.observers.iter().map(|it| (it, "Observer")));
    for (replica, status) in replicas {
        rows.push([
            replica.replica_id.to_string(),
            replica.replica_directory_id.to_string(),
            replica.log_end_offset.to_string(),
            (leader.log_end_offset - replica.log_end_offset).to_string(),
            time(replica.last_fetch_timestamp)?,
            time(replica.last_caught_up_timestamp)?,
            status.to_owned(),
        ]);
    }
    tabbed_table::print(titles, rows);
    Ok(())
}

fn ms_since(timestamp: i64) -> anyhow::Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    if timestamp == 0 || timestamp > now {
        bail!(
            "the times of the quorum's leader and of this machine differ: here it is {now}, there it was \
             {timestamp}; leave --human-readable out, or set the clocks"
        );
    }
    Ok(now - timestamp)
}

/// A controller to be added, according to its configuration file and directory.
struct NewController {
    id: i32,
    directory_id: Uuid,
    endpoints: Vec<(String, String, u16)>,
}

impl NewController {
    fn from_properties(properties: &BTreeMap<String, String>) -> anyhow::Result<NewController> {
        const HINT: &str = "configuration file. Is this a valid controller configuration file?";
        let value = |key: &str| properties.get(key).map(|value| value.trim());
        let Some(id) = value("node.id") else {
            bail!("node.id not found in {HINT}");
        };
        let id: i32 = id
            .parse()
            .with_context(|| format!("node.id={id} is not a number"))?;
        if id < 0 {
            bail!("node.id was negative in {HINT}");
        }
        if !value("process.roles").is_some_and(|roles| roles.contains("controller")) {
            bail!("process.roles did not contain 'controller' in {HINT}");
        }
        let log_dirs = value("log.dirs").and_then(|dirs| dirs.split(',').next());
        let Some(directory) = value("metadata.log.dir").or(log_dirs) else {
            bail!(
                "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller \
                 configuration file?"
            );
        };
        let meta = load_properties(&format!("{directory}/meta.properties"))
            .with_context(|| format!("Unable to read meta.properties from {directory}"))?;
        let Some(directory_id) = meta.get("directory.id") else {
            bail!("No directory id found in {directory}");
        };
        let directory_id = directory_id
            .parse()
            .with_context(|| format!("{directory}/meta.properties: directory.id"))?;
        let mut listeners = BTreeMap::new();
        for key in ["listeners", "advertised.listeners"] {
            let all = value(key).unwrap_or_default().split(',').map(str::trim);
            for listener in all.filter(|listener| !listener.is_empty()) {
                let (name, host, port) = ottla_config::parse_listener(listener)
                    .with_context(|| format!("{key}: {listener} is not NAME://host:port"))?;
                let host = host.unwrap_or_else(|| "localhost".to_owned());
                listeners.insert(name.clone(), (name, host, port));
            }
        }
        let Some(names) = value("controller.listener.names") else {
            bail!(
                "controller.listener.names was not found. Is this a valid controller configuration file?"
            );
        };
        let endpoints = names
            .split(',')
            .map(|name| {
                let name = name.trim().to_ascii_uppercase();
                listeners.get(&name).cloned().with_context(|| {
                    format!("Cannot find information about controller listener name: {name}")
                })
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        Ok(NewController {
            id,
            directory_id,
            endpoints,
        })
    }

    fn report(&self, is_dry_run: bool) -> String {
        let what = if is_dry_run {
            "DRY RUN of adding"
        } else {
            "Added"
        };
        let endpoints: Vec<String> = self
            .endpoints
            .iter()
            .map(|(name, host, port)| endpoint(name, host, *port))
            .collect();
        format!(
            "{what} controller {} with directory id {} and endpoints: {}",
            self.id,
            self.directory_id,
            endpoints.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_controller_is_read_from_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        std::fs::write(
            directory.path().join("meta.properties"),
            "version=1\nnode.id=4\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\n",
        )
        .unwrap();
        let mut properties: BTreeMap<String, String> = [
            ("node.id", "4"),
            ("process.roles", "broker,controller"),
            ("log.dirs", path.as_str()),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("controller.listener.names", "CONTROLLER"),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        let controller = NewController::from_properties(&properties).unwrap();
        assert_eq!(
            controller.report(true),
            "DRY RUN of adding controller 4 with directory id JEXY6aqzQY-32P5TStzaFg and endpoints: \
             CONTROLLER://localhost:9093"
        );
        properties.insert("process.roles".into(), "broker".into());
        assert!(NewController::from_properties(&properties).is_err());
    }
}
