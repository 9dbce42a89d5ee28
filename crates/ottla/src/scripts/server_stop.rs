//! `ottla server-stop`: Kafka's `kafka-server-stop.sh`.
//!
//! Finds the servers on this machine by their command lines, as Kafka's script does, and sends each
//! a signal. `--node-id` and `--process-role` (KIP-979) select servers by their configuration
//! files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ottla_config::Properties;

use super::script_name;
use crate::{container, node_properties, server};

/// Stop the Ottla servers that run on this machine.
///
/// The signal is SIGTERM; another can be named with the variable SIGNAL.
#[derive(Args, Debug)]
pub struct ServerStopArgs {
    /// Only the server with this node.id.
    #[arg(long, value_name = "ID")]
    node_id: Option<i32>,
    /// Only servers with this role: broker or controller.
    #[arg(long, value_name = "ROLE", value_parser = ["broker", "controller"])]
    process_role: Option<String>,
}

/// A process with a server's command line.
struct Server {
    process: i32,
    properties: Properties,
}

pub fn run(args: &ServerStopArgs) -> ExitCode {
    let signal_name = std::env::var("SIGNAL").unwrap_or_else(|_| "TERM".into());
    let Some(signal) = signal_number(&signal_name) else {
        eprintln!("SIGNAL={signal_name}: unknown signal; use TERM, INT, QUIT, HUP or KILL");
        return ExitCode::FAILURE;
    };
    let servers = running_servers();
    if servers.is_empty() {
        println!("No kafka server to stop");
        return ExitCode::FAILURE;
    }
    let chosen: Vec<&Server> = servers
        .iter()
        .filter(|server| is_chosen(args, &server.properties))
        .collect();
    if chosen.is_empty() {
        match (args.node_id, &args.process_role) {
            (Some(id), _) => println!("No kafka server to stop with 'node.id' {id}"),
            (None, role) => println!(
                "No kafka server to stop with 'process.roles' {}",
                role.as_deref().unwrap_or_default()
            ),
        }
        return ExitCode::FAILURE;
    }
    let mut status = ExitCode::SUCCESS;
    for server in chosen {
        if let Err(error) = send(server.process, signal) {
            eprintln!(
                "cannot stop the server with process ID {}: {error}",
                server.process
            );
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// As in Kafka's script: if both are given, the node ID decides.
fn is_chosen(args: &ServerStopArgs, properties: &Properties) -> bool {
    if let Some(id) = args.node_id {
        let own = properties
            .value("node.id")
            .or(properties.value("broker.id"));
        return own.and_then(|own| own.trim().parse().ok()) == Some(id);
    }
    match &args.process_role {
        Some(role) => properties
            .value("process.roles")
            .is_some_and(|roles| roles.split(',').any(|it| it.trim() == role)),
        None => true,
    }
}

fn signal_number(name: &str) -> Option<i32> {
    Some(match name.trim_start_matches("SIG") {
        "TERM" | "15" => libc::SIGTERM,
        "INT" | "2" => libc::SIGINT,
        "QUIT" | "3" => libc::SIGQUIT,
        "HUP" | "1" => libc::SIGHUP,
        "KILL" | "9" => libc::SIGKILL,
        _ => return None,
    })
}

fn send(process: i32, signal: i32) -> std::io::Result<()> {
    // SAFETY: the call takes two numbers and touches no memory; `process` is positive, so it
    // addresses one process and not a group.
    match unsafe { libc::kill(process, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The running servers; processes that exit during the search are skipped.
fn running_servers() -> Vec<Server> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    let mut servers = Vec::new();
    for entry in processes.flatten() {
        let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
            .filter(|process| *process > 0 && process.cast_unsigned() != own)
        else {
            continue;
        };
        let Ok(bytes) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line: Vec<String> = bytes
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let folder = || std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if let Some(configured) = Configured::by(&line) {
            servers.push(Server {
                process,
                properties: configured.properties(&folder()),
            });
        }
    }
    servers.sort_by_key(|server| server.process);
    servers
}

/// Where the settings of a server are, according to its command line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Configured {
    /// `None` for a server that has the settings of a single node.
    file: Option<PathBuf>,
    /// `key=value`
    overrides: Vec<String>,
}

impl Configured {
    /// `None` unless it is a server's command line.
    fn by(line: &[String]) -> Option<Configured> {
        let command = line.get(1).map_or("", String::as_str);
        match script_name(line.first()?) {
            "ottla" => match command {
                "server" | "server-start" => Some(Configured::by_arguments(line.get(2..)?)),
                "container-run" => Some(Configured {
                    file: Some(container::final_config(line.get(2..)?)),
                    overrides: Vec::new(),
                }),
                _ => None,
            },
            "kafka-server-start" => Some(Configured::by_arguments(line.get(1..)?)),
            "kafka-run-class" => {
                let class = line.iter().position(|word| word == "kafka.Kafka")?;
                Some(Configured::by_arguments(line.get(class + 1..)?))
            }
            _ => None,
        }
    }

    fn by_arguments(arguments: &[String]) -> Configured {
        let mut configured = Configured {
            file: None,
            overrides: Vec::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match (word.strip_prefix("--override="), word.as_str()) {
                (Some(setting), _) => configured.overrides.push(setting.to_owned()),
                (None, "--override") => configured.overrides.extend(words.next().cloned()),
                (None, "--ends-with" | "--name") => drop(words.next()),
                (None, "") => {}
                (None, other) if !other.starts_with('-') && configured.file.is_none() => {
                    configured.file = Some(PathBuf::from(other));
                }
                (None, _) => {}
            }
        }
        configured
    }

    /// The settings, as far as they can be read. A relative path is below `folder`.
    fn properties(&self, folder: &Path) -> Properties {
        let mut properties = match &self.file {
            Some(file) => {
                let file = folder.join(file);
                let name = file.display().to_string();
                let bytes = std::fs::read(&file).ok();
                bytes
                    .and_then(|bytes| Properties::parse_bytes(&bytes, &name).ok())
                    .unwrap_or_else(|| Properties::new("the command line"))
            }
            None => server::properties_without_a_file(),
        };
        // A server with an invalid override does not run.
        let _ = node_properties::override_with(&mut properties, &self.overrides);
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(line: &[&str]) -> Option<Configured> {
        let line: Vec<String> = line.iter().map(|it| (*it).to_owned()).collect();
        Configured::by(&line)
    }

    #[test]
    fn servers_are_recognized_by_their_command_lines() {
        for (line, file) in [
            (
                &["/usr/bin/ottla", "server", "s.properties"][..],
                Some("s.properties"),
            ),
            (
                &["bin/kafka-server-start.sh", "s.properties"],
                Some("s.properties"),
            ),
            (
                &["kafka-run-class.sh", "-name", "x", "kafka.Kafka", "f"],
                Some("f"),
            ),
            (
                &["/usr/bin/ottla", "server", "--ends-with", "12", "f"],
                Some("f"),
            ),
            (&["ottla", "server"], None),
            (
                &["/usr/bin/ottla", "container-run"],
                Some("/opt/kafka/config/server.properties"),
            ),
            (
                &["ottla", "container-run", "--final-configs-dir=c"],
                Some("c/server.properties"),
            ),
        ] {
            let expected = Configured {
                file: file.map(PathBuf::from),
                overrides: Vec::new(),
            };
            assert_eq!(configured(line), Some(expected), "{line:?}");
        }
        for other in [
            &["ottla", "topics", "server"][..],
            &["vi", "kafka-server-start.sh"],
            &["java", "kafka.Kafka", "s.properties"],
            &[""],
        ] {
            assert_eq!(configured(other), None, "{other:?}");
        }
    }

    #[test]
    fn servers_are_selected_by_their_settings() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("s.properties"),
            "node.id=7\nprocess.roles=broker, controller\n",
        )
        .unwrap();
        let chosen = |node_id, role: Option<&str>, words: &[&str]| {
            let args = ServerStopArgs {
                node_id,
                process_role: role.map(str::to_owned),
            };
            let line = [&["ottla", "server"][..], words].concat();
            let configured = configured(&line).expect("a server");
            is_chosen(&args, &configured.properties(folder.path()))
        };
        assert!(chosen(Some(7), None, &["s.properties"]));
        assert!(!chosen(Some(8), None, &["s.properties"]));
        assert!(chosen(
            Some(8),
            Some("nothing"),
            &["s.properties", "--override", "node.id=8"]
        ));
        assert!(chosen(None, Some("controller"), &["s.properties"]));
        assert!(!chosen(None, Some("broker"), &["missing.properties"]));
        assert!(chosen(None, None, &["missing.properties"]));
        // Without a file: the node of the built-in configuration.
        assert!(chosen(Some(1), None, &[]));
        assert!(!chosen(Some(2), None, &[]));
        assert!(chosen(Some(2), None, &["--override=node.id=2"]));
        assert!(chosen(
            None,
            Some("broker"),
            &["--override", "num.partitions=2"]
        ));
    }
}
