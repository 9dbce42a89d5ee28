//! EndTxn in every state, as in the table of `TransactionCoordinator`.

use ottla_types::ProducerId;

use super::super::TransactionState as State;
use super::{Script, expect, producer, transaction};

/// State in the log, commit or abort, the epoch minus that in the log, the response.
type Row = (State, bool, i16, &'static str);

/// Ends the transaction of each row as a client with this transaction version.
fn check_rows(rows: &[Row], client_transaction_version: i16) {
    for &(state, is_commit, epoch, answer) in rows {
        let mut script = Script::new(2).load(transaction(state, 10));
        let happened = script.end(
            producer(5, 10 + epoch),
            is_commit,
            client_transaction_version,
        );
        let replies: Vec<_> = happened
            .lines()
            .filter(|it| it.starts_with("reply"))
            .collect();
        assert_eq!(
            replies,
            [format!("reply {answer}")],
            "{state:?}, commit {is_commit}, epoch {epoch}: {happened}"
        );
    }
}

#[test]
fn each_row_of_version_2() {
    let rows: [Row; 20] = [
        (State::Empty, false, -1, "PRODUCER_FENCED"),
        (State::Empty, false, 0, "5:11"),
        (State::Empty, true, -1, "PRODUCER_FENCED"),
        (State::Empty, true, 0, "INVALID_TXN_STATE"),
        (State::CompleteAbort, false, -1, "5:10"),
        (State::CompleteAbort, false, 0, "5:11"),
        (State::CompleteAbort, true, -1, "INVALID_TXN_STATE"),
        (State::CompleteAbort, true, 0, "INVALID_TXN_STATE"),
        (State::CompleteCommit, false, -1, "INVALID_TXN_STATE"),
        (State::CompleteCommit, false, 0, "5:11"),
        (State::CompleteCommit, true, -1, "5:10"),
        (State::CompleteCommit, true, 0, "INVALID_TXN_STATE"),
        (State::Ongoing, true, 0, "5:11"),
        (State::Ongoing, false, 0, "5:11"),
        (State::Ongoing, true, -1, "PRODUCER_FENCED"),
        (State::Ongoing, false, 1, "PRODUCER_FENCED"),
        (State::CompleteCommit, true, -2, "PRODUCER_FENCED"),
        (State::CompleteAbort, false, 1, "PRODUCER_FENCED"),
        (State::Dead, true, 0, "UNKNOWN_SERVER_ERROR"),
        (State::PrepareEpochFence, false, 0, "UNKNOWN_SERVER_ERROR"),
    ];
    check_rows(&rows, 2);
}

#[test]
fn each_row_of_version_1() {
    let rows: [Row; 10] = [
        (State::Empty, false, 0, "INVALID_TXN_STATE"),
        (State::Empty, true, 0, "INVALID_TXN_STATE"),
        (State::CompleteAbort, false, 0, "NONE"),
        (State::CompleteAbort, true, 0, "INVALID_TXN_STATE"),
        (State::CompleteCommit, false, 0, "INVALID_TXN_STATE"),
        (State::CompleteCommit, true, 0, "NONE"),
        (State::CompleteCommit, true, -1, "PRODUCER_FENCED"),
        (State::Ongoing, true, 0, "NONE"),
        (State::Ongoing, false, 1, "PRODUCER_FENCED"),
        (State::Dead, true, 0, "UNKNOWN_SERVER_ERROR"),
    ];
    check_rows(&rows, 0);
}

#[test]
fn requests_during_the_writing_of_markers_are_retried() {
    let mut script = Script::new(2);
    script.init();
    script.add(producer(100, 0), &[0]);
    script.writes_markers = false;
    expect(
        script.end(producer(100, 0), true, 2),
        "write PrepareCommit 100:1 last 0 [0]
         reply 100:1
         markers commit 100:1 v2 to 1",
    );
    expect(
        script.end(producer(100, 0), true, 2),
        "reply CONCURRENT_TRANSACTIONS",
    );
    expect(
        script.add(producer(100, 1), &[2]),
        "reply CONCURRENT_TRANSACTIONS",
    );
    expect(script.init(), "reply CONCURRENT_TRANSACTIONS");
    expect(
        script.answer_markers(0, ottla_types::ErrorCode::None),
        "write CompleteCommit 100:1 last 0",
    );
    // A client that missed the response repeats the request and gets the result.
    expect(script.end(producer(100, 0), true, 2), "reply 100:1");
}

#[test]
fn an_abort_without_partitions_writes_no_markers() {
    let mut script = Script::new(2);
    script.init();
    expect(
        script.end(producer(100, 0), false, 2),
        "write PrepareAbort 100:1 last 0
         write CompleteAbort 100:1 last 0
         reply 100:1",
    );
    let transaction = script.coordinator.describe("t").unwrap();
    assert_eq!(transaction.start_timestamp_ms, script.now_ms);
}

#[test]
fn a_log_in_which_the_end_is_decided_is_completed_after_loading() {
    for (state, result, completed) in [
        (State::PrepareCommit, "commit", "CompleteCommit"),
        (State::PrepareAbort, "abort", "CompleteAbort"),
    ] {
        let mut script = Script::new(2).load(transaction(state, 10));
        expect(
            script.loaded(),
            &format!(
                "timer abort timed out 10000
                 timer remove expired 3600000
                 markers {result} 5:10 v2 to 1
                 write {completed} 5:10"
            ),
        );
    }
}

#[test]
fn a_retry_that_crosses_producer_ids_is_known() {
    let mut ended = transaction(State::CompleteCommit, 0);
    ended.producer_id = ProducerId(6);
    let mut script = Script::new(2).load(ended);
    // In this record, 5 is the previous id.
    expect(script.end(producer(5, i16::MAX - 1), true, 2), "reply 6:0");
    expect(
        script.end(producer(5, i16::MAX - 2), true, 2),
        "reply INVALID_PRODUCER_ID_MAPPING",
    );
}

#[test]
fn clients_of_version_2_are_refused_where_the_log_has_no_room_for_that() {
    for cluster in [0, 1] {
        let mut script = Script::new(cluster).load(transaction(State::Ongoing, 10));
        let answers = [
            script.add_as(producer(5, 10), &[77], 2),
            script.end(producer(5, 10), true, 2),
        ];
        let refused = "reply UNSUPPORTED_VERSION";
        let is_refused = |answer: &String| answer.lines().any(|line| line == refused);
        let count = answers.iter().filter(|answer| is_refused(answer)).count();
        assert_eq!(count, if cluster == 0 { 2 } else { 0 }, "{answers:?}");
        // Nothing is pending that would block the client's next request.
        if cluster == 0 {
            let ended = script.end(producer(5, 10), true, 0);
            assert!(ended.contains("reply NONE"), "{ended}");
        }
    }
}
