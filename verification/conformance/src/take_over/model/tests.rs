use serde_json::json;

use super::*;

fn model(kind: Kind, acknowledged: &Value) -> Model {
    let mut model = Model::default();
    model.topics.insert("t".to_owned(), Topic::new(kind, 1));
    assert!(model.acknowledge(acknowledged, None).is_empty());
    model
}

fn row(offset: i64, digest: &str, key: Option<&str>, is_tombstone: bool) -> Value {
    json!(["t", 0, offset, 1000, digest, key, is_tombstone, ""])
}

fn found(records: &[(i64, &str)]) -> Value {
    let records: Vec<Value> = records
        .iter()
        .map(|(offset, digest)| json!([offset, 1000, digest, 0]))
        .collect();
    json!({"0": {"start": 0, "end": 9, "records": records}})
}

fn wrong(model: &mut Model, records: &[(i64, &str)]) -> Vec<String> {
    let mut findings = Findings::default();
    model.compare_records("t", &found(records), &mut findings);
    findings.wrong
}

#[test]
fn acknowledged_records_are_at_their_offsets() {
    let rows = json!([row(0, "a", None, false), row(1, "b", None, false)]);
    assert!(wrong(&mut model(Kind::Plain, &rows), &[(0, "a"), (1, "b")]).is_empty());
    for bad in [
        &[(0, "a")][..],
        &[(0, "b"), (1, "a")],
        &[(0, "a"), (1, "b"), (2, "c")],
        &[(1, "b")],
    ] {
        assert!(
            !wrong(&mut model(Kind::Plain, &rows), bad).is_empty(),
            "{bad:?}"
        );
    }
}

#[test]
fn a_failed_write_may_appear_once_and_must_then_stay() {
    let mut model = model(Kind::Plain, &json!([row(0, "a", None, false)]));
    model.refuse(&json!([["t", 0, -1, 1001, "b", null, false, ""]]));
    assert!(
        wrong(&mut model, &[(0, "a"), (1, "b")]).len() == 1,
        "its timestamp is another"
    );
    let mut model = self::model(Kind::Plain, &json!([row(0, "a", None, false)]));
    model.refuse(&json!([row(-1, "b", None, false)]));
    assert!(wrong(&mut model, &[(0, "a"), (1, "b")]).is_empty());
    assert!(!wrong(&mut model, &[(0, "a")]).is_empty());
    assert!(!wrong(&mut model, &[(0, "a"), (1, "b"), (2, "b")]).is_empty());
}

#[test]
fn only_a_producer_without_idempotence_may_write_twice() {
    let rows = json!([row(1, "a", None, false)]);
    let twice = &[(0, "a"), (1, "a")];
    assert!(!wrong(&mut model(Kind::Plain, &rows), twice).is_empty());
    assert!(wrong(&mut model(Kind::Repeating, &rows), twice).is_empty());
}

#[test]
fn compaction_keeps_the_latest_record_of_each_key() {
    let rows = json!([
        row(0, "a", Some("k"), false),
        row(1, "b", Some("k"), false),
        row(2, "c", Some("l"), false),
        row(3, "d", Some("l"), true)
    ]);
    let made = || model(Kind::Compacted, &rows);
    assert!(wrong(&mut made(), &[(1, "b"), (3, "d")]).is_empty());
    assert!(wrong(&mut made(), &[(1, "b")]).is_empty());
    assert!(wrong(&mut made(), &[(0, "a"), (1, "b"), (2, "c"), (3, "d")]).is_empty());
    assert!(!wrong(&mut made(), &[(0, "a"), (3, "d")]).is_empty());
    assert!(!wrong(&mut made(), &[(1, "b"), (2, "c")]).is_empty());
    let mut compacted = made();
    assert!(wrong(&mut compacted, &[(1, "b"), (3, "d")]).is_empty());
    assert!(!wrong(&mut compacted, &[(0, "a"), (1, "b"), (3, "d")]).is_empty());
}

#[test]
fn read_committed_ends_at_open_transactions_and_skips_aborted_ones() {
    let mut model = Model::default();
    let mut topic = Topic::new(Kind::Transactional, 1);
    topic.transactions = vec![
        Transaction::Committed,
        Transaction::Aborted,
        Transaction::Open,
    ];
    model.topics.insert("t".to_owned(), topic);
    for (offset, digest, transaction) in [(0, "a", 0), (2, "b", 1), (4, "c", 2), (5, "d", 0)] {
        model.acknowledge(
            &json!([row(offset, digest, None, false)]),
            Some(transaction),
        );
    }
    let mut good = Findings::default();
    model.compare_committed("t", &found(&[(0, "a")]), &mut good);
    assert!(good.wrong.is_empty(), "{:?}", good.wrong);
    for bad in [&[(0, "a"), (2, "b")][..], &[], &[(0, "a"), (5, "d")]] {
        let mut findings = Findings::default();
        model.compare_committed("t", &found(bad), &mut findings);
        assert_eq!(findings.wrong.len(), 1, "{bad:?}");
    }
}

#[test]
fn facts_are_compared() {
    let mut model = Model::default();
    model.facts.insert("a".to_owned(), Some("1".to_owned()));
    model.facts.insert("b".to_owned(), None);
    let picture = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    let count = |picture| {
        let mut findings = Findings::default();
        model.compare_facts(&picture, &mut findings);
        findings.wrong.len()
    };
    assert_eq!(count(picture(&[("a", "1"), ("c", "x")])), 0);
    assert_eq!(count(picture(&[("a", "2"), ("b", "x")])), 2);
}

#[test]
fn a_kill_may_undo_a_deletion_of_records_and_a_clean_stop_may_not() {
    let rows = json!([row(0, "a", None, false), row(1, "b", None, false)]);
    let made = || {
        let mut model = model(Kind::Plain, &rows);
        model.topics.get_mut("t").unwrap().partitions[0].delete_before(1);
        model
    };
    let mut from_one = found(&[(1, "b")]);
    from_one["0"]["start"] = json!(1);
    let mut findings = Findings::default();
    made().compare_records("t", &from_one, &mut findings);
    assert!(findings.wrong.is_empty(), "{:?}", findings.wrong);
    assert!(wrong(&mut made(), &[(0, "a"), (1, "b")]).is_empty());
    let mut stopped = made();
    stopped.stopped_cleanly();
    assert!(!wrong(&mut stopped, &[(0, "a"), (1, "b")]).is_empty());
}

#[test]
fn a_kill_may_restore_only_records_of_remaining_segments() {
    let rows = json!([
        row(0, "a", None, false),
        row(1, "b", None, false),
        row(2, "c", None, false),
    ]);
    let found_from = |start: i64, records: &[(i64, &str)]| {
        let mut found = found(records);
        found["0"]["start"] = json!(start);
        let mut model = model(Kind::Plain, &rows);
        model.topics.get_mut("t").unwrap().partitions[0].delete_before(2);
        let mut findings = Findings::default();
        model.compare_records("t", &found, &mut findings);
        findings.wrong
    };
    // The segment of the first record was deleted before the kill, and the next segment has two
    // records.
    let none: [String; 0] = [];
    assert_eq!(found_from(1, &[(1, "b"), (2, "c")]), none);
    assert!(!found_from(1, &[(1, "x"), (2, "c")]).is_empty());
    assert!(!found_from(1, &[(2, "c")]).is_empty());
    assert!(!found_from(3, &[]).is_empty());
}

#[test]
fn a_move_and_a_kill_may_restore_records_of_the_first_batch() {
    let rows = json!([row(0, "a", None, false), row(1, "b", None, false)]);
    let found = found(&[(0, "a"), (1, "b")]);
    let wrong_after = |act: fn(&mut Model)| {
        let mut model = model(Kind::Plain, &rows);
        model.topics.get_mut("t").unwrap().partitions[0].delete_before(1);
        model.stopped_cleanly();
        act(&mut model);
        let mut findings = Findings::default();
        model.compare_records("t", &found, &mut findings);
        !findings.wrong.is_empty()
    };
    let begin_move = |model: &mut Model| {
        model.topics.get_mut("t").unwrap().partitions[0].begin_move();
    };
    assert!(wrong_after(|_| ()));
    assert!(!wrong_after(begin_move));
    // A move that a stop interrupted continues at the next start, and is complete at the stop after
    // that.
    assert!(!wrong_after(|model| {
        model.topics.get_mut("t").unwrap().partitions[0].begin_move();
        model.stopped_cleanly();
    }));
    assert!(wrong_after(|model| {
        model.topics.get_mut("t").unwrap().partitions[0].begin_move();
        model.stopped_cleanly();
        model.stopped_cleanly();
    }));
}
