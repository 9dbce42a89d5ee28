//! Transaction timeouts and expired ids.

use ottla_types::Timestamp;

use super::super::{ListFilter, TransactionCoordinatorConfig, TransactionState as State};
use super::{ID, Script, TimerKey, expect, producer, transaction};

#[test]
fn a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced() {
    let mut script = Script::new(2).load(transaction(State::Ongoing, 3));
    // It started at 990,000 and has a timeout of 60,000.
    script.now_ms = 1_050_000;
    expect(
        script.tick(TimerKey::AbortTimedOut),
        "timer abort timed out 10000",
    );
    script.now_ms = 1_050_001;
    expect(
        script.tick(TimerKey::AbortTimedOut),
        "timer abort timed out 10000
         write PrepareAbort 5:4 last 3 [0]
         markers abort 5:4 v2 to 1
         write CompleteAbort 5:4 last 3",
    );
    expect(script.add(producer(5, 3), &[0]), "reply PRODUCER_FENCED");
    // A commit by the client now fails, because the transaction was aborted.
    expect(
        script.end(producer(5, 3), true, 2),
        "reply INVALID_TXN_STATE",
    );
}

#[test]
fn an_abort_waits_for_a_producer_id_and_looks_again() {
    let last = i16::MAX - 1;
    let mut script = Script::new(2).load(transaction(State::Ongoing, last));
    script.has_producer_ids = false;
    script.now_ms = 2_000_000;
    expect(
        script.tick(TimerKey::AbortTimedOut),
        "timer abort timed out 10000
         allocate",
    );
    expect(
        script.give_producer_id(Ok(70)),
        "write PrepareAbort 5:32767 last 32766 next 70 [0]
         markers abort 5:32767 v2 to 1
         write CompleteAbort 70:0 last 32766",
    );
}

#[test]
fn ids_without_a_transaction_are_forgotten_after_their_time() {
    let config = TransactionCoordinatorConfig {
        transactional_id_expiration_ms: 5000,
        ..Default::default()
    };
    for (state, expires) in [
        (State::Empty, true),
        (State::CompleteCommit, true),
        (State::CompleteAbort, true),
        (State::Ongoing, false),
        (State::PrepareCommit, false),
        (State::PrepareAbort, false),
    ] {
        let mut script = Script::with(2, config.clone()).load(transaction(state, 3));
        script.now_ms = 994_999;
        expect(
            script.tick(TimerKey::RemoveExpired),
            "timer remove expired 3600000",
        );
        script.now_ms = 995_000;
        let happened = script.tick(TimerKey::RemoveExpired);
        assert_eq!(happened.contains("forget t"), expires, "{state:?}");
        assert_eq!(script.coordinator.transactions.is_empty(), expires);
    }
}

#[test]
fn an_id_that_is_used_while_it_expires_stays() {
    let mut script = Script::new(2).load(transaction(State::Empty, 3));
    script.commits_at_once = false;
    script.now_ms += 8 * 24 * 60 * 60 * 1000;
    script.tick(TimerKey::RemoveExpired);
    expect(script.init(), "reply CONCURRENT_TRANSACTIONS");
    expect(script.fail(ottla_types::ErrorCode::NotEnoughReplicas), "");
    expect(script.init(), "write Empty 5:4");
}

#[test]
fn lists_are_filtered() {
    let script = Script::new(2).load(transaction(State::Ongoing, 3));
    let all = |_: &str| true;
    let filter = ListFilter {
        producer_ids: &[],
        has_state_filter: false,
        states: &[],
        duration_ms: None,
        matches_id: &all,
    };
    let count = |filter: ListFilter<'_>| {
        let now = Timestamp(1_000_000);
        script.coordinator.list(&filter, now).len()
    };
    assert_eq!(count(ListFilter { ..filter }), 1);
    assert_eq!(
        count(ListFilter {
            producer_ids: &[4],
            ..filter
        }),
        0
    );
    assert_eq!(
        count(ListFilter {
            producer_ids: &[5],
            ..filter
        }),
        1
    );
    let states = &[State::Ongoing];
    assert_eq!(
        count(ListFilter {
            has_state_filter: true,
            states,
            ..filter
        }),
        1
    );
    // A filter with an unknown state matches nothing.
    assert_eq!(
        count(ListFilter {
            has_state_filter: true,
            ..filter
        }),
        0
    );
    assert_eq!(
        count(ListFilter {
            duration_ms: Some(10_000),
            ..filter
        }),
        0
    );
    assert_eq!(
        count(ListFilter {
            duration_ms: Some(9_999),
            ..filter
        }),
        1
    );
    let matches_id: &dyn Fn(&str) -> bool = &|id| id != ID;
    assert_eq!(
        count(ListFilter {
            matches_id,
            ..filter
        }),
        0
    );
}
