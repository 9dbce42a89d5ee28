//! Events between two turns of the cleaner: truncation and retention come first.

use std::rc::Rc;

use super::*;
use crate::disk::trace;

#[test]
fn a_truncation_comes_first_on_every_turn() {
    for turn in [BEGIN, PUBLISH] {
        for target in [0, 1, 2] {
            let mut test = two_segments();
            let (params, now) = (params(test.now), test.now);
            let result = test.try_clean(0, &params, |at, log| {
                if at == turn {
                    log.truncate_to(Offset(target), now).unwrap();
                }
            });
            // At 2 too, although the segments being cleaned are unaffected.
            assert!(
                matches!(result, Err(CleanError::Stopped)),
                "{turn} {target}"
            );
            test.run_jobs();
            let offsets: Vec<_> = test.records().iter().map(|r| r.0).collect();
            assert_eq!(offsets, Vec::from_iter(0..target), "{turn} {target}");
            let is_left = |name: &String| name.contains(".swap") || name.contains(".cleaned");
            assert!(!test.files().iter().any(is_left), "{:?}", test.files());
            test.crash();
            assert_eq!(test.end(), Offset(target));
        }
    }
}

/// The first group is cleaned with a key of the second, whose records may be truncated before.
#[test]
fn a_key_whose_newest_record_is_truncated_keeps_the_one_before() {
    let mut test = TestLog::compacted(|config| config.segment_bytes = 100);
    for value in ["1", "2", "3"] {
        test.put(&[("a", Some(value))]);
        test.roll();
    }
    assert_eq!(test.bases(), [0, 1, 2, 3]);
    let (params, now) = (params(test.now), test.now);
    let result = test.try_clean(0, &params, |turn, log| {
        if turn == BEGIN {
            log.truncate_to(Offset(1), now).unwrap();
        }
    });
    assert!(matches!(result, Err(CleanError::Stopped)));
    assert_eq!(test.records(), kept(&[(0, "a", Some("1"))]));
}

#[test]
fn retention_comes_first_on_every_turn() {
    for turn in [BEGIN, PUBLISH] {
        let mut test = two_segments();
        let mut config = test.config.clone();
        config.cleanup_policy.delete = true;
        test.log().set_config(std::sync::Arc::new(config));
        let params = params(test.now);
        let result = test.try_clean(0, &params, |at, log| {
            if at == turn {
                assert_eq!(log.delete_old_segments(Timestamp(1_000_003)).unwrap(), 2);
            }
        });
        assert!(matches!(result, Err(CleanError::Stopped)), "{turn}");
        test.run_jobs();
        assert_eq!(test.records(), kept(&[(2, "b", Some("3"))]));
        assert_eq!(
            test.files()
                .iter()
                .filter(|name| name.ends_with(".log"))
                .count(),
            1
        );
    }
}

/// A truncation removes the marker of a transaction, which is open again. The cleaner looks at the log
/// before each change of a file.
#[test]
fn a_look_during_a_truncation_cleans_nothing() {
    let mut test = TestLog::compacted(|_| {});
    test.put(&[("a", Some("1"))]);
    test.roll();
    test.put_with(&[("a", Some("2"))], |builder| {
        let builder = builder.producer(ProducerId(5), ProducerEpoch(0), Sequence(0));
        builder.transactional(true)
    });
    test.end_transaction(5, ControlRecordType::Commit);
    let looks: Rc<RefCell<Vec<LogToClean>>> = Rc::default();
    let (reader, now) = (test.reader(), test.now);
    let look = {
        let (looks, reader) = (Rc::clone(&looks), reader.clone());
        move || {
            let found = LogToClean::examine(&reader, None, now).unwrap();
            looks.borrow_mut().push(found);
        }
    };
    let truncate = || test.log().truncate_to(Offset(2), now).unwrap();
    assert!(trace::observed(look, truncate));
    assert_eq!(test.bases(), [0, 1, 2]);
    let looks = looks.borrow();
    for look in looks.iter() {
        assert_eq!(look.first_uncleanable_offset, Offset(1), "{looks:?}");
    }
    let params = params(test.now);
    let owner = Owner::new(test.log());
    let planned = looks.last().unwrap();
    let result = clean(&reader, planned, &owner, &Unhurried, &params, |_| {});
    assert!(matches!(result, Err(CleanError::Stopped)), "{result:?}");
    drop(owner);
    assert_eq!(
        test.records(),
        kept(&[(0, "a", Some("1")), (1, "a", Some("2"))])
    );
}
