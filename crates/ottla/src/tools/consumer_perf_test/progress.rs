//! Counters of consumed records, and the output lines of Kafka's tool (`ConsumerPerformance`).

use std::time::{Duration, SystemTime};

use crate::tools::java_numbers::fixed;
use crate::tools::simple_date_format::SimpleDateFormat;

const BYTES_PER_MB: f64 = 1024.0 * 1024.0;
const FETCH_COLUMNS: &str = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec";

pub(super) fn header(is_detailed: bool) -> String {
    let times = if is_detailed {
        "time, threadId"
    } else {
        "start.time, end.time"
    };
    format!("{times}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{FETCH_COLUMNS}")
}

/// Counters and times of the run.
pub(super) struct Progress {
    start: SystemTime,
    end: SystemTime,
    interval: Duration,
    is_detailed: bool,
    records: u64,
    bytes: u64,
    /// When there was last no assigned partition; the join time is counted from here.
    unassigned_since: Option<SystemTime>,
    joining: Duration,
    /// The join time since the last progress line.
    joining_of_round: Duration,
    reported: Reported,
}

/// The counters at the last progress line.
struct Reported {
    at: SystemTime,
    records: u64,
    bytes: u64,
}

impl Progress {
    pub(super) fn start(interval: Duration, is_detailed: bool) -> Progress {
        Progress::start_at(SystemTime::now(), interval, is_detailed)
    }

    fn start_at(now: SystemTime, interval: Duration, is_detailed: bool) -> Progress {
        Progress {
            start: now,
            end: now,
            interval,
            is_detailed,
            records: 0,
            bytes: 0,
            unassigned_since: Some(now),
            joining: Duration::ZERO,
            joining_of_round: Duration::ZERO,
            reported: Reported {
                at: now,
                records: 0,
                bytes: 0,
            },
        }
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn on_assignment(&mut self, is_empty: bool) {
        self.on_assignment_at(SystemTime::now(), is_empty);
    }

    fn on_assignment_at(&mut self, now: SystemTime, is_empty: bool) {
        match (is_empty, self.unassigned_since) {
            (true, None) => self.unassigned_since = Some(now),
            (false, Some(since)) => {
                let took = now.duration_since(since).unwrap_or_default();
                self.joining += took;
                self.joining_of_round += took;
                self.unassigned_since = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Counts records; returns the progress line if one is due.
    pub(super) fn on_records(
        &mut self,
        records: u64,
        bytes: u64,
        format: &SimpleDateFormat,
    ) -> Option<String> {
        self.on_records_at(SystemTime::now(), records, bytes, format)
    }

    fn on_records_at(
        &mut self,
        now: SystemTime,
        records: u64,
        bytes: u64,
        format: &SimpleDateFormat,
    ) -> Option<String> {
        self.records += records;
        self.bytes += bytes;
        let elapsed = now.duration_since(self.reported.at).unwrap_or_default();
        if elapsed < self.interval {
            return None;
        }
        let line = self
            .is_detailed
            .then(|| self.progress_line(now, elapsed, format));
        self.joining_of_round = Duration::ZERO;
        self.reported = Reported {
            at: now,
            records: self.records,
            bytes: self.bytes,
        };
        line
    }

    fn progress_line(
        &self,
        now: SystemTime,
        elapsed: Duration,
        format: &SimpleDateFormat,
    ) -> String {
        let megabytes = (self.bytes - self.reported.bytes) as f64 / BYTES_PER_MB;
        let records = (self.records - self.reported.records) as f64;
        let fetching = elapsed.saturating_sub(self.joining_of_round);
        let per_second = |amount: f64, time: Duration| match time.as_millis() {
            0 => 0.0,
            _ => amount / time.as_secs_f64(),
        };
        format!(
            "{}, 0, {}, {}, {}, {}, {}, {}, {}, {}",
            format.of(now),
            fixed(self.bytes as f64 / BYTES_PER_MB, 4),
            fixed(megabytes / elapsed.as_secs_f64(), 4),
            self.records,
            fixed(records / elapsed.as_secs_f64(), 4),
            self.joining_of_round.as_millis(),
            fetching.as_millis(),
            fixed(per_second(megabytes, fetching), 4),
            fixed(per_second(records, fetching), 4)
        )
    }

    pub(super) fn end(&mut self) {
        self.end = SystemTime::now();
    }

    fn elapsed(&self) -> Duration {
        self.end.duration_since(self.start).unwrap_or_default()
    }

    /// Kafka's last line.
    pub(super) fn total_line(&self, format: &SimpleDateFormat) -> String {
        let elapsed = self.elapsed();
        let fetching = elapsed.saturating_sub(self.joining);
        let megabytes = self.bytes as f64 / BYTES_PER_MB;
        let records = self.records as f64;
        format!(
            "{}, {}, {}, {}, {}, {}, {}, {}, {}, {}",
            format.of(self.start),
            format.of(self.end),
            fixed(megabytes, 4),
            fixed(megabytes / elapsed.as_secs_f64(), 4),
            self.records,
            fixed(records / elapsed.as_secs_f64(), 4),
            self.joining.as_millis(),
            fetching.as_millis(),
            fixed(megabytes / fetching.as_secs_f64(), 4),
            fixed(records / fetching.as_secs_f64(), 4)
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(milliseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(1_000_000 + milliseconds)
    }

    #[test]
    fn lines_have_the_format_of_kafka() {
        let format = SimpleDateFormat::new("ss:SSS").unwrap();
        let mut progress = Progress::start_at(at(0), Duration::from_secs(1), true);
        progress.on_assignment_at(at(200), true);
        progress.on_assignment_at(at(500), false);
        assert_eq!(progress.on_records_at(at(900), 10, 1 << 20, &format), None);
        assert_eq!(
            progress
                .on_records_at(at(1500), 20, 2 << 20, &format)
                .unwrap(),
            "41:500, 0, 3.0000, 2.0000, 30, 20.0000, 500, 1000, 3.0000, 30.0000"
        );
        assert_eq!(
            progress
                .on_records_at(at(3500), 2, 1 << 20, &format)
                .unwrap(),
            "43:500, 0, 4.0000, 0.5000, 32, 1.0000, 0, 2000, 0.5000, 1.0000"
        );
        progress.end = at(4500);
        assert_eq!(
            progress.total_line(&format),
            "40:000, 44:500, 4.0000, 0.8889, 32, 7.1111, 500, 4000, 1.0000, 8.0000"
        );
    }

    #[test]
    fn reassigned_partitions_count_as_join_time() {
        let mut progress = Progress::start_at(at(0), Duration::from_secs(1), false);
        for (now, is_empty) in [
            (100, false),
            (200, false),
            (300, true),
            (350, true),
            (700, false),
        ] {
            progress.on_assignment_at(at(now), is_empty);
        }
        assert_eq!(progress.joining, Duration::from_millis(500));
    }
}
