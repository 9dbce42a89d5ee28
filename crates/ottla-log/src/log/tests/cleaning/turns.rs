//! What may happen to a log between two turns of its cleaner: truncation and retention come first.

use super::*;

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
            // At 2 the segments that are cleaned are not touched, but one that is prepared is taken back.
            let is_stopped = target < 2 || turn == PUBLISH;
            assert_eq!(
                matches!(result, Err(CleanError::Stopped)),
                is_stopped,
                "{turn} {target}"
            );
            test.run_jobs();
            let offsets: Vec<_> = test.records().iter().map(|r| r.0).collect();
            let expected = if is_stopped { 0..target } else { 1..target };
            assert_eq!(offsets, Vec::from_iter(expected), "{turn} {target}");
            let is_left = |name: &String| name.contains(".swap") || name.contains(".cleaned");
            assert!(!test.files().iter().any(is_left), "{:?}", test.files());
            test.crash();
            assert_eq!(test.end(), Offset(target));
        }
    }
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
