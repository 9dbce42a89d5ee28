//! What librdkafka makes of the work that Kafka's performance tools do: records of one size to a topic, or from it, as
//! fast as they go, through the `rdkafka` crate. `cargo xtask bench-peer --only client` builds and starts it.
//!
//! The last line is JSON: records, seconds, records per second.

mod consume;
mod measurement;
mod produce;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
enum Command {
    /// Until every record is acknowledged.
    Produce(produce::Options),
    /// From the beginning of every partition, without a group.
    Consume(consume::Options),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Produce(options) => produce::run(&options),
        Command::Consume(options) => consume::run(&options),
    }
}
