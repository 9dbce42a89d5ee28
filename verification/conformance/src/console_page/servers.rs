//! The servers of the page in the tests: the mock, or a broker with Ottla's console.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use ottla_peers::{Cluster, QUICK_HEARTBEATS, connect};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_testkit::lease_ports;
use ottla_types::{ProducerEpoch, ProducerId, Sequence, Timestamp};
use ottla_workspace::process::{self, LoggedChild, OwnedChild};
use ottla_workspace::workspace;

use super::page::PATIENCE;
use super::steps::{Brokers, Needs};
use crate::console_api::access;

/// Where the page's sources are, in the workspace.
pub const PAGE: &str = "crates/ottla-console/page";

/// A broker that a transcript is played against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Ottla,
    Kafka,
}

impl Kind {
    /// The name of its file in `peers/`.
    fn peer(self) -> &'static str {
        match self {
            Kind::Ottla => "ottla",
            Kind::Kafka => "kafka",
        }
    }
}

/// Settings that reduce the delays of a small broker.
const SETTINGS: [(&str, &str); 5] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("share.coordinator.state.topic.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
];

/// The producer of hanging transactions. No coordinator gives out an ID as high as this.
const UNKNOWN_PRODUCER: ProducerId = ProducerId(4_112_000);
/// The age of a hanging transaction. The console aborts only those without a write for 20 minutes.
const HANGS_SINCE_MS: i64 = 60 * 60 * 1000;

/// The pause before a tool runs again, so that it leaves the processors to what it waits for.
const BETWEEN_TOOLS: Duration = Duration::from_millis(200);

/// A server of the page, and its cluster. The fields are dropped in this order.
pub struct Server {
    url: String,
    // Killed on drop.
    _process: OwnedChild,
    tools: Option<Tools>,
}

/// A cluster, and the tools that connect to it. The fields are dropped in this order.
struct Tools {
    binary: PathBuf,
    /// The options with which a program connects.
    connection: Vec<String>,
    /// The last tool, and what it has printed.
    last: Vec<String>,
    /// `None` if it has failed, or has not run yet.
    printed: Option<String>,
    /// Killed on drop, as are the brokers.
    started: Vec<LoggedChild>,
    brokers: Cluster,
    dir: tempfile::TempDir,
}

impl Tools {
    fn command(&self, arguments: &[String]) -> Result<Command> {
        let (name, rest) = arguments.split_first().context("no tool is named")?;
        let mut command = Command::new(&self.binary);
        command.arg(name).args(&self.connection).args(rest);
        Ok(command)
    }

    fn run_last(&mut self) -> Result<()> {
        self.printed = None;
        self.printed = Some(process::output_of(&mut self.command(&self.last)?)?);
        Ok(())
    }
}

impl Server {
    /// `kind` is the maker of the brokers, for a transcript that needs some.
    pub fn start(needs: &Needs, kind: Kind) -> Result<Server> {
        match needs {
            Needs::Mock(variables) => start_mock(variables),
            Needs::Brokers(brokers) => start_console(brokers, kind),
        }
    }

    /// Without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn tools(&mut self) -> Result<&mut Tools> {
        self.tools.as_mut().context("the mock has no cluster")
    }

    /// Runs one of Ottla's tools against the cluster.
    pub fn tool(&mut self, arguments: &[String]) -> Result<()> {
        let tools = self.tools()?;
        tools.last = arguments.to_vec();
        tools.run_last()
    }

    /// As [`Server::tool`], for [`Server::repeat_until`], which runs it.
    pub fn repeat(&mut self, arguments: &[String]) -> Result<()> {
        let tools = self.tools()?;
        tools.last = arguments.to_vec();
        tools.printed = None;
        Ok(())
    }

    /// How the started tools are, for messages.
    pub fn state(&mut self) -> String {
        let tools = self.tools.iter_mut();
        let started = tools.flat_map(|it| &mut it.started);
        started.map(|it| format!("; {}", it.state())).collect()
    }

    pub fn has_printed(&mut self, text: &str) -> Result<()> {
        let printed = self.tools()?.printed.as_deref().unwrap_or_default();
        let shown = printed.trim_end();
        ensure!(
            printed.contains(text),
            "the tool has not printed “{text}”:\n{shown}"
        );
        Ok(())
    }

    /// Runs the last tool again until it prints this, or does not. It may fail in between.
    pub fn repeat_until(&mut self, text: &str, is_wanted: bool) -> Result<()> {
        let began = Instant::now();
        let tools = self.tools()?;
        let mut outcome = Ok(());
        loop {
            let printed = tools.printed.as_deref();
            if printed.is_some_and(|it| it.contains(text) == is_wanted) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                outcome?;
                let printed = printed.unwrap_or_default().trim_end();
                let so = if is_wanted {
                    "does not print"
                } else {
                    "prints"
                };
                bail!("the tool {so} “{text}”:\n{printed}");
            }
            std::thread::sleep(BETWEEN_TOOLS);
            outcome = tools.run_last();
        }
    }

    /// Appends a record to a partition of the first broker, in a transaction that no coordinator knows.
    /// No client does this; it is the state that a crash or a defect of a coordinator leaves.
    pub fn leave_hanging(&mut self, topic: &str, partition: i32) -> Result<()> {
        let brokers = &self.tools()?.brokers.brokers;
        let port = brokers.first().context("there is no broker")?.port;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        let mut batch = RecordBatchBuilder::new(Compression::None)
            .producer(UNKNOWN_PRODUCER, ProducerEpoch(0), Sequence(0))
            .transactional(true);
        batch.append(Timestamp(now - HANGS_SINCE_MS), None, Some(b"held"), &[]);
        let batch = batch.build().to_bytes();
        let code = connect(port)?
            .patient(PATIENCE)?
            .produce_in_transaction("hanging", topic, partition, &batch)?;
        ensure!(
            code == 0,
            "producing to {topic}-{partition}: error code {code}"
        );
        Ok(())
    }

    /// Starts one of Ottla's tools, which runs until the server is dropped.
    pub fn start_tool(&mut self, arguments: &[String]) -> Result<()> {
        let tools = self.tools()?;
        let mut command = tools.command(arguments)?;
        let name = arguments.first().map_or("", String::as_str);
        let output = format!("started-{}.out", tools.started.len());
        let output = tools.dir.path().join(output);
        let tool = LoggedChild::start(&mut command, name, &output)?;
        tools.started.push(tool);
        Ok(())
    }
}

/// Starts the mock on a free port; it prints its address.
fn start_mock(variables: &[(String, String)]) -> Result<Server> {
    let mut command = Command::new("node");
    command
        .arg(workspace::root().join(PAGE).join("mock/server.mjs"))
        .arg("0")
        .envs(variables.iter().cloned());
    let (url, process) = started(&mut command)?;
    Ok(Server {
        url,
        _process: process,
        tools: None,
    })
}

fn start_console(wanted: &Brokers, kind: Kind) -> Result<Server> {
    let binary = workspace::release_binary("ottla", "ottla")?;
    let dir = tempfile::Builder::new()
        .prefix("ottla-console-")
        .tempdir()?;
    let peers = vec![kind.peer().to_owned(); wanted.count];
    let own = SETTINGS.into_iter().chain(QUICK_HEARTBEATS);
    let own: Vec<_> = own.map(|(key, value)| (key, value.to_owned())).collect();
    let mut brokers = Cluster::plan(&peers, &[], dir.path(), &own)?;
    for broker in &mut brokers.brokers {
        broker.options.overrides.extend(wanted.settings.clone());
    }
    let mut connection = vec!["--bootstrap-server".to_owned(), brokers.bootstrap()];
    if wanted.is_secured {
        let [broker] = brokers.brokers.as_mut_slice() else {
            bail!("several brokers cannot be secured");
        };
        let [port] = lease_ports()?;
        let settings = access::settings(broker.port, port);
        broker.options.overrides.extend(settings);
        let login = dir.path().join("login.properties");
        std::fs::write(&login, access::login("root"))?;
        connection[1] = format!("127.0.0.1:{port}");
        connection.extend(["--command-config".to_owned(), login.display().to_string()]);
    }
    brokers.start()?;
    let mut command = Command::new(&binary);
    command
        .arg("console")
        .args(&connection)
        .args(["--listen", "127.0.0.1:0", "--bench-dir"])
        .arg(dir.path().join("bench"));
    let (url, process) = started(&mut command)?;
    let tools = Tools {
        binary,
        connection,
        last: Vec::new(),
        printed: None,
        started: Vec::new(),
        brokers,
        dir,
    };
    Ok(Server {
        url,
        _process: process,
        tools: Some(tools),
    })
}

/// Starts a server, and waits until it prints its address.
fn started(command: &mut Command) -> Result<(String, OwnedChild)> {
    let (process, _, output) = OwnedChild::converse(command)?;
    let mut printed = String::new();
    let mut lines = BufReader::new(output);
    loop {
        let before = printed.len();
        if lines.read_line(&mut printed)? == 0 {
            bail!(
                "{} ended without an address:\n{printed}",
                process::shown(command)
            );
        }
        if let Some(url) = address_in(&printed[before..]) {
            // Read the output of the server, so that a full pipe does not stop it.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            ensure!(!url.is_empty(), "an empty address");
            return Ok((url, process));
        }
    }
}

/// The first `http://` address in a line, without a slash or a full stop at its end.
fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let place = rest[..end].trim_end_matches(['.', ',', ')', '/']);
    Some(format!("http://{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_parsed_from_the_output() {
        for line in [
            "http://127.0.0.1:9711\n",
            "The console is at http://127.0.0.1:9711/ (no login).\n",
            "Console: http://127.0.0.1:9711.\n",
        ] {
            assert_eq!(address_in(line).as_deref(), Some("http://127.0.0.1:9711"));
        }
        assert_eq!(address_in("Cluster x is up.\n"), None);
    }
}
