//! Starts a node from an unpacked package with the package's configuration.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use ottla_ports::lease_ports;
use ottla_workspace::process::{OwnedChild, output_of, retried};

use crate::contents::{BINARY, CONFIGURATION, SCRIPTS};

const PATIENCE: Duration = Duration::from_secs(30);

/// Formats, starts, creates a topic through a script link, and stops.
pub fn starts_from(root: &Path, data: &Path) -> Result<String> {
    let binary = root.join(&BINARY[1..]);
    let [clients, controllers] = lease_ports()?;
    // Only ports and directory are changed for this check.
    let configuration = std::fs::read_to_string(root.join(&CONFIGURATION[1..]))?
        .replace("127.0.0.1:9092", &format!("127.0.0.1:{clients}"))
        .replace("127.0.0.1:9093", &format!("127.0.0.1:{controllers}"))
        .replace("/var/lib/ottla/data", &data.display().to_string());
    let file = root.with_extension("properties");
    std::fs::write(&file, configuration)?;
    let id = output_of(Command::new(&binary).args(["storage", "random-uuid"]))?;
    let mut format = Command::new(&binary);
    format.args([
        "storage",
        "format",
        "--standalone",
        "--cluster-id",
        id.trim(),
        "--config",
    ]);
    output_of(format.arg(&file))?;

    let output = root.with_extension("output");
    let log = File::create(&output)?;
    let mut node = OwnedChild::start(
        Command::new(&binary)
            .arg("server")
            .arg(&file)
            .env("OTTLA_LOG_FORMAT", "text")
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log)),
    )?;
    let script = root.join(&SCRIPTS[1..]).join("kafka-topics.sh");
    let address = format!("127.0.0.1:{clients}");
    let topics = |arguments: &[&str]| {
        let mut command = Command::new(&script);
        output_of(
            command
                .args(["--bootstrap-server", &address])
                .args(arguments),
        )
    };
    retried(PATIENCE, "the node does not answer", || {
        std::net::TcpStream::connect(&address).context("it does not listen")
    })
    .with_context(|| std::fs::read_to_string(&output).unwrap_or_default())?;
    topics(&["--create", "--topic", "packaged", "--partitions", "3"])?;
    let listed = topics(&["--list"])?;
    ensure!(listed.trim() == "packaged", "the topics are {listed}");
    let status = node.stop(PATIENCE)?;
    let printed = std::fs::read_to_string(&output)?;
    ensure!(status.success(), "the node ended with {status}:\n{printed}");
    ensure!(
        !printed.contains('\u{1b}'),
        "the output for the journal has colours:\n{printed}"
    );
    Ok("one topic, and a clean stop".to_owned())
}
