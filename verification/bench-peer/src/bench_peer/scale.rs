//! Costs that grow with partitions, connections, consumers and stored data, on one node.
//!
//! The goals are Ottla's own figures. A peer is measured as far as it survives, in bounded time: if
//! it fails, the report describes the failure, and the run continues.

pub mod clients;
pub mod partitions;
pub mod stored;

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::load::Load;
use super::setting::Setting;
use ottla_peers::{InstalledPeer, Node, NodeOptions};

/// A broker on its own directory, and the load generator.
struct Turn<'a> {
    setting: &'a Setting<'a>,
    broker: &'a InstalledPeer,
    dir: &'a Path,
    overrides: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    launcher: Vec<String>,
    node: Node,
}

impl<'a> Turn<'a> {
    /// Starts the broker with the settings of the command line.
    fn start(setting: &'a Setting<'a>, side: usize, dir: &'a Path) -> Result<Turn<'a>> {
        let overrides = setting.options.overrides.clone();
        Turn::start_with(setting, side, dir, overrides, Vec::new(), Vec::new())
    }

    fn start_with(
        setting: &'a Setting<'a>,
        side: usize,
        dir: &'a Path,
        overrides: Vec<(String, String)>,
        environment: Vec<(String, String)>,
        launcher: Vec<String>,
    ) -> Result<Turn<'a>> {
        let broker = setting.sides[side];
        let options = options(dir, &overrides, &environment, &launcher);
        let node = broker.start(options)?;
        Ok(Turn {
            setting,
            broker,
            dir,
            overrides,
            environment,
            launcher,
            node,
        })
    }

    /// Starts a broker again that was stopped or killed.
    fn start_again(&mut self) -> Result<()> {
        let options = options(self.dir, &self.overrides, &self.environment, &self.launcher);
        self.node = self.broker.start(options)?;
        Ok(())
    }

    /// Whether the broker runs in a Java virtual machine.
    fn is_java(&self) -> bool {
        is_java(self.broker)
    }

    /// A command of the load generator with its arguments.
    fn load(&self, line: &str) -> Result<Value> {
        let load = Load {
            broker_pid: None,
            ..Load::on(self.setting.load_generator()?, &self.node)
        };
        load.run(line)
    }

    /// The same for a command that reports the broker's CPU time.
    fn load_with_usage(&self, line: &str) -> Result<Value> {
        Load::on(self.setting.load_generator()?, &self.node).run(line)
    }
}

fn options(
    dir: &Path,
    overrides: &[(String, String)],
    environment: &[(String, String)],
    launcher: &[String],
) -> NodeOptions {
    NodeOptions {
        dir: dir.to_path_buf(),
        overrides: overrides.to_vec(),
        environment: environment.to_vec(),
        launcher: launcher.to_vec(),
        ..NodeOptions::default()
    }
}

fn is_java(broker: &InstalledPeer) -> bool {
    broker.class_path().is_some()
}

/// The mean of two or more runs.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
