//! `cargo xtask bench-peer`: Ottla and Apache Kafka on this machine, with the same configuration, under the same
//! clients, interleaved over several rounds.
//!
//! One broker runs at a time, on a directory that is new for each round, and the order changes from round to round.
//! The memory that a round will touch is touched before it, since a virtual machine's host takes idle memory back and
//! the first touch costs more than the work that is measured. Each measure is given as the median over the rounds with
//! its lowest and highest value, and so is the ratio of the two brokers within a round; the machine's own noise stands
//! beside.

mod machine;
mod rows;
mod table;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::peer::{InstalledPeer, NodeOptions, Peer, parse_override};
use crate::{process, workspace};

use rows::{Bench, Row};
use table::Results;

#[derive(clap::Args)]
pub struct Options {
    /// How often each broker is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only these measures; may be repeated or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// Records of Kafka's producer and consumer tools.
    #[arg(long, default_value_t = 10_000_000)]
    records: u64,
    /// 10^9 bytes that the native load generator sends in large batches.
    #[arg(long, default_value_t = 10.0)]
    gigabytes: f64,
    /// A setting of both brokers on top of peers/server.properties; may be repeated.
    #[arg(long = "override", value_name = "KEY=VALUE", value_parser = parse_override)]
    overrides: Vec<(String, String)>,
    /// The peer that Ottla is compared with: the name of a file in peers/.
    #[arg(long, default_value = "kafka")]
    peer: String,
    /// Writes the tables to this file as Markdown, too.
    #[arg(long)]
    out: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    if options.rounds == 0 {
        bail!("--rounds must be 1 or more");
    }
    let peer = Peer::load(&options.peer)?.install()?;
    let kafka = match options.peer.as_str() {
        "kafka" => peer.clone(),
        // The Java clients come with it whatever the peer is.
        _ => Peer::load("kafka")?.install()?,
    };
    let ottla = Peer::load("ottla")?.install()?;
    let load_generator = workspace::release_binary("ottla-bench", "ottla-load")?;
    let rows = match options.rows.as_slice() {
        [] => Row::ALL.to_vec(),
        some => some.to_vec(),
    };
    let mut results = Results::new([peer.name(), ottla.name()]);
    for round in 0..options.rounds {
        let mut order = [(0, &peer), (1, &ottla)];
        if round % 2 == 1 {
            order.reverse();
        }
        for (side, broker) in order {
            println!(
                "round {} of {}: {}",
                round + 1,
                options.rounds,
                broker.name()
            );
            machine::touch_memory(memory_of_a_round(options))?;
            results.add_noise(machine::noise());
            let measured = measure(broker, &kafka, &load_generator, &rows, options)?;
            for (measure, value) in measured {
                println!("    {measure}: {}", table::number(value));
                results.add(side, round, measure, value);
            }
        }
    }
    let text = results.markdown(&conditions(options)?);
    println!("{text}");
    if let Some(file) = &options.out {
        std::fs::write(workspace::root().join(file), &text)?;
    }
    Ok(())
}

/// One broker's measures in one round.
fn measure(
    broker: &InstalledPeer,
    kafka: &InstalledPeer,
    load_generator: &std::path::Path,
    rows: &[Row],
    options: &Options,
) -> Result<Vec<(String, f64)>> {
    let dir = workspace::target_dir().join("bench-peer").join(broker.id());
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let node = broker.start(NodeOptions {
        dir: dir.clone(),
        port: None,
        overrides: options.overrides.clone(),
        ..NodeOptions::default()
    })?;
    let mut bench = Bench {
        node,
        kafka,
        load_generator,
        records: options.records,
        gigabytes: options.gigabytes,
        measured: Vec::new(),
    };
    for row in rows {
        bench.run(*row)?;
    }
    bench.node.stop()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(bench.measured)
}

/// Page cache and memory that the rows go through, as far as this machine has them.
fn memory_of_a_round(options: &Options) -> u64 {
    let wanted = options.records * 110 + (options.gigabytes * 2e9) as u64;
    wanted.min(machine::available_memory() / 2)
}

/// What the numbers hold for.
fn conditions(options: &Options) -> Result<Vec<String>> {
    let commit = process::output_of(
        std::process::Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    )?;
    let mut conditions = vec![
        format!("commit {}", commit.trim()),
        machine::description(),
        format!(
            "{} rounds, {} records of Kafka's tools, {} GB of the native load generator",
            options.rounds, options.records, options.gigabytes
        ),
    ];
    for (key, value) in &options.overrides {
        conditions.push(format!("{key}={value}"));
    }
    Ok(conditions)
}
