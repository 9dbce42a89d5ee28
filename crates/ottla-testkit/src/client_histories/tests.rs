//! A valid history, and one anomaly of each kind planted into it.

use super::*;

fn sent(log: Log, value: Value, offset: i64) -> Step {
    Step::Sent {
        log,
        value,
        offset: Some(offset),
    }
}

fn polled(at: u64, records: &[(Log, i64, Value)]) -> Step {
    let seen = |&(log, offset, value): &(Log, i64, Value)| Seen { log, offset, value };
    Step::Polled {
        at,
        records: records.iter().map(seen).collect(),
    }
}

fn committed(process: u32, commit_asked_at: u64, steps: &[Step]) -> Operation {
    Operation {
        process,
        steps: steps.to_vec(),
        outcome: Outcome::Committed,
        commit_asked_at: Some(commit_asked_at),
    }
}

fn aborted(process: u32, steps: &[Step]) -> Operation {
    Operation {
        process,
        steps: steps.to_vec(),
        outcome: Outcome::Aborted,
        commit_asked_at: None,
    }
}

fn unknown(process: u32, commit_asked_at: u64, steps: &[Step]) -> Operation {
    Operation {
        outcome: Outcome::Unknown,
        ..committed(process, commit_asked_at, steps)
    }
}

fn poll(process: u32, steps: &[Step]) -> Operation {
    Operation {
        commit_asked_at: None,
        ..committed(process, 0, steps)
    }
}

/// Two processes that write to two logs, one that aborts, one whose commit has an unknown result,
/// and a reader of everything.
fn sound() -> Vec<Operation> {
    vec![
        committed(1, 10, &[sent(0, 100, 0), sent(1, 101, 0)]),
        aborted(2, &[sent(0, 200, 2)]),
        poll(2, &[polled(20, &[(0, 0, 100)])]),
        unknown(2, 30, &[sent(0, 201, 4), sent(1, 202, 2)]),
        unknown(3, 30, &[sent(0, 300, 6), sent(1, 301, 4)]),
        committed(
            1,
            40,
            &[polled(35, &[(0, 4, 201), (1, 2, 202)]), sent(1, 102, 6)],
        ),
        poll(
            9,
            &[
                Step::Sought { log: 0 },
                Step::Sought { log: 1 },
                polled(90, &[(0, 0, 100), (0, 4, 201), (1, 0, 101), (1, 2, 202)]),
                polled(91, &[(1, 6, 102)]),
            ],
        ),
    ]
}

/// The findings in the valid history with `more` inserted before its last operation.
fn found_with(more: &[Operation]) -> Vec<Kind> {
    let mut history = sound();
    let at = history.len() - 1;
    history.splice(at..at, more.iter().cloned());
    kinds(&history)
}

fn kinds(history: &[Operation]) -> Vec<Kind> {
    check(history).iter().map(|(kind, _)| kind).collect()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    assert_eq!(check(&sound()), Findings::default());
    assert_eq!(check(&[]), Findings::default());
}

#[test]
fn two_values_at_one_place() {
    // Both were acknowledged at that offset, so the one that is not in the log is lost.
    assert_eq!(
        found_with(&[committed(4, 50, &[sent(0, 400, 4)])]),
        [Kind::TwoValuesAtOnePlace, Kind::LostWrite]
    );
    // A reader received a different value at an offset than the producer was acknowledged.
    let mut history = sound();
    history[0].steps[0] = sent(0, 100, 4);
    let found = kinds(&history);
    assert!(found.contains(&Kind::TwoValuesAtOnePlace), "{found:?}");
}

#[test]
fn a_value_at_two_places_is_a_duplicate() {
    let again = poll(4, &[polled(60, &[(0, 8, 201)])]);
    assert_eq!(found_with(&[again]), [Kind::Duplicate]);
}

#[test]
fn values_that_were_never_sent_or_sent_to_another_log_are_found() {
    for (log, value) in [(0, 999), (0, 101)] {
        let strange = poll(4, &[polled(60, &[(log, 9, value)])]);
        assert_eq!(found_with(&[strange]), [Kind::NeverSent]);
    }
}

#[test]
fn a_committed_write_that_no_consumer_receives_is_lost() {
    // In the middle, at the end, and where the producer received no offset.
    for step in [
        sent(1, 400, 3),
        sent(1, 400, 30),
        Step::Sent {
            log: 1,
            value: 400,
            offset: None,
        },
    ] {
        let found = found_with(&[committed(4, 50, std::slice::from_ref(&step))]);
        assert_eq!(found, [Kind::LostWrite]);
        assert!(found_with(&[aborted(4, std::slice::from_ref(&step))]).is_empty());
        assert!(found_with(&[unknown(4, 50, &[step])]).is_empty());
    }
}

#[test]
fn an_aborted_write_that_a_consumer_receives() {
    let seen = poll(4, &[polled(60, &[(0, 2, 200)])]);
    // The other polls then skip that record.
    assert_eq!(found_with(&[seen]), [Kind::AbortedRead, Kind::PollSkip]);
}

#[test]
fn a_write_that_a_consumer_receives_before_its_commit_began() {
    let seen = |at| poll(4, &[polled(at, &[(0, 4, 201)])]);
    assert_eq!(found_with(&[seen(29)]), [Kind::EarlyRead]);
    assert!(found_with(&[seen(30)]).is_empty());
}

#[test]
fn a_transaction_of_unknown_end_is_there_as_a_whole_or_not_at_all() {
    let half = unknown(4, 50, &[sent(0, 400, 8), sent(1, 401, 8)]);
    let seen = poll(4, &[polled(60, &[(0, 8, 400)])]);
    assert_eq!(found_with(&[half, seen]), [Kind::TornTransaction]);
}

#[test]
fn polls_that_go_back_or_repeat_unless_the_consumer_was_put_elsewhere() {
    for offset in [0, 4] {
        let value = if offset == 0 { 100 } else { 201 };
        let first = poll(4, &[polled(60, &[(0, 4, 201)])]);
        let back = poll(4, &[polled(61, &[(0, offset, value)])]);
        let found = found_with(&[first.clone(), back.clone()]);
        assert_eq!(found, [Kind::NonMonotonicPoll]);
        let sought = poll(4, &[Step::Sought { log: 0 }]);
        assert!(found_with(&[first, sought, back]).is_empty());
    }
    let within_one = poll(4, &[polled(60, &[(0, 4, 201), (0, 0, 100)])]);
    assert_eq!(found_with(&[within_one]), [Kind::NonMonotonicPoll]);
}

#[test]
fn polls_that_skip_records_that_other_consumers_receive() {
    let skips = poll(4, &[polled(60, &[(1, 0, 101), (1, 6, 102)])]);
    assert_eq!(found_with(&[skips]), [Kind::PollSkip]);
    // Offsets at which no consumer received a record are markers or aborted records, and may be
    // skipped.
    let passes = poll(4, &[polled(60, &[(0, 0, 100), (0, 4, 201)])]);
    assert!(found_with(&[passes]).is_empty());
}

#[test]
fn sends_whose_places_go_back() {
    let last = |offset| {
        let mut history = sound();
        let at = history.len() - 1;
        let steps = [sent(0, 400, 20), sent(0, 401, offset)];
        history.insert(at, committed(4, 50, &steps));
        let seen = [(0, offset, 401), (0, 20, 400)];
        history.push(poll(5, &[polled(95, &seen[..1]), Step::Sought { log: 0 }]));
        history.push(poll(5, &[polled(96, &seen[1..])]));
        kinds(&history)
    };
    assert_eq!(last(19), [Kind::NonMonotonicSend]);
    assert!(last(21).is_empty());
}

#[test]
fn transactions_that_wrote_around_each_other() {
    let one = committed(4, 50, &[sent(0, 400, 10), sent(1, 401, 11)]);
    let other = committed(5, 50, &[sent(0, 500, 11), sent(1, 501, 10)]);
    let records = [(0, 10, 400), (0, 11, 500), (1, 10, 501), (1, 11, 401)];
    let seen = poll(6, &[polled(60, &records)]);
    let found = found_with(&[one.clone(), other, seen]);
    assert_eq!(found, [Kind::WriteSkew]);
    assert!(!Kind::WriteSkew.is_promised_absent());

    let behind = committed(5, 50, &[sent(0, 500, 11), sent(1, 501, 12)]);
    let records = [(0, 10, 400), (0, 11, 500), (1, 11, 401), (1, 12, 501)];
    let seen = poll(6, &[polled(60, &records)]);
    assert!(found_with(&[one, behind, seen]).is_empty());
}

#[test]
fn a_circle_of_three_and_one_that_is_only_a_chain() {
    let circle = |last: &[usize]| skew::circles(&[vec![1], vec![2], last.to_vec(), vec![0]]);
    assert_eq!(circle(&[0]), [[0, 1, 2]]);
    assert!(circle(&[]).is_empty());
    // As long as a history can get.
    let chain: Vec<Vec<usize>> = (1..200_000).map(|next| vec![next % 199_999]).collect();
    assert_eq!(skew::circles(&chain).len(), 1);
}

#[test]
fn a_transaction_that_is_read_in_part() {
    let written = committed(4, 50, &[sent(0, 400, 10), sent(1, 401, 10)]);
    let read = |second: &[(Log, i64, Value)]| {
        let steps = [polled(60, &[(0, 10, 400)]), polled(61, second)];
        let rest = poll(7, &[polled(62, &[(1, 10, 401)])]);
        found_with(&[written.clone(), poll(6, &steps), rest])
    };
    assert_eq!(read(&[(1, 6, 102)]), [Kind::ReadSkew]);
    assert!(!Kind::ReadSkew.is_promised_absent());
    assert!(read(&[(1, 6, 102), (1, 10, 401)]).is_empty());
    // A poll without a record of the log does not show anything about it.
    assert!(read(&[]).is_empty());
}
