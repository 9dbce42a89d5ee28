//! `cargo xtask peer`: starts a broker described by `peers/NAME.toml`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use ottla_peers::{Node, NodeOptions, Peer, parse_override};

#[derive(clap::Args)]
pub struct Options {
    /// Which peer: the name of a file in peers/, without `.toml`.
    #[arg(default_value = "kafka")]
    peer: String,
    /// The node's directory: configuration, data and output; by default a new temporary one.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The port of the client listener; the controller listens on the next one.
    #[arg(long, default_value_t = 9092)]
    port: u16,
    /// A setting of the broker that overrides peers/server.properties; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
}

pub fn run(options: &Options) -> Result<()> {
    let installed = Peer::load(&options.peer)?.install()?;
    let temporary = tempfile::Builder::new().prefix("ottla-peer-").tempdir()?;
    let dir = options
        .dir
        .clone()
        .unwrap_or_else(|| temporary.path().to_path_buf());
    let mut node = installed.start(NodeOptions {
        dir: dir.clone(),
        port: Some(options.port),
        overrides: options.overrides.clone(),
        ..NodeOptions::default()
    })?;
    println!(
        "{} answers on {} after {} ms; its folder is {}; Ctrl-C stops it.",
        installed.name(),
        node.bootstrap(),
        node.time_to_first_answer().as_millis(),
        dir.display()
    );
    wait_for_interrupt(&mut node)?;
    node.stop()?;
    Ok(())
}

/// Returns on Ctrl-C, or with an error if the broker exits before that.
fn wait_for_interrupt(node: &mut Node) -> Result<()> {
    static INTERRUPTED: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::SeqCst))?;
    while !INTERRUPTED.load(Ordering::SeqCst) {
        if let Some(status) = node.ended()? {
            bail!(
                "the broker ended by itself ({status}):\n{}",
                node.output_tail()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
