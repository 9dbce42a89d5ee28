//! What both measurements are given and say.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rdkafka::config::ClientConfig;

/// By which of librdkafka's ways records go in or come out.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Interface {
    /// The crate's, one record a call.
    Records,
    /// The C library's, an array of records a call, which nothing copies.
    Batches,
}

pub(super) fn config_of(settings: &[String]) -> Result<ClientConfig> {
    let mut config = ClientConfig::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .with_context(|| format!("{setting}: give KEY=VALUE"))?;
        config.set(key, value);
    }
    Ok(config)
}

pub(super) fn report(records: u64, took: Duration) {
    let seconds = took.as_secs_f64();
    println!(
        r#"{{"records":{records},"seconds":{seconds:.3},"records_per_second":{:.1}}}"#,
        records as f64 / seconds
    );
}
