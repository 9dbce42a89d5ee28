//! Random operations on a log and on a model, which is a list of batches. After each, both must be
//! equal; after a power loss, the log must hold all records below the recovery point and none that
//! was never written.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ottla_types::{LeaderEpoch, Offset, ProducerId};
use proptest::prelude::*;

use super::{TestLog, build, read_all};
use crate::file_names::offset_from_file_name;
use crate::{Log, TimestampTarget};

#[derive(Clone, Debug)]
enum Op {
    /// One append of batches with these record counts; the flag is whether a new leader writes
    /// them.
    Append(Vec<i32>, bool),
    /// A position in the list of batches, as a fraction of 1000.
    Truncate(u32),
    DeleteRecords(u32),
    DeleteSegments,
    Flush,
    RunJobs,
    Reopen,
    Kill,
    /// A power cut; the numbers decide about unsynced bytes.
    PowerCut(Vec<u32>),
}

fn op() -> impl Strategy<Value = Op> {
    let counts = prop::collection::vec(1..6i32, 1..12);
    prop_oneof![
        12 => (counts, prop::bool::weighted(0.1)).prop_map(|(counts, elected)| Op::Append(counts, elected)),
        1 => (0..=1000u32).prop_map(Op::Truncate),
        1 => (0..=1000u32).prop_map(Op::DeleteRecords),
        1 => Just(Op::DeleteSegments),
        2 => Just(Op::Flush),
        2 => Just(Op::RunJobs),
        1 => Just(Op::Reopen),
        1 => Just(Op::Kill),
        2 => prop::collection::vec(any::<u32>(), 8).prop_map(Op::PowerCut),
    ]
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Batch {
    first: i64,
    last: i64,
    epoch: i32,
    size: u64,
}

struct Pair {
    test: TestLog,
    batches: Vec<Batch>,
    start: i64,
    epoch: i32,
    sequence: i32,
}

const PRODUCER: i64 = 5;

impl Pair {
    fn new() -> Pair {
        Pair {
            test: TestLog::with_config(|config| {
                config.segment_bytes = 2000;
                config.index_interval_bytes = 150;
                config.retention_ms = -1;
            }),
            batches: Vec::new(),
            start: 0,
            epoch: 0,
            sequence: 0,
        }
    }

    fn end(&self) -> i64 {
        self.test.reader().log_end_offset().0
    }

    /// An offset at which a batch begins, or the log end offset.
    fn boundary(&self, permille: u32) -> i64 {
        let index = self.batches.len() * permille as usize / 1000;
        self.batches
            .get(index)
            .map_or(self.end(), |batch| batch.first)
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(counts, elected) => self.append(counts, *elected),
            Op::Truncate(permille) => {
                let target = self.boundary(*permille).max(self.start);
                let now = self.test.now;
                self.test.log().truncate_to(Offset(target), now).unwrap();
                self.batches.retain(|batch| batch.last < target);
                self.resume_sequence();
            }
            Op::DeleteRecords(permille) => {
                let offset = self.boundary(*permille);
                self.test
                    .log()
                    .increment_log_start_offset(Offset(offset))
                    .unwrap();
                self.start = self.start.max(offset);
            }
            Op::DeleteSegments => {
                let now = self.test.now;
                self.test.log().delete_old_segments(now).unwrap();
            }
            Op::Flush => self.test.flush(),
            Op::RunJobs => self.test.run_jobs(),
            Op::Reopen => {
                self.test.close();
                self.open(self.end_of_batches(), true);
            }
            Op::Kill => {
                let recovery_point = self.test.reader().recovery_point().0;
                self.test.log = None;
                self.open(recovery_point, false);
            }
            Op::PowerCut(choices) => self.power_cut(choices),
        }
    }

    fn append(&mut self, counts: &[i32], elected: bool) {
        let mut first = self.end();
        if elected {
            self.epoch += 1;
            self.test
                .log()
                .assign_leader_epoch(LeaderEpoch(self.epoch), Offset(first));
        }
        let mut batches = Vec::new();
        for &count in counts {
            let (epoch, sequence) = (LeaderEpoch(self.epoch), self.sequence);
            let batch = build(first, count, 1_000_000 + first, |builder| {
                builder.partition_leader_epoch(epoch).producer(
                    ProducerId(PRODUCER),
                    0.into(),
                    sequence.into(),
                )
            });
            self.batches.push(Batch {
                first,
                last: batch.header.last_offset().0,
                epoch: self.epoch,
                size: batch.size_in_bytes() as u64,
            });
            self.sequence = batch.header.last_sequence().plus(1).0;
            first = batch.header.next_offset().0;
            batches.push(batch);
        }
        let now = self.test.now;
        self.test.log().append(&batches, now).unwrap();
        self.test.log().set_high_watermark(Offset(first));
    }

    fn end_of_batches(&self) -> i64 {
        self.batches
            .last()
            .map_or(self.start, |batch| batch.last + 1)
    }

    fn open(&mut self, recovery_point: i64, clean_shutdown: bool) {
        let mut params = self.test.params(recovery_point, clean_shutdown);
        params.log_start_offset = Offset(self.start);
        let (log, report) = Log::open(params).unwrap();
        // Below a gap left by a power cut, the log may end before its recovery point without a
        // loss.
        let mut below = self.batches.iter().rev();
        let below = below.find(|batch| batch.first < recovery_point);
        if below.is_none_or(|batch| batch.last + 1 >= recovery_point) {
            assert_eq!(report.truncated_below_recovery_point, None);
        }
        self.test.log = Some(log);
        let end = self.end();
        self.test.log().set_high_watermark(Offset(end));
    }

    /// Resets the producers' sequence numbers to the log end.
    fn resume_sequence(&mut self) {
        let producer = self.test.log().producers().producer(ProducerId(PRODUCER));
        self.sequence = producer.map_or(0, |entry| entry.last_sequence().plus(1).0);
    }

    fn power_cut(&mut self, choices: &[u32]) {
        let recovery_point = self.test.reader().recovery_point().0;
        let bases: Vec<i64> = self.test.bases();
        self.test.log = None;
        let mut choices = choices.iter().cycle();
        let mut choose = |limit: u64| u64::from(*choices.next().unwrap()) % limit.max(1);
        for name in self.test.files() {
            let Some(Offset(base)) = offset_from_file_name(&name) else {
                continue;
            };
            let Some(index) = bases.iter().position(|other| *other == base) else {
                continue;
            };
            let next = bases.get(index + 1).copied().unwrap_or(i64::MAX);
            if next <= recovery_point {
                continue;
            }
            let path = self.test.path().join(&name);
            let len = fs::metadata(&path).unwrap().len();
            let safe: u64 = if name.ends_with(".log") {
                let held = self
                    .batches
                    .iter()
                    .filter(|batch| (base..next).contains(&batch.first));
                // A truncation leaves the recovery point inside the last batch, which was fsynced
                // as a whole.
                held.filter(|batch| batch.first < recovery_point)
                    .map(|batch| batch.size)
                    .sum()
            } else {
                0
            };
            // Batches hidden by DeleteRecords are gone from the list, but not from the file.
            if safe > len || self.start > base {
                continue;
            }
            damage(&path, safe, len, &mut choose);
        }
        self.open(recovery_point, false);
        // A file cut at a batch boundary looks whole and leaves a gap before the next segment.
        let start = self.start;
        let found = read_all(&self.test.reader(), start);
        self.batches.retain(|batch| {
            let is_found = batch.last < start || found.contains(&(batch.first, batch.last));
            assert!(is_found || batch.first >= recovery_point, "{batch:?}");
            is_found
        });
        self.resume_sequence();
    }

    fn check(&mut self) {
        let reader = self.test.reader();
        assert_eq!(reader.log_start_offset(), Offset(self.start));
        let start = self.start;
        let expected: Vec<Batch> = self
            .batches
            .iter()
            .filter(|b| b.last >= start)
            .copied()
            .collect();
        let found = read_all(&reader, start);
        let pairs: Vec<_> = expected
            .iter()
            .map(|batch| (batch.first, batch.last))
            .collect();
        assert_eq!(found, pairs);
        assert!(reader.recovery_point() <= reader.log_end_offset());
        for batch in expected.iter().step_by(3) {
            let target = TimestampTarget::At((1_000_000 + batch.last).into());
            let found = reader.offset_for_timestamp(target).unwrap().unwrap();
            assert_eq!(found.offset, Offset(batch.last));
            assert_eq!(found.leader_epoch, Some(LeaderEpoch(batch.epoch)));
        }
        // An epoch ends where the next begins, which need not be after its last batch.
        let mut ends = BTreeMap::new();
        for (batch, next) in expected.iter().zip(expected.iter().skip(1)) {
            ends.insert(batch.epoch, next.first);
        }
        if let Some(batch) = expected.last() {
            ends.insert(batch.epoch, batch.last + 1);
        }
        let last = ends.keys().last().copied();
        for (epoch, end) in ends {
            let found = reader.end_offset_for_epoch(LeaderEpoch(epoch));
            // A newer leader may have been elected without writing a record.
            if Some(epoch) != last {
                assert_eq!(
                    found,
                    Some((LeaderEpoch(epoch), Offset(end))),
                    "epoch {epoch}"
                );
            }
        }
    }
}

/// Cuts a file, zeroes its end or flips a bit, after `safe`.
fn damage(path: &Path, safe: u64, len: u64, choose: &mut impl FnMut(u64) -> u64) {
    let unsafe_len = len - safe;
    if unsafe_len == 0 {
        return;
    }
    let at = safe + choose(unsafe_len);
    let mut bytes = fs::read(path).unwrap();
    match choose(4) {
        0 => {}
        1 => bytes.truncate(at as usize),
        2 => bytes[at as usize..].fill(0),
        _ => {
            // Not in a base offset, which the checksum does not cover.
            let in_record = at as usize;
            if path.extension().is_some_and(|extension| extension == "log") {
                bytes.truncate(in_record);
                bytes.extend([0xa5; 30]);
            } else {
                bytes[in_record] ^= 0x40;
            }
        }
    }
    fs::write(path, bytes).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_list_of_batches(ops in prop::collection::vec(op(), 1..40)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.check();
        }
    }
}
