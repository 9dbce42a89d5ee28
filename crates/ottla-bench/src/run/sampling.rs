//! Samples a running round: rates and latencies by interval, disk and threads of local brokers, and
//! the times of segment rolls and disk flushes.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::periods::{Interval, Periods};
use super::progress::{Moment, Progress};
use super::watch::{ProducerWatch, Watch, Window};
use crate::load::process_usage::ProcessUsage;
use crate::results::curve::{max_ms, quantile_ms};
use crate::results::{Mark, MarkKind, Round, Sample};
use crate::target::RunningTarget;
use crate::workload::latencies::Latencies;
use crate::workload::pacing::RunClock;

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// The approximate maximum number of samples in a series.
const SAMPLES: u32 = 300;
/// A round of unknown length halves the resolution of its series beyond this number of samples.
const MOST_SAMPLES: usize = 1200;

/// Samples a round, interval by interval.
pub struct Sampler<'a> {
    context: &'a Context<'a>,
    clock: RunClock,
    window: Window,
    producers: Vec<Arc<ProducerWatch>>,
    consumers: Vec<Arc<Watch>>,
    interval: Duration,
    last: Counts,
    last_second: f64,
    samples: Vec<Sample>,
    periods: Periods,
    marks: Vec<Mark>,
    segments: Segments,
    disk: Option<Disk>,
    /// The usage of local brokers.
    usage: Option<BrokerUsage>,
}

/// The usage of local brokers at the start of the window, and at the last sample.
#[derive(Clone, Copy)]
pub struct BrokerUsage {
    pub before: ProcessUsage,
    pub after: ProcessUsage,
    /// Bytes of values written and read before the window began.
    pub bytes_before: u64,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    produced: u64,
    consumed: u64,
    failed: u64,
    disk: DiskCounts,
    usage: Option<ProcessUsage>,
}

impl<'a> Sampler<'a> {
    pub fn new(
        context: &'a Context<'a>,
        clock: RunClock,
        window: Window,
        producers: Vec<Arc<ProducerWatch>>,
        consumers: Vec<Arc<Watch>>,
    ) -> Sampler<'a> {
        let length = match window.end {
            u64::MAX => Duration::from_secs(30),
            end => Duration::from_nanos(end),
        };
        let mut sampler = Sampler {
            interval: (length / SAMPLES).clamp(SHORTEST, LONGEST),
            context,
            clock,
            window,
            producers,
            consumers,
            last: Counts::default(),
            last_second: 0.0,
            samples: Vec::new(),
            periods: Periods::default(),
            marks: Vec::new(),
            segments: Segments::of(context.target, &context.topic.name),
            disk: Disk::under(context.target),
            usage: None,
        };
        sampler.segments.look();
        sampler.last = sampler.counts();
        sampler.usage = sampler.last.usage.map(|usage| BrokerUsage {
            before: usage,
            after: usage,
            bytes_before: 0,
        });
        sampler.last_second = sampler.second();
        sampler
    }

    /// Seconds since the measurement began.
    fn second(&self) -> f64 {
        (self.clock.now() as f64 - self.window.start as f64) / 1e9
    }

    fn counts(&self) -> Counts {
        Counts {
            produced: self.producers.iter().map(|it| it.watch.records()).sum(),
            consumed: self.consumers.iter().map(|it| it.records()).sum(),
            failed: self.producers.iter().map(|it| it.watch.failed()).sum(),
            disk: self.disk.as_ref().and_then(Disk::read).unwrap_or_default(),
            usage: self
                .context
                .target
                .local
                .as_ref()
                .and_then(|it| it.usage().ok()),
        }
    }

    pub async fn wait_and_look(&mut self) {
        tokio::time::sleep(self.interval).await;
        self.look();
    }

    fn look(&mut self) {
        let second = self.second();
        let elapsed = second - self.last_second;
        if elapsed < 0.02 {
            return;
        }
        let counts = self.counts();
        let (mut ack, mut e2e) = (Latencies::default(), Latencies::default());
        let mut send_delay = Latencies::default();
        for watch in &self.producers {
            watch.watch.take_interval(&mut ack, &mut send_delay);
        }
        for watch in &self.consumers {
            watch.take_interval(&mut e2e, &mut Latencies::default());
        }
        let of = |latencies: &Latencies, value: f64| (latencies.count() > 0).then_some(value);
        let switches = |of: fn(&ProcessUsage) -> u64| {
            let (now, before) = (counts.usage?, self.last.usage?);
            Some(of(&now).saturating_sub(of(&before)))
        };
        let has_disk = self.disk.is_some();
        let busy = counts.disk.busy_ms.saturating_sub(self.last.disk.busy_ms) as f64 / 1e3;
        let written = counts.disk.written.saturating_sub(self.last.disk.written);
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed;
        let sample = Sample {
            second,
            produced_per_second: per_second(counts.produced, self.last.produced),
            consumed_per_second: per_second(counts.consumed, self.last.consumed),
            stored_bytes: self.producers.iter().map(|it| it.watch.bytes()).sum(),
            ack_p50_ms: of(&ack, quantile_ms(&ack, 0.5)),
            ack_p99_ms: of(&ack, quantile_ms(&ack, 0.99)),
            ack_max_ms: of(&ack, max_ms(&ack)),
            e2e_p99_ms: of(&e2e, quantile_ms(&e2e, 0.99)),
            e2e_max_ms: of(&e2e, max_ms(&e2e)),
            disk_utilisation: has_disk.then_some((busy / elapsed).min(1.0)),
            disk_written_bytes: has_disk.then_some(written),
            voluntary_switches: switches(|it| it.voluntary_switches),
            involuntary_switches: switches(|it| it.involuntary_switches),
        };
        self.samples.push(sample);
        if self.last_second >= 0.0 {
            let groups = u64::from(self.context.spec.consumers.groups);
            self.periods.add(Interval {
                second,
                seconds: elapsed,
                produced: counts.produced.saturating_sub(self.last.produced),
                consumed: counts.consumed.saturating_sub(self.last.consumed),
                failed: counts.failed.saturating_sub(self.last.failed),
                backlog: if self.consumers.is_empty() {
                    0
                } else {
                    (counts.produced * groups).saturating_sub(counts.consumed)
                },
                ack: &ack,
                send_delay: &send_delay,
                e2e: &e2e,
            });
        }
        for what in self.segments.look() {
            self.mark(second, MarkKind::SegmentRoll, what);
        }
        let flushes = counts.disk.flushes.saturating_sub(self.last.disk.flushes);
        if has_disk && flushes > 0 {
            self.mark(
                second,
                MarkKind::Flush,
                format!("{flushes} flushes of the disk"),
            );
        }
        if let (Some(used), Some(now)) = (&mut self.usage, counts.usage) {
            if self.last_second < 0.0 {
                let produced: u64 = self.producers.iter().map(|it| it.watch.bytes()).sum();
                let consumed: u64 = self.consumers.iter().map(|it| it.bytes()).sum();
                (used.before, used.bytes_before) = (now, produced + consumed);
            }
            used.after = now;
        }
        self.show(&sample);
        (self.last, self.last_second) = (counts, second);
        if self.samples.len() > MOST_SAMPLES {
            self.halve();
        }
    }

    /// Records an event caused by the round itself.
    pub fn mark_now(&mut self, kind: MarkKind, what: String) {
        self.mark(self.second(), kind, what);
    }

    fn mark(&mut self, second: f64, kind: MarkKind, what: String) {
        self.marks.push(Mark { second, kind, what });
    }

    fn show(&self, sample: &Sample) {
        let left = match self.window.end {
            u64::MAX => self.left_by_count(sample),
            end => Some(Duration::from_nanos(end.saturating_sub(self.clock.now()))),
        };
        let moment = Moment {
            records_per_second: if self.producers.is_empty() {
                sample.consumed_per_second
            } else {
                sample.produced_per_second
            },
            p99_ms: sample.e2e_p99_ms.or(sample.ack_p99_ms),
            left,
        };
        let progress: &Progress = self.context.progress;
        progress.show(&self.context.title, moment);
    }

    fn left_by_count(&self, sample: &Sample) -> Option<Duration> {
        let spec = self.context.spec;
        let all = spec.records.count?;
        let (all, done, rate) = if self.producers.is_empty() {
            let all = all * u64::from(spec.consumers.count);
            (all, self.last.consumed, sample.consumed_per_second)
        } else {
            (all, self.last.produced, sample.produced_per_second)
        };
        Duration::try_from_secs_f64(all.saturating_sub(done) as f64 / rate).ok()
    }

    /// Merges adjacent samples, so that a long round has a coarser series.
    fn halve(&mut self) {
        self.interval = (self.interval * 2).min(LONGEST * 4);
        let merge = |pair: &[Sample]| match pair {
            [a, b] => Sample {
                produced_per_second: (a.produced_per_second + b.produced_per_second) / 2.0,
                consumed_per_second: (a.consumed_per_second + b.consumed_per_second) / 2.0,
                ack_p50_ms: larger(a.ack_p50_ms, b.ack_p50_ms),
                ack_p99_ms: larger(a.ack_p99_ms, b.ack_p99_ms),
                ack_max_ms: larger(a.ack_max_ms, b.ack_max_ms),
                e2e_p99_ms: larger(a.e2e_p99_ms, b.e2e_p99_ms),
                e2e_max_ms: larger(a.e2e_max_ms, b.e2e_max_ms),
                disk_utilisation: larger(a.disk_utilisation, b.disk_utilisation),
                disk_written_bytes: sum(a.disk_written_bytes, b.disk_written_bytes),
                voluntary_switches: sum(a.voluntary_switches, b.voluntary_switches),
                involuntary_switches: sum(a.involuntary_switches, b.involuntary_switches),
                ..*b
            },
            one => one[0],
        };
        self.samples = self.samples.chunks(2).map(merge).collect();
    }

    /// Takes the last sample.
    pub fn finish(&mut self) {
        self.look();
    }

    pub fn usage(&self) -> Option<BrokerUsage> {
        self.usage
    }

    pub fn into_round(self, round: &mut Round) {
        round.series = self.samples;
        round.marks = self.marks;
        round.periods = self.periods.finish();
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a.unwrap_or(0) + b?)
}

/// The segments of a topic's partitions in the log directories of local brokers.
struct Segments {
    data_dirs: Vec<PathBuf>,
    prefix: String,
    seen: BTreeSet<(String, String)>,
}

impl Segments {
    fn of(target: &RunningTarget, topic: &str) -> Segments {
        let local = target.local.iter();
        Segments {
            data_dirs: local
                .flat_map(|it| it.data_dirs())
                .map(PathBuf::from)
                .collect(),
            prefix: format!("{topic}-"),
            seen: BTreeSet::new(),
        }
    }

    /// Describes the segments that are new since the last call.
    fn look(&mut self) -> Vec<String> {
        let mut new = Vec::new();
        let dirs = self
            .data_dirs
            .iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok());
        for partition in dirs.flatten().flatten() {
            let name = partition.file_name().to_string_lossy().into_owned();
            if !name.starts_with(&self.prefix) {
                continue;
            }
            let Ok(files) = std::fs::read_dir(partition.path()) else {
                continue;
            };
            for file in files.flatten() {
                let file = file.file_name().to_string_lossy().into_owned();
                let Some(base) = file.strip_suffix(".log") else {
                    continue;
                };
                let is_first = base.bytes().all(|byte| byte == b'0');
                if self.seen.insert((name.clone(), file.clone())) && !is_first {
                    let base = base.trim_start_matches('0');
                    new.push(format!("{name} begins a segment at offset {base}"));
                }
            }
        }
        new
    }
}

/// Kernel statistics of the disk that holds the local brokers' directories.
struct Disk {
    stat: PathBuf,
}

#[derive(Clone, Copy, Default)]
struct DiskCounts {
    written: u64,
    busy_ms: u64,
    flushes: u64,
}

impl Disk {
    fn under(target: &RunningTarget) -> Option<Disk> {
        let dir = target.local.as_ref()?.data_dirs().next()?;
        let device = std::fs::metadata(dir).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        let disk = Disk { stat };
        disk.read().map(|_| disk)
    }

    fn read(&self) -> Option<DiskCounts> {
        disk_counts(&std::fs::read_to_string(&self.stat).ok()?)
    }
}

/// Sectors of 512 bytes written, milliseconds with I/O in progress, and flushes, which older
/// kernels do not count.
fn disk_counts(stat: &str) -> Option<DiskCounts> {
    let fields: Vec<u64> = stat
        .split_whitespace()
        .map_while(|it| it.parse().ok())
        .collect();
    Some(DiskCounts {
        written: fields.get(6)? * 512,
        busy_ms: *fields.get(9)?,
        flushes: fields.get(15).copied().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counters_are_read() {
        let counts = disk_counts("1 2 3 4 5 6 70 8 9 100 11 12 13 14 15 16 17\n").unwrap();
        assert_eq!(
            (counts.written, counts.busy_ms, counts.flushes),
            (70 * 512, 100, 16)
        );
        assert_eq!(disk_counts("1 2 3 4 5 6 7 8 9 10 11").unwrap().flushes, 0);
        assert!(disk_counts("").is_none());
    }

    #[test]
    fn every_segment_but_the_first_is_a_roll() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments {
            data_dirs: vec![dir.path().to_owned()],
            prefix: "t-".into(),
            seen: BTreeSet::new(),
        };
        std::fs::create_dir(dir.path().join("t-0")).unwrap();
        std::fs::create_dir(dir.path().join("other-0")).unwrap();
        let touch = |name: &str| std::fs::write(dir.path().join(name), "").unwrap();
        touch("t-0/00000000000000000000.log");
        assert_eq!(segments.look(), [""; 0]);
        touch("t-0/00000000000000000042.log");
        touch("other-0/00000000000000000042.log");
        assert_eq!(segments.look(), ["t-0 begins a segment at offset 42"]);
        assert_eq!(segments.look(), [""; 0]);
    }
}
