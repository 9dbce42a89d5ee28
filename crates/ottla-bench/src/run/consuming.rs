//! The consumers of a round: a thread each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::runtime::Handle;

use super::Interruption;
use super::clients::BenchConsumer;
use super::watch::{Age, Watch};
use crate::workload::stamp::stamp_of;

const POLL: Duration = Duration::from_millis(100);
/// Nothing has come for so long although something is missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a consumer is done.
pub struct Until {
    /// It has read so many records.
    pub records: u64,
    /// Or the producers are done, and it has read what they have written, which is then in here.
    pub written: std::sync::OnceLock<u64>,
    pub is_stamped: bool,
    /// Somebody else has failed.
    pub is_over: AtomicBool,
}

/// The partitions of one of several consumers that share them.
pub fn partitions_of(number: u32, consumers: u32, partitions: u32) -> Vec<i32> {
    let is_its = |partition: &u32| partition % consumers == number;
    (0..partitions).filter(is_its).map(|it| it as i32).collect()
}

/// Reads until it is done. `all` is what its group has read, since only together they read everything.
pub fn consume(
    mut consumer: BenchConsumer,
    watch: &Watch,
    all: &dyn Fn() -> u64,
    until: &Until,
    runtime: &Handle,
    interruption: &Interruption,
) -> Result<()> {
    runtime.block_on(async {
        let mut last = Instant::now();
        let mut ages = Vec::new();
        loop {
            let target = until.written.get().copied().unwrap_or(until.records);
            let is_over = until.is_over.load(Ordering::Acquire);
            if all() >= target || interruption.is_set() || is_over {
                return Ok(());
            }
            let mut bytes = 0;
            ages.clear();
            let records = consumer
                .poll(POLL, |value| {
                    bytes += value.len() as u64;
                    if until.is_stamped {
                        ages.push(stamp_of(value));
                    }
                })
                .await?;
            if records == 0 {
                if last.elapsed() > PATIENCE && until.written.get().is_some() {
                    bail!("{} of {target} records were read, and no more come", all());
                }
                continue;
            }
            last = Instant::now();
            let now = watch.clock().now();
            watch.add(now, records, bytes);
            if until.is_stamped {
                let age = |(moment, is_measured): (crate::workload::pacing::Moment, bool)| Age {
                    since_due_ns: now.saturating_sub(moment.due),
                    since_sent_ns: now.saturating_sub(moment.sent),
                    is_measured,
                };
                watch.record(ages.iter().flatten().map(|it| age(*it)));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_partitions_once() {
        assert_eq!(partitions_of(0, 1, 3), [0, 1, 2]);
        assert_eq!(partitions_of(0, 2, 3), [0, 2]);
        assert_eq!(partitions_of(1, 2, 3), [1]);
    }
}
