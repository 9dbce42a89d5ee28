//! What librdkafka makes of the work that Kafka's performance tools do: records of one size to a topic, or from it, as
//! fast as they go, through the `rdkafka` crate. `cargo xtask bench-peer --only client` builds and starts it.
//!
//! The last line is JSON: records, seconds, records per second.

mod consume;
mod produce;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use rdkafka::config::ClientConfig;

#[derive(Parser)]
enum Command {
    /// Until every record is acknowledged.
    Produce(produce::Options),
    /// From the beginning of every partition, without a group.
    Consume(consume::Options),
}

/// By which of librdkafka's ways records go in or come out.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Interface {
    /// The crate's, one record a call.
    Records,
    /// The C library's, an array of records a call, which nothing copies.
    Batches,
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Produce(options) => produce::run(&options),
        Command::Consume(options) => consume::run(&options),
    }
}

fn config_of(settings: &[String]) -> Result<ClientConfig> {
    let mut config = ClientConfig::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .with_context(|| format!("{setting}: give KEY=VALUE"))?;
        config.set(key, value);
    }
    Ok(config)
}

fn report(records: u64, took: Duration) {
    let seconds = took.as_secs_f64();
    println!(
        r#"{{"records":{records},"seconds":{seconds:.3},"records_per_second":{:.1}}}"#,
        records as f64 / seconds
    );
}
