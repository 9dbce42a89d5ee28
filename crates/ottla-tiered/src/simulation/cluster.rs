//! One run: brokers, the controller, operations in progress, and the faults.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use super::brokers::Broker;
use super::random::Random;
use super::store::{Objects, Record, Store, Topic};
use crate::{
    AuxiliaryEffect, AuxiliaryEvent, AuxiliaryState, FetchedIndex, ListedOffset, LocalRetention,
    OffsetAndEpoch, Operation, PublishFailure, RemoteLogMetadata, RemoteLogSegmentState, Retention,
    StoreFailure, TaskEffect, TaskEvent, TaskKind, TaskTime, TierRole, Upload, first_offset,
};

const FAULTY_STEPS: u32 = 700;
const HEALING_STEPS: u32 = 700;
const SETTLING_STEPS: u32 = 500;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Elections {
    Clean,
    Unclean,
}

/// The result of a run.
#[derive(PartialEq, Debug)]
pub(super) struct Report {
    pub(super) finding: Option<String>,
    pub(super) records: usize,
    pub(super) uploads: usize,
    pub(super) deletions: usize,
    pub(super) elections: i32,
    pub(super) rebuilt_followers: usize,
    pub(super) remote_reads: usize,
    /// A hash of the records of the topic in order: equal for the same seed.
    pub(super) fingerprint: u64,
}

/// What arrives later.
enum Arrival {
    Answer(TaskEvent),
    Publish(Bytes),
    UploadEnds(Upload, Vec<Record>),
    Delete(Uuid),
}

struct Envelope {
    broker: usize,
    process: u64,
    kind: TaskKind,
    operation: Operation,
    arrival: Arrival,
}

struct Cluster {
    random: Random,
    now: i64,
    is_healing: bool,
    elections: Elections,
    brokers: Vec<Broker>,
    topic: Topic,
    store: Store,
    leader: usize,
    leader_epoch: i32,
    retention: LocalRetention,
    is_last_tiered_enabled: bool,
    under_way: BTreeMap<(i64, u64), Envelope>,
    sent: u64,
    next_value: u64,
    /// Records on two brokers, while elections are clean.
    committed: Vec<Record>,
    /// What any leader has let expire.
    expired_below: i64,
    is_told: bool,
    report: Report,
}

/// Runs a seed to its end or to the first finding.
pub(super) fn run(seed: u64, elections: Elections, is_told: bool) -> Report {
    let mut random = Random::new(seed);
    let brokers = (0..3)
        .map(|id| Broker::new(id, 4 + random.below(9) as i64))
        .collect();
    let retention = LocalRetention {
        retention: Retention {
            retention_ms: [-1, 1500, 3000][random.below(3) as usize],
            retention_bytes: [-1, 60, 150][random.below(3) as usize],
        },
        local_retention_ms: [-2, 100, 400][random.below(3) as usize],
        local_retention_bytes: [-2, 10, 40][random.below(3) as usize],
        is_delete_policy: true,
        is_remote_storage_enabled: true,
        is_copy_disabled: false,
    };
    let mut cluster = Cluster {
        is_last_tiered_enabled: random.per_mille(500),
        random,
        now: 1_000_000,
        is_healing: false,
        elections,
        brokers,
        topic: Topic::new(),
        store: Store::default(),
        leader: 0,
        leader_epoch: 0,
        retention,
        under_way: BTreeMap::new(),
        sent: 0,
        next_value: 0,
        committed: Vec::new(),
        expired_below: 0,
        is_told,
        report: Report {
            finding: None,
            records: 0,
            uploads: 0,
            deletions: 0,
            elections: 0,
            rebuilt_followers: 0,
            remote_reads: 0,
            fingerprint: 0,
        },
    };
    cluster.elect(0);
    for step in 0..FAULTY_STEPS + HEALING_STEPS {
        cluster.is_healing = step >= FAULTY_STEPS;
        cluster.step(step < FAULTY_STEPS + HEALING_STEPS / 4);
        if cluster.report.finding.is_some() {
            break;
        }
    }
    cluster.finish()
}

impl Cluster {
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{} {}", self.now, what());
        }
    }

    fn time(&self) -> TaskTime {
        TaskTime {
            timestamp: Timestamp(self.now),
            now_ms: self.now as u64,
        }
    }

    fn find(&mut self, finding: String) {
        self.report.finding.get_or_insert(finding);
    }

    fn step(&mut self, is_producing: bool) {
        self.now += 1 + self.random.below(15) as i64;
        if !self.is_healing {
            self.fail_something();
        } else if self.store.away_until > self.now {
            self.store.away_until = self.now;
        }
        if self.is_healing || self.random.per_mille(10) {
            for broker in 0..3 {
                self.start(broker);
            }
        }
        if is_producing && self.random.per_mille(350) {
            self.produce();
        }
        for broker in 0..3 {
            if self.brokers[broker].is_up {
                self.act(broker);
            }
        }
        self.deliver();
        self.check_objects();
        self.check_reads();
    }

    fn fail_something(&mut self) {
        if self.random.per_mille(12) {
            self.store.away_until = self.now + 50 + self.random.below(400) as i64;
        }
        if self.random.per_mille(15) {
            let broker = self.random.below(3) as usize;
            let others_up = (0..3).filter(|it| *it != broker && self.brokers[*it].is_up);
            if others_up.count() == 2 && self.brokers[broker].is_up {
                self.tell(|| format!("kill {broker}"));
                self.brokers[broker].is_up = false;
                if broker == self.leader {
                    self.elect_any();
                }
            }
        }
        if self.random.per_mille(25) {
            self.elect_any();
        }
    }

    fn start(&mut self, broker: usize) {
        if self.brokers[broker].is_up {
            return;
        }
        self.tell(|| format!("start {broker}"));
        self.brokers[broker].restart(&self.topic);
        let role = TierRole::Follower;
        let now_ms = self.now as u64;
        self.brokers[broker].tasks.set_role(role, now_ms);
    }

    fn elect_any(&mut self) {
        let is_eligible = |broker: &Broker| {
            let has_all = broker.records.len() >= self.committed.len()
                && broker.records.get(..self.committed.len()) == Some(&self.committed[..]);
            broker.is_up && (has_all || self.elections == Elections::Unclean && !self.is_healing)
        };
        let eligible: Vec<usize> = (0..3)
            .filter(|it| is_eligible(&self.brokers[*it]))
            .collect();
        if !eligible.is_empty() {
            let chosen = self.random.below(eligible.len() as u64) as usize;
            self.elect(eligible[chosen]);
        }
    }

    fn elect(&mut self, leader: usize) {
        self.leader = leader;
        self.leader_epoch += 1;
        self.report.elections += 1;
        self.tell(|| format!("leader {leader} in epoch {}", self.leader_epoch));
        let now_ms = self.now as u64;
        for (id, broker) in self.brokers.iter_mut().enumerate() {
            if !broker.is_up {
                continue;
            }
            let role = if id == leader {
                TierRole::Leader {
                    is_copy_disabled: false,
                }
            } else {
                TierRole::Follower
            };
            broker.tasks.set_role(role, now_ms);
        }
        let broker = &mut self.brokers[leader];
        let end = broker.end();
        broker.assign_epoch(self.leader_epoch, end);
        // After an unclean election, records that the leader lacks are no longer committed.
        let kept = broker.records.iter().zip(&self.committed);
        let kept = kept
            .take_while(|(mine, committed)| mine == committed)
            .count();
        self.committed.truncate(kept);
    }

    fn produce(&mut self) {
        for _ in 0..self.random.below(4) {
            let record = Record {
                epoch: self.leader_epoch,
                value: self.next_value,
                time: self.now,
            };
            self.next_value += 1;
            self.report.records += 1;
            self.brokers[self.leader].append(record);
        }
    }

    fn act(&mut self, id: usize) {
        let amount = if self.is_healing {
            1000
        } else {
            self.random.below(8) as usize
        };
        let topic = &self.topic;
        self.brokers[id].read_topic(topic, amount);
        self.answer_read_back(id);
        if id == self.leader {
            self.advance_high_watermark();
        } else {
            self.follow(id);
        }
        if self.random.per_mille(100) {
            let broker = &mut self.brokers[id];
            broker.log_start_checkpoint = broker.log_start;
        }
        if self.random.per_mille(150) {
            self.expire_locally(id);
        }
        let (retention, now) = (self.retention.retention, self.time());
        let broker = &mut self.brokers[id];
        let view = broker.view();
        let mut effects = Vec::new();
        let cache = broker.cache.is_initialized().then_some(&broker.cache);
        broker
            .tasks
            .run_due(&view, cache, retention, now, &mut effects);
        self.execute(id, effects);
    }

    fn answer_read_back(&mut self, id: usize) {
        let broker = &mut self.brokers[id];
        let applied = broker.applied;
        let (read, rest) = std::mem::take(&mut broker.reading_back)
            .into_iter()
            .partition(|(position, _, _)| *position < applied);
        broker.reading_back = rest;
        let read: Vec<(usize, TaskKind, Operation)> = read;
        for (_, kind, operation) in read {
            self.answer(id, kind, operation, TaskEvent::Published(Ok(())));
        }
    }

    /// What two brokers have is committed. A part of it may be of open transactions.
    fn advance_high_watermark(&mut self) {
        let leader = &self.brokers[self.leader];
        let others = self
            .brokers
            .iter()
            .filter(|it| it.id != self.leader && it.is_up);
        let replicated = others.map(|it| it.common_end(leader)).max().unwrap_or(0);
        let open = if self.is_healing {
            0
        } else {
            self.random.below(6) as i64
        };
        let leader = &mut self.brokers[self.leader];
        leader.high_watermark = leader.high_watermark.max(replicated);
        let stable = leader.high_watermark - open;
        leader.last_stable_offset = leader.last_stable_offset.max(stable);
        let (from, to) = (self.committed.len(), leader.high_watermark as usize);
        if from < to {
            self.committed.extend(&leader.records[from..to]);
        }
    }

    fn follow(&mut self, id: usize) {
        if !self.is_healing && self.random.per_mille(400) {
            return;
        }
        let leader = &self.brokers[self.leader];
        let (local_start, log_start) = (leader.local_start, leader.log_start);
        let common = self.brokers[id].common_end(leader);
        // Even if no record is removed, an epoch without records is.
        self.brokers[id].truncate(common);
        if self.brokers[id].end() < local_start {
            self.catch_up(id);
            return;
        }
        let leader = &self.brokers[self.leader];
        let fetched: Vec<Record> = leader.records[self.brokers[id].end() as usize..]
            .iter()
            .take(5)
            .copied()
            .collect();
        let high_watermark = leader.high_watermark;
        let follower = &mut self.brokers[id];
        for record in fetched {
            follower.append(record);
        }
        follower.high_watermark = high_watermark
            .min(follower.end())
            .max(follower.high_watermark);
        follower.last_stable_offset = follower.high_watermark;
        follower.increment_log_start(log_start);
    }

    /// One exchange of a follower whose next offset is no longer on the leader's disk.
    fn catch_up(&mut self, id: usize) {
        let follower = &mut self.brokers[id];
        let end = Offset(follower.end());
        let (mut state, mut effect) = AuxiliaryState::begin(end, self.is_last_tiered_enabled);
        loop {
            let event = match effect {
                AuxiliaryEffect::ListOffsets(which) => {
                    AuxiliaryEvent::OffsetListed(Ok(self.list(which)))
                }
                AuxiliaryEffect::FindEpochEnd { leader_epoch } => {
                    let leader = &self.brokers[self.leader];
                    let end = Offset(leader.end());
                    let found = leader.epochs.end_offset_for(leader_epoch, end);
                    let (leader_epoch, offset) =
                        found.unwrap_or((LeaderEpoch::UNKNOWN, Offset::UNKNOWN));
                    AuxiliaryEvent::EpochEndFound(Ok(OffsetAndEpoch {
                        offset,
                        leader_epoch,
                    }))
                }
                AuxiliaryEffect::FetchIndex { segment, index } => {
                    let fails = self.store.away_until > self.now || self.fails(100);
                    let objects = self.store.objects.get(&segment.id);
                    let objects = objects.filter(|it| it.is_complete && !fails);
                    let index = objects.map(|objects| match index {
                        FetchedIndex::LeaderEpoch => {
                            objects.leader_epochs.to_checkpoint().into_bytes()
                        }
                        FetchedIndex::ProducerSnapshot => Vec::new(),
                    });
                    AuxiliaryEvent::IndexFetched(index.ok_or(StoreFailure::Retriable))
                }
                AuxiliaryEffect::Restart(restart) => {
                    self.report.rebuilt_followers += 1;
                    let start = restart.next_offset.0;
                    self.tell(|| format!("{id} starts at {start}"));
                    let leader = &self.brokers[self.leader];
                    let high_watermark = leader.high_watermark;
                    let records = leader.records[..start as usize].to_vec();
                    let follower = &mut self.brokers[id];
                    follower.records = records;
                    follower.bases = vec![start];
                    follower.local_start = start;
                    follower.log_start = restart.log_start_offset.0;
                    follower.log_start_checkpoint = follower.log_start;
                    follower.epochs = restart.leader_epochs;
                    follower.high_watermark = start.min(high_watermark);
                    follower.last_stable_offset = follower.high_watermark;
                    return;
                }
                AuxiliaryEffect::Failed(failure) => {
                    self.tell(|| format!("{id} cannot start: {failure}"));
                    return;
                }
            };
            effect = state.step(event, self.brokers[id].ready_cache());
        }
    }

    fn list(&self, which: ListedOffset) -> OffsetAndEpoch {
        let leader = &self.brokers[self.leader];
        let offset = match which {
            ListedOffset::Latest => leader.end(),
            ListedOffset::Earliest => leader.log_start,
            ListedOffset::EarliestLocal => leader.local_start,
            ListedOffset::EarliestPendingUpload if leader.highest_remote < 0 => -1,
            ListedOffset::EarliestPendingUpload => {
                (leader.highest_remote + 1).max(leader.log_start)
            }
        };
        OffsetAndEpoch {
            offset: Offset(offset),
            leader_epoch: leader.epoch_at(offset),
        }
    }

    fn fails(&mut self, per_mille: u64) -> bool {
        !self.is_healing && self.random.per_mille(per_mille)
    }

    fn expire_locally(&mut self, id: usize) {
        let view = self.brokers[id].view();
        let expiry = self.retention.expire(&view, Timestamp(self.now));
        let end = match view.segments.get(expiry.segments) {
            Some(next) => next.base_offset.0,
            None => view.log_end_offset.0,
        };
        let first = view.segments[0].base_offset.0.max(view.log_start_offset.0);
        if let Some(missing) = (first..end).find(|offset| !self.is_remote(id, *offset)) {
            let record = self.brokers[id].records[missing as usize];
            self.find(format!(
                "broker {id} deletes local offset {missing}, {record:?}, which remote storage does \
                 not have"
            ));
        }
        if expiry.segments > 0 {
            self.tell(|| format!("{id} deletes local segments below {end}"));
        }
        let broker = &mut self.brokers[id];
        broker.delete_local(expiry.segments);
        if expiry.is_active_closed {
            broker.roll();
        }
    }

    /// Whether remote storage has the record of this broker, or had it until it expired.
    fn is_remote(&self, id: usize, offset: i64) -> bool {
        let record = self.brokers[id].records[offset as usize];
        let truth = &self.topic.truth;
        let found = truth.segment(LeaderEpoch(record.epoch), Offset(offset));
        let stored = found.and_then(|segment| self.stored(segment.id, offset));
        stored == Some(record) || offset < self.expired_below
    }

    fn stored(&self, id: Uuid, offset: i64) -> Option<Record> {
        let objects = self.store.objects.get(&id).filter(|it| it.is_complete)?;
        let at = usize::try_from(offset - objects.start).ok()?;
        objects.records.get(at).copied()
    }

    fn execute(&mut self, id: usize, effects: Vec<(TaskKind, TaskEffect)>) {
        for (kind, effect) in effects {
            self.tell(|| format!("{id} {kind:?} {effect:?}"));
            let operation = effect.operation().unwrap_or_default();
            let arrival = match effect {
                TaskEffect::AwaitCopyQuota { .. } => {
                    let high = u128::from(self.random.next());
                    let segment_id = Uuid::from_u128(high << 64 | u128::from(self.random.next()));
                    Arrival::Answer(TaskEvent::CopyPermitted { segment_id })
                }
                TaskEffect::Publish { metadata, .. } => {
                    self.check_deletion(id, kind, &metadata);
                    Arrival::Publish(metadata.encode().expect("names are short"))
                }
                TaskEffect::Upload { upload, .. } => self.begin_upload(id, upload),
                TaskEffect::DeleteData { metadata, .. } => Arrival::Delete(metadata.segment.id),
                TaskEffect::IncrementLogStartOffset { log_start_offset } => {
                    self.check_expired(id, log_start_offset.0);
                    if kind == TaskKind::Expiration {
                        self.expired_below = self.expired_below.max(log_start_offset.0);
                    }
                    self.brokers[id].increment_log_start(log_start_offset.0);
                    continue;
                }
                TaskEffect::SetHighestRemoteOffset { offset } => {
                    self.brokers[id].highest_remote = offset.0;
                    continue;
                }
                TaskEffect::RunEnded(_) => continue,
            };
            let slow = if self.fails(50) { 300 } else { 8 };
            let at = self.now + 1 + self.random.below(slow) as i64;
            self.sent += 1;
            let envelope = Envelope {
                broker: id,
                process: self.brokers[id].process,
                kind,
                operation,
                arrival,
            };
            self.under_way.insert((at, self.sent), envelope);
        }
    }

    /// What expires is before the start of the log by then.
    fn check_deletion(&mut self, id: usize, kind: TaskKind, metadata: &RemoteLogMetadata) {
        let RemoteLogMetadata::SegmentUpdate(metadata) = metadata else {
            return;
        };
        let broker = &self.brokers[id];
        let Some(segment) = broker.cache.get(metadata.update.id) else {
            return;
        };
        let log_start = broker.log_start;
        let from = segment.start_offset.0.max(log_start);
        let to = segment.end_offset.0.min(broker.end() - 1);
        let is_read = |offset: i64| {
            let found = broker
                .cache
                .segment(broker.epoch_at(offset), Offset(offset));
            found.is_some_and(|found| found.id == segment.id)
        };
        if kind == TaskKind::Expiration && (from..=to).any(is_read) {
            self.find(format!(
                "segment {}-{} is deleted, and the log starts at {log_start}",
                segment.start_offset, segment.end_offset
            ));
        }
    }

    /// With a limit of time alone, nothing younger may expire.
    fn check_expired(&mut self, id: usize, log_start: i64) {
        let broker = &self.brokers[id];
        let Retention {
            retention_ms,
            retention_bytes,
        } = self.retention.retention;
        if retention_bytes >= 0 || log_start <= broker.log_start || log_start > broker.end() {
            return;
        }
        let skipped = &broker.records[broker.log_start as usize..log_start as usize];
        let is_young =
            |record: &&Record| retention_ms < 0 || record.time >= self.now - retention_ms;
        if let Some(young) = skipped.iter().find(is_young) {
            let age = self.now - young.time;
            self.find(format!(
                "the log starts at {log_start}, after a record of {age} ms"
            ));
        }
    }

    /// Some objects may exist before the upload ends or is abandoned.
    fn begin_upload(&mut self, id: usize, upload: Upload) -> Arrival {
        let segment = &upload.metadata.segment;
        let (start, end) = (segment.start_offset.0, segment.end_offset.0);
        let stable = self.brokers[id].last_stable_offset;
        if end >= stable {
            self.find(format!(
                "{start} to {end} is copied, and stable below {stable}"
            ));
        }
        let records = self.brokers[id].records[start as usize..=end as usize].to_vec();
        if self.fails(300) {
            let objects = Objects {
                is_complete: false,
                start,
                records: Vec::new(),
                leader_epochs: upload.leader_epochs.clone(),
            };
            self.store.objects.insert(segment.id, objects);
        }
        Arrival::UploadEnds(upload, records)
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > self.now {
                return;
            }
            let envelope = entry.remove();
            let (id, kind, operation) = (envelope.broker, envelope.kind, envelope.operation);
            let broker = &self.brokers[id];
            let is_alive = broker.is_up && broker.process == envelope.process;
            let event = match envelope.arrival {
                Arrival::Answer(event) => event,
                // A record may arrive even if its writer is gone.
                Arrival::Publish(record) => {
                    if self.fails(60) {
                        TaskEvent::Published(Err(PublishFailure))
                    } else {
                        let position = self.topic.append(record);
                        if !self.fails(60) {
                            if is_alive {
                                let waiting = (position, kind, operation);
                                self.brokers[id].reading_back.push(waiting);
                            }
                            continue;
                        }
                        TaskEvent::Published(Err(PublishFailure))
                    }
                }
                Arrival::UploadEnds(upload, records) => {
                    let segment_id = upload.metadata.segment.id;
                    let tasks = &self.brokers[id].tasks;
                    // An upload ends with its task.
                    if !is_alive || tasks.copy().being_copied() != Some(segment_id) {
                        continue;
                    }
                    TaskEvent::Uploaded(self.end_upload(upload, records).map(|()| None))
                }
                Arrival::Delete(segment_id) => {
                    TaskEvent::DataDeleted(self.delete_objects(segment_id))
                }
            };
            if is_alive {
                self.answer(id, kind, operation, event);
            }
        }
    }

    fn answer(&mut self, id: usize, kind: TaskKind, operation: Operation, event: TaskEvent) {
        let mut effects = Vec::new();
        let now = self.time();
        let tasks = &mut self.brokers[id].tasks;
        tasks.step(kind, operation, event, now, &mut effects);
        self.execute(id, effects);
    }

    fn end_upload(&mut self, upload: Upload, records: Vec<Record>) -> Result<(), StoreFailure> {
        if self.store.away_until > self.now || self.fails(80) {
            return Err(StoreFailure::Retriable);
        }
        if self.fails(80) {
            return Err(StoreFailure::Permanent);
        }
        self.report.uploads += 1;
        let segment = &upload.metadata.segment;
        let objects = Objects {
            is_complete: true,
            start: segment.start_offset.0,
            records,
            leader_epochs: upload.leader_epochs,
        };
        self.store.objects.insert(segment.id, objects);
        // The connection may be lost before the answer.
        match self.fails(60) {
            true => Err(StoreFailure::Retriable),
            false => Ok(()),
        }
    }

    fn delete_objects(&mut self, id: Uuid) -> Result<(), StoreFailure> {
        if self.store.away_until > self.now || self.fails(100) {
            return Err(StoreFailure::Retriable);
        }
        self.store.objects.remove(&id);
        self.report.deletions += 1;
        match self.fails(100) {
            true => Err(StoreFailure::Retriable),
            false => Ok(()),
        }
    }

    fn check_objects(&mut self) {
        let ids = self.store.objects.keys();
        let orphan = { ids }.find(|id| self.topic.truth.get(**id).is_none());
        if let Some(orphan) = orphan {
            self.find(format!("the objects of {orphan} have no metadata"));
        }
    }

    /// Reads all of the leader's log, unless it has not yet learned of something.
    fn check_reads(&mut self) {
        let leader = &self.brokers[self.leader];
        let has_all = leader.applied == self.topic.records.len();
        if !leader.is_up || !has_all || leader.ready_cache().is_none() || !self.has_begun() {
            return;
        }
        // Segments that a former leader begins to delete no longer count at the next run of this
        // one.
        let first = first_offset(&leader.cache, &leader.view());
        let mut offset = leader.log_start.max(first.0);
        let mut reads = 0;
        let mut finding = None;
        while offset < leader.high_watermark && finding.is_none() {
            let expected = leader.records[offset as usize];
            if offset >= leader.local_start {
                offset = leader.high_watermark;
                continue;
            }
            let segment = leader
                .cache
                .segment(leader.epoch_at(offset), Offset(offset));
            let stored = segment.as_ref().and_then(|it| self.stored(it.id, offset));
            // Leaders of other histories may have let it expire.
            let may_be_gone = self.elections == Elections::Unclean && offset < self.expired_below;
            if stored != Some(expected) && !(stored.is_none() && may_be_gone) {
                finding = Some(format!(
                    "offset {offset} of {} to {} is {expected:?}, and remote storage has {stored:?}",
                    leader.log_start, leader.high_watermark
                ));
            }
            reads += 1;
            offset += 1;
        }
        self.report.remote_reads += reads;
        if let Some(finding) = finding {
            self.find(finding);
        }
    }

    /// Whether the leader has had time for a first run, which finds the start of its log.
    fn has_begun(&self) -> bool {
        let next = self.brokers[self.leader].tasks.next_run();
        next.is_none_or(|next| next > self.now as u64)
    }

    fn finish(mut self) -> Report {
        // Time advances, so there may be something to delete at any moment.
        let mut left = self.check_end();
        for _ in 0..SETTLING_STEPS {
            if self.report.finding.is_some() || left.is_none() {
                break;
            }
            self.step(false);
            left = self.check_end();
        }
        self.report.finding = self.report.finding.take().or(left);
        for record in &self.topic.records {
            for byte in record {
                let mixed = self.report.fingerprint.rotate_left(5) ^ u64::from(*byte);
                self.report.fingerprint = mixed.wrapping_mul(0x517c_c1b7_2722_0a95);
            }
        }
        self.report
    }

    /// The first error in the state at the end of the phase without faults.
    fn check_end(&self) -> Option<String> {
        let leader = &self.brokers[self.leader];
        let (active, log_start) = (*leader.bases.last().unwrap(), leader.log_start);
        if leader.bases.len() > 1 && leader.highest_remote + 1 < active {
            let highest = leader.highest_remote;
            return Some(format!(
                "copied to {highest}, but the log is closed below {active}"
            ));
        }
        let first = first_offset(&leader.cache, &leader.view());
        if first.0 > log_start {
            return Some(format!(
                "the log starts at {log_start}, and can be read from {first}"
            ));
        }
        for segment in self.topic.truth.segments() {
            let is_before = segment.end_offset.0 < log_start;
            if segment.state == RemoteLogSegmentState::DeleteSegmentStarted || is_before {
                return Some(format!(
                    "segment {}-{} is left in {}, and the log starts at {log_start}",
                    segment.start_offset, segment.end_offset, segment.state
                ));
            }
        }
        let mut brokers = self.brokers.iter();
        let behind = brokers.find(|broker| broker.common_end(leader) < leader.end());
        behind.map(|broker| format!("broker {} has not caught up", broker.id))
    }
}
