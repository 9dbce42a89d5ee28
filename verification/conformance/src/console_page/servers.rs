//! The servers of the page in the tests: the mock, or a broker with Ottla's console.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use ottla_peers::{Node, NodeOptions, Peer};
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::workspace;

use super::steps::Needs;

/// Where the page's sources are, in the workspace.
pub const PAGE: &str = "crates/ottla-console/page";

/// A broker that a transcript is played against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Ottla,
    Kafka,
}

/// Settings that reduce the delays of a small broker.
const SETTINGS: [(&str, &str); 4] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("offsets.topic.num.partitions", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("auto.create.topics.enable", "false"),
];

/// A server of the page, and its cluster. The fields are dropped in this order.
pub struct Server {
    url: String,
    // Killed on drop.
    _process: OwnedChild,
    cluster: Option<Cluster>,
}

struct Cluster {
    binary: PathBuf,
    node: Node,
    _dir: tempfile::TempDir,
}

impl Server {
    /// `kind` is the broker for a transcript that needs one.
    pub fn start(needs: &Needs, kind: Kind) -> Result<Server> {
        match needs {
            Needs::Mock(variables) => start_mock(variables),
            Needs::Broker(settings) => start_console(settings, kind),
        }
    }

    /// Without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs one of Ottla's tools against the cluster, and returns its output.
    pub fn tool(&self, arguments: &[String]) -> Result<String> {
        let cluster = self.cluster.as_ref().context("the mock has no cluster")?;
        let (name, rest) = arguments.split_first().context("no tool is named")?;
        let mut command = Command::new(&cluster.binary);
        command
            .arg(name)
            .args(["--bootstrap-server", &cluster.node.bootstrap()])
            .args(rest);
        process::output_of(&mut command)
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
        cluster: None,
    })
}

fn start_console(settings: &[(String, String)], kind: Kind) -> Result<Server> {
    let binary = match std::env::var_os("OTTLA_BINARY") {
        Some(named) => PathBuf::from(named),
        None => workspace::release_binary("ottla", "ottla")?,
    };
    let dir = tempfile::Builder::new()
        .prefix("ottla-console-")
        .tempdir()?;
    let peer = match kind {
        Kind::Ottla => Peer::other_build(&binary)?,
        Kind::Kafka => Peer::load("kafka")?,
    };
    let own = SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let node = peer.install()?.start(NodeOptions {
        dir: dir.path().to_path_buf(),
        overrides: own.iter().chain(settings).cloned().collect(),
        ..NodeOptions::default()
    })?;
    let mut command = Command::new(&binary);
    command
        .args(["console", "--bootstrap-server", &node.bootstrap()])
        .args(["--listen", "127.0.0.1:0"]);
    let (url, process) = started(&mut command)?;
    let cluster = Cluster {
        binary,
        node,
        _dir: dir,
    };
    Ok(Server {
        url,
        _process: process,
        cluster: Some(cluster),
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
