//! The invariants of every run. Each finding is a sentence.

use std::collections::HashMap;

use ottla_types::{BrokerId, LeaderEpoch, Offset};

use super::model_controller::Elections;
use super::model_log::{ModelLog, Record};
use super::node::Node;

pub(super) struct Checkers {
    elections: Elections,
    /// Records below a leader's high watermark, by offset. A leader whose log starts later leaves
    /// gaps.
    committed: Vec<Option<Record>>,
    /// Offsets of the records acknowledged with acks=all, by value.
    acknowledged: HashMap<u32, i64>,
    /// The last high watermark of the leader of each epoch.
    led: HashMap<LeaderEpoch, Offset>,
    /// The last high watermark of a follower per leader epoch and process.
    followed: HashMap<(BrokerId, u64, LeaderEpoch), Offset>,
    /// Records deleted on request are not missed.
    deleted_below: i64,
    pub(super) finding: Option<String>,
}

impl Checkers {
    pub(super) fn new(elections: Elections) -> Checkers {
        Checkers {
            elections,
            committed: Vec::new(),
            acknowledged: HashMap::new(),
            led: HashMap::new(),
            followed: HashMap::new(),
            deleted_below: 0,
            finding: None,
        }
    }

    /// Whether committed records must survive.
    fn is_kept(&self) -> bool {
        self.elections == Elections::Clean
    }

    pub(super) fn committed_count(&self) -> usize {
        self.committed.iter().flatten().count()
    }

    pub(super) fn acknowledged_count(&self) -> usize {
        self.acknowledged.len()
    }

    pub(super) fn on_deleted(&mut self, below: Offset) {
        self.deleted_below = self.deleted_below.max(below.0);
    }

    fn committed(&self, offset: i64) -> Option<Record> {
        self.committed.get(offset as usize).copied().flatten()
    }

    fn report(&mut self, finding: String) {
        self.finding.get_or_insert(finding);
    }

    /// The high watermark is monotonic per epoch, and each committed offset has one value.
    pub(super) fn on_high_watermark_led(
        &mut self,
        id: BrokerId,
        epoch: LeaderEpoch,
        log: &ModelLog,
        high_watermark: Offset,
    ) {
        let before = self.led.insert(epoch, high_watermark);
        if let Some(before) = before.filter(|before| *before > high_watermark) {
            self.report(format!(
                "the high watermark of epoch {epoch} went from {before} back to {high_watermark}"
            ));
        }
        let from = before.map_or(log.start().0, |before| before.0.max(log.start().0));
        for offset in from..high_watermark.0 {
            let Some(record) = log.get(offset) else {
                self.report(format!(
                    "leader {id} has no record at {offset}, below its high watermark {high_watermark}"
                ));
                return;
            };
            let index = offset as usize;
            if index >= self.committed.len() {
                self.committed.resize(index + 1, None);
            }
            let committed = *self.committed[index].get_or_insert(record);
            if committed != record && self.is_kept() {
                self.report(format!(
                    "offset {offset} was committed as {committed:?} and by leader {id} of epoch \
                     {epoch} as {record:?}"
                ));
            }
        }
    }

    pub(super) fn on_high_watermark_followed(
        &mut self,
        id: BrokerId,
        broker_epoch: u64,
        epoch: LeaderEpoch,
        high_watermark: Offset,
    ) {
        let key = (id, broker_epoch, epoch);
        if let Some(before) = self.followed.insert(key, high_watermark)
            && before > high_watermark
        {
            self.report(format!(
                "the high watermark of follower {id} in epoch {epoch} went from {before} back to \
                 {high_watermark}"
            ));
        }
    }

    /// Log matching below the high watermark: a replica shows only committed records to consumers.
    pub(super) fn check_visible(&mut self, node: &Node) {
        let high_watermark = node.log.high_watermark.0.min(node.log.end().0);
        for offset in node.log.start().0..high_watermark {
            let (record, committed) = (node.log.get(offset), self.committed(offset));
            if record != committed && self.is_kept() {
                self.report(format!(
                    "replica {} shows {record:?} at offset {offset}, where {committed:?} was \
                     committed",
                    node.id
                ));
                return;
            }
        }
    }

    /// An elected leader has every committed record.
    pub(super) fn on_elected(&mut self, id: BrokerId, epoch: LeaderEpoch, log: &ModelLog) {
        let from = log.start().0.max(self.deleted_below);
        let committed = from..self.committed.len() as i64;
        let mut committed = committed.filter_map(|at| Some((at, self.committed(at)?)));
        if let Some((offset, record)) =
            committed.find(|(offset, record)| log.get(*offset) != Some(*record))
            && self.is_kept()
        {
            let finding = format!(
                "leader {id} of epoch {epoch} was elected without {record:?}, committed at {offset}; \
                 it has {:?} there and ends at {}",
                log.get(offset),
                log.end()
            );
            self.report(finding);
        }
    }

    /// acks=all: the record is on at least `min.insync.replicas` replicas and is not lost later.
    pub(super) fn on_acknowledged(
        &mut self,
        value: u32,
        offset: Offset,
        nodes: &[Node],
        min_insync_replicas: usize,
    ) {
        self.acknowledged.insert(value, offset.0);
        let holds = |node: &&Node| {
            let record = node.log.get(offset.0);
            node.log.start() > offset
                || record.is_some_and(|record| record.value == value)
                || node.lost.contains(&value)
        };
        let copies = nodes.iter().filter(holds).count();
        if copies < min_insync_replicas && self.is_kept() {
            self.report(format!(
                "record {value} was acknowledged at {offset} with {copies} copies, and \
                 min.insync.replicas is {min_insync_replicas}"
            ));
        }
    }

    /// At the end, the leader has every acknowledged record.
    pub(super) fn check_nothing_lost(&mut self, log: &ModelLog) {
        let mut lost = None;
        for (&value, &offset) in &self.acknowledged {
            let is_there = log.get(offset).is_some_and(|record| record.value == value);
            if offset >= self.deleted_below && !is_there && self.is_kept() {
                lost = lost.max(Some((offset, value)));
            }
        }
        if let Some((offset, value)) = lost {
            self.report(format!("record {value}, acknowledged at {offset}, is lost"));
        }
    }
}
