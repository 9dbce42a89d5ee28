//! Decisions as lines of JSON, which wait for a file or a topic.
//!
//! A request adds its line to a bounded queue and continues. If the queue is full, or the lines
//! cannot be written, lines are lost. Their number is reported once a minute, and so is why they
//! cannot be written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_context::time_of_day;
use ottla_protocol::ApiKey;
use ottla_security::{Action, Client, Rule};
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_sync::{Mutex, Notify};
use serde_json::{Value, json};

/// The maximum number of lines in a queue.
pub(super) const MAX_LINES: usize = 8_192;
/// The maximum number of bytes in a queue. Clients choose names, and so the length of a line.
const MAX_BYTES: usize = 16 << 20;
const SPEAK_EVERY: Duration = Duration::from_secs(60);

/// The lines that are not written yet. One writer takes them.
#[derive(Debug, Default)]
pub struct AuditQueue {
    waiting: Mutex<Waiting>,
    /// Since the start.
    lost: AtomicU64,
    has_lines: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Arc<str>>,
    bytes: usize,
}

impl AuditQueue {
    pub(super) fn push(&self, line: Arc<str>) {
        let mut waiting = self.waiting.lock();
        let has_room = waiting.lines.len() < MAX_LINES && waiting.bytes + line.len() <= MAX_BYTES;
        if has_room {
            waiting.bytes += line.len();
            waiting.lines.push_back(line);
        }
        drop(waiting);
        if !has_room {
            self.lose(1);
        }
        self.has_lines.notify_one();
    }

    /// Counts lines that are not written.
    pub fn lose(&self, lines: usize) {
        self.lost.fetch_add(lines as u64, Ordering::Relaxed);
    }

    /// How many lines were lost since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns when lines were added.
    pub async fn filled(&self) {
        self.has_lines.notified().await;
    }

    pub fn len(&self) -> usize {
        self.waiting.lock().lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first lines, at least one if there is any. They stay in the queue until they are removed.
    pub fn first(&self, max_lines: usize, max_bytes: usize) -> Vec<Arc<str>> {
        let waiting = self.waiting.lock();
        let mut bytes = 0;
        let fits = |line: &&Arc<str>| {
            let is_first = bytes == 0;
            bytes += line.len();
            is_first || bytes <= max_bytes
        };
        let lines = waiting.lines.iter().take(max_lines.max(1));
        lines.take_while(fits).map(Arc::clone).collect()
    }

    /// Removes the first lines: they are written, or lost.
    pub fn remove(&self, lines: usize) {
        let mut waiting = self.waiting.lock();
        let lines = lines.min(waiting.lines.len());
        let removed: usize = waiting.lines.drain(..lines).map(|line| line.len()).sum();
        waiting.bytes -= removed;
    }
}

/// What a writer has reported: lost lines, and a failure that lasts.
#[derive(Clone, Copy, Debug)]
pub struct AuditReports {
    /// When lost lines were reported last.
    lost_at: Instant,
    /// How many lost lines were reported.
    lost: u64,
    /// When the failure was reported last. `None` if lines were written since.
    failure: Option<Instant>,
}

impl AuditReports {
    pub fn begin() -> AuditReports {
        AuditReports {
            lost_at: ottla_sync::time::now(),
            lost: 0,
            failure: None,
        }
    }

    /// How many lost lines are to be reported now; 0 if it is not time yet.
    pub fn lost_lines(&mut self, queue: &AuditQueue, is_last: bool) -> u64 {
        let is_time = is_last || ottla_sync::time::elapsed(self.lost_at) >= SPEAK_EVERY;
        let lost = queue.lost() - self.lost;
        if !is_time || lost == 0 {
            return 0;
        }
        self.lost_at = ottla_sync::time::now();
        lost
    }

    /// The lines were written, and with them that this many were lost.
    pub fn on_written(&mut self, lost: u64) {
        self.lost += lost;
        self.failure = None;
    }

    /// Whether a failure is to be reported now, which is then taken for done.
    pub fn is_failure_due(&mut self) -> bool {
        let is_due = |at: Instant| ottla_sync::time::elapsed(at) >= SPEAK_EVERY;
        let is_due = self.failure.is_none_or(is_due);
        if is_due {
            self.failure = Some(ottla_sync::time::now());
        }
        is_due
    }

    #[cfg(test)]
    pub(super) fn is_failing(&self) -> bool {
        self.failure.is_some()
    }
}

/// The line that reports lost lines.
pub fn lost_line(lost: u64) -> String {
    json!({ "time": now(), "lost": lost }).to_string()
}

/// Formats one decision. `way_out` is the command that would allow the request.
pub(super) fn line(
    client: Client<'_>,
    action: Action<'_>,
    api_key: ApiKey,
    rule: &Rule,
    way_out: Option<&str>,
) -> Value {
    let mut line = json!({
        "time": now(),
        "principal": client.principal,
        "host": client.host,
        "operation": action.operation.name(),
        "resourceType": action.resource_type.name(),
        "patternType": "LITERAL",
        "resourceName": action.name,
        "request": api_key.name(),
        "allowed": rule.is_allowed(),
        "rule": rule.to_string(),
    });
    if let Some(way_out) = way_out {
        line["toAllow"] = way_out.into();
    }
    line
}

fn now() -> String {
    let now = jiff::Timestamp::from_millisecond(time_of_day().0);
    now.map_or_else(|_| String::new(), |now| format!("{now:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_lines_and_counts_them() {
        let queue = AuditQueue::default();
        let long: Arc<str> = "x".repeat(MAX_BYTES / 2 + 1).into();
        queue.push(Arc::clone(&long));
        queue.push(long);
        queue.push("short".into());
        assert_eq!((queue.len(), queue.lost()), (2, 1));
        // At least one, however long.
        assert_eq!(queue.first(10, 5).len(), 1);
        queue.remove(1);
        assert_eq!(queue.first(10, 5), [Arc::<str>::from("short")]);
        queue.remove(5);
        assert!(queue.is_empty() && queue.first(10, 5).is_empty());
        for _ in 0..=MAX_LINES {
            queue.push("{}".into());
        }
        assert_eq!((queue.len(), queue.lost()), (MAX_LINES, 2));
        assert_eq!(queue.first(3, MAX_BYTES).len(), 3);
    }
}
