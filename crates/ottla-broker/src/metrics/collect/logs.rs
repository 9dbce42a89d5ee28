//! `kafka.log:type=Log` for each partition, `type=LogManager` for the log directories, and the
//! cleaner.

use std::sync::Arc;

use super::counted::counted;
use super::timed::timed;
use crate::Broker;
use ottla_metrics::cleaner::CleanerGauge;
use ottla_metrics::family::Family;
use ottla_metrics::{Metric, flush_stats};
use ottla_partition::partition::page_cache::PageCacheState;

pub(super) fn collect(broker: &Arc<Broker>, families: &mut Vec<Family>) {
    let mut size = Family::gauge("kafka_log_log_size", "Bytes of the log's segments");
    let mut start = Family::gauge("kafka_log_log_logstartoffset", "The first offset");
    let mut end = Family::gauge("kafka_log_log_logendoffset", "The offset after the last");
    let mut segments = Family::gauge("kafka_log_log_numlogsegments", "Segments of the log");
    for partition in broker.partitions.load().iter() {
        let labels = super::labels::partition_labels(
            &partition.topic_partition.topic,
            partition.topic_partition.partition.0,
        );
        let reader = partition.reader();
        size.push(labels.clone(), reader.size() as f64);
        start.push(labels.clone(), reader.log_start_offset().0 as f64);
        end.push(labels.clone(), reader.log_end_offset().0 as f64);
        segments.push(labels, reader.number_of_segments() as f64);
    }
    families.extend([size, start, end, segments]);

    let mut offline = Family::gauge(
        "kafka_log_logmanager_logdirectoryoffline",
        "Whether the directory is offline",
    );
    let mut usable = Family::gauge(
        "ottla_log_directory_usable_bytes",
        "Free bytes of the directory's file system",
    );
    let mut total = Family::gauge(
        "ottla_log_directory_total_bytes",
        "Size of the directory's file system",
    );
    let mut cordoned = Family::gauge(
        "kafka_log_logmanager_logdirectorycordoned",
        "Whether the directory is cordoned: it gets no new replicas (cordoned.log.dirs)",
    );
    let mut uncleanable = Family::gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs of the directory that could not be cleaned",
    );
    let (mut offline_count, mut cordoned_count) = (0, 0);
    for directory in broker
        .log_dirs()
        .map(|dirs| dirs.describe())
        .unwrap_or_default()
    {
        let label = [("logDirectory", directory.path.display().to_string())];
        offline_count += usize::from(!directory.is_online);
        offline.push(label.clone(), f64::from(u8::from(!directory.is_online)));
        cordoned_count += usize::from(directory.is_cordoned);
        cordoned.push(label.clone(), f64::from(u8::from(directory.is_cordoned)));
        uncleanable.push(label.clone(), directory.uncleanable_partitions as f64);
        if directory.is_online {
            usable.push(label.clone(), directory.usable_bytes as f64);
            total.push(label, directory.total_bytes as f64);
        }
    }
    #[rustfmt::skip]
    let counts = [
        ("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline", offline_count as f64),
        ("kafka_log_logmanager_cordonedlogdirectorycount", "Log directories that are cordoned", cordoned_count as f64),
    ];
    families.extend(Family::gauges(counts));
    families.extend([offline, cordoned, usable, total, uncleanable]);
    families.extend(page_cache(broker));
    families.extend(handles(broker));
    families.extend(recovery(broker));
    families.extend(flushes());
    let cleaner = &broker.context.metrics.cleaner;
    families.extend(CleanerGauge::ALL.iter().map(|gauge| {
        let (name, help) = gauge.name_and_help();
        Family::gauge(name, help).value(cleaner.get(*gauge) as f64)
    }));
    let idle = Family::gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Time since the cleaner last searched for a log to clean",
    );
    families.push(idle.value(cleaner.time_since_last_run_ms(broker.now_ms()) as f64));
    #[rustfmt::skip]
    let counters = [
        (Metric::StalledAppends, "ottla_log_stalled_appends", "Appends that the kernel blocked"),
        (Metric::ColdReads, "ottla_log_cold_reads", "Fetched regions that were not in the page cache"),
        (Metric::ColdLookups, "ottla_log_cold_lookups", "Fetches whose positions could not be determined without waiting for the disk"),
        (Metric::PageCacheDropped, "ottla_page_cache_dropped_bytes", "Bytes of appended pages that were dropped from the page cache"),
        (Metric::PageCacheReread, "ottla_page_cache_reread_bytes", "Fetched bytes whose pages had been dropped"),
    ];
    families.extend(counted(broker, counters));
}

/// The limits on the page cache that appends occupy.
fn page_cache(broker: &Broker) -> [Family; 3] {
    let max_bytes = broker.config().ottla_page_cache_max_bytes;
    let state = broker.host.page_cache.state(max_bytes);
    let held = Family::gauge(
        "ottla_page_cache_held_bytes",
        "Counted bytes of appended pages that were not dropped from the page cache",
    );
    let limit = Family::gauge(
        "ottla_page_cache_limit_bytes",
        "Bound on the bytes of appended pages in the page cache; -1 without a bound",
    );
    let limit_bytes = state.limit_bytes.map_or(-1.0, |bytes| bytes as f64);
    let mut phase = Family::gauge(
        "ottla_page_cache_phase",
        "1 for the phase that decides the limit without a setting: growing without one, trying, recycling, relieving \
         other processes",
    );
    for name in PageCacheState::PHASES {
        let is_in = f64::from(u8::from(state.phase == Some(name)));
        phase.push([("phase", name.to_owned())], is_in);
    }
    [
        held.value(state.held_bytes as f64),
        limit.value(limit_bytes),
        phase,
    ]
}

/// The file handles of the logs.
fn handles(broker: &Broker) -> Vec<Family> {
    let Some(log_dirs) = broker.log_dirs() else {
        return Vec::new();
    };
    let stats = log_dirs.handles().stats();
    #[rustfmt::skip]
    let gauges = [
        ("ottla_log_handles_limit", "Maximum number of file handles of the logs", stats.limit),
        ("ottla_log_handles_open", "File handles of the logs and of fetches that are being sent", stats.open),
        ("ottla_log_open_segments", "Segments that have open files", stats.segments),
    ];
    #[rustfmt::skip]
    let counters = [
        ("ottla_log_handles_opened", "Files of logs that were opened", stats.opened),
        ("ottla_log_handles_closed_for_others", "File handles closed because other logs needed them", stats.closed_for_others),
        ("ottla_log_handles_closed_unforced", "Closed file handles whose file had not been forced to disk", stats.closed_unforced),
        ("ottla_log_handles_closed_idle", "File handles closed because they were idle", stats.closed_idle),
        ("ottla_log_handles_refused", "Files that could not be opened because no handle was left", stats.refused),
        ("ottla_log_lacks_of_resources", "Operations on logs that were refused or postponed for lack of a file handle or memory", log_dirs.lacks()),
    ];
    let gauges = Family::gauges(gauges.map(|(name, help, value)| (name, help, value as f64)));
    let counters = Family::counters(counters.map(|(name, help, value)| (name, help, value as f64)));
    gauges.into_iter().chain(counters).collect()
}

/// `kafka.log:type=LogFlushStats`
fn flushes() -> [Family; 3] {
    let meanings = [
        "Time to force a segment to disk in the last minutes, in milliseconds",
        "Segments forced to disk",
        "Total time to force segments to disk, in milliseconds",
    ];
    let name = "kafka_log_logflushstats_logflushrateandtimems";
    timed(name, meanings, &flush_stats::summary())
}

/// The progress of log loading; empty once it is complete, as in Kafka.
fn recovery(broker: &Broker) -> [Family; 2] {
    let mut logs = Family::gauge(
        "kafka_log_logmanager_remaininglogstorecover",
        "Logs of the directory that are still to be loaded",
    );
    let mut segments = Family::gauge(
        "kafka_log_logmanager_remainingsegmentstorecover",
        "Segments still to be recovered of the log that is being recovered",
    );
    for dir in broker.loading.load().iter() {
        let path = dir.path.display().to_string();
        let label = [("dir", path.clone())];
        logs.push(label, dir.remaining_logs() as f64);
        for (number, thread) in dir.threads.iter().enumerate() {
            let labels = [("dir", path.clone()), ("threadNum", number.to_string())];
            segments.push(labels, thread.remaining_segments() as f64);
        }
    }
    [logs, segments]
}
