//! The cache of fetch sessions.

use std::time::Duration;

use ottla_broker::{FetchSessions, PartitionKey};
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_types::Uuid;

use crate::measure::{Row, best_of};

pub const ROW: Row = Row {
    name: "fetch-sessions",
    operation: "a full fetch that replaces a session in a full cache",
    counted: "sessions in the cache",
    smallest: 1_000,
    measure: full_fetch,
};

const FETCHES: u32 = 100;
/// From here on, all sessions of the filled cache have been idle for long enough to be replaced.
const LATER_MS: u64 = 200_000;

fn full_fetch(count: u64) -> Duration {
    let sessions = FetchSessions::new(count as usize, usize::MAX);
    for now_ms in 0..count {
        fetch(&sessions, now_ms % 1_000);
    }
    assert_eq!(sessions.cached().sessions as u64, count);
    let mut now_ms = LATER_MS;
    let time = best_of(FETCHES, || {
        for _ in 0..FETCHES {
            now_ms += 1;
            fetch(&sessions, now_ms);
        }
    });
    assert!(sessions.cached().evictions > 0);
    time
}

fn fetch(sessions: &FetchSessions, now_ms: u64) {
    let key = PartitionKey {
        topic: "orders".into(),
        topic_id: Uuid::ZERO,
        partition: 0,
    };
    let requested = vec![(key.clone(), FetchPartition::default())];
    let begun = sessions.begin(0, 0, false, false, requested, &[], now_ms);
    let (context, requested) = begun.expect("a full fetch");
    let answers = vec![(key, PartitionData::default())];
    let finished = context.finish(sessions, requested, answers, now_ms);
    let (id, _) = finished.expect("a new session");
    assert_ne!(id, 0, "there is room, or an idle session to replace");
}
