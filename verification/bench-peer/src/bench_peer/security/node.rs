//! The node under measurement: its listeners, certificates and users, and the cores that it gets.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench_peer::load::Load;
use crate::bench_peer::node::DELETE_SOON;
use crate::bench_peer::setting::Setting;
use ottla_peers::{InstalledPeer, Node, NodeOptions, secured};
use ottla_testkit::certificates;
use ottla_testkit::lease_range;
use ottla_workspace::process;

pub const TLS_VERSION: &str = "TLSv1.3";
pub const CIPHER_SUITE: &str = "TLS_AES_256_GCM_SHA384";
const MECHANISM: &str = "SCRAM-SHA-256";
const BROKER: &str = "broker";
const USER: &str = "alice";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    Plain,
    Tls,
    /// Without TLS, so that only the login is measured.
    Scram,
}

/// A prepared node, which can be started several times on the same directory.
pub struct Secured<'a> {
    peer: &'a InstalledPeer,
    generator: &'a Path,
    options: NodeOptions,
    tls: Client,
    scram: Client,
}

/// How clients of a listener connect.
struct Client {
    address: String,
    properties: PathBuf,
}

/// A running node.
pub struct Started<'a> {
    pub node: Node,
    secured: &'a Secured<'a>,
    launcher_of_load: Vec<String>,
}

impl Secured<'_> {
    pub fn prepare<'a>(
        setting: &'a Setting<'a>,
        peer: &'a InstalledPeer,
        dir: &Path,
    ) -> Result<Secured<'a>> {
        let dir = dir.canonicalize()?;
        certificates::write_stores(&dir, &[BROKER]);
        let plain = lease_range(2)?;
        let secured_ports = lease_range(2)?;
        let client = |name: &str, port: u16, settings: &[(&str, String)]| -> Result<Client> {
            let properties = dir.join(name).with_extension("properties");
            std::fs::write(&properties, secured::properties(settings))?;
            let address = format!("127.0.0.1:{port}");
            Ok(Client {
                address,
                properties,
            })
        };
        let mut of_tls = vec![("security.protocol", "SSL".to_owned())];
        of_tls.extend(secured::trust(&dir));
        let of_scram = [
            ("security.protocol", "SASL_PLAINTEXT".to_owned()),
            ("sasl.mechanism", MECHANISM.to_owned()),
            ("sasl.jaas.config", secured::scram_entry(USER)),
        ];
        let tls = client("tls", secured_ports, &of_tls)?;
        let scram = client("scram", secured_ports + 1, &of_scram)?;
        let clients = format!(
            "PLAINTEXT://127.0.0.1:{plain},TLS://{},SCRAM://{}",
            tls.address, scram.address
        );
        let mut settings = vec![
            (
                "listeners",
                format!("{clients},CONTROLLER://127.0.0.1:{}", plain + 1),
            ),
            ("advertised.listeners", clients),
            (
                "listener.security.protocol.map",
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL,SCRAM:SASL_PLAINTEXT".to_owned(),
            ),
            ("ssl.enabled.protocols", TLS_VERSION.to_owned()),
            ("ssl.cipher.suites", CIPHER_SUITE.to_owned()),
            ("sasl.enabled.mechanisms", MECHANISM.to_owned()),
            (
                "listener.name.scram.scram-sha-256.sasl.jaas.config",
                secured::scram_listener_entry(),
            ),
            (DELETE_SOON.0, DELETE_SOON.1.to_owned()),
        ];
        settings.extend(secured::stores(BROKER, &dir));
        let settings = settings.into_iter();
        let mut overrides: Vec<(String, String)> = settings
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        overrides.extend(setting.options.overrides.iter().cloned());
        Ok(Secured {
            peer,
            generator: setting.load_generator()?,
            options: NodeOptions {
                dir,
                port: Some(plain),
                overrides,
                scram: vec![secured::scram_credential(MECHANISM, USER)],
                ..NodeOptions::default()
            },
            tls,
            scram,
        })
    }

    /// Starts the node, on one core if the cores are given.
    pub fn start(&self, cores: Option<&Cores>) -> Result<Started<'_>> {
        let node = self.peer.start(NodeOptions {
            launcher: cores.map_or_else(Vec::new, |cores| cores.of_broker.clone()),
            ..self.options.clone()
        })?;
        Ok(Started {
            node,
            secured: self,
            launcher_of_load: cores.map_or_else(Vec::new, |cores| cores.of_load.clone()),
        })
    }
}

impl Started<'_> {
    /// `line` is a command of the load generator with its arguments.
    pub fn load(&self, listener: Listener, line: &str) -> Result<Value> {
        let client = match listener {
            Listener::Plain => None,
            Listener::Tls => Some(&self.secured.tls),
            Listener::Scram => Some(&self.secured.scram),
        };
        let load = Load {
            generator: self.secured.generator,
            bootstrap: client.map_or_else(|| self.node.bootstrap(), |it| it.address.clone()),
            broker_pid: Some(self.node.pid()),
            command_config: client.map(|it| it.properties.clone()),
            launcher: self.launcher_of_load.clone(),
        };
        load.run(line)
    }
}

/// One core for the broker, and the other cores for the load generator, as arguments of `taskset`.
pub struct Cores {
    of_broker: Vec<String>,
    of_load: Vec<String>,
}

impl Cores {
    /// Divides the cores that this process may use.
    pub fn of_this_machine() -> Result<Cores> {
        ensure!(
            process::is_on_path("taskset"),
            "holding a broker to one core needs taskset, of the package util-linux"
        );
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        Cores::divide(cores.collect())
    }

    fn divide(cores: Vec<usize>) -> Result<Cores> {
        let (broker, others) = cores.split_first().context("there is no core")?;
        ensure!(
            !others.is_empty(),
            "the group security needs two cores: one for the broker and one for the load"
        );
        let others: Vec<String> = others.iter().map(usize::to_string).collect();
        let held_to = |list: String| ["taskset", "--cpu-list", &list].map(str::to_owned).to_vec();
        Ok(Cores {
            of_broker: held_to(broker.to_string()),
            of_load: held_to(others.join(",")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_and_the_broker_have_different_cores() {
        let cores = Cores::divide(vec![2, 3, 5]).unwrap();
        assert_eq!(cores.of_broker, ["taskset", "--cpu-list", "2"]);
        assert_eq!(cores.of_load, ["taskset", "--cpu-list", "3,5"]);
        assert!(Cores::divide(vec![0]).is_err());
    }
}
