//! Metrics of the log cleaner, as in Kafka's `kafka.log:type=LogCleaner` and `LogCleanerManager`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A cleaner metric, under Kafka's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum CleanerGauge {
    /// `max-dirty-percent`: dirty share of the dirtiest log, in percent, when a log was last
    /// selected.
    MaxDirtyPercent,
    /// `cleaner-recopy-percent`: bytes written as a percentage of bytes read, over the last
    /// cleaning of each thread.
    CleanerRecopyPercent,
    /// `max-clean-time-secs`: the longest of the last cleanings of all threads, in seconds.
    MaxCleanTimeSecs,
    /// `max-buffer-utilization-percent`: maximum use of the key buffer, in percent, in the last
    /// cleanings of all threads.
    MaxBufferUtilizationPercent,
    /// `max-compaction-delay-secs`: longest time, in seconds, by which a log is overdue for
    /// `max.compaction.lag.ms`.
    MaxCompactionDelaySecs,
    /// `DeadThreadCount`
    DeadThreadCount,
}

impl CleanerGauge {
    pub const ALL: &'static [CleanerGauge] = &[
        CleanerGauge::MaxDirtyPercent,
        CleanerGauge::CleanerRecopyPercent,
        CleanerGauge::MaxCleanTimeSecs,
        CleanerGauge::MaxBufferUtilizationPercent,
        CleanerGauge::MaxCompactionDelaySecs,
        CleanerGauge::DeadThreadCount,
    ];

    /// The metric's name under the JMX exporter's rules, and its help text.
    #[rustfmt::skip]
    pub const fn name_and_help(self) -> (&'static str, &'static str) {
        match self {
            CleanerGauge::MaxDirtyPercent => ("kafka_log_logcleanermanager_max_dirty_percent", "Dirty part of the dirtiest log, in percent"),
            CleanerGauge::CleanerRecopyPercent => ("kafka_log_logcleaner_cleaner_recopy_percent", "Bytes written by the last cleanings, in percent of the bytes read"),
            CleanerGauge::MaxCleanTimeSecs => ("kafka_log_logcleaner_max_clean_time_secs", "Duration of the longest of the last cleanings"),
            CleanerGauge::MaxBufferUtilizationPercent => ("kafka_log_logcleaner_max_buffer_utilization_percent", "Largest used part of the memory for keys in the last cleanings, in percent"),
            CleanerGauge::MaxCompactionDelaySecs => ("kafka_log_logcleaner_max_compaction_delay_secs", "How long a log has been due for max.compaction.lag.ms"),
            CleanerGauge::DeadThreadCount => ("kafka_log_logcleaner_deadthreadcount", "Threads of the cleaner that have died"),
        }
    }
}

#[derive(Debug)]
pub struct CleanerMetrics {
    gauges: [AtomicU64; CleanerGauge::ALL.len()],
    /// When the cleaner last looked for a log to clean, in milliseconds of the broker's monotonic
    /// clock.
    last_run_ms: AtomicU64,
}

impl Default for CleanerMetrics {
    fn default() -> Self {
        CleanerMetrics {
            gauges: [const { AtomicU64::new(0) }; CleanerGauge::ALL.len()],
            last_run_ms: AtomicU64::new(0),
        }
    }
}

impl CleanerMetrics {
    pub fn get(&self, gauge: CleanerGauge) -> u64 {
        self.gauges[gauge as usize].load(Ordering::Relaxed)
    }

    pub fn set(&self, gauge: CleanerGauge, value: u64) {
        self.gauges[gauge as usize].store(value, Ordering::Relaxed);
    }

    /// `time-since-last-run-ms`
    pub fn time_since_last_run_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_run_ms.load(Ordering::Relaxed))
    }

    pub fn on_run(&self, now_ms: u64) {
        self.last_run_ms.store(now_ms, Ordering::Relaxed);
    }
}
