//! A node's part in the metadata quorum: drives `ottla_raft::Quorum` and `ottla_metadata`, and on the leader
//! `ottla_controller`.
//!
//! Mirrors `ottla-node/src/controller_thread.rs` with `controller_thread/effects.rs` (`execute`), `peers.rs` (`receive`)
//! and `committed.rs` (`apply_committed`, `take_committed`, `begin_publishing`); `deciding` has the rest. The same in the same
//! order, but for files, sockets and threads.

use std::collections::{BTreeMap, VecDeque};

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::BrokerSessions;
use ottla_metadata::{MetadataDelta, MetadataImage, MetadataLoader, Provenance};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{
    Effect, ElectionState, Event, FetchData, Moment, Node as QuorumNode, Quorum, QuorumConfig,
    QuorumOptions, ReplicaKey, Request, RequestId, Response, SnapshotId, Voter, VoterEndpoint,
    VoterSet,
};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Timestamp, Uuid};

use super::deciding::Deciding;
use super::message::{Body, QuorumPayload};
use super::metadata_log::{Content, MetadataBatch, SnapshotContent};
use super::node::{Disk, Stopped, Surroundings, is_broker};
use super::quorum_wire;

pub(crate) const LISTENER: &str = "CONTROLLER";
/// Batches that one Fetch brings at most.
const MAX_BATCHES: usize = 4;
/// A snapshot is taken after so many records.
const RECORDS_BETWEEN_SNAPSHOTS: u64 = 60;
/// Bytes that one FetchSnapshot brings at most.
const MAX_SNAPSHOT_BYTES: i64 = 900;

/// What all nodes of the cluster know before they start.
#[derive(Clone, Debug)]
pub(crate) struct ClusterSettings {
    pub controllers: Vec<i32>,
    /// Voters stand in the log; else they are configured.
    pub has_dynamic_voters: bool,
    pub bootstrap: Vec<MetadataRecord>,
    pub config: BrokerConfig,
    pub quorum: QuorumConfig,
}

pub(crate) struct QuorumShell {
    pub quorum: Quorum,
    pub(super) settings: ClusterSettings,
    asked: BTreeMap<RequestId, Asked>,
    next_request_id: u64,
    incoming: Incoming,
    /// Folded from what is committed, and where that ends in the log.
    pub(super) committed: (MetadataLoader, i64),
    /// What the log holds behind `committed`, while this node does not lead.
    pub(super) uncommitted: VecDeque<MetadataBatch>,
    /// While this node leads.
    pub(super) deciding: Option<Deciding>,
    /// The newest committed image, and where in the log it ends.
    pub(super) image: MetadataImage,
    pub(super) image_end: i64,
    /// Committed changes that are not published yet.
    pub(super) unpublished: VecDeque<MetadataDelta>,
    is_publishing: bool,
    leader_high_watermark: Option<Offset>,
    is_caught_up: bool,
    records_since_snapshot: u64,
    pub(super) sessions: BrokerSessions,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    from: i32,
    from_life: u64,
    known_as: BrokerId,
    correlation_id: u64,
    votes_for: Option<(ReplicaKey, LeaderEpoch)>,
}

/// What came with the response that is being handled.
enum Incoming {
    Nothing,
    Batches(Vec<MetadataBatch>),
    Snapshot(SnapshotContent),
}

impl QuorumShell {
    /// Opens what is on the disk. `Started` is still to be handed in.
    pub(crate) fn open(id: i32, disk: &mut Disk, settings: &ClusterSettings) -> QuorumShell {
        disk.metadata.open();
        let static_voters = match settings.has_dynamic_voters {
            true => VoterSet::empty(),
            false => configured_voters(settings),
        };
        let election = disk.metadata.quorum_state.as_deref();
        let election = election.map(|text| ElectionState::from_json(text).expect("written here"));
        let bootstrap_servers = settings.controllers.iter().enumerate();
        let quorum = Quorum::new(QuorumOptions {
            config: settings.quorum.clone(),
            local: voter(id, disk.directory),
            can_become_voter: !is_broker(id),
            listener_name: ByteString::from_static(LISTENER),
            bootstrap_servers: bootstrap_servers
                .map(|(index, &id)| QuorumNode {
                    id: Quorum::bootstrap_id(index),
                    host: host(id),
                    port: 9093,
                })
                .collect(),
            control_records: disk.metadata.control_records(static_voters),
            election,
            log: disk.metadata.state(),
        })
        .expect("a quorum that can be joined");
        let mut loader = MetadataLoader::default();
        let start = disk.metadata.start();
        if let Some((&snapshot, content)) = disk.metadata.snapshots.last_key_value() {
            loader
                .load_snapshot(&content.records, provenance_of(snapshot))
                .expect("a snapshot that was written");
        }
        QuorumShell {
            quorum,
            asked: BTreeMap::new(),
            next_request_id: 0,
            incoming: Incoming::Nothing,
            image: loader.image().clone(),
            image_end: start,
            committed: (loader, start),
            uncommitted: disk.metadata.batches().iter().cloned().collect(),
            deciding: None,
            unpublished: VecDeque::new(),
            is_publishing: false,
            leader_high_watermark: None,
            is_caught_up: false,
            records_since_snapshot: 0,
            sessions: BrokerSessions::new(settings.config.broker_session_timeout_ms, None),
            settings: settings.clone(),
        }
    }

    /// `receive`'s counterpart for time: what is due is done.
    pub(crate) fn tick(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        self.fence_silent_brokers(around)?;
        self.settle(around)?;
        if around.now_ms >= self.quorum.wake_at_ms() {
            self.step(Event::Ticked, around)?;
            self.settle(around)?;
        }
        self.write_snapshot_if_due(around)
    }

    pub(crate) fn start(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        self.step(Event::Started, around)?;
        self.settle(around)
    }

    /// Takes in what another node says.
    pub(crate) fn receive(
        &mut self,
        from: i32,
        from_life: u64,
        known_as: BrokerId,
        correlation_id: u64,
        payload: QuorumPayload,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        self.settle(around)?;
        let event = match payload {
            QuorumPayload::Request(request) => {
                let request = quorum_wire::read(request);
                let request_id = RequestId(self.next_request_id);
                self.next_request_id += 1;
                let votes_for = match &request {
                    Request::Vote(vote) if !vote.pre_vote => Some((vote.candidate, vote.epoch)),
                    _ => None,
                };
                let asked = Asked {
                    from,
                    from_life,
                    known_as,
                    correlation_id,
                    votes_for,
                };
                self.asked.insert(request_id, asked);
                Event::RequestReceived {
                    request_id,
                    request,
                }
            }
            QuorumPayload::Response {
                response,
                batches,
                snapshot,
            } => {
                let described = batches.iter().map(MetadataBatch::described).collect();
                let (mut response, _) = response
                    .read(self.quorum.listener_name(), |_| Ok(described))
                    .expect("a response of a node of this cluster");
                match &mut response {
                    Response::Fetch(fetch) => {
                        if fetch.error == ErrorCode::None && fetch.high_watermark.is_some() {
                            self.leader_high_watermark = fetch.high_watermark;
                        }
                        self.incoming = Incoming::Batches(batches);
                    }
                    Response::FetchSnapshot(part) => {
                        if let Some(snapshot) = snapshot {
                            part.length_bytes = part_length(&snapshot, part.position);
                            self.incoming = Incoming::Snapshot(snapshot);
                        }
                    }
                    _ => {}
                }
                Event::ResponseReceived {
                    from: known_as,
                    correlation_id,
                    response,
                }
            }
            QuorumPayload::Failure(error) => Event::RequestFailed {
                from: known_as,
                correlation_id,
                error,
            },
        };
        let outcome = self.step(event, around);
        self.incoming = Incoming::Nothing;
        outcome?;
        self.settle(around)
    }

    /// Hands in an event and carries out what follows, up to where nothing does.
    pub(super) fn step(
        &mut self,
        event: Event,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let moment = Moment {
                now_ms: around.now_ms,
                random: around.random.next(),
            };
            let shown = match &event {
                Event::Ticked => None,
                event => Some(format!("{event:?}")).filter(|_| around.history.is_kept()),
            };
            let effects = self.quorum.step(moment, event);
            if let Some(shown) = shown {
                around.note(|| format!("quorum {shown} -> {effects:?}"));
            }
            for effect in effects {
                around.stumble()?;
                if let Some(event) = self.execute(effect, around)? {
                    next = Some(event);
                }
            }
        }
        self.apply_committed(around);
        Ok(())
    }

    /// Carries out one effect. Returns the event that has to be handed in next, if there is one.
    fn execute(
        &mut self,
        effect: Effect,
        around: &mut Surroundings<'_>,
    ) -> Result<Option<Event>, Stopped> {
        match effect {
            Effect::PersistElectionState(election) => {
                let kraft_version = self.quorum.kraft_version();
                around.disk.metadata.quorum_state = Some(election.to_json(kraft_version));
            }
            Effect::StartEpoch {
                epoch,
                start_offset,
                records,
            } => {
                around.checkers.metadata_leaders.on_leader(
                    around.id,
                    around.life,
                    epoch,
                    &around.checkers.metadata_committed,
                    &around.disk.metadata,
                );
                self.begin_deciding(around);
                self.append_control(epoch, start_offset, records, around);
            }
            Effect::AppendControlRecords {
                epoch,
                base_offset,
                records,
            } => self.append_control(epoch, base_offset, records, around),
            Effect::AppendFetched { end_offset, flush } => {
                let Incoming::Batches(received) =
                    std::mem::replace(&mut self.incoming, Incoming::Nothing)
                else {
                    panic!("a Fetch brought no batches");
                };
                for batch in received {
                    if batch.end() <= end_offset.value() {
                        around.disk.metadata.append(batch.clone());
                        self.uncommitted.push_back(batch);
                    }
                }
                around.stumble()?;
                if flush {
                    around.disk.metadata.flush();
                }
            }
            Effect::TruncateLog { end_offset } => {
                let cut = around.disk.metadata.truncate(end_offset.value());
                around
                    .checkers
                    .metadata_committed
                    .on_truncated(around.id, &cut);
                around.disk.metadata.flush();
                self.uncommitted
                    .retain(|batch| batch.end() <= end_offset.value());
            }
            Effect::CreateSnapshot(id) => around.disk.metadata.partial_snapshot = Some((id, 0)),
            Effect::AppendSnapshot {
                snapshot,
                position,
                length_bytes,
            } => {
                let metadata = &mut around.disk.metadata;
                assert_eq!(metadata.partial_snapshot, Some((snapshot, position)));
                metadata.partial_snapshot = Some((snapshot, position + length_bytes));
                let Incoming::Snapshot(content) =
                    std::mem::replace(&mut self.incoming, Incoming::Nothing)
                else {
                    panic!("a snapshot came without bytes");
                };
                if position + length_bytes == content.size_bytes() {
                    metadata.snapshots.insert(snapshot, content);
                }
            }
            Effect::InstallSnapshot(id) => return Ok(Some(self.install_snapshot(id, around))),
            Effect::AdvanceHighWatermark(_) => {}
            Effect::ActivateLeader(_) => {
                if let Some(deciding) = &mut self.deciding {
                    deciding.is_activation_due = true;
                }
            }
            Effect::DeactivateLeader(_) => self.end_deciding(around),
            Effect::ChangeLeader { .. } | Effect::Report { .. } => {}
            Effect::Send {
                to,
                correlation_id,
                request,
            } => {
                if let Request::Vote(vote) = &request
                    && !vote.pre_vote
                {
                    // A candidate has voted for itself.
                    let key = self.quorum.local_key();
                    around
                        .checkers
                        .metadata_leaders
                        .on_vote(key, vote.epoch, key);
                }
                let body = Body::Quorum {
                    known_as: to.id,
                    correlation_id,
                    payload: QuorumPayload::Request(quorum_wire::request(request)),
                };
                around.send(id_of(&to.host), body);
            }
            Effect::Respond {
                request_id,
                response,
            } => self.respond(request_id, response, around),
            Effect::CompleteShutdown { .. } => {}
        }
        Ok(None)
    }

    fn respond(
        &mut self,
        request_id: RequestId,
        response: Response,
        around: &mut Surroundings<'_>,
    ) {
        let Some(asked) = self.asked.remove(&request_id) else {
            return;
        };
        let mut response = response;
        let mut batches = Vec::new();
        let mut snapshot = None;
        match &mut response {
            Response::Fetch(fetch) => {
                if let FetchData::ReadFrom { offset, .. } = fetch.data {
                    let from = around.disk.metadata.batches_from(offset.value());
                    batches = from.iter().take(MAX_BATCHES).cloned().collect();
                }
            }
            Response::FetchSnapshot(part) => {
                if let Some(id) = part.snapshot {
                    match around.disk.metadata.snapshots.get(&id) {
                        Some(content) if part.position < content.size_bytes() => {
                            part.size_bytes = content.size_bytes();
                            snapshot = Some(content.clone());
                        }
                        Some(_) => {
                            part.error = ErrorCode::PositionOutOfRange;
                            part.snapshot = None;
                        }
                        None => {
                            part.error = ErrorCode::SnapshotNotFound;
                            part.snapshot = None;
                        }
                    }
                }
            }
            Response::Vote(vote) => {
                if let (true, Some((candidate, epoch))) = (vote.is_granted, asked.votes_for) {
                    let key = self.quorum.local_key();
                    around
                        .checkers
                        .metadata_leaders
                        .on_vote(key, epoch, candidate);
                }
            }
            _ => {}
        }
        let body = Body::Quorum {
            known_as: asked.known_as,
            correlation_id: asked.correlation_id,
            payload: QuorumPayload::Response {
                response: quorum_wire::response(response, LISTENER),
                batches,
                snapshot,
            },
        };
        around.answer(asked.from, asked.from_life, body);
    }

    fn install_snapshot(&mut self, id: SnapshotId, around: &mut Surroundings<'_>) -> Event {
        around.disk.metadata.install(id);
        let content = around.disk.metadata.snapshots[&id].clone();
        self.committed
            .0
            .load_snapshot(&content.records, provenance_of(id))
            .expect("a snapshot of the leader's");
        self.committed.1 = id.end_offset.value();
        self.uncommitted.clear();
        let delta = MetadataDelta::between(self.image.clone(), self.committed.0.image().clone());
        if self.take_committed(id.end_offset.value(), &delta) {
            self.unpublished.push_back(delta);
        }
        around
            .checkers
            .metadata_committed
            .on_snapshot_installed(around.id, id.end_offset.value());
        Event::SnapshotInstalled {
            snapshot: id,
            kraft_version: content.kraft_version,
            voters: content.voters,
        }
    }

    /// Folds what became committed of what was fetched. A leader's own records are in `deciding`.
    fn apply_committed(&mut self, around: &mut Surroundings<'_>) {
        let Some(high_watermark) = self.quorum.high_watermark().map(Offset::value) else {
            return;
        };
        around.checkers.metadata_committed.on_committed(
            around.id,
            around.life,
            &around.disk.metadata,
            high_watermark,
        );
        if self.deciding.is_some() {
            return;
        }
        while let Some(batch) = self.uncommitted.front() {
            if batch.end() > high_watermark {
                break;
            }
            let batch = self.uncommitted.pop_front().expect("it was looked at");
            let end = batch.end();
            let delta = load(&mut self.committed.0, &batch);
            self.committed.1 = end;
            self.records_since_snapshot += (end - batch.base_offset) as u64;
            if let Some(delta) = delta
                && self.take_committed(end, &delta)
            {
                self.unpublished.push_back(delta);
            }
        }
    }

    /// Takes a committed change into the image. Returns whether it is to be published.
    pub(super) fn take_committed(&mut self, end: i64, delta: &MetadataDelta) -> bool {
        if end <= self.image_end {
            return false;
        }
        self.image = delta.after.clone();
        self.image_end = end;
        self.is_publishing
    }

    pub(super) fn count_committed(&mut self, records: u64) {
        self.records_since_snapshot += records;
    }

    /// From nothing to what there is now, in one change.
    pub(crate) fn begin_publishing(&mut self) {
        if !std::mem::replace(&mut self.is_publishing, true) {
            let delta = MetadataDelta::between(MetadataImage::empty(), self.image.clone());
            self.unpublished.push_back(delta);
        }
    }

    /// What a broker has to put in force.
    pub(crate) fn take_unpublished(&mut self) -> VecDeque<MetadataDelta> {
        std::mem::take(&mut self.unpublished)
    }

    /// Whether this node knows what its cluster is.
    pub(crate) fn has_caught_up(&mut self) -> bool {
        let known = match self.quorum.is_active_leader() {
            true => self.quorum.high_watermark(),
            false => self.leader_high_watermark,
        };
        let is_there = known.is_some_and(|known| self.image_end >= known.value())
            && self.image.features.metadata_version().is_some();
        self.is_caught_up |= is_there;
        self.is_caught_up
    }

    /// Where in the log the newest committed image ends.
    pub(crate) fn image_end(&self) -> i64 {
        self.image_end
    }

    pub(crate) fn committed_image(&self) -> &MetadataImage {
        &self.image
    }

    /// What is committed, and what may become so: with all that is in the log here.
    pub(crate) fn possible_images(&self) -> Vec<MetadataImage> {
        let mut images = vec![self.image.clone()];
        match &self.deciding {
            Some(deciding) => images.push(deciding.loader.image().clone()),
            None => {
                let mut loader = self.committed.0.clone();
                for batch in &self.uncommitted {
                    load(&mut loader, batch);
                }
                images.push(loader.image().clone());
            }
        }
        images
    }

    /// Whom a broker asks.
    pub(crate) fn active_controller(&self) -> Option<i32> {
        Some(id_of(&self.quorum.leader_node()?.host))
    }

    fn write_snapshot_if_due(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        let (loader, _) = &self.committed;
        if self.records_since_snapshot < RECORDS_BETWEEN_SNAPSHOTS || loader.is_in_transaction() {
            return Ok(());
        }
        let image = loader.image();
        let last = image.provenance.last_contained_offset;
        let id = SnapshotId {
            end_offset: last.plus(1),
            epoch: image.provenance.last_contained_epoch,
        };
        self.records_since_snapshot = 0;
        if id.end_offset.value() <= around.disk.metadata.start() {
            return Ok(());
        }
        let control = self.quorum.control_records();
        let kraft_version = control.kraft_version_at(last);
        let content = SnapshotContent {
            records: image.to_records(),
            kraft_version,
            voters: control
                .voters_at(last)
                .filter(|_| kraft_version.is_reconfig_supported())
                .cloned(),
        };
        around.disk.metadata.add_snapshot(id, content);
        let event = Event::SnapshotsChanged {
            snapshots: around.disk.metadata.snapshots.keys().copied().collect(),
            log_start_offset: Offset(around.disk.metadata.start()),
        };
        self.step(event, around)
    }
}

pub(super) fn load(loader: &mut MetadataLoader, batch: &MetadataBatch) -> Option<MetadataDelta> {
    let loaded = loader.load_batch(batch.records(), batch.provenance());
    loaded.expect("what was decided fits")
}

pub(super) fn control_batch(
    base_offset: Offset,
    epoch: LeaderEpoch,
    records: Vec<ottla_raft::ControlRecord>,
) -> MetadataBatch {
    MetadataBatch {
        base_offset: base_offset.value(),
        epoch,
        content: Content::Control(records),
    }
}

/// How many bytes of a snapshot one FetchSnapshot brings.
fn part_length(snapshot: &SnapshotContent, position: i64) -> i64 {
    (snapshot.size_bytes() - position).min(MAX_SNAPSHOT_BYTES)
}

fn provenance_of(snapshot: SnapshotId) -> Provenance {
    Provenance {
        last_contained_offset: snapshot.end_offset.plus(-1),
        last_contained_epoch: snapshot.epoch,
        last_contained_log_time: Timestamp(0),
    }
}

fn host(id: i32) -> ByteString {
    ByteString::from(format!("n{id}"))
}

fn id_of(host: &str) -> i32 {
    let number = host.strip_prefix('n').and_then(|id| id.parse().ok());
    number.expect("a host of the simulation")
}

fn voter(id: i32, directory: Uuid) -> Voter {
    let endpoint = VoterEndpoint {
        name: ByteString::from_static(LISTENER),
        host: host(id),
        port: 9093,
    };
    Voter {
        key: ReplicaKey::new(BrokerId(id), directory),
        // A broker has no listener for the quorum.
        endpoints: if is_broker(id) {
            Vec::new()
        } else {
            vec![endpoint]
        },
        supported_kraft_versions: (0, 1),
    }
}

/// `controller.quorum.voters`, which names no directories.
fn configured_voters(settings: &ClusterSettings) -> VoterSet {
    let voters = settings.controllers.iter().map(|&id| {
        let mut voter = voter(id, Uuid::default());
        voter.key.directory_id = None;
        voter.supported_kraft_versions = (0, 0);
        voter
    });
    VoterSet::new(voters).expect("voters")
}

/// The voters of a quorum that was formatted with them.
pub(crate) fn initial_voters(controllers: &[(i32, Uuid)]) -> VoterSet {
    let voters = controllers
        .iter()
        .map(|&(id, directory)| voter(id, directory));
    VoterSet::new(voters).expect("voters")
}
