//! The environment of the broker: the controller, the other replica, and their shared state.
//!
//! Nothing here is product code. It is plain data behind one lock that is held for one call, so
//! that killing a broker leaves it consistent.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AlterPartition, AlteredPartition, EpochEnd, FetchPosition, LeaderOffsets};
use ottla_sync::Mutex;
use ottla_sync::simulation::Random;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch, Timestamp};

use crate::partition::leader_answer::Answered;
use crate::test_host::TOPIC_ID;

pub(super) type Values = BTreeMap<i64, (Vec<u8>, Vec<u8>)>;

/// The broker under test.
pub(super) const BROKER: i32 = 1;
/// The replica that never fails.
pub(super) const PEER: i32 = 2;
const NO_LEADER: i32 = -1;

/// The events that may happen in a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) is_compacted: bool,
    /// Power and synced data are lost. The peer then stays in sync and has everything that was
    /// acknowledged.
    pub(super) has_losses: bool,
    /// The peer loses records at its log end, committed or not, and becomes leader.
    pub(super) has_unclean_elections: bool,
}

/// Counts events, so that a run in which nothing happens fails.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) committed: u64,
    pub(super) acknowledged: u64,
    pub(super) elections: u64,
    pub(super) truncations: u64,
    pub(super) unclean_elections: u64,
    pub(super) kills: u64,
    pub(super) losses: u64,
    pub(super) stops: u64,
    pub(super) failures: u64,
    pub(super) rolls: u64,
    pub(super) cleanings: u64,
    pub(super) transactions: u64,
    pub(super) refused_transactions: u64,
    pub(super) aborted: u64,
    pub(super) holes: u64,
}

#[derive(Clone)]
pub(super) struct Cluster(Arc<Mutex<State>>);

pub(super) struct State {
    pub(super) setup: Setup,
    pub(super) leader: i32,
    pub(super) leader_epoch: i32,
    partition_epoch: i32,
    pub(super) isr: Vec<i32>,
    /// Since the topic was created.
    pub(super) changes: Vec<MetadataRecord>,
    /// The log of the peer.
    pub(super) peer: Vec<RecordBatch>,
    pub(super) peer_high_watermark: i64,
    /// The broker's fetch position at the peer in this leader epoch.
    fetched: i64,
    /// Records below this offset are committed.
    pub(super) committed: i64,
    /// Offset ranges that a power loss removed from the broker's log at the end of a segment, above
    /// the recovery point.
    pub(super) holes: Vec<(i64, i64)>,
    /// Since the last start whose log was checked.
    pub(super) has_lost_power: bool,
    /// The broker's log when it was last opened or truncated, and its end offset then.
    pub(super) kept: (Vec<RecordBatch>, i64),
    values: u64,
    pub(super) tally: Tally,
}

/// A batch of some records with unique values.
pub(super) fn build(
    random: &mut Random,
    prefix: &str,
    first_value: u64,
    of_producer: impl FnOnce(RecordBatchBuilder) -> RecordBatchBuilder,
) -> RecordBatch {
    let mut builder = of_producer(RecordBatchBuilder::new(Compression::None));
    for number in 0..1 + random.below(3) {
        let key = format!("key-{}", random.below(6));
        let value = format!("{prefix}-{}-{:060}", first_value + number, 0);
        let time = Timestamp(1_767_225_600_000 + number as i64);
        builder.append(time, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    builder.build()
}

impl Cluster {
    pub(super) fn new(setup: Setup) -> Cluster {
        Cluster(Arc::new(Mutex::new(State {
            setup,
            leader: BROKER,
            leader_epoch: 0,
            partition_epoch: 0,
            isr: vec![BROKER, PEER],
            changes: Vec::new(),
            peer: Vec::new(),
            peer_high_watermark: 0,
            fetched: 0,
            committed: 0,
            holes: Vec::new(),
            has_lost_power: false,
            kept: Default::default(),
            values: 0,
            tally: Tally::default(),
        })))
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.0.lock())
    }
}

impl State {
    pub(super) fn next_values(&mut self) -> u64 {
        self.values += 10;
        self.values
    }

    pub(super) fn peer_end(&self) -> i64 {
        self.peer
            .last()
            .map_or(0, |batch| batch.header.next_offset().0)
    }

    pub(super) fn peer_epoch(&self) -> Option<LeaderEpoch> {
        let last = self.peer.last()?;
        Some(last.header.partition_leader_epoch)
    }

    fn change(&mut self, leader: Option<i32>, isr: Vec<i32>) {
        self.partition_epoch += 1;
        if let Some(leader) = leader {
            (self.leader, self.fetched) = (leader, 0);
            self.leader_epoch += 1;
            self.tally.elections += 1;
            tell!(
                "{} leads in epoch {}, isr {isr:?}",
                leader,
                self.leader_epoch
            );
        }
        self.isr = isr;
        let change = PartitionChangeRecord {
            partition_id: 0,
            topic_id: TOPIC_ID,
            isr: Some(self.isr.clone()),
            leader: leader.unwrap_or(-2),
            ..Default::default()
        };
        self.changes.push(MetadataRecord::PartitionChange(change));
    }

    pub(super) fn on_broker_down(&mut self) {
        match self.isr.contains(&PEER) {
            true => self.change(Some(PEER), vec![PEER]),
            false => self.change(Some(NO_LEADER), vec![BROKER]),
        }
    }

    pub(super) fn on_broker_up(&mut self) {
        if self.leader == NO_LEADER {
            self.change(Some(BROKER), vec![BROKER]);
        }
    }

    /// The broker's log ended here since it was opened: it has been truncated if a hole reaches
    /// further, and later records are not missing any more.
    fn on_log_end(&mut self, end: i64) {
        self.holes.retain(|hole| hole.0 < end);
        for hole in &mut self.holes {
            hole.1 = hole.1.min(end);
        }
    }

    /// The broker's log was opened or truncated. A batch in a hole was written after a truncation,
    /// and so was everything after it.
    pub(super) fn on_kept(&mut self, batches: Vec<RecordBatch>, end: i64) {
        for hole in &mut self.holes {
            let is_in = |batch: &&RecordBatch| {
                let header = &batch.header;
                header.base_offset.0 < hole.1 && hole.0 < header.next_offset().0
            };
            if let Some(first) = batches.iter().find(is_in) {
                hole.1 = first.header.base_offset.0.max(hole.0);
            }
        }
        self.holes.retain(|hole| hole.0 < hole.1);
        self.kept = (batches, end);
    }

    /// Random actions of the controller and of the peer's clients.
    pub(super) fn act(&mut self, random: &mut Random) {
        match self.leader {
            _ if self.setup.has_unclean_elections && random.one_in(8) => self.elect_unclean(random),
            BROKER if self.isr.contains(&PEER) && random.one_in(2) => {
                self.change(Some(PEER), self.isr.clone());
            }
            PEER if self.isr.contains(&BROKER) && random.one_in(2) => {
                self.change(Some(BROKER), self.isr.clone());
            }
            _ => {}
        }
        if self.leader == PEER {
            for _ in 0..random.below(4) {
                self.write_to_peer(random);
            }
            self.advance();
        }
    }

    /// A client writes to the peer, which leads.
    fn write_to_peer(&mut self, random: &mut Random) {
        let value = self.next_values();
        let mut batch = build(random, "peer", value, |builder| builder);
        let epoch = LeaderEpoch(self.leader_epoch);
        batch.assign_offset(Offset(self.peer_end()), epoch);
        self.peer.push(batch);
    }

    /// If all lives were too short or too faulty for it, the broker's log rolls as a follower's.
    /// Returns whether it has rolled.
    pub(super) fn write_until_rolled(&mut self, random: &mut Random) -> bool {
        if self.tally.rolls == 0 && self.leader == PEER {
            self.write_to_peer(random);
        }
        self.tally.rolls > 0
    }

    /// Makes the peer the leader.
    pub(super) fn follow_peer(&mut self) {
        self.change(Some(PEER), self.isr.clone());
    }

    fn elect_unclean(&mut self, random: &mut Random) {
        let kept = self.peer.len() - random.index(self.peer.len() / 2 + 1);
        self.peer.truncate(kept);
        self.committed = self.committed.min(self.peer_end());
        self.peer_high_watermark = self.peer_high_watermark.min(self.peer_end());
        self.tally.unclean_elections += 1;
        self.change(Some(PEER), vec![PEER]);
    }

    /// Advances the high watermark of the peer as the leader.
    fn advance(&mut self) {
        let end = self.peer_end();
        let reached = match self.isr.contains(&BROKER) {
            true => end.min(self.fetched),
            false => end,
        };
        self.peer_high_watermark = self.peer_high_watermark.max(reached);
        self.committed = self.committed.max(self.peer_high_watermark);
    }

    /// Whether the peer leads in the epoch that a request of the broker names.
    fn check_epoch(&self, epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        if epoch.0 < self.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if epoch.0 > self.leader_epoch || self.leader != PEER {
            return Err(ErrorCode::UnknownLeaderEpoch);
        }
        Ok(())
    }

    /// The peer's response to a query for its offsets.
    pub(super) fn list_offsets(&self, epoch: LeaderEpoch) -> Result<LeaderOffsets, ErrorCode> {
        self.check_epoch(epoch)?;
        Ok(LeaderOffsets {
            log_start_offset: Offset(0),
            log_end_offset: Offset(self.peer_end()),
        })
    }

    /// The peer's response to a fetch of the broker.
    pub(super) fn serve(&mut self, position: FetchPosition) -> Result<Answered, ErrorCode> {
        let from = position.fetch_offset.0;
        // In doubt, the broker asks from within its log, without an epoch.
        if position.last_fetched_epoch.is_some() || from == 0 {
            self.on_log_end(from);
        }
        self.check_epoch(position.leader_epoch)?;
        if let Some(epoch) = position.last_fetched_epoch {
            let local = self.end_of(epoch);
            if local.leader_epoch != epoch || local.end_offset.0 < from {
                self.tally.truncations += 1;
                tell!("the logs differ at {from}: the peer has {local:?}");
                return Ok(Answered::Diverging(local));
            }
        }
        // Without an epoch: nothing is left of the broker's log before this offset, or it is in doubt.
        if from > self.peer_end() {
            tell!("the peer does not have {from}");
            return Err(ErrorCode::OffsetOutOfRange);
        }
        self.fetched = self.fetched.max(from);
        if from >= self.peer_end() && !self.isr.contains(&BROKER) {
            self.change(None, vec![BROKER, PEER]);
        }
        self.advance();
        let missing = self
            .peer
            .iter()
            .filter(|batch| batch.header.next_offset().0 > from);
        let batches = missing
            .take(5)
            .map(|batch| ottla_records::legacy::AnyBatch::Current(batch.clone()))
            .collect();
        Ok(Answered::Records {
            batches,
            high_watermark: Offset(self.peer_high_watermark),
            log_start_offset: Offset(0),
        })
    }

    /// The newest epoch of the peer's log up to `epoch`, and its end offset.
    fn end_of(&self, epoch: LeaderEpoch) -> EpochEnd {
        let in_epoch = |batch: &&RecordBatch| batch.header.partition_leader_epoch <= epoch;
        let last = self.peer.iter().rev().find(in_epoch);
        EpochEnd {
            leader_epoch: last.map_or(LeaderEpoch(-1), |it| it.header.partition_leader_epoch),
            end_offset: last.map_or(Offset(0), |it| it.header.next_offset()),
        }
    }

    /// The peer as a follower appends the broker's records.
    pub(super) fn replicate(&mut self, epoch: i32, from: i64, batches: Vec<RecordBatch>) {
        if (self.leader, self.leader_epoch, self.peer_end()) != (BROKER, epoch, from) {
            return;
        }
        for batch in batches {
            assert_eq!(batch.header.base_offset.0, self.peer_end(), "a gap is sent");
            batch
                .verify_crc()
                .expect("a request contains whole batches");
            for record in batch.records(1 << 20).expect("records").iter() {
                let value = record.expect("a record").value.unwrap_or_default();
                assert!(
                    !value.starts_with(b"bad"),
                    "a batch of a transaction that the coordinator refused is in the log"
                );
            }
            self.peer.push(batch);
        }
    }

    /// The peer as a follower truncates records that its leader does not have.
    pub(super) fn cut_peer(&mut self, epoch: i32, end: EpochEnd) {
        if (self.leader, self.leader_epoch) != (BROKER, epoch) {
            return;
        }
        let is_kept = |batch: &RecordBatch| {
            batch.header.partition_leader_epoch <= end.leader_epoch
                && batch.header.next_offset() <= end.end_offset
        };
        let kept = self.peer.partition_point(is_kept);
        self.peer.truncate(kept);
        let (peer_end, committed) = (self.peer_end(), self.committed);
        assert!(
            peer_end >= committed,
            "the leader's log has only {peer_end} of {committed} that are committed"
        );
    }

    /// The controller's response to an ISR proposal of the broker.
    pub(super) fn alter(
        &mut self,
        proposal: &AlterPartition,
    ) -> Result<AlteredPartition, ErrorCode> {
        if self.leader != BROKER || proposal.leader_epoch.0 != self.leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if proposal.partition_epoch.0 != self.partition_epoch {
            return Err(ErrorCode::InvalidUpdateVersion);
        }
        let isr = proposal.new_isr.iter().map(|member| member.broker_id.0);
        self.change(None, isr.collect());
        Ok(AlteredPartition {
            leader_epoch: LeaderEpoch(self.leader_epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            isr: self.isr.iter().map(|id| BrokerId(*id)).collect(),
        })
    }

    /// An acknowledged batch is at the acknowledged offset, on the peer as well.
    pub(super) fn on_acknowledged(&mut self, base_offset: Offset, batch: &RecordBatch) {
        self.tally.acknowledged += 1;
        self.on_log_end(base_offset.0);
        if self.setup.has_unclean_elections {
            return;
        }
        let find = |peer: &RecordBatch| peer.header.base_offset.cmp(&base_offset);
        let found = self.peer.binary_search_by(find);
        let is_there = found.is_ok_and(|at| self.peer[at].header.crc == batch.header.crc);
        assert!(
            is_there,
            "the peer lacks the batch acknowledged at {base_offset}"
        );
        let end = base_offset.0 + i64::from(batch.header.last_offset_delta) + 1;
        self.committed = self.committed.max(end);
    }
}
