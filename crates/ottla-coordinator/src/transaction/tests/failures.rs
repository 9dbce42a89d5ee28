//! Failed writes, late commits, and markers that cannot be written.

use ottla_types::ErrorCode;

use super::super::TransactionState as State;
use super::{Script, TimerKey, expect, producer, transaction};

#[test]
fn nothing_is_answered_before_it_is_committed() {
    let mut script = Script::new(2);
    script.commits_at_once = false;
    expect(script.init(), "write Empty 100:0");
    expect(script.init(), "reply CONCURRENT_TRANSACTIONS");
    expect(
        script.add(producer(100, 0), &[0]),
        "reply CONCURRENT_TRANSACTIONS",
    );
    expect(script.commit(), "reply 100:0");
    expect(
        script.add(producer(100, 0), &[0]),
        "write Ongoing 100:0 [0]",
    );
    assert_eq!(script.state(), "Empty 100:0");
    expect(script.commit(), "reply NONE");
    assert_eq!(script.state(), "Ongoing 100:0 [0]");
}

#[test]
fn a_transition_whose_write_fails_is_not_applied() {
    let mut script = Script::new(2).load(transaction(State::Ongoing, 3));
    script.commits_at_once = false;
    expect(
        script.end(producer(5, 3), true, 2),
        "write PrepareCommit 5:4 last 3 [0]",
    );
    expect(
        script.fail(ErrorCode::NotEnoughReplicas),
        "reply COORDINATOR_NOT_AVAILABLE",
    );
    assert_eq!(script.state(), "Ongoing 5:3 [0]");
    expect(
        script.end(producer(5, 3), false, 2),
        "write PrepareAbort 5:4 last 3 [0]",
    );
}

#[test]
fn a_late_step_is_answered_once_and_still_counts() {
    let mut script = Script::new(2).load(transaction(State::Ongoing, 3));
    script.commits_at_once = false;
    script.writes_markers = false;
    script.end(producer(5, 3), true, 2);
    expect(script.time_out(), "reply COORDINATOR_NOT_AVAILABLE");
    expect(
        script.end(producer(5, 3), true, 2),
        "reply CONCURRENT_TRANSACTIONS",
    );
    expect(script.commit(), "markers commit 5:4 v2 to 1");
    expect(
        script.answer_markers(0, ErrorCode::None),
        "write CompleteCommit 5:4 last 3",
    );
}

#[test]
fn an_epoch_taken_to_fence_is_not_taken_twice() {
    let mut script = Script::new(1).load(transaction(State::Ongoing, 3));
    script.commits_at_once = false;
    for _ in 0..2 {
        expect(script.init(), "write PrepareAbort 5:4 [0]");
        expect(
            script.fail(ErrorCode::NotEnoughReplicas),
            "reply COORDINATOR_NOT_AVAILABLE",
        );
    }
    // The first instance is fenced nevertheless.
    expect(script.end(producer(5, 3), true, 0), "reply PRODUCER_FENCED");
}

#[test]
fn failed_markers_are_sent_again() {
    let mut script = Script::new(2);
    script.init();
    script.add(producer(100, 0), &[0, 1]);
    script.writes_markers = false;
    script.end(producer(100, 0), true, 2);
    expect(
        script.answer_markers(0, ErrorCode::NotLeaderOrFollower),
        "markers commit 100:1 v2 to 2",
    );
    expect(
        script.answer_markers(0, ErrorCode::None),
        "write CompleteCommit 100:1 last 0",
    );
}

#[test]
fn markers_of_a_fenced_coordinator_are_given_up() {
    for error in [
        ErrorCode::TransactionCoordinatorFenced,
        ErrorCode::InvalidProducerEpoch,
    ] {
        let mut script = Script::new(2).load(transaction(State::Ongoing, 3));
        script.writes_markers = false;
        script.end(producer(5, 3), true, 2);
        expect(script.answer_markers(0, error), "");
        assert_eq!(script.state(), "PrepareCommit 5:4 last 3 [0]");
    }
}

#[test]
fn the_end_is_written_until_the_log_has_it() {
    let mut script = Script::new(2);
    script.init();
    script.commits_at_once = false;
    script.end(producer(100, 0), false, 2);
    expect(
        script.commit(),
        "write CompleteAbort 100:1 last 0
         reply 100:1",
    );
    expect(
        script.fail(ErrorCode::NotEnoughReplicas),
        "timer completion 100",
    );
    let key = TimerKey::Completion {
        transactional_id: "t".into(),
    };
    expect(script.tick(key.clone()), "write CompleteAbort 100:1 last 0");
    expect(script.commit(), "");
    assert_eq!(script.state(), "CompleteAbort 100:1 last 0");
    expect(script.tick(key), "");
}

#[test]
fn waiting_requests_are_answered_when_the_partition_is_unloaded() {
    use crate::runtime::Coordinator;
    let mut script = Script::new(2).load(transaction(State::Ongoing, 3));
    script.commits_at_once = false;
    script.end(producer(5, 3), true, 2);
    let outcome = script.coordinator.on_unloaded();
    assert_eq!(outcome.replies.len(), 1);
    let mut script = Script::new(2);
    script.has_producer_ids = false;
    script.init();
    let outcome = script.coordinator.on_unloaded();
    assert_eq!(outcome.replies.len(), 1);
}
