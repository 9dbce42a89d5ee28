//! Computes the figures of a round after all of its clients are done: from the watches' counters,
//! the topic's size on disk, and the resource usage of the brokers and of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::context::{Context, RoundOutcome};
use super::producing::RoundLoad;
use super::sampling::{BrokerUsage, Sampler};
use super::watch::{ProducerWatch, Watch};
use crate::load::process_usage::ProcessUsage;
use crate::scenario::Load;
use crate::target::Metrics;

/// Timeout for replicas to catch up with their leader after the last write.
const CATCHING_UP: Duration = Duration::from_secs(10);

/// Computes figures from the watches when everything is done.
pub struct FinishedRound<'a> {
    pub context: &'a Context<'a>,
    pub load: &'a RoundLoad,
    pub producers: &'a [Arc<ProducerWatch>],
    pub consumers: &'a [Arc<Watch>],
    /// When the last producer was done, in nanoseconds of the round's clock.
    pub ended: u64,
    pub outcome: RoundOutcome,
}

impl FinishedRound<'_> {
    fn put(&mut self, name: &str, value: f64) {
        self.outcome.round.figures.insert(name.to_owned(), value);
    }

    pub fn count_produced(&mut self) {
        if self.producers.is_empty() {
            return;
        }
        let sum = |count: &dyn Fn(&Watch) -> u64| -> u64 {
            self.producers.iter().map(|it| count(&it.watch)).sum()
        };
        let last = self
            .producers
            .iter()
            .map(|it| it.watch.last())
            .max()
            .unwrap_or(0);
        let window = self.load.window;
        let is_open = !matches!(self.load.load, Load::Closed);
        // A closed load always has records in flight, so its rate counts the records that arrive
        // between two instants. A load with a defined end is over when its last record has arrived.
        let ran_out_of_time = window.end != u64::MAX && self.ended >= window.end;
        let (records, nanoseconds) = if ran_out_of_time && !is_open {
            let (records, _) = sum_of(self.producers.iter().map(|it| it.watch.in_window()));
            (records, window.end - window.start)
        } else {
            let last_due = self.load.last_due.load(Ordering::Relaxed);
            let end = if is_open { last.max(last_due) } else { last };
            let (records, _) = sum_of(self.producers.iter().map(|it| it.watch.since_start()));
            (records, end.saturating_sub(window.start))
        };
        let seconds = nanoseconds as f64 / 1e9;
        let failed = sum(&Watch::failed);
        let given_up = self.load.given_up.load(Ordering::Relaxed);
        if seconds > 0.0 {
            let rate = records as f64 / seconds;
            let mean = self.context.spec.records.size.mean();
            self.put("produce.records_per_second", rate);
            self.put("produce.mb_per_second", rate * mean / 1_048_576.0);
        }
        self.put("produce.failed", failed as f64);
        self.put("produce.seconds", seconds);
        if is_open {
            let last_due = self.load.last_due.load(Ordering::Relaxed);
            let behind = last.saturating_sub(last_due);
            self.put("delay_ms", behind as f64 / 1e6);
        }
        if records == 0 {
            self.outcome.notes.push(
                "nothing was acknowledged within the measured time of a round; give it more (--time)"
                    .to_owned(),
            );
        }
        if failed > 0 {
            let first = self.producers.iter().find_map(|it| it.watch.first_error());
            let note = format!(
                "{failed} records were not written: {}",
                first.unwrap_or("?")
            );
            self.outcome.notes.push(note);
        }
        if given_up > 0 {
            self.outcome.notes.push(
                "the producers fell too far behind the rate, so the round was ended; records that were due and never \
                 sent are missing in the latencies, which were higher"
                    .to_owned(),
            );
        }
        for watch in self.producers {
            let distributions = &mut self.outcome.distributions;
            watch
                .watch
                .add_to(&mut distributions.ack, &mut distributions.ack_from_send);
            watch.watch.add_send_delay_to(&mut distributions.send_delay);
        }
    }

    pub fn count_consumed(&mut self) {
        if self.consumers.is_empty() {
            return;
        }
        let window = self.load.window;
        let in_window = window.end != u64::MAX && !self.producers.is_empty();
        let (records, bytes, nanoseconds) = if in_window && self.load.load == Load::Closed {
            let (records, bytes) = sum_of(self.consumers.iter().map(|it| it.in_window()));
            (records, bytes, window.end - window.start)
        } else {
            let (records, bytes) = sum_of(self.consumers.iter().map(|it| it.since_start()));
            let last = self.consumers.iter().map(|it| it.last()).max();
            let nanoseconds = last.unwrap_or(0).saturating_sub(window.start);
            (records, bytes, nanoseconds)
        };
        let seconds = nanoseconds as f64 / 1e9;
        if seconds > 0.0 {
            self.put("consume.records_per_second", records as f64 / seconds);
            let megabytes = bytes as f64 / 1_048_576.0;
            self.put("consume.mb_per_second", megabytes / seconds);
        }
        for watch in self.consumers {
            let distributions = &mut self.outcome.distributions;
            watch.add_to(&mut distributions.e2e, &mut distributions.e2e_from_send);
        }
    }

    /// Counts acknowledged records that are missing: for each partition, the number acknowledged
    /// minus the number stored. This is a lower bound: duplicates from a producer that is not
    /// idempotent hide as many losses.
    pub async fn count_lost(&mut self) -> Result<()> {
        let topic = self.context.topic;
        if !topic.is_ours {
            return Ok(());
        }
        let mut acknowledged = BTreeMap::new();
        for watch in self.producers {
            watch.add_acknowledged_to(&mut acknowledged);
        }
        let cluster = &self.context.target.cluster;
        let partitions = self.context.spec.topic.partitions;
        let began = Instant::now();
        let lost = loop {
            let held = cluster.record_counts(&topic.name, partitions).await?;
            let lost = acknowledged.iter().map(|(partition, records)| {
                let held = held.get(partition).copied().unwrap_or(0);
                records.saturating_sub(held)
            });
            let lost: u64 = lost.sum();
            // A new leader exposes records only after the other replicas have them.
            if lost == 0 || began.elapsed() > CATCHING_UP {
                break lost;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        self.put("produce.lost", lost as f64);
        Ok(())
    }

    /// The ratio of the topic's size on disk to the size of its values.
    pub async fn count_stored(&mut self) {
        let spec = self.context.spec;
        let values = if self.producers.is_empty() {
            // The records that filled the topic before the round.
            (spec.records.count.unwrap_or(0) as f64 * spec.records.size.mean()) as u64
        } else {
            self.producers.iter().map(|it| it.watch.bytes()).sum()
        };
        let cluster = &self.context.target.cluster;
        if values == 0 || !self.context.topic.is_ours {
            return;
        }
        // Without log directory information from the cluster, both figures are missing.
        if let Ok(stored) = cluster.stored_bytes(&self.context.topic.name).await
            && stored > 0
        {
            let ratio = values as f64 / stored as f64;
            let rate = |name: &str| self.outcome.round.figures.get(name).copied();
            let (produced, consumed) =
                (rate("produce.mb_per_second"), rate("consume.mb_per_second"));
            self.put("produce.compression_ratio", ratio);
            if let Some(produced) = produced {
                self.put("produce.stored_mb_per_second", produced / ratio);
            }
            if let Some(consumed) = consumed {
                self.put("consume.stored_mb_per_second", consumed / ratio);
            }
        }
    }

    /// Bytes of values written and read in the whole round, warm-up included.
    fn moved_bytes(&self) -> u64 {
        let produced: u64 = self.producers.iter().map(|it| it.watch.bytes()).sum();
        let consumed: u64 = self.consumers.iter().map(|it| it.bytes()).sum();
        produced + consumed
    }

    /// Figures from the metrics of a remote cluster's brokers, over the whole round.
    pub fn count_metrics(&mut self, before: &Metrics, after: &Metrics) {
        let since = after.since(before);
        let gigabytes = self.moved_bytes() as f64 / 1_073_741_824.0;
        if let Some(seconds) = since
            .get("process_cpu_seconds_total")
            .filter(|_| gigabytes > 0.0)
        {
            self.put("broker.cpu_seconds_per_gb", seconds / gigabytes);
        }
        if let Some(bytes) = after.get("process_resident_memory_bytes") {
            self.put("broker.peak_memory_mb", bytes / 1_048_576.0);
        }
        self.outcome.round.metrics = since;
    }

    pub fn count_resources(&mut self, sampler: &Sampler, own_before: &ProcessUsage) -> Result<()> {
        let moved = self.moved_bytes();
        let gigabytes = moved as f64 / 1_073_741_824.0;
        if moved == 0 {
            return Ok(());
        }
        let own = ProcessUsage::of_this_process()?;
        let own_seconds = own.cpu.saturating_sub(own_before.cpu).as_secs_f64();
        self.put("generator.cpu_seconds_per_gb", own_seconds / gigabytes);
        let Some(BrokerUsage {
            before,
            after,
            bytes_before,
        }) = sampler.usage()
        else {
            return Ok(());
        };
        // Brokers are sampled from the end of the warm-up, so earlier bytes are excluded too.
        let gigabytes = moved.saturating_sub(bytes_before) as f64 / 1_073_741_824.0;
        if gigabytes <= 0.0 {
            return Ok(());
        }
        let seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        let since = |of: fn(&ProcessUsage) -> u64| of(&after).saturating_sub(of(&before)) as f64;
        let megabytes = |bytes: f64| bytes / 1_048_576.0;
        #[rustfmt::skip]
        let figures = [
            ("broker.cpu_seconds_per_gb", seconds / gigabytes),
            ("broker.peak_memory_mb", megabytes(after.peak_resident_bytes as f64)),
            ("broker.disk_written_mb", megabytes(since(|it| it.disk_written_bytes))),
            ("broker.disk_read_mb", megabytes(since(|it| it.disk_read_bytes))),
            ("broker.major_page_faults", since(|it| it.major_page_faults)),
            ("broker.minor_page_faults", since(|it| it.minor_page_faults)),
            ("broker.voluntary_switches", since(|it| it.voluntary_switches)),
            ("broker.involuntary_switches", since(|it| it.involuntary_switches)),
        ];
        for (name, value) in figures {
            self.put(name, value);
        }
        Ok(())
    }
}

fn sum_of(counts: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}
