//! The consumers of a round, one thread each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::runtime::Handle;

use super::Interruption;
use super::clients::BenchConsumer;
use super::watch::{Age, Watch};
use crate::workload::stamp::stamp_of;

const POLL: Duration = Duration::from_millis(100);
/// Maximum time without a record while records are missing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout for a member to leave its group.
const LEAVE: Duration = Duration::from_secs(10);

/// When a consumer stops.
pub struct StopCondition {
    /// After it has read this many records.
    pub records: u64,
    /// After it has read all records that the producers wrote. Set to their number when the
    /// producers are done.
    pub written: std::sync::OnceLock<u64>,
    pub is_stamped: bool,
    /// Set when another client has failed.
    pub is_over: AtomicBool,
}

impl StopCondition {
    /// Whether a group that has read this many records is done or must stop.
    pub fn is_reached(&self, read: u64, interruption: &Interruption) -> bool {
        let is_over = self.is_over.load(Ordering::Acquire);
        read >= self.target() || interruption.is_set() || is_over
    }

    /// Whether the number of records to read is known, because the producers are done.
    fn is_known(&self) -> bool {
        self.target() != u64::MAX
    }

    fn target(&self) -> u64 {
        self.written.get().copied().unwrap_or(self.records)
    }
}

/// The partitions of one of several consumers that share them.
pub fn partitions_of(number: u32, consumers: u32, partitions: u32) -> Vec<i32> {
    let is_its = |partition: &u32| partition % consumers == number;
    (0..partitions).filter(is_its).map(|it| it as i32).collect()
}

/// Consumes until the stop condition holds, or leaves earlier at a given time of the round's clock.
/// `all` counts the records read by the whole group, because only the group together reads
/// everything.
pub fn consume(
    mut consumer: BenchConsumer,
    watch: &Watch,
    all: &dyn Fn() -> u64,
    until: &StopCondition,
    leaves: Option<u64>,
    runtime: &Handle,
    interruption: &Interruption,
) -> Result<()> {
    runtime.block_on(async {
        let mut last = Instant::now();
        let mut read = 0;
        let mut ages = Vec::new();
        loop {
            let has_left = leaves.is_some_and(|leaves| watch.clock().now() >= leaves);
            if has_left || until.is_reached(all(), interruption) {
                return consumer.close(LEAVE).await;
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
            // A consumer without records waits for the other members of its group.
            if records > 0 || all() != read {
                last = Instant::now();
                read = all();
            }
            if records == 0 {
                if last.elapsed() > PATIENCE && until.is_known() {
                    bail!(
                        "{} of {} records were read, and no further records arrive",
                        all(),
                        until.target()
                    );
                }
                continue;
            }
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

    /// A consumer that waits for missing records must notice the end even if no record arrives.
    #[test]
    fn the_end_is_known_when_all_producers_have_stopped() {
        let until = |records| StopCondition {
            records,
            written: std::sync::OnceLock::new(),
            is_stamped: false,
            is_over: AtomicBool::new(false),
        };
        let interruption = Interruption::default();
        let of_filled_topic = until(10);
        assert!(of_filled_topic.is_known());
        assert!(!of_filled_topic.is_reached(9, &interruption));
        assert!(of_filled_topic.is_reached(10, &interruption));
        let while_written = until(u64::MAX);
        assert!(!while_written.is_known());
        while_written.written.set(5).unwrap();
        assert!(while_written.is_known() && while_written.is_reached(5, &interruption));
    }

    #[test]
    fn shares_cover_all_partitions_once() {
        assert_eq!(partitions_of(0, 1, 3), [0, 1, 2]);
        assert_eq!(partitions_of(0, 2, 3), [0, 2]);
        assert_eq!(partitions_of(1, 2, 3), [1]);
    }
}
