//! The clients and their prerequisites. Packages come from the languages' registries and are kept
//! below the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use ottla_peers::java;
use ottla_peers::{InstalledPeer, Peer, reference};
use ottla_workspace::{process, toolchain, workspace};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Java,
    Tools,
    Settings,
    Confluent,
    Aiokafka,
    Franz,
    Sarama,
    Kafkajs,
    LogDirs,
    Telemetry,
    Transactions,
    Shares,
    StreamsGroups,
    SecuredJava,
    SecuredDenied,
    SecuredLogins,
    SecuredFranz,
    SecuredSarama,
    SecuredConfluent,
    SecuredAiokafka,
    SecuredKafkajs,
}

/// The name that selects, like a client's name, the tools that need no client's script before them.
pub const PAIRS: &str = "pairs";

/// The kind of node pair that a script needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    Plain,
    /// Nodes with additional equipment (see `equipped.rs`).
    Equipped,
    /// Nodes whose `transaction.version` may be lowered, with a short transaction timeout.
    Transactional,
    /// Nodes on which members of share groups learn of new assignments quickly, and which allow
    /// lock durations of a few seconds.
    Sharing,
    /// With listeners for TLS and logins (see `secured.rs`).
    Secured,
}

impl Nodes {
    pub const ALL: [Nodes; 5] = [
        Nodes::Plain,
        Nodes::Equipped,
        Nodes::Transactional,
        Nodes::Sharing,
        Nodes::Secured,
    ];
}

impl Client {
    /// In start order, slowest first.
    const ALL: [Client; 21] = [
        Client::LogDirs,
        Client::Telemetry,
        Client::Java,
        Client::StreamsGroups,
        Client::Kafkajs,
        Client::Tools,
        Client::Settings,
        Client::Franz,
        Client::Sarama,
        Client::Aiokafka,
        Client::Confluent,
        Client::Transactions,
        Client::Shares,
        Client::SecuredJava,
        Client::SecuredDenied,
        Client::SecuredLogins,
        Client::SecuredFranz,
        Client::SecuredSarama,
        Client::SecuredConfluent,
        Client::SecuredAiokafka,
        Client::SecuredKafkajs,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Client::Java => "java",
            Client::Tools => "tools",
            Client::Settings => "settings",
            Client::Confluent => "confluent",
            Client::Aiokafka => "aiokafka",
            Client::Franz => "franz",
            Client::Sarama => "sarama",
            Client::Kafkajs => "kafkajs",
            Client::LogDirs => "log-dirs",
            Client::Telemetry => "telemetry",
            Client::Transactions => "transactions",
            Client::Shares => "shares",
            Client::StreamsGroups => "streams-groups",
            Client::SecuredJava => "secured-java",
            Client::SecuredDenied => "secured-denied",
            Client::SecuredLogins => "secured-logins",
            Client::SecuredFranz => "secured-franz",
            Client::SecuredSarama => "secured-sarama",
            Client::SecuredConfluent => "secured-confluent",
            Client::SecuredAiokafka => "secured-aiokafka",
            Client::SecuredKafkajs => "secured-kafkajs",
        }
    }

    pub fn nodes(self) -> Nodes {
        match self {
            Client::LogDirs | Client::Telemetry => Nodes::Equipped,
            Client::Transactions => Nodes::Transactional,
            Client::Shares => Nodes::Sharing,
            Client::SecuredJava
            | Client::SecuredDenied
            | Client::SecuredLogins
            | Client::SecuredFranz
            | Client::SecuredSarama
            | Client::SecuredConfluent
            | Client::SecuredAiokafka
            | Client::SecuredKafkajs => Nodes::Secured,
            _ => Nodes::Plain,
        }
    }

    /// The clients whose scripts run on such nodes.
    pub fn on(nodes: Nodes) -> impl Iterator<Item = Client> {
        Client::ALL
            .into_iter()
            .filter(move |client| client.nodes() == nodes)
    }
}

/// A client whose script is ready to start: the command lacks only the broker's address.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub client: Client,
    words: Vec<String>,
    dir: PathBuf,
}

impl Prepared {
    /// The command that runs the script against this broker. `more` holds additional arguments that
    /// some scripts need.
    pub fn command(&self, bootstrap: &str, more: &[String]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .arg(bootstrap)
            .args(more)
            .current_dir(&self.dir);
        command
    }
}

/// The clients with these names, or, if there are none, all clients of secured nodes or all other
/// clients.
pub fn selected(names: &[String], are_secured: bool) -> Result<Vec<Client>> {
    if names.is_empty() {
        let all = Client::ALL.into_iter();
        let is_asked_for = |client: &Client| (client.nodes() == Nodes::Secured) == are_secured;
        return Ok(all.filter(is_asked_for).collect());
    }
    let scripts = names.iter().filter(|name| *name != PAIRS);
    scripts
        .map(|name| {
            Client::ALL
                .into_iter()
                .find(|client| client.name() == name)
                .with_context(|| {
                    let all = Client::ALL.map(Client::name);
                    format!(
                        "no client is called `{name}`; there are {}, {PAIRS}",
                        all.join(", ")
                    )
                })
        })
        .collect()
}

/// Installs the prerequisites of the clients, one language at a time.
pub fn prepare(clients: &[Client], kafka: &InstalledPeer) -> Result<Vec<Prepared>> {
    clients
        .iter()
        .map(|client| {
            let name = client.name();
            let words = match client {
                Client::Java => java::program(kafka, "client", "ClientScript"),
                Client::Tools => java::program(kafka, "tools", "ToolsScript"),
                Client::Settings => java::program(kafka, "settings", "SettingsScript"),
                Client::Confluent => python("confluent_script.py"),
                Client::Aiokafka => python("aiokafka_script.py"),
                Client::Franz => go("franz"),
                Client::SecuredJava => java::program(kafka, "secured", "SecuredScript"),
                Client::SecuredDenied => java::program(kafka, "secured", "DeniedSteps"),
                Client::SecuredLogins => java::program(kafka, "secured", "LoginSteps"),
                Client::SecuredFranz => go("secured-franz"),
                Client::SecuredSarama => go("secured-sarama"),
                Client::SecuredConfluent => python("secured_confluent_script.py"),
                Client::SecuredAiokafka => python("secured_aiokafka_script.py"),
                Client::SecuredKafkajs => node("secured_kafkajs_script.js"),
                Client::Sarama => go("sarama"),
                Client::Kafkajs => node("kafkajs_script.js"),
                Client::LogDirs => java::program(kafka, "equipped", "LogDirsScript"),
                Client::Telemetry => java::program(kafka, "equipped", "TelemetryScript"),
                Client::Transactions => java::program(kafka, "transactions", "TransactionsScript"),
                Client::Shares => java::program(kafka, "shares", "ShareScript"),
                Client::StreamsGroups => {
                    let kafka = Peer::load("kafka")?
                        .with_artefact("kafka-streams")
                        .install()?;
                    java::program(&kafka, "streamsgroups", "StreamsGroupsScript")
                }
            }
            .with_context(|| format!("cannot set up the client `{name}`"))?;
            let dir = reference::run_dir("conformance").join("work").join(name);
            std::fs::create_dir_all(&dir)?;
            Ok(Prepared {
                client: *client,
                words,
                dir,
            })
        })
        .collect()
}

fn source_dir() -> PathBuf {
    workspace::root().join("conformance")
}

/// Where packages and programs are kept, for every reference.
fn out_dir() -> PathBuf {
    workspace::target_dir().join("conformance")
}

fn python(script: &str) -> Result<Vec<String>> {
    toolchain::require(&toolchain::PYTHON)?;
    let sources = source_dir().join("python");
    let environment = out_dir().join("python");
    let requirements = sources.join("requirements.txt");
    let binary = environment.join("bin/python");
    once(&environment, &[&requirements], || {
        process::output_of(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
        process::output_of(
            Command::new(&binary)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--only-binary",
                    ":all:",
                    "-r",
                ])
                .arg(&requirements),
        )?;
        Ok(())
    })?;
    Ok(vec![
        binary.display().to_string(),
        sources.join(script).display().to_string(),
    ])
}

fn go(program: &str) -> Result<Vec<String>> {
    let module = source_dir().join("go");
    let go = toolchain::go::for_module(&module)?;
    let binary = out_dir().join("go").join(program);
    process::output_of(
        Command::new(go)
            .args(["build", "-buildvcs=false", toolchain::go::STRIPPED, "-o"])
            .arg(&binary)
            .arg(format!("./{program}"))
            .current_dir(module),
    )?;
    Ok(vec![binary.display().to_string()])
}

fn node(script: &str) -> Result<Vec<String>> {
    toolchain::require(&toolchain::NODE)?;
    toolchain::require(&toolchain::NPM)?;
    let sources = source_dir().join("node");
    let folder = out_dir().join("node");
    let files = ["package.json", "package-lock.json"].map(|name| sources.join(name));
    once(&folder, &[&files[0], &files[1]], || {
        for file in &files {
            std::fs::copy(file, folder.join(file.file_name().unwrap_or_default()))?;
        }
        process::output_of(
            Command::new("npm")
                .args(["ci", "--no-audit", "--no-fund", "--loglevel=error"])
                .current_dir(&folder),
        )?;
        Ok(())
    })?;
    // Node resolves packages and the other file relative to the script.
    for name in [script, "settle.js"] {
        std::fs::copy(sources.join(name), folder.join(name))?;
    }
    let script = folder.join(script).display().to_string();
    Ok(vec!["node".to_owned(), script])
}

/// Fills a folder from the contents of `files`, unless it was already filled from the same
/// contents.
fn once(folder: &Path, files: &[&PathBuf], fill: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut wanted = String::new();
    for file in files {
        wanted
            .push_str(&std::fs::read_to_string(file).with_context(|| file.display().to_string())?);
    }
    // Another suite may fill the folder at the same time. Closing the file releases the lock.
    let mut lock = folder.as_os_str().to_owned();
    lock.push(".lock");
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let lock = std::fs::File::create(lock)?;
    lock.lock()?;
    let mark = folder.join("installed-from");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    workspace::make_empty(folder)?;
    fill()?;
    std::fs::write(mark, wanted)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_selected_by_name_and_unknown_ones_refused_with_the_list() {
        let plain = selected(&[], false).unwrap();
        let secured = selected(&[], true).unwrap();
        assert_eq!(plain.len() + secured.len(), Client::ALL.len());
        assert!(secured.contains(&Client::SecuredJava) && !plain.contains(&Client::SecuredJava));
        let franz = selected(&["franz".to_owned(), "pairs".to_owned()], false).unwrap();
        assert_eq!(franz, [Client::Franz]);
        let error = selected(&["perl".to_owned()], false).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("perl") && error.contains("kafkajs"),
            "{error}"
        );
    }

    #[test]
    fn a_folder_is_rebuilt_when_its_sources_change() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("list");
        let folder = dir.path().join("filled");
        let mut count = 0;
        std::fs::write(&source, "a").unwrap();
        for _ in 0..2 {
            once(&folder, &[&source], || {
                count += 1;
                Ok(())
            })
            .unwrap();
        }
        std::fs::write(&source, "b").unwrap();
        once(&folder, &[&source], || {
            count += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(count, 2);
    }
}
