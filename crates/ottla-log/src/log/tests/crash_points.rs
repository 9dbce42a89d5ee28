//! Scenarios whose every change to the disk is a point at which the machine stops.
//!
//! A scenario runs once, and its disk changes are recorded. Then, for each prefix of the changes
//! and each way of losing unsynced data, the disk is rebuilt as a crash would have left it, and
//! recovered. It must hold that:
//!
//! - everything that was fsynced and not truncated or deleted since is there, byte for byte;
//! - nothing is there that was never written;
//! - indexes, epochs and producers match the records;
//! - another recovery changes nothing, and neither does a crash during recovery.

mod checker;
mod scenario;

use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_records::RecordBatch;
use ottla_types::{LeaderEpoch, Offset, ProducerId, Timestamp};

use super::{build, idempotent};
use crate::checkpoint::RECOVERY_POINT_CHECKPOINT;
use crate::disk::trace::{self, Loss, Random};
use crate::{JobOutcome, LeaderEpochs, Log, RemoteState};

use checker::{crash_everywhere, read_and_check};
use scenario::{Site, Step};

use Step::*;

fn small_segments(change: impl FnOnce(&mut TopicConfig)) -> TopicConfig {
    let mut config = TopicConfig {
        segment_bytes: 1000,
        index_interval_bytes: 150,
        retention_ms: -1,
        file_delete_delay_ms: 0,
        ..TopicConfig::default()
    };
    change(&mut config);
    config
}

#[test]
fn appends_and_rolls() {
    #[rustfmt::skip]
    let steps = [
        Append(3), Flush, Append(4), RunJobs, Append(5), Append(2), RunJobs, Elect, Append(6),
        DelayJobs, Append(4), Flush, Checkpoint, Append(5), RunJobs, Append(9), Kill, Append(5), Flush,
        RunJobs, Checkpoint, Append(1), Close, Append(7), RunJobs, Append(3),
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 1);
}

#[test]
fn every_append_is_forced() {
    #[rustfmt::skip]
    let steps = [
        Append(3), Append(4), Idempotent(1), RunJobs, Elect, Append(5), Checkpoint, Append(6), RunJobs,
        Idempotent(1), Append(4), Transactional(2), Append(3), EndTransaction(2, true), Append(5),
        RunJobs,
    ];
    crash_everywhere(
        small_segments(|config| config.flush_messages = 1),
        &steps,
        2,
    );
}

#[test]
fn producers_and_transactions() {
    #[rustfmt::skip]
    let steps = [
        Idempotent(1), Transactional(2), Append(3), Transactional(3), EndTransaction(2, true), Flush,
        Idempotent(1), Transactional(2), Append(4), RunJobs, EndTransaction(3, false), Transactional(3),
        Append(5), EndTransaction(3, true), Flush, Checkpoint, Idempotent(1), Append(4), RunJobs,
        EndTransaction(2, true), Truncate(800), Idempotent(1), Transactional(2), Append(6), Flush,
        RunJobs, EndTransaction(2, false), Close, Idempotent(1), Append(3), RunJobs,
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 3);
}

/// The recovery point passes an aborted transaction while its segment is active, and the next
/// segment begins there.
#[test]
fn aborted_transactions() {
    #[rustfmt::skip]
    let steps = [
        Transactional(1), EndTransaction(1, true), Flush, Checkpoint, Append(1), RunJobs, Checkpoint, Append(3),
        Transactional(2), Idempotent(1), EndTransaction(2, true), Flush, Append(2), Checkpoint, RunJobs, Transactional(1),
        Flush, EndTransaction(1, true), Flush, Checkpoint, Append(1), RunJobs, Truncate(800), Append(3), Flush, Checkpoint,
        Transactional(1), EndTransaction(1, true), Flush, Checkpoint, Append(2), RunJobs, Checkpoint,
    ];
    // A transaction with its marker fills a segment.
    crash_everywhere(
        small_segments(|config| config.segment_bytes = 250),
        &steps,
        8,
    );
}

#[test]
fn truncations() {
    #[rustfmt::skip]
    let steps = [
        Append(9), Flush, RunJobs, Append(9), RunJobs, Checkpoint, Elect, Append(8), Truncate(700),
        Elect, Append(7), Flush, Checkpoint, Append(6), DelayJobs, Truncate(300), Elect, Append(9),
        RunJobs, Flush, Truncate(990), Append(2), Checkpoint, TruncateFully(5), Append(8), Flush,
        RunJobs, TruncateFully(0), Append(4), Truncate(0), Append(2), RunJobs,
    ];
    crash_everywhere(small_segments(|_| {}), &steps, 4);
}

#[test]
fn retention() {
    #[rustfmt::skip]
    let steps = [
        Append(9), RunJobs, Append(9), RunJobs, Idempotent(1), DeleteRecords(300), DeleteSegments,
        RunJobs, Flush, Checkpoint, Append(9), RunJobs, DeleteRecords(600), Append(4), DeleteSegments,
        DelayJobs, Append(9), RunJobs, Elect, Append(3), DeleteRecords(1000), DeleteSegments, RunJobs,
        Append(2), Flush, Checkpoint, Close, Append(9), RunJobs, DeleteSegments,
    ];
    crash_everywhere(
        small_segments(|config| config.retention_bytes = 2500),
        &steps,
        5,
    );
}

#[test]
fn compactions() {
    #[rustfmt::skip]
    let steps = [
        Put(9), Put(9), RunJobs, Compact, Idempotent(1), Put(9), Flush, Checkpoint, Compact, DelayJobs,
        Transactional(2), Put(9), EndTransaction(2, true), Put(9), Compact, RunJobs, Truncate(600),
        Put(9), Compact, DeleteRecords(300), DeleteSegments, Compact, RunJobs, Kill, Put(9), Checkpoint,
        Compact, Close,
    ];
    let config = small_segments(|config| {
        config.cleanup_policy.compact = true;
        config.cleanup_policy.delete = false;
    });
    crash_everywhere(config, &steps, 7);
}

#[test]
fn preallocated_segments() {
    #[rustfmt::skip]
    let steps = [
        Append(4), Append(5), RunJobs, Append(6), Flush, Append(6), RunJobs, Truncate(600), Append(7),
        RunJobs, Close, Append(4), RunJobs, Append(9),
    ];
    crash_everywhere(
        small_segments(|config| config.preallocate = true),
        &steps,
        6,
    );
}

/// A follower continues after records that are only in remote storage. Its old records have another
/// history.
#[test]
fn continuing_after_remote_records() {
    let config = Arc::new(small_segments(|config| config.remote_storage_enable = true));
    let now = Timestamp(1_000_000);
    let site = Site::new(Arc::clone(&config));
    let snapshot = producers_at_offset_100();
    trace::start(site.root.path());
    let (mut log, _) = site.open(true);
    for number in 0..20 {
        let epoch = LeaderEpoch(if number < 8 { 0 } else { 2 });
        let batch = build(2 * number, 2, 1_000_000 + 2 * number, |builder| {
            builder.partition_leader_epoch(epoch)
        });
        log.append(&[batch], now).unwrap();
    }
    log.set_high_watermark(Offset(40));
    log.flush_job().unwrap().run().unwrap();
    site.checkpoint(RECOVERY_POINT_CHECKPOINT, Offset(40));
    let mut leader_epochs = LeaderEpochs::default();
    for (epoch, start) in [(0, 0), (3, 10), (5, 90)] {
        leader_epochs.assign(LeaderEpoch(epoch), Offset(start));
    }
    let state = RemoteState {
        next_offset: Offset(100),
        log_start_offset: Offset(5),
        leader_epochs,
        producer_snapshot: Some(snapshot),
    };
    let before = trace::len();
    log.announce_truncation(state.next_offset);
    let recovery_point = log.reader().recovery_point();
    site.checkpoint(RECOVERY_POINT_CHECKPOINT, recovery_point);
    log.start_after_remote(&state, now).unwrap();
    let epochs = log.leader_epochs().clone();
    assert_eq!(epochs.entries().len(), 3);
    drop(log);
    let changes = trace::stop();

    let crashed = Site::new(config);
    let (mut unchanged, mut continued) = (0, 0);
    for count in before..=changes.len() {
        let disk = changes.disk_after(count);
        for loss in Loss::all(count as u64) {
            let context = format!("{}, loss of {loss:?}", changes.describe(count));
            crashed.fill(&disk.crash(loss), site.root.path());
            trace::start(crashed.root.path());
            let (log, _) = crashed.open(false);
            trace::stop();
            if log.reader().local_log_start_offset() == state.next_offset {
                continued += 1;
                assert_eq!(log.log_end_offset(), state.next_offset, "{context}");
                assert_eq!(*log.leader_epochs(), epochs, "{context}");
                let producer = log.producers().producer(ProducerId(9));
                assert!(producer.is_some(), "{context}");
            } else {
                unchanged += 1;
                let found = read_and_check(&log, Offset::ZERO);
                let latest = found.last().map(|it| it.header.partition_leader_epoch);
                assert_eq!(log.latest_epoch(), latest, "{context}");
            }
        }
    }
    assert!(unchanged > 0 && continued > 0, "{unchanged} {continued}");
}

/// The content of a producer snapshot at offset 100, which knows producer 9.
fn producers_at_offset_100() -> Vec<u8> {
    let now = Timestamp(1_000_000);
    let site = Site::new(Arc::new(small_segments(|_| {})));
    let (mut log, _) = site.open(true);
    log.truncate_fully_and_start_at(Offset(98), None, now)
        .unwrap();
    log.append(&[idempotent(98, 2, 9, 0, 0)], now).unwrap();
    log.set_high_watermark(Offset(100));
    log.close().unwrap();
    let file = site
        .root
        .path()
        .join("topic-0/00000000000000000100.snapshot");
    std::fs::read(file).unwrap()
}

#[test]
fn anything() {
    let seeds = std::env::var("OTTLA_CRASH_SEEDS").ok();
    let seeds: u64 = seeds.map_or(2, |seeds| seeds.parse().expect("a number"));
    for seed in 0..seeds {
        let mut random = Random(seed);
        let steps: Vec<Step> = (0..25).map(|_| any_step(&mut random)).collect();
        let flush_messages = [1, 7, i64::MAX][random.below(3)];
        let config = small_segments(|config| {
            config.flush_messages = flush_messages;
            config.retention_bytes = 4000;
        });
        crash_everywhere(config, &steps, seed);
    }
}

fn any_step(random: &mut Random) -> Step {
    let permille = random.below(1001) as i64;
    let id = 1 + random.below(3) as i64;
    match random.below(26) {
        0..=6 => Append(1 + random.below(9)),
        7 | 8 => Idempotent(0),
        9 | 10 => Transactional(id),
        11 => EndTransaction(id, true),
        12 => EndTransaction(id, false),
        13 => Elect,
        14 | 15 => Flush,
        16 | 17 => RunJobs,
        18 => DelayJobs,
        19 => Checkpoint,
        20 => Truncate(permille),
        21 => TruncateFully(permille % 4),
        22 => DeleteRecords(permille),
        23 => DeleteSegments,
        24 => Close,
        _ => Kill,
    }
}

/// Changes a log until an operation fails. `forced` receives the batches that were fsynced by then.
fn work(log: &mut Log, forced: &mut Vec<RecordBatch>) -> Result<(), Box<dyn std::error::Error>> {
    let now = Timestamp(1_000_000);
    let mut batches = Vec::new();
    for round in 0..6 {
        for _ in 0..5 {
            let end = log.log_end_offset();
            let batch = build(end.0, 2, 1_000_000 + end.0, |builder| builder);
            log.append(std::slice::from_ref(&batch), now)?;
            log.set_high_watermark(batch.header.next_offset());
            batches.push(batch);
        }
        if round == 3 {
            let target = Offset(42);
            let is_kept = |batch: &RecordBatch| batch.header.base_offset < target;
            forced.retain(is_kept);
            batches.retain(is_kept);
            log.truncate_to(target, now)?;
        }
        if let Some(job) = log.flush_job() {
            job.run()?;
            forced.clone_from(&batches);
        }
        for job in log.take_jobs() {
            match job.run()? {
                JobOutcome::Unlink(job) => job.run()?,
                outcome => log.on_job_done(outcome),
            }
        }
    }
    log.close_job().run()?;
    Ok(())
}

#[test]
fn any_change_may_fail() {
    let config = Arc::new(small_segments(|_| {}));
    for change in 0.. {
        let site = Site::new(config.clone());
        let (mut log, _) = site.open(true);
        trace::start(site.root.path());
        trace::fail_in(change);
        let mut forced = Vec::new();
        let result = work(&mut log, &mut forced);
        let is_done = result.is_ok();
        drop(log);
        trace::stop();
        trace::start(site.root.path());
        let (log, _) = site.open(false);
        trace::stop();
        let found = read_and_check(&log, Offset::ZERO);
        for batch in &forced {
            assert!(found.contains(batch), "change {change}: {:?}", batch.header);
        }
        if is_done {
            assert!(change > 90, "only {change} changes were made to fail");
            break;
        }
    }
}
