//! The measures of the group coordinator at its limits: 100,000 members of 10,000 groups that send
//! heartbeats, with both protocols, and one group of 10,000 members that members leave.
//!
//! A broker that does not survive a measure, or refuses members, is named in the output, and the
//! other one is measured anyway. A failure of Ottla ends the command.

use anyhow::{Context, Result};
use serde_json::Value;

use super::broker;
use super::disk::Scratch;
use super::load::{Load, number_at};
use super::setting::{Options, Setting};
use super::table::{Results, median};
use ottla_peers::{InstalledPeer, Node, NodeOptions};

/// Delays that are configured, and not measured.
const SETTINGS: [(&str, &str); 1] = [("group.initial.rebalance.delay.ms", "0")];
/// More memory than the peer's start script gives; Java reads it after the command line.
const ENVIRONMENT: [(&str, &str); 1] = [("_JAVA_OPTIONS", "-Xmx4g")];
/// Disk that a turn uses at most, in bytes: mostly the indexes of many partitions.
const DISK: u64 = 4_000_000_000;

const PROTOCOLS: [&str; 2] = ["classic", "consumer"];

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    setting.alternate(results, |side, round, results| {
        let installed = setting.sides[side];
        for protocol in PROTOCOLS {
            let measured = with_node(setting, installed, |node| {
                heartbeats(setting, node, protocol)
            });
            add(setting, results, side, round, measured)?;
        }
        let measured = with_node(setting, installed, |node| large_group(setting, node));
        add(setting, results, side, round, measured)
    })
}

pub fn settings_in_words(options: &Options) -> String {
    format!(
        "{} groups of 10 members, a heartbeat every 3 s over 300 connections, for 30 s; one \
         consumer group of {} members of as many partitions, a heartbeat every second over 100 \
         connections, 5 of them leave one after the other; -Xmx4g for Java",
        options.groups, options.group_members
    )
}

/// Measures by name.
type Measured = Vec<(String, f64)>;

fn add(
    setting: &Setting<'_>,
    results: &mut Results,
    side: usize,
    round: usize,
    measured: Result<Measured>,
) -> Result<()> {
    match measured {
        Ok(measured) => {
            for (measure, value) in measured {
                results.add(side, round, measure, value);
            }
            Ok(())
        }
        Err(error) if side != results.last_side() => {
            let name = setting.sides[side].name();
            println!("    {name} did not survive this: {error:#}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Each measure has its own broker, so that no measure inherits state of another.
fn with_node(
    setting: &Setting<'_>,
    installed: &InstalledPeer,
    measure: impl FnOnce(&Node) -> Result<Measured>,
) -> Result<Measured> {
    let scratch = Scratch::new(installed.id(), DISK)?;
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let mut overrides: Vec<(String, String)> = SETTINGS.map(owned).into();
    overrides.extend(setting.options.overrides.iter().cloned());
    let mut node = installed.start(NodeOptions {
        dir: scratch.path().to_path_buf(),
        overrides,
        environment: ENVIRONMENT.map(owned).into(),
        ..NodeOptions::default()
    })?;
    let measured = measure(&node)?;
    broker::stop(&mut node)?;
    Ok(measured)
}

/// `line` is a command of the load generator with its arguments.
fn load(setting: &Setting<'_>, node: &Node, line: &str) -> Result<Value> {
    let load = Load {
        generator: setting.load_generator()?,
        bootstrap: node.bootstrap(),
        broker_pid: Some(node.pid()),
        command_config: None,
        launcher: Vec::new(),
    };
    load.run(line)
}

fn heartbeats(setting: &Setting<'_>, node: &Node, protocol: &str) -> Result<Measured> {
    let groups = setting.options.groups;
    let line = format!("heartbeats --topic groups --protocol {protocol} --groups {groups}");
    let report = load(setting, node, &line)?;
    let members = groups * 10;
    let name = format!("{members} {protocol} members of {groups} groups");
    let value = |measure: &str, pointer: &str, unit: f64| -> Result<(String, f64)> {
        let value = number_at(&report, pointer)? * unit;
        Ok((format!("{name}: {measure}"), value))
    };
    Ok(vec![
        value("all joined after, s", "/joined_after_seconds", 1.0)?,
        value("broker, % of a core", "/broker/percent_of_a_core", 1.0)?,
        value(
            "broker CPU, µs per heartbeat",
            "/broker/cpu_us_per_heartbeat",
            1.0,
        )?,
        value("heartbeat p50, ms", "/latency/p50_us", 1e-3)?,
        value("heartbeat p99, ms", "/latency/p99_us", 1e-3)?,
        value("heartbeats refused", "/refused", 1.0)?,
        value("broker memory, MB", "/broker/resident_bytes", 1e-6)?,
        value("generator CPU s", "/generator_cpu_seconds", 1.0)?,
    ])
}

fn large_group(setting: &Setting<'_>, node: &Node) -> Result<Measured> {
    let members = setting.options.group_members;
    let line = format!("large-group --topic read --members {members} --partitions {members}");
    let report = load(setting, node, &line)?;
    let settled = report
        .pointer("/settled_after_ms")
        .and_then(Value::as_array);
    let settled = settled.context("the load generator's report has no settled_after_ms")?;
    let mut settled: Vec<f64> = settled.iter().filter_map(Value::as_f64).collect();
    settled.sort_by(f64::total_cmp);
    let longest = settled.last().copied().context("no member has left")?;
    let (quiet, meanwhile) = (
        number_at(&report, "/quiet/p99_us")?,
        number_at(&report, "/meanwhile/p99_us")?,
    );
    let name = |measure: &str| format!("a group of {members} members: {measure}");
    Ok(vec![
        (
            name("all joined and settled after, s"),
            number_at(&report, "/joined_after_seconds")?,
        ),
        (name("one leaves, settled after, ms"), median(&settled)),
        (name("the same, the longest of 5, ms"), longest),
        (name("produce p99 before, µs"), quiet),
        (name("produce p99 meanwhile, µs"), meanwhile),
        (name("produce p99 meanwhile / before"), meanwhile / quiet),
    ])
}
