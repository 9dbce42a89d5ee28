//! Sessions from the client's point of view.

use bytes::Bytes;
use ottla_protocol::Records;

use super::*;

fn key(partition: i32) -> PartitionKey {
    PartitionKey {
        topic: "orders".into(),
        topic_id: Uuid::ZERO,
        partition,
    }
}

fn requested(partitions: &[i32]) -> FetchPartitions {
    let requested = partitions.iter().map(|&partition| {
        let fetch = FetchPartition {
            partition,
            ..Default::default()
        };
        (key(partition), fetch)
    });
    requested.collect()
}

fn answer(partition: i32, high_watermark: i64, records: &'static str) -> PartitionData {
    PartitionData {
        partition_index: partition,
        high_watermark,
        log_start_offset: 0,
        records: Some(Records::Bytes(Bytes::from_static(records.as_bytes()))),
        ..Default::default()
    }
}

fn answers(answers: Vec<PartitionData>) -> FetchedPartitions {
    let with_keys = answers.into_iter();
    with_keys
        .map(|answer| (key(answer.partition_index), answer))
        .collect()
}

fn indexes<T>(partitions: &[(PartitionKey, T)]) -> Vec<i32> {
    partitions.iter().map(|(key, _)| key.partition).collect()
}

/// Opens a session for these partitions and returns its ID.
fn open(sessions: &FetchSessions, partitions: &[i32], now_ms: u64) -> i32 {
    let begun = sessions.begin(0, 0, false, false, requested(partitions), &[], now_ms);
    let (context, requested) = begun.unwrap();
    let empty = partitions.iter().map(|&partition| answer(partition, 0, ""));
    let finished = context.finish(sessions, requested, answers(empty.collect()), now_ms);
    finished.unwrap().0
}

#[test]
fn a_session_response_contains_only_changes() {
    let sessions = FetchSessions::new(10, 1000);
    let id = open(&sessions, &[0, 1, 2], 0);
    assert_ne!(id, NO_SESSION);
    let begun = sessions.begin(id, 1, false, false, Vec::new(), &[], 1);
    let (context, partitions) = begun.unwrap();
    assert_eq!(indexes(&partitions), [0, 1, 2]);
    let given = answers(vec![
        answer(0, 0, ""),
        answer(1, 5, "records"),
        answer(2, 3, ""),
    ]);
    let (answered_id, sent) = context.finish(&sessions, partitions, given, 1).unwrap();
    assert_eq!(answered_id, id);
    assert_eq!(indexes(&sent), [1, 2]);
    // A partition that returned records moves to the end.
    let (_, partitions) = sessions
        .begin(id, 2, false, false, Vec::new(), &[], 2)
        .unwrap();
    assert_eq!(indexes(&partitions), [0, 2, 1]);
}

#[test]
fn a_partition_is_reported_when_its_error_is_over() {
    let sessions = FetchSessions::new(10, 1000);
    let id = open(&sessions, &[0], 0);
    let (context, partitions) = sessions
        .begin(id, 1, false, false, Vec::new(), &[], 1)
        .unwrap();
    let mut failed = answer(0, 0, "");
    failed.error_code = ErrorCode::NotLeaderOrFollower.code();
    let (_, sent) = context
        .finish(&sessions, partitions, answers(vec![failed]), 1)
        .unwrap();
    assert_eq!(indexes(&sent), [0]);
    let (context, partitions) = sessions
        .begin(id, 2, false, false, Vec::new(), &[], 2)
        .unwrap();
    let given = answers(vec![answer(0, 0, "")]);
    let (_, sent) = context.finish(&sessions, partitions, given, 2).unwrap();
    assert_eq!(indexes(&sent), [0]);
}

#[test]
fn partitions_are_added_changed_and_forgotten() {
    let sessions = FetchSessions::new(10, 1000);
    let id = open(&sessions, &[0, 1], 0);
    let mut added = requested(&[2, 0]);
    added[1].1.fetch_offset = 77;
    let (_, partitions) = sessions
        .begin(id, 1, false, false, added, &[key(1)], 1)
        .unwrap();
    assert_eq!(indexes(&partitions), [0, 2]);
    assert_eq!(partitions[0].1.fetch_offset, 77);
    let forgotten = [key(0), key(2)];
    let (context, _) = sessions
        .begin(id, 2, false, false, Vec::new(), &forgotten, 2)
        .unwrap();
    assert!(matches!(context, FetchContext::Sessionless));
    let gone = sessions.begin(id, 3, false, false, Vec::new(), &[], 3);
    assert_eq!(gone.unwrap_err(), ErrorCode::FetchSessionIdNotFound);
}

#[test]
fn invalid_sessions_are_refused() {
    let sessions = FetchSessions::new(10, 1000);
    let id = open(&sessions, &[0], 0);
    let begin = |id, epoch, uses_topic_ids| {
        sessions
            .begin(id, epoch, uses_topic_ids, false, Vec::new(), &[], 1)
            .map(|_| ())
    };
    assert_eq!(
        begin(id + 1, 1, false),
        Err(ErrorCode::FetchSessionIdNotFound)
    );
    assert_eq!(
        begin(id, 2, false),
        Err(ErrorCode::InvalidFetchSessionEpoch)
    );
    assert_eq!(begin(id, 1, true), Err(ErrorCode::FetchSessionTopicIdError));
    assert_eq!(begin(id, 1, false), Ok(()));
    // The final epoch closes the session.
    assert_eq!(begin(id, -1, false), Ok(()));
    assert_eq!(begin(id, 2, false), Err(ErrorCode::FetchSessionIdNotFound));
}

#[test]
fn an_overtaken_response_is_an_error() {
    let sessions = FetchSessions::new(10, 1000);
    let id = open(&sessions, &[0], 0);
    let (slow, partitions) = sessions
        .begin(id, 1, false, false, Vec::new(), &[], 1)
        .unwrap();
    sessions
        .begin(id, 2, false, false, Vec::new(), &[], 2)
        .unwrap();
    let finished = slow.finish(&sessions, partitions, Vec::new(), 3);
    assert_eq!(
        finished.unwrap_err(),
        (ErrorCode::InvalidFetchSessionEpoch, id)
    );
}

#[test]
fn a_full_cache_evicts_only_for_a_higher_priority() {
    let sessions = FetchSessions::new(1, 1000);
    let small = open(&sessions, &[0], 0);
    // Recent sessions are kept, even small ones.
    assert_eq!(open(&sessions, &[0, 1], 1000), NO_SESSION);
    // In use, and old enough to be evicted for a larger one, but not for one of the same size.
    sessions
        .begin(small, 1, false, false, Vec::new(), &[], 120_001)
        .unwrap();
    assert_eq!(open(&sessions, &[0], 130_000), NO_SESSION);
    let large = open(&sessions, &[0, 1], 130_000);
    assert_ne!(large, NO_SESSION);
    // A stale session is evicted for any other.
    assert_ne!(open(&sessions, &[0], 260_000), NO_SESSION);
}

#[test]
fn sessions_partitions_and_evictions_are_counted() {
    let sessions = FetchSessions::new(1, 1000);
    let cached = |sessions, partitions, evictions| CachedSessions {
        sessions,
        partitions,
        evictions,
    };
    assert_eq!(sessions.cached(), cached(0, 0, 0));
    open(&sessions, &[0, 1], 0);
    assert_eq!(sessions.cached(), cached(1, 2, 0));
    // Too recent to be evicted.
    open(&sessions, &[0, 1, 2], 1);
    assert_eq!(sessions.cached(), cached(1, 2, 0));
    open(&sessions, &[0, 1, 2], 120_001);
    assert_eq!(sessions.cached(), cached(1, 3, 1));
}

#[test]
fn the_partitions_of_all_sessions_are_bounded() {
    let sessions = FetchSessions::new(100, 5);
    let first = open(&sessions, &[0, 1, 2], 0);
    assert_ne!(first, NO_SESSION);
    assert_eq!(open(&sessions, &[0, 1, 2], 1), NO_SESSION);
    assert_ne!(open(&sessions, &[0, 1], 2), NO_SESSION);
    assert_eq!(sessions.cached().partitions, 5);
    // A session that grows over the bound is closed. Its client sends a full request, and continues
    // without a session.
    let grown = sessions.begin(first, 1, false, false, requested(&[3]), &[], 3);
    assert_eq!(grown.unwrap_err(), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(sessions.cached().partitions, 2);
    assert_eq!(open(&sessions, &[0, 1, 2, 3], 4), NO_SESSION);
}

#[test]
fn a_session_above_the_bound_evicts_no_other() {
    // One shard: a session evicts others of its own shard.
    let sessions = FetchSessions::new(10, 5);
    let small = open(&sessions, &[0], 0);
    // In use, and old enough to be evicted for a larger one.
    let used = sessions.begin(small, 1, false, false, Vec::new(), &[], 120_001);
    assert!(used.is_ok());
    assert_eq!(open(&sessions, &[0, 1, 2, 3, 4, 5], 130_000), NO_SESSION);
    let cached = sessions.cached();
    assert_eq!((cached.sessions, cached.evictions), (1, 0));
}

#[test]
fn all_slots_are_used_although_the_ids_are_random() {
    let sessions = FetchSessions::new(100, 1000);
    for _ in 0..100 {
        assert_ne!(open(&sessions, &[0], 0), NO_SESSION);
    }
    assert_eq!(open(&sessions, &[0], 0), NO_SESSION);
    assert_eq!(sessions.cached().sessions, 100);
}
