//! The progress of loading logs, for the log, metrics and `/readyz`.
//!
//! Kafka: the metrics `remainingLogsToRecover` and `remainingSegmentsToRecover` of `LogManager`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_log::RecoveryProgress;
use ottla_log::file_names::{LOG_SUFFIX, offset_from_file_name};
use ottla_sync::ArcSwap;
use ottla_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ottla_sync::{Condvar, Mutex};
use ottla_types::Offset;

/// The log interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of more logs, the files are not looked at while they are loaded: that would take longer than
/// the loading of most of them, and their number says enough.
pub(super) const MOST_MEASURED: usize = 10_000;
const UNKNOWN: u64 = u64::MAX;

/// All directories while their logs are loaded; empty before and after.
pub type Loading = ArcSwap<Vec<Arc<DirProgress>>>;

/// The progress of one log directory.
#[derive(Debug)]
pub struct DirProgress {
    pub path: PathBuf,
    /// The directory was not stopped cleanly.
    pub is_recovering: bool,
    remaining_logs: AtomicUsize,
    /// Bytes scanned and to be scanned; [`UNKNOWN`] until loading has taken long enough to measure
    /// it, and of more than [`MOST_MEASURED`] logs.
    bytes_to_recover: AtomicU64,
    pub threads: Vec<RecoveryProgress>,
}

impl DirProgress {
    pub(super) fn new(path: PathBuf, is_recovering: bool, logs: usize, threads: usize) -> Self {
        DirProgress {
            path,
            is_recovering,
            remaining_logs: AtomicUsize::new(logs),
            bytes_to_recover: AtomicU64::new(UNKNOWN),
            threads: (0..threads).map(|_| RecoveryProgress::default()).collect(),
        }
    }

    pub(super) fn on_log(&self) {
        self.remaining_logs.fetch_sub(1, Ordering::Relaxed);
    }

    /// `remainingLogsToRecover`
    pub fn remaining_logs(&self) -> usize {
        self.remaining_logs.load(Ordering::Relaxed)
    }

    pub(super) fn recovered_bytes(&self) -> u64 {
        let recovered = self.threads.iter().map(RecoveryProgress::recovered_bytes);
        recovered.sum()
    }

    /// `None` until the amount was measured.
    pub fn remaining_bytes(&self) -> Option<u64> {
        let all = self.bytes_to_recover.load(Ordering::Relaxed);
        (all != UNKNOWN).then(|| all.saturating_sub(self.recovered_bytes()))
    }

    pub(super) fn set_bytes_to_recover(&self, bytes: u64) {
        self.bytes_to_recover.store(bytes, Ordering::Relaxed);
    }

    fn tell(&self, since: Instant) {
        let dir = self.path.display();
        let (logs, elapsed) = (
            self.remaining_logs(),
            (ottla_sync::time::now() - since).as_secs(),
        );
        if logs == 0 {
            return;
        }
        match (self.is_recovering, self.remaining_bytes()) {
            (true, Some(bytes)) => tracing::warn!(
                %dir, remaining_logs = logs, remaining_mb = bytes / 1_000_000, elapsed_s = elapsed,
                "recovering logs: the last stop was not clean"
            ),
            (true, None) => tracing::warn!(
                %dir, remaining_logs = logs, elapsed_s = elapsed,
                "recovering logs: the last stop was not clean"
            ),
            (false, _) => {
                tracing::warn!(%dir, remaining_logs = logs, elapsed_s = elapsed, "loading logs")
            }
        }
    }
}

/// Logs the progress at intervals until it is stopped.
#[derive(Default)]
pub(super) struct ProgressLogger {
    is_done: AtomicBool,
    mutex: Mutex<()>,
    done: Condvar,
}

impl ProgressLogger {
    /// `measure` measures the amount of work; it is called only if loading takes long.
    pub(super) fn run<'a>(
        &self,
        dirs: impl Iterator<Item = &'a DirProgress> + Clone,
        measure: impl FnOnce(),
    ) {
        let since = ottla_sync::time::now();
        let mut measure = Some(measure);
        let mut guard = self.mutex.lock();
        while !self.is_done.load(Ordering::Acquire) {
            let next = self.done.wait_for(&mut guard, INTERVAL);
            if next.timed_out() && !self.is_done.load(Ordering::Acquire) {
                if let Some(measure) = measure.take() {
                    measure();
                }
                dirs.clone().for_each(|dir| dir.tell(since));
            }
        }
    }

    pub(super) fn stop(&self) {
        let _guard = self.mutex.lock();
        self.is_done.store(true, Ordering::Release);
        self.done.notify_all();
    }
}

/// The size of the segment that holds the recovery point and of all later segments. Read errors are
/// reported by the recovery itself.
pub(super) fn bytes_to_recover(partition_dir: &Path, recovery_point: Offset) -> u64 {
    let Ok(entries) = ottla_sync::fs::read_dir(partition_dir) else {
        return 0;
    };
    let mut segments: Vec<(Offset, u64)> = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(LOG_SUFFIX)
            && let Some(base_offset) = offset_from_file_name(&name)
            && let Ok(metadata) = entry.metadata()
        {
            segments.push((base_offset, metadata.len()));
        }
    }
    segments.sort_unstable();
    let holder = segments.partition_point(|(base_offset, _)| *base_offset <= recovery_point);
    let scanned = &segments[holder.saturating_sub(1)..];
    scanned.iter().map(|(_, bytes)| bytes).sum()
}

#[cfg(test)]
mod tests {
    use ottla_types::Offset;

    use super::{DirProgress, bytes_to_recover};

    #[test]
    fn bytes_after_the_recovery_point_count() {
        let dir = tempfile::tempdir().unwrap();
        for (base, bytes) in [(0, 10), (100, 20), (200, 40)] {
            let path = dir.path().join(format!("{base:020}.log"));
            std::fs::write(path, vec![0; bytes]).unwrap();
        }
        std::fs::write(dir.path().join("00000000000000000100.index"), [0; 8]).unwrap();
        for (recovery_point, bytes) in [(0, 70), (99, 70), (100, 60), (150, 60), (1000, 40)] {
            assert_eq!(bytes_to_recover(dir.path(), Offset(recovery_point)), bytes);
        }
        assert_eq!(bytes_to_recover(&dir.path().join("none"), Offset(0)), 0);
    }

    #[test]
    fn bytes_are_reported_once_they_are_known() {
        let progress = DirProgress::new("data".into(), true, 3, 2);
        progress.on_log();
        assert_eq!(progress.remaining_logs(), 2);
        assert_eq!(progress.remaining_bytes(), None);
        progress.set_bytes_to_recover(1000);
        assert_eq!(progress.remaining_bytes(), Some(1000));
    }
}
