//! `ottla cluster start`: a development cluster on this machine in one command. Each node is a
//! separate process with its own files, so that a node can be killed while the other nodes run.
//!
//! It runs until Ctrl-C, and then stops every node cleanly; a start on the same directory reuses
//! the data. `layout` determines the nodes, `node_process` runs one.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, Client, ClientConfig, ClientError};
use ottla_config::{BrokerConfig, Properties, Warning, broker_config_of_key};
use ottla_types::shell_word;
use rustix::process::Signal;

use super::layout::{Layout, NodeLayout, Wanted};
use super::node_process::NodeProcess;
use super::secured::{ADMIN, Secured, USER};
use crate::columns;
use crate::counted::counted;
use crate::node_properties;
use crate::stop_signals::StopSignals;
use crate::tools::load_properties;

/// For a debug build on a busy machine with logs to recover.
const START_PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);
/// Timeout of one broker's answer about the state of the cluster.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// How long nodes may still learn of a new leader after the controllers have lost their majority.
const PARTING: Duration = Duration::from_secs(1);
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// Start a development cluster on this machine; Ctrl-C stops it.
#[derive(Args, Debug)]
pub struct StartArgs {
    /// Number of brokers; 3 in a new cluster.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50))]
    brokers: Option<u16>,
    /// Number of separate controllers. Without this option, up to three of the brokers are also controllers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    controllers: Option<u16>,
    /// Directory of the cluster. A cluster that it already contains is restarted.
    #[arg(long, value_name = "DIRECTORY", default_value = "./ottla-cluster")]
    dir: PathBuf,
    /// Port of the first broker; the other ports follow. 9092 in a new cluster, 0 for free ports.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Secure the cluster: TLS, users who log in with SCRAM, and ACLs. The directory has the files
    /// that clients need.
    #[arg(long)]
    secure: bool,
    /// A setting for all nodes that overrides their files; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

pub fn run(args: &StartArgs) -> ExitCode {
    match try_run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(args: &StartArgs) -> Result<(), String> {
    let began = Instant::now();
    // Before anything is made.
    node_properties::override_with(&mut Properties::new("the command line"), &args.overrides)?;
    let wanted = Wanted {
        brokers: args.brokers,
        controllers: args.controllers,
        port: args.port,
        is_secure: args.secure,
    };
    let layout = Layout::open(&args.dir, wanted)?;
    layout.prepare()?;
    for warning in &layout.warnings {
        eprintln!("ottla: {warning}");
    }
    for warning in warnings_of(&layout, &args.overrides) {
        eprintln!("ottla: --override: {warning}");
    }
    // The nodes' parent is this thread, and they exit when it does.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(serve(&layout, &args.overrides, began))
}

/// The warnings about these overrides, once for all nodes: each node has them in its own log only,
/// because it prints them before the cluster is up.
fn warnings_of(layout: &Layout, overrides: &[String]) -> Vec<String> {
    let read = |overrides: &[String]| -> Option<Vec<Warning>> {
        let file = layout.properties_file(layout.nodes.first()?);
        let bytes = std::fs::read(&file).ok()?;
        let name = file.display().to_string();
        let mut properties = Properties::parse_bytes(&bytes, &name).ok()?;
        node_properties::override_with(&mut properties, overrides).ok()?;
        let (_, warnings) = BrokerConfig::from_properties(&properties).ok()?;
        Some(warnings)
    };
    // The nodes themselves report refused settings.
    let messages = |overrides: &[String]| {
        let warnings = read(overrides).unwrap_or_default().into_iter();
        warnings.map(|warning| warning.message)
    };
    let of_file: Vec<String> = messages(&[]).collect();
    messages(overrides)
        .filter(|message| !of_file.contains(message))
        .collect()
}

/// Runs the cluster. `began` is the time at which its preparation began.
async fn serve(layout: &Layout, overrides: &[String], began: Instant) -> Result<(), String> {
    let mut signals = StopSignals::listen()
        .map_err(|error| format!("cannot install signal handlers: {error}"))?;
    println!(
        "Starting {} in {}.",
        counted(layout.nodes.len(), "node"),
        layout.dir.display()
    );
    if layout.keeps_ports {
        println!("The cluster keeps the ports that it was created with.");
    }
    let mut cluster = Cluster {
        client: client_config(layout)?,
        layout,
        nodes: Vec::new(),
        is_shown: Arc::default(),
    };
    let outcome = tokio::select! {
        started = cluster.start(overrides) => started,
        () = signals.next() => {
            cluster.stop(&mut signals).await;
            return Ok(());
        }
    };
    if let Err(reason) = outcome {
        cluster.stop(&mut signals).await;
        return Err(reason);
    }
    cluster.introduce(began.elapsed());
    cluster.is_shown.store(true, Ordering::Relaxed);
    let outcome = tokio::select! {
        () = cluster.watch(overrides) => Err("all nodes have exited".to_owned()),
        () = signals.next() => Ok(()),
    };
    cluster.stop(&mut signals).await;
    outcome
}

/// The options that repeat these overrides, for a shell. The values of secrets, and of settings that
/// may be secrets because no table has them, are left out.
fn options_of(overrides: &[String]) -> String {
    let shown = |given: &String| {
        let key = given.split_once('=').map_or("", |(key, _)| key.trim());
        let is_shown = broker_config_of_key(key).is_some_and(|def| !def.is_sensitive());
        match is_shown {
            true => shell_word(given),
            false => shell_word(&format!("{key}=[hidden]")),
        }
    };
    let words = overrides.iter().map(shown);
    words.map(|word| format!(" --override {word}")).collect()
}

/// The progress of the start.
#[derive(Default)]
struct Readiness {
    /// Brokers that accept clients and know all other brokers.
    brokers: usize,
    /// The number of partitions without a leader, if a broker has answered.
    leaderless: Option<usize>,
}

impl Readiness {
    fn text(&self, brokers: usize) -> String {
        match self.leaderless {
            Some(1) if self.brokers == brokers => "1 partition has no leader yet".to_owned(),
            Some(leaderless) if self.brokers == brokers => {
                format!("{leaderless} partitions have no leader yet")
            }
            _ => format!("{} of {brokers} brokers are ready", self.brokers),
        }
    }
}

/// The client settings to connect to any of the brokers.
fn client_config(layout: &Layout) -> Result<ClientConfig, String> {
    let mut config = ClientConfig {
        client_id: "ottla-cluster".to_owned(),
        ..ClientConfig::default()
    };
    if let Some(secured) = &layout.secured {
        let file = secured.client_file(ADMIN).display().to_string();
        let settings = load_properties(&file).map_err(|error| error.to_string())?;
        let applied = config.apply(&settings);
        applied.map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(config)
}

/// A client of the broker at this port only.
fn client_of(config: &ClientConfig, port: u16) -> Option<Client> {
    let mut config = config.clone();
    config
        .set_bootstrap_servers(&format!("127.0.0.1:{port}"))
        .ok()?;
    Some(Client::unconnected(config))
}

/// The nodes, running or exited.
struct Cluster<'a> {
    layout: &'a Layout,
    client: ClientConfig,
    nodes: Vec<NodeProcess>,
    /// Whether their warnings are printed.
    is_shown: Arc<AtomicBool>,
}

impl Cluster<'_> {
    /// Returns when every broker accepts clients.
    async fn start(&mut self, overrides: &[String]) -> Result<(), String> {
        for node in &self.layout.nodes {
            let dir = self.layout.node_dir(node);
            let file = self.layout.properties_file(node);
            let started = NodeProcess::start(node.id, &dir, &file, overrides, &self.is_shown);
            let started =
                started.map_err(|error| format!("cannot start node {}: {error}", node.id))?;
            self.nodes.push(started);
        }
        let began = Instant::now();
        let mut next_report = Duration::from_secs(5);
        let mut ready = Readiness::default();
        loop {
            for node in &mut self.nodes {
                let ended = tokio::time::timeout(Duration::ZERO, node.ended()).await;
                if ended.is_ok() {
                    return Err(why_ended(node).await);
                }
            }
            self.look(&mut ready).await;
            let brokers = self.layout.brokers().count();
            if ready.brokers == brokers && ready.leaderless == Some(0) {
                return Ok(());
            }
            if began.elapsed() > START_PATIENCE {
                return Err(format!(
                    "{} after {} s; see output.log in each node's directory",
                    ready.text(brokers),
                    START_PATIENCE.as_secs(),
                ));
            }
            if began.elapsed() > next_report {
                println!("{} ({} s).", ready.text(brokers), next_report.as_secs());
                next_report += Duration::from_secs(5);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Counts the brokers that accept clients, which they do once the controller has unfenced them,
    /// and the partitions without a leader.
    async fn look(&self, ready: &mut Readiness) {
        *ready = Readiness::default();
        for node in self.layout.brokers() {
            let Some(client) = node.port.and_then(|port| client_of(&self.client, port)) else {
                continue;
            };
            let described = async {
                client.any_node().await?;
                let metadata = client.refresh_metadata(None, false).await?;
                let admin = Admin::new(client.clone());
                let cluster = admin.describe_cluster(EndpointType::Broker, false).await?;
                Ok::<_, ClientError>((metadata, cluster.brokers.len()))
            };
            let described = tokio::time::timeout(ANSWER_PATIENCE, described).await;
            if let Ok(Ok((metadata, unfenced))) = described
                && unfenced == self.layout.brokers().count()
            {
                ready.brokers += 1;
                let partitions = metadata.topics.values().flat_map(|it| &it.partitions);
                let leaderless = partitions.filter(|it| it.leader < 0).count();
                ready.leaderless = ready.leaderless.max(Some(leaderless));
            }
        }
    }

    /// Prints the nodes and how to connect.
    fn introduce(&self, took: Duration) {
        println!(
            "Cluster {} is up ({:.1} s).\n",
            self.layout.cluster_id,
            took.as_secs_f64()
        );
        let address =
            |port: Option<u16>| port.map_or("-".to_owned(), |port| format!("127.0.0.1:{port}"));
        let header = [
            "NODE",
            "ROLES",
            "CLIENTS",
            "CONTROLLER",
            "PROCESS",
            "DIRECTORY",
        ]
        .map(str::to_owned);
        let rows = self
            .layout
            .nodes
            .iter()
            .zip(&self.nodes)
            .map(|(node, process)| {
                let process = process.process_id().map(|id| id.to_string());
                [
                    node.id.to_string(),
                    node.roles().to_owned(),
                    address(node.port),
                    address(node.controller_port),
                    process.unwrap_or_default(),
                    // Below the directory in the first line, so that the table is narrow.
                    directory_name(&self.layout.node_dir(node)),
                ]
            });
        let rows: Vec<[String; 6]> = std::iter::once(header).chain(rows).collect();
        for line in columns::lines(&rows, "  ") {
            println!("{line}");
        }
        if let Some(secured) = &self.layout.secured {
            let servers = self.layout.bootstrap_servers();
            println!("\n{}", how_to_connect(secured, &servers));
            println!("Ctrl-C stops every node; the same command restarts them on the same data.");
            return;
        }
        println!(
            "\nConnect clients and tools with\n  --bootstrap-server {}\n\nCtrl-C stops every node; the same command restarts them on the same data.",
            self.layout.bootstrap_servers()
        );
    }

    /// Reports each node that exits; returns when none is left.
    async fn watch(&mut self, overrides: &[String]) {
        while self.nodes.iter().any(NodeProcess::is_running) {
            let index = self.next_ended().await;
            let others = self.nodes.iter().filter(|node| node.is_running()).count();
            let reason = why_ended(&mut self.nodes[index]).await;
            let layout = self
                .layout
                .nodes
                .iter()
                .find(|it| it.id == self.nodes[index].id);
            let file = layout.map(|it: &NodeLayout| self.layout.properties_file(it));
            let file = file.unwrap_or_default();
            let left = match others {
                0 => {
                    eprintln!("{reason}.");
                    continue;
                }
                1 => "The other one keeps running".to_owned(),
                _ => format!("The other {others} keep running"),
            };
            eprintln!(
                "{reason}.\n{left}. To restart it: ottla server {}{}",
                shell_word(&file.display().to_string()),
                options_of(overrides)
            );
        }
    }

    /// Waits for the next node that exits, and returns its index.
    async fn next_ended(&mut self) -> usize {
        std::future::poll_fn(|context| {
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if node.is_running() {
                    let ended = std::pin::pin!(node.ended());
                    if std::future::Future::poll(ended, context).is_ready() {
                        return std::task::Poll::Ready(index);
                    }
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Stops brokers first, so that they hand over their partitions while controllers can elect
    /// other leaders. Once the controllers have lost their majority, the remaining nodes get a
    /// second signal, so that they do not wait.
    async fn stop(&mut self, signals: &mut StopSignals) {
        let running = self.nodes.iter().filter(|node| node.is_running()).count();
        if running == 0 {
            return;
        }
        println!(
            "Stopping {}; a second Ctrl-C kills them.",
            counted(running, "node")
        );
        // From now on nodes report each other as missing.
        self.is_shown.store(false, Ordering::Relaxed);
        let began = Instant::now();
        let stopped = tokio::select! {
            () = async {
                self.stop_those(|node| node.controller_port.is_none()).await;
                self.stop_those(|node| node.port.is_some()).await;
                self.stop_those(|_| true).await;
            } => true,
            () = signals.next() => false,
        };
        if stopped {
            println!("Stopped ({:.1} s).", began.elapsed().as_secs_f64());
        } else {
            // Dropping the processes kills the remaining ones.
            eprintln!("ottla: killed; the next start recovers the logs");
        }
    }

    async fn stop_those(&mut self, is_meant: impl Fn(&NodeLayout) -> bool) {
        let meant: Vec<u16> = self
            .layout
            .nodes
            .iter()
            .filter(|node| is_meant(node))
            .map(|node| node.id)
            .collect();
        let is_left = |node: &NodeProcess| node.is_running() && meant.contains(&node.id);
        self.nodes
            .iter()
            .filter(|node| is_left(node))
            .for_each(NodeProcess::ask_to_stop);
        let deadline = Instant::now() + STOP_PATIENCE;
        let mut parting: Option<Instant> = None;
        while self.nodes.iter().any(is_left) && Instant::now() < deadline {
            // On a timeout no node has exited.
            let _ = tokio::time::timeout(POLL, self.next_ended()).await;
            if self.can_decide() {
                continue;
            }
            let since = *parting.get_or_insert_with(Instant::now);
            if since.elapsed() > PARTING {
                self.nodes
                    .iter()
                    .filter(|node| is_left(node))
                    .for_each(NodeProcess::ask_to_stop);
                parting = Some(Instant::now() + STOP_PATIENCE);
            }
        }
    }

    /// Whether a majority of the controllers is running.
    fn can_decide(&self) -> bool {
        let controls = |id: u16| {
            let layout = self.layout.nodes.iter().find(|node| node.id == id);
            layout.is_some_and(|node| node.controller_port.is_some())
        };
        let controllers = self.nodes.iter().filter(|node| controls(node.id));
        let running = controllers.clone().filter(|node| node.is_running()).count();
        running > controllers.count() / 2
    }
}

/// Instructions for the use of a secured cluster.
fn how_to_connect(secured: &Secured, servers: &str) -> String {
    let (admin, user) = (secured.client_file(ADMIN), secured.client_file(USER));
    let (admin, user) = (shell_word(&admin.display().to_string()), user.display());
    format!(
        "Connect as {ADMIN}, with all permissions:\n  \
         ottla topics --bootstrap-server {servers} --command-config {admin} --list\n\
         {USER} ({user}) has the permissions that ACLs grant:\n  \
         ottla acls --bootstrap-server {servers} --command-config {admin} --add --allow-principal User:{USER} \
         --producer --consumer --topic '*' --group '*'\n\
         Beside them are the settings for librdkafka (.librdkafka.conf) and franz-go (.go).\n"
    )
}

/// Why a node exited, with its last output.
async fn why_ended(node: &mut NodeProcess) -> String {
    let status = node
        .status
        .map_or("unknown status".to_owned(), |status| status.to_string());
    let said = node.last_words().await;
    reason_text(
        node.id,
        &status,
        is_killed(node.status),
        said.last(),
        &node.output,
    )
}

/// Whether it was killed by a signal and could not report a reason.
fn is_killed(status: Option<ExitStatus>) -> bool {
    status.and_then(|status| status.signal()) == Some(Signal::KILL.as_raw())
}

fn reason_text(
    id: u16,
    status: &str,
    is_killed: bool,
    last: Option<&String>,
    output: &Path,
) -> String {
    if is_killed {
        return format!(
            "node {id} exited ({status}): killed by a process, or by the kernel for lack of memory"
        );
    }
    let last = last.map_or(String::new(), |line| format!("; last output: {line}"));
    format!(
        "node {id} exited ({status}{last}); see {}",
        output.display()
    )
}

/// The last part of a path.
fn directory_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.display().to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Readiness, options_of, reason_text};

    #[test]
    fn the_restart_command_of_a_node_has_its_overrides_without_secrets() {
        let given = [
            "num.partitions=6".to_owned(),
            "log.dirs=it's".to_owned(),
            "ssl.key.password=secret".to_owned(),
            "listener.name.a.scram-sha-256.sasl.jaas.config=x secret".to_owned(),
            "listener.name.a.ssl.client.auth=required".to_owned(),
            "no.such.setting=secret".to_owned(),
        ];
        let expected = [
            "num.partitions=6",
            r"'log.dirs=it'\''s'",
            "'ssl.key.password=[hidden]'",
            "'listener.name.a.scram-sha-256.sasl.jaas.config=[hidden]'",
            "listener.name.a.ssl.client.auth=required",
            "'no.such.setting=[hidden]'",
        ];
        let expected = expected.map(|word| format!(" --override {word}"));
        assert_eq!(options_of(&given), expected.concat());
        assert_eq!(options_of(&[]), "");
    }

    #[test]
    fn only_output_of_nodes_that_ran_is_read() {
        let output = Path::new("/c/node-1/output.log");
        let text = reason_text(1, "signal: 9 (SIGKILL)", true, None, output);
        assert!(
            text.starts_with("node 1 exited (signal: 9 (SIGKILL))"),
            "{text}"
        );
        assert!(!text.contains("output.log"), "{text}");
        let last = "disk full".to_owned();
        assert_eq!(
            reason_text(1, "exit status: 1", false, Some(&last), output),
            "node 1 exited (exit status: 1; last output: disk full); see /c/node-1/output.log"
        );
    }

    #[test]
    fn it_reports_the_progress_of_the_start() {
        let text = |brokers, leaderless| {
            Readiness {
                brokers,
                leaderless,
            }
            .text(3)
        };
        assert_eq!(text(0, None), "0 of 3 brokers are ready");
        assert_eq!(text(2, Some(4)), "2 of 3 brokers are ready");
        assert_eq!(text(3, Some(4)), "4 partitions have no leader yet");
        assert_eq!(text(3, Some(1)), "1 partition has no leader yet");
    }
}
