//! `cargo xtask kerberos`: logins with SASL GSSAPI, with a KDC of MIT Kerberos on loopback.
//!
//! Apache Kafka's client (in its tools) and Ottla's log in to Apache Kafka and to Ottla, with
//! keytabs and with tickets of `kinit`. What each user sees tells who the broker takes it for. Logins
//! that must fail do so, and tokens that are none get the same answer from both brokers. Then brokers and controllers of
//! both log in to each other.

mod raw;
mod realm;
mod replication;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::run_dir::RunDir;
use ottla_peers::{InstalledPeer, Node, NodeOptions, Peer};
use ottla_testkit::lease_range;
use ottla_workspace::report::Tally;
use ottla_workspace::{process, toolchain};
use realm::{AUTHORIZER, MODULE, Realm};

/// The only topic. Nobody but super users sees it.
const TOPIC: &str = "seen";
/// The principals, and their keytabs.
const PRINCIPALS: [(&str, &str); 5] = [
    ("kafka/localhost", "broker"),
    ("kafka/elsewhere", "elsewhere"),
    ("alice", "alice"),
    ("bob", "bob"),
    ("carol", "carol"),
];
/// Tokens that are none: nothing, the beginning of one, and one of another mechanism.
const TOKENS: [&[u8]; 3] = [
    b"",
    b"x",
    &[
        0x60, 0x10, 6, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
    ],
];

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    run_dir: RunDir,
}

/// The result of a client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// The list of topics contains [`TOPIC`].
    Topic,
    NoTopic,
    Refused,
}

/// A client's login, and its expected result.
struct Case {
    name: &'static str,
    /// The options of the JAAS entry.
    options: String,
    service: &'static str,
    expected: Seen,
}

/// A started broker, and its listener for Kerberos.
struct Side {
    peer: InstalledPeer,
    node: Node,
    port: u16,
}

pub fn run(options: &Options) -> Result<()> {
    toolchain::require(&toolchain::KERBEROS)?;
    let dir = options.run_dir.make("kerberos")?.canonicalize()?;
    let realm = Realm::start(&dir.join("realm"), &PRINCIPALS)?;
    let sides = [
        Side::start("kafka", &realm, &dir)?,
        Side::start("ottla", &realm, &dir)?,
    ];
    let mut tally = Tally::default();
    let mut check = |what: &str, outcome: Result<()>| {
        tally.check(what, outcome.map(|()| String::new()));
    };
    for case in cases(&realm)? {
        let login = case.write(&dir)?;
        for side in &sides {
            for client in &sides {
                let what = format!(
                    "{}: {} to {}",
                    case.name,
                    client.peer.name(),
                    side.peer.name()
                );
                check(&what, log_in(client, side, &realm, &login, case.expected));
            }
        }
    }
    for token in TOKENS {
        for handshake in [0, 1] {
            let what = format!("the answer to the token {token:?} after handshake {handshake}");
            check(&what, compare(&sides, handshake, token));
        }
    }
    check(
        "a listener whose key is not in the keytab",
        refuse_without_key(&sides[1].peer, &realm, &dir),
    );
    drop(sides);
    check(
        "brokers and controllers of both that log in to each other",
        replication::replicate(&realm, &dir),
    );
    drop(realm);
    tally.conclude(&dir, options.run_dir.keep)
}

fn cases(realm: &Realm) -> Result<Vec<Case>> {
    let with_key = |user: &str, keytab: &str| {
        let keytab = realm.keytab(keytab);
        let principal = format!("{user}@{}", realm::NAME);
        format!(
            "useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"{principal}\"",
            keytab.display()
        )
    };
    let tickets = realm.kinit("alice", "alice")?;
    let case = |name, options, service, expected| Case {
        name,
        options,
        service,
        expected,
    };
    let of_kafka = "kafka";
    Ok(vec![
        case(
            "alice's key",
            with_key("alice", "alice"),
            of_kafka,
            Seen::Topic,
        ),
        case("bob's key", with_key("bob", "bob"), of_kafka, Seen::NoTopic),
        case(
            "alice's tickets",
            format!(
                "useTicketCache=true doNotPrompt=true ticketCache=\"{}\"",
                tickets.display()
            ),
            of_kafka,
            Seen::Topic,
        ),
        case(
            "a principal without a name",
            with_key("carol", "carol"),
            of_kafka,
            Seen::Refused,
        ),
        case(
            "a service that does not exist",
            with_key("alice", "alice"),
            "other",
            Seen::Refused,
        ),
        case(
            "another's keytab",
            with_key("alice", "bob"),
            of_kafka,
            Seen::Refused,
        ),
        case(
            "a keytab that is not there",
            with_key("alice", "nobody"),
            of_kafka,
            Seen::Refused,
        ),
    ])
}

impl Case {
    /// Writes the properties of a client.
    fn write(&self, dir: &Path) -> Result<PathBuf> {
        let path = dir.join(format!("{}.properties", self.name.replace(' ', "-")));
        // Kafka's client tries for a minute to get a ticket for a service that does not exist.
        let patience = match self.expected {
            Seen::Refused => "request.timeout.ms=4000\ndefault.api.timeout.ms=4000\n",
            Seen::Topic | Seen::NoTopic => "",
        };
        let text = format!(
            "{patience}security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name={}\n\
             sasl.jaas.config={MODULE} required {};\n",
            self.service, self.options
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

/// The settings of a broker whose key is that of this principal.
fn settings(realm: &Realm, host: &str, ports: [u16; 2]) -> Vec<(String, String)> {
    let [port, sasl] = ports;
    let keytab = realm.keytab("broker");
    let entry = format!(
        "{MODULE} required useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"kafka/{host}@{}\";",
        keytab.display(),
        realm::NAME
    );
    let of_all = [
        (
            "listeners",
            format!(
                "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{},SASL://127.0.0.1:{sasl}",
                port + 1
            ),
        ),
        (
            "advertised.listeners",
            format!("PLAINTEXT://127.0.0.1:{port},SASL://localhost:{sasl}"),
        ),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT".to_owned(),
        ),
        ("listener.name.sasl.gssapi.sasl.jaas.config", entry),
        ("sasl.enabled.mechanisms", "GSSAPI".to_owned()),
        ("sasl.kerberos.service.name", "kafka".to_owned()),
        (
            "sasl.kerberos.principal.to.local.rules",
            // What the second one makes of carol is no name.
            "RULE:[1:$1](alice)s/$/-short/,RULE:[1:$1](carol)s/$/@nowhere/,DEFAULT".to_owned(),
        ),
        ("authorizer.class.name", AUTHORIZER.to_owned()),
        ("super.users", "User:ANONYMOUS;User:alice-short".to_owned()),
    ];
    let owned = |(key, value): (&str, String)| (key.to_owned(), value);
    of_all.into_iter().map(owned).collect()
}

impl Side {
    fn start(id: &str, realm: &Realm, dir: &Path) -> Result<Side> {
        let peer = Peer::load(id)?.install()?;
        let (port, sasl) = (lease_range(2)?, lease_range(1)?);
        let mut node = peer.start(NodeOptions {
            dir: dir.join(id),
            port: Some(port),
            overrides: settings(realm, "localhost", [port, sasl]),
            environment: realm.environment(),
            ..NodeOptions::default()
        })?;
        let ottla = Peer::load("ottla")?.install()?;
        let mut create = ottla.tool("topics");
        create.args(["--create", "--topic", TOPIC]);
        create.args(["--bootstrap-server", &node.bootstrap()]);
        process::output_of(&mut create)?;
        node.wait_until_served(1)?;
        Ok(Side {
            peer,
            node,
            port: sasl,
        })
    }
}

/// Lists topics with the client of one side at the broker of another.
fn log_in(client: &Side, broker: &Side, realm: &Realm, login: &Path, expected: Seen) -> Result<()> {
    let name = match client.peer.id() {
        "kafka" => "org.apache.kafka.tools.TopicCommand",
        _ => "topics",
    };
    let mut list = client.peer.tool(name);
    list.envs(realm.environment());
    list.args(["--list", "--bootstrap-server"]);
    list.arg(format!("localhost:{}", broker.port));
    list.arg("--command-config").arg(login);
    let output = process::run_captured(&mut list)?;
    let (printed, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    let sees_topic = printed.lines().any(|line| line.trim() == TOPIC);
    let seen = match (output.status.success(), sees_topic) {
        (false, _) => Seen::Refused,
        (true, true) => Seen::Topic,
        (true, false) => Seen::NoTopic,
    };
    ensure!(
        seen == expected,
        "{seen:?} and not {expected:?}:\n{printed}{complained}\nthe broker:\n{}",
        broker.node.output_tail()
    );
    Ok(())
}

fn compare(sides: &[Side; 2], handshake: i16, token: &[u8]) -> Result<()> {
    let [kafka, ottla] = sides;
    let expected = raw::answer_to(kafka.port, handshake, token)?;
    let found = raw::answer_to(ottla.port, handshake, token)?;
    ensure!(
        found == expected,
        "Apache Kafka: {expected}\nOttla: {found}"
    );
    Ok(())
}

/// A node without the key of its principal does not start, and says so.
fn refuse_without_key(ottla: &InstalledPeer, realm: &Realm, dir: &Path) -> Result<()> {
    let (port, sasl) = (lease_range(2)?, lease_range(1)?);
    let (status, said) = ottla.start_refused(NodeOptions {
        dir: dir.join("refused"),
        port: Some(port),
        overrides: settings(realm, "elsewhere", [port, sasl]),
        environment: realm.environment(),
        ..NodeOptions::default()
    })?;
    let keytab = realm.keytab("broker").display().to_string();
    let principal = format!("kafka/elsewhere@{}", realm::NAME);
    for part in [keytab.as_str(), principal.as_str(), "listener SASL"] {
        if !said.contains(part) {
            bail!("{status}: {part} is not in the error:\n{said}");
        }
    }
    ensure!(!status.success(), "it ends with {status}");
    Ok(())
}
