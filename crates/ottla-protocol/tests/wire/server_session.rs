use bytes::Bytes;

use ottla_protocol::Records;
use ottla_protocol::fetch_session::server::{FetchSession, RequestedSession};
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_types::ErrorCode;

type Session = FetchSession<i32>;

fn requested(partitions: &[i32]) -> Vec<(i32, FetchPartition)> {
    let requested = partitions.iter().map(|&partition| {
        let fetch = FetchPartition {
            partition,
            ..Default::default()
        };
        (partition, fetch)
    });
    requested.collect()
}

fn answer(partition: i32, high_watermark: i64, records: &'static str) -> (i32, PartitionData) {
    let data = PartitionData {
        partition_index: partition,
        high_watermark,
        log_start_offset: 0,
        records: Some(Records::Bytes(Bytes::from_static(records.as_bytes()))),
        ..Default::default()
    };
    (partition, data)
}

fn new(partitions: &[i32]) -> Session {
    let answers: Vec<_> = partitions.iter().map(|&it| answer(it, 0, "")).collect();
    Session::new(false, requested(partitions), &answers)
}

/// The partitions of a request, and the partitions of its response.
fn exchange(
    session: &mut Session,
    epoch: i32,
    mut answers: Vec<(i32, PartitionData)>,
) -> (Vec<i32>, Vec<i32>) {
    let continued = session.continue_with(epoch, false, &[], &[]);
    let continued = continued.expect("the right epoch");
    let finished = session.finish(continued.next_epoch, &mut answers);
    finished.expect("no other request came");
    let asked = continued.partitions.iter().map(|(key, _)| *key);
    (
        asked.collect(),
        answers.iter().map(|(key, _)| *key).collect(),
    )
}

#[test]
fn responses_contain_only_changes_and_partitions_with_records_move_to_the_end() {
    let mut session = new(&[0, 1, 2]);
    let answers = vec![answer(0, 5, "a"), answer(1, 0, ""), answer(2, 7, "")];
    assert_eq!(
        exchange(&mut session, 1, answers),
        (vec![0, 1, 2], vec![0, 2])
    );
    let answers = vec![answer(1, 0, ""), answer(2, 7, ""), answer(0, 5, "")];
    assert_eq!(exchange(&mut session, 2, answers), (vec![1, 2, 0], vec![]));
}

#[test]
fn the_end_of_an_error_is_news() {
    let mut session = new(&[0]);
    let mut failed = answer(0, 0, "");
    failed.1.error_code = ErrorCode::NotLeaderOrFollower.code();
    assert_eq!(exchange(&mut session, 1, vec![failed]).1, [0]);
    assert_eq!(exchange(&mut session, 2, vec![answer(0, 0, "")]).1, [0]);
    assert_eq!(exchange(&mut session, 3, vec![answer(0, 0, "")]).1, [0; 0]);
}

#[test]
fn a_request_of_another_epoch_or_kind_is_refused() {
    let mut session = new(&[0]);
    let mut begin = |epoch, uses_topic_ids| {
        let continued = session.continue_with(epoch, uses_topic_ids, &[], &[]);
        continued.map(|continued| continued.next_epoch)
    };
    assert_eq!(begin(2, false), Err(ErrorCode::InvalidFetchSessionEpoch));
    assert_eq!(begin(1, true), Err(ErrorCode::FetchSessionTopicIdError));
    assert_eq!(begin(1, false), Ok(2));
    assert_eq!(begin(2, false), Ok(3));
    let overtaken = session.finish(2, &mut Vec::new());
    assert_eq!(overtaken, Err(ErrorCode::InvalidFetchSessionEpoch));
}

#[test]
fn a_session_without_partitions_is_none() {
    let mut session = new(&[0, 1]);
    let continued = session.continue_with(1, false, &requested(&[2]), &[0, 1]);
    assert_eq!(continued.expect("the right epoch").partitions.len(), 1);
    let continued = session.continue_with(2, false, &[], &[2]);
    assert!(continued.expect("the right epoch").partitions.is_empty());
}

#[test]
fn the_epoch_selects_the_session() {
    assert_eq!(RequestedSession::of(-1), RequestedSession::Sessionless);
    assert_eq!(RequestedSession::of(0), RequestedSession::New);
    assert_eq!(
        RequestedSession::of(7),
        RequestedSession::Known { epoch: 7 }
    );
}
