//! One event, then the exact effects.

mod doubt;
mod errors;
mod remote_records;

use super::*;
use crate::{EpochEnd, Event, Replica, test_batches};

const ME: BrokerId = BrokerId(1);
const BACKOFF_MS: u64 = 1_000;

/// A replica together with the effects of its last step.
struct Story {
    replica: Replica<u32>,
    /// The last fetch position.
    order: FetchPosition,
    now_ms: u64,
    flush_messages: i64,
}

impl Story {
    /// The log ends at `log_end_offset`, with records of `latest_epoch`.
    fn with_log(log_end_offset: i64, high_watermark: i64, latest_epoch: Option<i32>) -> Story {
        Story {
            replica: Replica::new(
                ReplicaConfig::new(ME),
                Offset(log_end_offset),
                Offset(high_watermark),
                Offset(log_end_offset),
                latest_epoch.map(LeaderEpoch),
            ),
            order: FetchPosition {
                leader: BrokerId::NONE,
                leader_epoch: LeaderEpoch(0),
                fetch_offset: Offset(0),
                last_fetched_epoch: None,
                is_in_sync: false,
            },
            now_ms: 0,
            flush_messages: i64::MAX,
        }
    }

    /// The log ends at 10 in epoch 3, the high watermark is 8, and broker 2 leads in epoch 4.
    fn following() -> Story {
        let mut story = Story::with_log(10, 8, Some(3));
        assert_eq!(story.follow(2, 4, 1), [fetch_from(10, 3)]);
        story
    }

    fn step(&mut self, event: Event<u32>) -> Vec<Effect<u32>> {
        let mut effects = Vec::new();
        self.replica.step(event, &mut effects);
        for effect in &effects {
            if let Effect::Fetch(order) = effect {
                self.order = *order;
            }
        }
        effects
    }

    fn follow(&mut self, leader: i32, leader_epoch: i32, partition_epoch: i32) -> Vec<Effect<u32>> {
        self.step(Event::FollowerOf {
            leader: BrokerId(leader),
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            settings: self.settings(),
        })
    }

    fn settings(&self) -> ReplicaSettings {
        ReplicaSettings {
            min_insync_replicas: 1,
            flush_messages: self.flush_messages,
        }
    }

    fn flushed(&mut self, up_to: i64) -> Vec<Effect<u32>> {
        self.step(Event::Flushed {
            up_to: Offset(up_to),
        })
    }

    /// The response of epoch 4's leader to a fetch from this offset.
    fn answer(
        &mut self,
        fetch_offset: i64,
        result: Result<Fetched, ErrorCode>,
    ) -> Vec<Effect<u32>> {
        self.answer_in(4, fetch_offset, result)
    }

    fn answer_in(
        &mut self,
        leader_epoch: i32,
        fetch_offset: i64,
        result: Result<Fetched, ErrorCode>,
    ) -> Vec<Effect<u32>> {
        let now_ms = self.now_ms;
        let order = FetchPosition {
            leader_epoch: LeaderEpoch(leader_epoch),
            fetch_offset: Offset(fetch_offset),
            ..self.order
        };
        self.step(Event::FetchAnswered {
            order,
            result,
            now_ms,
        })
    }

    fn written(&mut self, log_end_offset: i64) -> Vec<Effect<u32>> {
        self.step(Event::LogWritten {
            log_end_offset: Offset(log_end_offset),
        })
    }

    fn truncated(&mut self, log_end_offset: i64, latest_epoch: Option<i32>) -> Vec<Effect<u32>> {
        self.step(Event::LogTruncated {
            log_start_offset: Offset(0),
            log_end_offset: Offset(log_end_offset),
            latest_epoch: latest_epoch.map(LeaderEpoch),
        })
    }

    fn listed(&mut self, result: Result<(i64, i64), ErrorCode>) -> Vec<Effect<u32>> {
        let now_ms = self.now_ms;
        self.step(Event::LeaderOffsetsListed {
            leader_epoch: LeaderEpoch(4),
            result: result.map(|(start, end)| LeaderOffsets {
                log_start_offset: Offset(start),
                log_end_offset: Offset(end),
            }),
            now_ms,
        })
    }

    /// Checks that the fetch is repeated after the backoff and not before.
    fn fetches_again_later(&mut self, fetch: Effect<u32>) {
        self.fetches_again_after(BACKOFF_MS, fetch);
    }

    fn fetches_again_after(&mut self, backoff_ms: u64, fetch: Effect<u32>) {
        let at_ms = self.now_ms + backoff_ms;
        assert_eq!(self.replica.next_deadline_ms(), Some(at_ms));
        assert_eq!(self.step(Event::ClockTicked { now_ms: at_ms - 1 }), []);
        assert_eq!(self.step(Event::ClockTicked { now_ms: at_ms }), [fetch]);
        assert_eq!(self.replica.next_deadline_ms(), None);
        self.now_ms = at_ms;
    }
}

/// An order of broker 2's epoch 4.
fn fetch_from(fetch_offset: i64, last_fetched_epoch: i32) -> Effect<u32> {
    Effect::Fetch(FetchPosition {
        leader: BrokerId(2),
        leader_epoch: LeaderEpoch(4),
        fetch_offset: Offset(fetch_offset),
        last_fetched_epoch: Some(LeaderEpoch(last_fetched_epoch)),
        is_in_sync: false,
    })
}

fn fetch_in_sync_from(fetch_offset: i64, last_fetched_epoch: i32) -> Effect<u32> {
    let Effect::Fetch(position) = fetch_from(fetch_offset, last_fetched_epoch) else {
        unreachable!()
    };
    Effect::Fetch(FetchPosition {
        is_in_sync: true,
        ..position
    })
}

fn batch(base_offset: i64, records: i32, leader_epoch: i32) -> ottla_records::RecordBatch {
    test_batches::batch(base_offset, records, leader_epoch, 0)
}

fn records(batches: &[(i64, i32, i32)], high_watermark: i64) -> Result<Fetched, ErrorCode> {
    let batches = batches
        .iter()
        .map(|&(base_offset, records, epoch)| batch(base_offset, records, epoch));
    any_records(batches.map(AnyBatch::Current), high_watermark)
}

fn any_records(
    batches: impl Iterator<Item = AnyBatch>,
    high_watermark: i64,
) -> Result<Fetched, ErrorCode> {
    Ok(Fetched::Records {
        batches: batches.collect(),
        high_watermark: Offset(high_watermark),
        log_start_offset: Offset(0),
        local_log_start_offset: Offset(0),
    })
}

fn diverging(leader: (i32, i64), local: Option<(i32, i64)>) -> Result<Fetched, ErrorCode> {
    let end = |(leader_epoch, end_offset)| EpochEnd {
        leader_epoch: LeaderEpoch(leader_epoch),
        end_offset: Offset(end_offset),
    };
    Ok(Fetched::Diverging {
        leader: end(leader),
        local: local.map(end),
    })
}

fn write(base_offset: i64, records: i32, leader_epoch: i32) -> Effect<u32> {
    Effect::WriteLog {
        batch: batch(base_offset, records, leader_epoch),
    }
}

fn high_watermark(offset: i64) -> Effect<u32> {
    Effect::FollowHighWatermark {
        high_watermark: Offset(offset),
    }
}

const LIST_OFFSETS: Effect<u32> = Effect::ListLeaderOffsets {
    leader: BrokerId(2),
    leader_epoch: LeaderEpoch(4),
};

#[test]
fn fetched_records_are_written_and_the_next_are_fetched() {
    let mut story = Story::following();
    assert_eq!(story.replica.leader(), BrokerId(2));
    assert_eq!(story.replica.fetch_lag(), None);
    assert_eq!(
        story.answer(10, records(&[(10, 2, 3), (12, 1, 4)], 14)),
        [write(10, 2, 3), write(12, 1, 4)]
    );
    assert_eq!(story.written(13), [high_watermark(13), fetch_from(13, 4)]);
    assert_eq!(story.replica.fetch_lag(), Some(1));
    // A response without records can advance the high watermark.
    assert_eq!(
        story.answer(13, records(&[], 13)),
        [fetch_in_sync_from(13, 4)]
    );
    assert_eq!(story.replica.high_watermark(), Offset(13));
}

#[test]
fn a_follower_refuses_appends_and_reads_for_leaders() {
    let story = Story::following();
    let mut fetch = crate::FollowerFetch {
        replica_id: BrokerId(3),
        broker_epoch: ottla_types::BrokerEpoch(1),
        leader_epoch: Some(LeaderEpoch(4)),
        fetch_offset: Offset(0),
        last_fetched_epoch: None,
        end_of_last_fetched_epoch: None,
        log_start_offset: Offset(0),
        leader_log_start_offset: Offset(0),
        now_ms: 0,
    };
    let refused = |error| Err(crate::FetchRefusal::Error(error));
    let not_leader = refused(ErrorCode::NotLeaderOrFollower);
    assert_eq!(story.replica.check_follower_fetch(&fetch), not_leader);
    fetch.leader_epoch = Some(LeaderEpoch(3));
    let fenced = refused(ErrorCode::FencedLeaderEpoch);
    assert_eq!(story.replica.check_follower_fetch(&fetch), fenced);
    assert_eq!(story.replica.low_watermark(Offset(0)), None);
    assert_eq!(story.replica.read_candidates(Offset(0), 0).count(), 0);
}

#[test]
fn late_and_repeated_responses_are_ignored() {
    let mut story = Story::following();
    let one = || records(&[(10, 1, 4)], 10);
    assert_eq!(story.answer_in(3, 10, one()), [], "of an older epoch");
    assert_eq!(story.answer(9, one()), [], "of another offset");
    assert_eq!(story.answer(10, one()), [write(10, 1, 4)]);
    assert_eq!(story.answer(10, one()), [], "while it is written");
    story.written(11);
    assert_eq!(story.answer(10, one()), [], "after it was written");
}

#[test]
fn a_response_about_another_log_of_the_same_length_is_ignored() {
    let mut story = Story::following();
    let asked = story.order;
    assert_eq!(
        story.answer(10, diverging((2, 8), Some((2, 8)))),
        [Effect::TruncateLog { to: Offset(8) }]
    );
    story.truncated(8, Some(2));
    story.answer(8, records(&[(8, 2, 4)], 10));
    assert_eq!(
        story.written(10),
        [high_watermark(10), fetch_in_sync_from(10, 4)]
    );
    // The first response is repeated.
    let again = Event::FetchAnswered {
        order: asked,
        result: diverging((2, 8), Some((2, 8))),
        now_ms: 0,
    };
    assert_eq!(story.step(again), []);
}

#[test]
fn the_high_watermark_falls_with_the_first_answer_of_a_leader_only() {
    let mut story = Story::following();
    assert_eq!(
        story.answer(10, records(&[], 6)),
        [high_watermark(6), fetch_from_lag(10, 0)]
    );
    assert_eq!(
        story.answer(10, records(&[], 9)),
        [high_watermark(9), fetch_from_lag(10, 0)]
    );
    assert_eq!(story.answer(10, records(&[], 7)), [fetch_from_lag(10, 0)]);
    assert_eq!(story.replica.high_watermark(), Offset(9));
}

/// With the lag of the last response.
fn fetch_from_lag(fetch_offset: i64, lag: i64) -> Effect<u32> {
    match lag {
        0 => fetch_in_sync_from(fetch_offset, 3),
        _ => fetch_from(fetch_offset, 3),
    }
}

#[test]
fn a_log_is_truncated_where_it_diverges_from_the_leader() {
    let mut story = Story::following();
    assert_eq!(
        story.answer(10, diverging((2, 7), Some((2, 9)))),
        [Effect::TruncateLog { to: Offset(7) }]
    );
    assert_eq!(story.truncated(7, Some(2)), [fetch_from(7, 2)]);
    assert_eq!(story.replica.high_watermark(), Offset(7));
    assert_eq!(story.replica.log_end_offset(), Offset(7));
}

#[test]
fn an_epoch_without_records_is_cut_as_well() {
    // This replica led in epoch 3 without writing.
    let mut story = Story::following();
    assert_eq!(
        story.answer(10, diverging((2, 10), Some((2, 10)))),
        [Effect::TruncateLog { to: Offset(10) }]
    );
    assert_eq!(story.truncated(10, Some(2)), [fetch_from(10, 2)]);
}

#[test]
fn a_truncation_that_changes_nothing_is_not_repeated_at_once() {
    let mut story = Story::following();
    story.answer(10, diverging((3, -1), Some((3, 10))));
    assert_eq!(story.truncated(10, Some(3)), []);
    story.fetches_again_later(fetch_from(10, 3));
}

#[test]
fn a_truncation_that_is_refused_is_asked_for_again() {
    let truncation = |to| [Effect::TruncateLog { to: Offset(to) }];
    let mut story = Story::following();
    let cut = || diverging((2, 7), Some((2, 9)));
    assert_eq!(story.answer(10, cut()), truncation(7));
    assert_eq!(story.step(Event::TruncationRefused), []);
    story.fetches_again_later(fetch_from(10, 3));
    assert_eq!(story.answer(10, cut()), truncation(7));

    // A log without epochs cannot be compared: nothing is fetched before it is truncated.
    let mut story = Story::with_log(10, 8, None);
    assert_eq!(story.follow(2, 4, 1), truncation(8));
    assert_eq!(story.step(Event::TruncationRefused), []);
    let now_ms = story.replica.next_deadline_ms().expect("it is tried again");
    assert_eq!(story.step(Event::ClockTicked { now_ms }), truncation(8));
}

#[test]
fn a_log_without_epochs_keeps_only_what_is_committed() {
    let mut story = Story::with_log(10, 8, None);
    assert_eq!(
        story.follow(2, 4, 1),
        [Effect::TruncateLog { to: Offset(8) }]
    );
    let position = FetchPosition {
        leader: BrokerId(2),
        leader_epoch: LeaderEpoch(4),
        fetch_offset: Offset(8),
        last_fetched_epoch: None,
        is_in_sync: false,
    };
    assert_eq!(story.truncated(8, None), [Effect::Fetch(position)]);
    // An empty log needs no truncation.
    let mut story = Story::with_log(0, 0, None);
    let position = FetchPosition {
        fetch_offset: Offset(0),
        ..position
    };
    assert_eq!(story.follow(2, 4, 1), [Effect::Fetch(position)]);
}

#[test]
fn out_of_range_the_leader_is_asked_for_its_ends() {
    let mut story = Story::following();
    let out_of_range = || Err(ErrorCode::OffsetOutOfRange);
    assert_eq!(story.answer(10, out_of_range()), [LIST_OFFSETS]);
    assert_eq!(story.answer(10, records(&[], 10)), [], "meanwhile");
    // An unclean election: the leader has less.
    assert_eq!(
        story.listed(Ok((0, 6))),
        [Effect::TruncateLog { to: Offset(6) }]
    );
    assert_eq!(story.truncated(6, Some(3)), [fetch_from(6, 3)]);

    // The leader has deleted what comes next.
    assert_eq!(story.answer(6, out_of_range()), [LIST_OFFSETS]);
    assert_eq!(
        story.listed(Ok((20, 30))),
        [Effect::TruncateLogFully {
            start_at: Offset(20)
        }]
    );
    let effects = story.step(Event::LogTruncated {
        log_start_offset: Offset(20),
        log_end_offset: Offset(20),
        latest_epoch: None,
    });
    let [Effect::Fetch(position)] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(position.fetch_offset, Offset(20));
    assert_eq!(position.last_fetched_epoch, None);
    assert_eq!(story.replica.high_watermark(), Offset(20));
}

#[test]
fn an_offset_that_is_back_in_range_is_fetched_again() {
    for listed in [Ok((0, 10)), Ok((10, 10)), Err(ErrorCode::KafkaStorageError)] {
        let mut story = Story::following();
        story.answer(10, Err(ErrorCode::OffsetOutOfRange));
        assert_eq!(story.listed(listed), []);
        story.fetches_again_later(fetch_from(10, 3));
    }
}

#[test]
fn a_fenced_follower_waits_for_the_metadata() {
    let mut story = Story::following();
    assert_eq!(story.answer(10, Err(ErrorCode::FencedLeaderEpoch)), []);
    assert!(story.replica.has_failed_fetching());
    assert_eq!(story.replica.next_deadline_ms(), None);
    let effects = story.follow(3, 5, 2);
    let [Effect::Fetch(position)] = effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(position.leader, BrokerId(3));
    assert!(!story.replica.has_failed_fetching());
}

#[test]
fn a_new_epoch_of_the_same_leader_begins_anew_and_a_new_registration_does_not() {
    let mut story = Story::following();
    story.answer(10, Err(ErrorCode::UnknownLeaderEpoch));
    assert_eq!(story.follow(2, 4, 2), []);
    assert_eq!(story.replica.partition_epoch(), PartitionEpoch(2));
    assert!(story.replica.next_deadline_ms().is_some());
    let effects = story.follow(2, 5, 3);
    assert!(matches!(effects[..], [Effect::Fetch(position)]
        if position.leader_epoch == LeaderEpoch(5)));
    assert_eq!(story.replica.next_deadline_ms(), None);
    // Older registrations are ignored.
    assert_eq!(story.follow(3, 6, 2), []);
    assert_eq!(story.replica.leader_epoch(), LeaderEpoch(5));
}

#[test]
fn without_a_leader_nothing_is_fetched() {
    let mut story = Story::following();
    assert_eq!(story.follow(-1, 5, 2), [Effect::StopFetching]);
    assert_eq!(story.answer(10, records(&[(10, 1, 4)], 11)), []);
    let effects = story.follow(3, 6, 3);
    assert!(matches!(effects[..], [Effect::Fetch(_)]), "{effects:?}");
    let mut story = Story::with_log(10, 8, None);
    assert_eq!(story.follow(-1, 5, 2), [], "nor is anything cut");
}

#[test]
fn records_of_a_later_epoch_are_left_for_that_epoch() {
    let mut story = Story::following();
    assert_eq!(
        story.answer(10, records(&[(10, 1, 4), (11, 1, 5), (12, 1, 4)], 11)),
        [write(10, 1, 4)]
    );
    assert_eq!(
        story.written(11),
        [high_watermark(11), fetch_in_sync_from(11, 4)]
    );
}

#[test]
fn records_out_of_order_are_not_written() {
    for batches in [
        &[(10, 2, 4), (11, 1, 4)][..],
        &[(9, 3, 4)],
        &[(10, 0, 4)],
        &[(-5, 1, 4)],
        &[(i64::MAX - 3, 1, 4)],
    ] {
        let mut story = Story::following();
        assert_eq!(story.answer(10, records(batches, 11)), [], "{batches:?}");
        story.fetches_again_later(fetch_from(10, 3));
    }
    // A gap is one that compaction left.
    let mut story = Story::following();
    assert_eq!(
        story.answer(10, records(&[(15, 1, 4)], 16)),
        [write(15, 1, 4)]
    );
}

#[test]
fn an_empty_log_starts_with_the_whole_batch() {
    let mut story = Story::with_log(12, 12, None);
    story.follow(2, 4, 1);
    let answer = Ok(Fetched::Records {
        batches: vec![AnyBatch::Current(batch(10, 5, 4))],
        high_watermark: Offset(15),
        log_start_offset: Offset(12),
        local_log_start_offset: Offset(12),
    });
    assert_eq!(
        story.answer(12, answer),
        [Effect::TruncateLogFully {
            start_at: Offset(10)
        }]
    );
    let truncated = story.step(Event::LogTruncated {
        log_start_offset: Offset(10),
        log_end_offset: Offset(10),
        latest_epoch: None,
    });
    assert_eq!(truncated, [write(10, 5, 4)]);
    assert_eq!(
        story.written(15),
        [high_watermark(15), fetch_in_sync_from(15, 4)]
    );
}

#[test]
fn the_log_start_follows_the_leaders() {
    let mut story = Story::following();
    let answer = |log_start_offset, local_log_start_offset| {
        Ok(Fetched::Records {
            batches: Vec::new(),
            high_watermark: Offset(9),
            log_start_offset: Offset(log_start_offset),
            local_log_start_offset: Offset(local_log_start_offset),
        })
    };
    assert_eq!(
        story.answer(10, answer(5, 0)),
        [
            high_watermark(9),
            Effect::IncrementLogStartOffset {
                log_start_offset: Offset(5)
            },
            fetch_in_sync_from(10, 3)
        ]
    );
    assert_eq!(story.answer(10, answer(5, 5)), [fetch_in_sync_from(10, 3)]);
    assert_eq!(story.answer(10, answer(10, 5)), [fetch_in_sync_from(10, 3)]);
}

#[test]
fn a_refused_write_is_fetched_again_later() {
    let mut story = Story::following();
    story.answer(10, records(&[(10, 1, 3), (11, 1, 4)], 12));
    let refused = story.step(Event::WriteRefused {
        log_end_offset: Offset(11),
    });
    assert_eq!(refused, []);
    assert_eq!(story.replica.log_end_offset(), Offset(11));
    story.fetches_again_later(fetch_from(11, 3));
}

fn flush(up_to: i64) -> Effect<u32> {
    Effect::Flush {
        up_to: Offset(up_to),
    }
}

/// As `following`, with `flush.messages=2`.
fn flushing_follower() -> Story {
    let mut story = Story::following();
    story.flush_messages = 2;
    let settings = story.settings();
    assert_eq!(story.step(Event::SettingsChanged(settings)), []);
    story
}

#[test]
fn the_next_fetch_waits_for_the_flush_that_the_topic_asks_for() {
    let mut story = flushing_follower();
    story.answer(10, records(&[(10, 1, 4)], 10));
    assert_eq!(
        story.written(11),
        [high_watermark(10), fetch_in_sync_from(11, 4)]
    );
    story.answer(11, records(&[(11, 1, 4)], 11));
    assert_eq!(story.written(12), [high_watermark(11), flush(12)]);
    // Other events do not change that.
    assert_eq!(story.step(Event::ClockTicked { now_ms: 5_000 }), []);
    assert_eq!(story.answer(12, records(&[(12, 1, 4)], 12)), []);
    assert_eq!(story.flushed(12), [fetch_in_sync_from(12, 4)]);
    // Flushed records do not count again.
    story.answer(12, records(&[(12, 1, 4)], 12));
    assert_eq!(
        story.written(13),
        [high_watermark(12), fetch_in_sync_from(13, 4)]
    );
}

#[test]
fn a_flush_of_less_than_was_written_is_not_enough() {
    let mut story = flushing_follower();
    story.answer(10, records(&[(10, 4, 4)], 10));
    assert_eq!(story.written(14), [high_watermark(10), flush(14)]);
    assert_eq!(story.flushed(11), [flush(14)]);
    assert_eq!(story.flushed(13), [fetch_in_sync_from(14, 4)]);
}

#[test]
fn records_truncated_and_fetched_again_are_flushed_again() {
    let mut story = flushing_follower();
    story.answer(10, records(&[(10, 4, 4)], 10));
    story.written(14);
    assert_eq!(story.follow(3, 5, 2), [flush(14)]);
    story.flushed(14);
    let order = story.order;
    let answered = |result| Event::FetchAnswered {
        order,
        result,
        now_ms: 0,
    };
    story.step(answered(diverging((3, 10), Some((3, 10)))));
    story.truncated(10, Some(3));
    story.answer_in(5, 10, records(&[(10, 4, 5)], 10));
    let effects = story.written(14);
    assert_eq!(effects.last(), Some(&flush(14)), "{effects:?}");
}

#[test]
fn a_leader_counts_records_flushed_by_an_earlier_flush() {
    let mut story = flushing_follower();
    story.answer(10, records(&[(10, 4, 4)], 10));
    story.written(14);
    let mut event = elected(2);
    if let Event::LeaderElected { leadership, .. } = &mut event {
        leadership.settings = story.settings();
    }
    let effects = story.step(event);
    assert!(effects.contains(&flush(14)), "{effects:?}");
    assert_eq!(story.replica.high_watermark(), Offset(10));
    story.flushed(14);
    assert_eq!(story.replica.high_watermark(), Offset(14));
}

/// Messages of an old format without epochs, followed by batches.
#[test]
fn messages_of_an_old_format_are_written_as_they_are() {
    let mut story = Story::with_log(10, 10, None);
    story.follow(2, 4, 1);
    let message = |offset| AnyBatch::Legacy(test_batches::legacy(offset));
    let current = AnyBatch::Current(batch(15, 1, 4));
    let answered = [message(11), message(14), current].into_iter();
    let write = |offset| Effect::WriteLegacy {
        message: test_batches::legacy(offset),
    };
    assert_eq!(
        story.answer(10, any_records(answered, 16)),
        [write(11), write(14)]
    );
    let fetch = |fetch_offset, last_fetched_epoch: Option<i32>, is_in_sync| {
        Effect::Fetch(FetchPosition {
            leader: BrokerId(2),
            leader_epoch: LeaderEpoch(4),
            fetch_offset: Offset(fetch_offset),
            last_fetched_epoch: last_fetched_epoch.map(LeaderEpoch),
            is_in_sync,
        })
    };
    assert_eq!(
        story.written(15),
        [high_watermark(15), fetch(15, None, false)]
    );
    story.answer(15, records(&[(15, 1, 4)], 16));
    assert_eq!(
        story.written(16),
        [high_watermark(16), fetch(16, Some(4), true)]
    );
    // A message of an old format after a batch clears the epochs.
    story.answer(16, any_records([message(16)].into_iter(), 17));
    assert_eq!(
        story.written(17),
        [high_watermark(17), fetch(17, None, true)]
    );
}

#[test]
fn old_messages_out_of_order_are_fetched_again() {
    let mut story = Story::following();
    for offsets in [[12, 11], [i64::MAX, 11]] {
        let messages = offsets.map(|offset| AnyBatch::Legacy(test_batches::legacy(offset)));
        assert_eq!(story.answer(10, any_records(messages.into_iter(), 11)), []);
        story.fetches_again_later(fetch_from(10, 3));
    }
}

/// This broker was elected in epoch 5.
fn elected(partition_epoch: i32) -> Event<u32> {
    let leadership = crate::Leadership {
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(partition_epoch),
        replicas: vec![ME, BrokerId(2)],
        isr: vec![ME],
        brokers: Vec::new(),
        settings: crate::ReplicaSettings {
            min_insync_replicas: 1,
            flush_messages: i64::MAX,
        },
    };
    Event::LeaderElected {
        leadership,
        now_ms: 0,
    }
}

#[test]
fn a_follower_that_is_elected_leads_from_the_end_of_its_log() {
    let mut story = Story::following();
    assert_eq!(
        story.step(elected(2)),
        [
            Effect::StopFetching,
            Effect::AssignLeaderEpoch {
                leader_epoch: LeaderEpoch(5),
                start_offset: Offset(10)
            },
            Effect::AdvanceHighWatermark {
                high_watermark: Offset(10)
            }
        ]
    );
    assert_eq!(story.replica.leader_epoch_start_offset(), Some(Offset(10)));
    // Deposed, it fetches with its own epoch, for the next leader to compare.
    let effects = story.follow(2, 6, 3);
    assert!(matches!(effects[..], [Effect::Fetch(position)]
        if position.last_fetched_epoch == Some(LeaderEpoch(5))));
    // Its earlier election is ignored.
    assert_eq!(story.step(elected(2)), []);
    assert!(!story.replica.is_leader());
}

#[test]
fn a_lost_log_ends_the_fetching() {
    let mut story = Story::following();
    assert_eq!(story.step(Event::LogLost), [Effect::StopFetching]);
    assert_eq!(story.follow(3, 7, 9), []);
    assert!(story.replica.is_lost());
}

#[test]
#[should_panic(expected = "between the truncation of a log and its end")]
fn an_event_during_a_truncation_panics() {
    let mut story = Story::following();
    story.answer(10, diverging((2, 7), Some((2, 9))));
    story.follow(3, 5, 2);
}
