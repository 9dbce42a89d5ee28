//! `cargo xtask bench-peer`: measures Ottla and Apache Kafka on this machine, with the same
//! configuration and clients, interleaved over several rounds.
//!
//! One broker or cluster runs at a time, and the order changes from round to round. Measures are
//! grouped: one node on an empty directory (the default); start and recovery of one directory with
//! thousands of partitions, handed from broker to broker; the cleaners; latency during segment
//! rolls; three clients of one Ottla broker; TLS and logins; three-broker clusters: throughput and
//! failover; costs that grow with partitions, connections, consumers and stored data; very many or
//! very large groups; and tiered storage. Memory that a turn will use is touched first, because the
//! host of a virtual machine reclaims idle memory and the first touch costs more than the measured
//! work. Each measure is reported as the median over the rounds with its range, as is the ratio of
//! the two brokers within a round, together with the machine's noise and the goals. A failing
//! broker or client ends the command with an error, except a peer in the groups of `security`,
//! `scale` and `tiered`, which is noted.

mod broker;
mod clients;
mod cluster;
mod compaction;
mod disk;
mod failover;
mod goals;
mod groups;
mod handed_over;
mod load;
mod machine;
mod node;
mod rolls;
mod rows;
mod scale;
mod security;
mod setting;
mod table;
mod tiered;

use anyhow::{Result, bail};
use clap::ValueEnum;

use ottla_peers::Peer;
use ottla_workspace::{process, workspace};

use rows::Row;
pub use setting::Options;
use setting::{Group, Part, Setting};
use table::Results;

pub fn run(options: &Options) -> Result<()> {
    if options.list {
        list();
        return Ok(());
    }
    if options.rounds == 0 {
        bail!("--rounds must be 1 or more");
    }
    if options.gigabytes.is_some_and(|gigabytes| gigabytes <= 0.0) {
        bail!("--gigabytes must be more than 0");
    }
    options.check_cluster()?;
    let peer = options.load_peer()?.install()?;
    let kafka = match peer.id() {
        "kafka" => peer.clone(),
        // Every peer needs it for the Java clients.
        _ => Peer::load("kafka")?.install()?,
    };
    let ottla = Peer::load("ottla")?.install()?;
    let load_generator = if options.only.iter().any(Group::needs_load_generator) {
        Some(workspace::release_binary("ottla-bench", "ottla-load")?)
    } else {
        None
    };
    let mut text = String::new();
    for group in &options.only {
        let setting = Setting {
            options,
            group: *group,
            sides: [&peer, &ottla],
            kafka: &kafka,
            load_generator: load_generator.as_deref(),
        };
        let mut results = match group {
            Group::Client => Results::new(&clients::NAMES),
            Group::Failover => Results::new(&failover::NAMES),
            _ => Results::new(&[peer.name(), ottla.name()]),
        };
        match group {
            Group::Node => node::measure(&setting, &mut results)?,
            Group::Start => handed_over::start(&setting, &mut results)?,
            Group::Recovery => handed_over::recovery(&setting, &mut results)?,
            Group::Compaction => compaction::measure(&setting, &mut results)?,
            Group::Rolls => rolls::measure(&setting, &mut results)?,
            Group::Client => clients::measure(&setting, &mut results)?,
            Group::Failover => failover::measure(&setting, &mut results)?,
            Group::Security => security::measure(&setting, &mut results)?,
            Group::Cluster => cluster::measure(&setting, &mut results)?,
            Group::Partitions => scale::partitions::measure(&setting, &mut results)?,
            Group::Scale => scale::clients::measure(&setting, &mut results)?,
            Group::Stored => scale::stored::measure(&setting, &mut results)?,
            Group::Groups => groups::measure(&setting, &mut results)?,
            Group::Tiered => tiered::measure(&setting, &mut results)?,
        }
        let table = results.markdown(&conditions(&setting)?);
        // The goals are defined relative to Kafka.
        let goals = match options.other_build {
            Some(_) => String::new(),
            None => goals::markdown(&results),
        };
        let part = format!("## {}\n\n{table}\n{goals}", setting.name());
        println!("\n{part}");
        text.push_str(&part);
        text.push('\n');
        // Written after each group, so that results survive a later failure.
        if let Some(file) = &options.out {
            std::fs::write(workspace::root().join(file), &text)?;
        }
    }
    Ok(())
}

fn list() {
    fn show<T: ValueEnum>(values: &[T]) {
        for value in values.iter().filter_map(ValueEnum::to_possible_value) {
            let help = value.get_help().map(ToString::to_string);
            println!("  {:16} {}", value.get_name(), help.unwrap_or_default());
        }
    }
    println!("groups, for --only:");
    show(Group::value_variants());
    println!("rows of the group node, for --rows:");
    show(Row::value_variants());
    println!("parts of the group cluster, for --parts:");
    show(Part::value_variants());
}

/// The conditions of the measurement.
fn conditions(setting: &Setting<'_>) -> Result<Vec<String>> {
    let options = setting.options;
    let commit = process::output_of(
        std::process::Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(workspace::root()),
    )?;
    let partitions = options.directory_partitions();
    let load = match setting.group {
        Group::Node => format!(
            "{} records of Kafka's tools, {} GB of the native load generator, files of deleted topics deleted after 1 s",
            options.node_records(),
            options.gigabytes_or(10.0)
        ),
        Group::Start => format!(
            "{partitions} partitions with a few records each, one directory handed from broker to broker, its files \
             written back and read before each start"
        ),
        Group::Recovery => format!(
            "{partitions} partitions and {} GB, all after the recovery point, one directory handed from broker to \
             broker, its files written back and read before each start",
            options.gigabytes_or(10.0)
        ),
        Group::Compaction => format!(
            "{} GB of 1 KB records, 10 % live, the cleaners without their brokers, the log in the page cache",
            options.gigabytes_or(5.0)
        ),
        Group::Rolls => format!(
            "one partition, batches of 64 KiB at {} MB/s, {} segments of 64 MiB, retention 1 GiB looked at every 5 s",
            options.roll_megabytes_per_second, options.rolls
        ),
        Group::Client => format!(
            "{} records of 100 bytes, 6 partitions, one broker, {}; {}",
            options.node_records(),
            setting.sides[1].name(),
            clients::settings_in_words()
        ),
        Group::Failover => failover::settings_in_words(options.session_timeout_ms),
        Group::Security => security::settings_in_words(options.gigabytes_or(1.0)),
        Group::Cluster => cluster::settings_in_words(options),
        Group::Partitions => scale::partitions::settings_in_words(options),
        Group::Scale => scale::clients::settings_in_words(options),
        Group::Stored => scale::stored::settings_in_words(options),
        Group::Groups => groups::settings_in_words(options),
        Group::Tiered => tiered::settings_in_words(options),
    };
    let mut conditions = vec![
        format!("commit {}", commit.trim()),
        machine::description(),
        format!("{} rounds, {load}", options.rounds),
    ];
    for variable in ["OTTLA_BINARY", "OTTLA_LOAD_BINARY"] {
        if std::env::var_os(variable).is_some() {
            conditions.push(format!(
                "{variable} names a build that may be of another commit"
            ));
        }
    }
    for (key, value) in &options.overrides {
        conditions.push(format!("{key}={value}"));
    }
    Ok(conditions)
}
