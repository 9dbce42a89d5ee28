//! A simulated node: the state machine, its disk, and the shell between them.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Uuid};

use super::disk::{Disk, Entry, Value, batches_of};
use super::network::{Message, Payload};
use crate::{
    Effect, ElectionState, Event, FetchData, Moment, Node, Quorum, QuorumConfig, QuorumOptions,
    ReplicaKey, Request, RequestId, Response, Voter, VoterEndpoint, VoterSet,
};

pub(super) const LISTENER: &str = "CONTROLLER";

#[derive(Clone, Debug)]
pub(super) struct SimNode {
    pub id: i32,
    pub directory: u128,
    pub port: u16,
    pub can_become_voter: bool,
    pub config: QuorumConfig,
    pub static_voters: VoterSet,
    pub bootstrap: Vec<i32>,
    pub disk: Disk,
    /// `None` while the node is down.
    pub quorum: Option<Quorum>,
    /// Incremented with every start: messages of earlier lives are void.
    pub life: u64,
    /// The offset up to which the node has applied commits.
    pub applied: i64,
    pub is_shut_down: bool,
    /// When the next tick is due.
    pub tick_at_ms: Option<u64>,
    waiting: BTreeMap<RequestId, Waiting>,
    next_request: u64,
    /// The records or bytes of the response being handled.
    incoming: (i64, Vec<Entry>),
    incoming_snapshot: Option<super::disk::SnapshotContent>,
}

/// The destination of a response.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub from: i32,
    /// The ID by which the sender knows this node.
    pub known_as: BrokerId,
    pub correlation_id: u64,
    pub sender_life: u64,
    pub voted_for: Option<(ReplicaKey, LeaderEpoch)>,
}

/// The part of an effect that the world checks.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    Send(Message),
    StartedEpoch(LeaderEpoch),
    Committed(i64),
    Truncated {
        before: Vec<Entry>,
        end: i64,
    },
    /// Not a pre-vote.
    Voted {
        epoch: LeaderEpoch,
        candidate: ReplicaKey,
    },
    Answered(Response),
    Installed(Event),
    Flush {
        end: i64,
        generation: u64,
    },
    Shutdown,
    Reported(&'static str),
}

/// The admin client, which requests changes of the voters.
pub(super) const ADMIN: i32 = -100;

impl SimNode {
    pub fn new(
        id: i32,
        config: QuorumConfig,
        static_voters: VoterSet,
        bootstrap: Vec<i32>,
    ) -> SimNode {
        SimNode {
            id,
            directory: 1000 + id as u128,
            port: 9093,
            can_become_voter: true,
            config,
            static_voters,
            bootstrap,
            disk: Disk::default(),
            quorum: None,
            life: 0,
            applied: 0,
            is_shut_down: false,
            tick_at_ms: None,
            waiting: BTreeMap::new(),
            next_request: 0,
            incoming: (0, Vec::new()),
            incoming_snapshot: None,
        }
    }

    pub fn key(&self) -> ReplicaKey {
        ReplicaKey::new(BrokerId(self.id), Uuid::from_u128(self.directory))
    }

    pub fn voter(&self) -> Voter {
        Voter {
            key: self.key(),
            endpoints: endpoints(self.id, self.port),
            supported_kraft_versions: (0, 1),
        }
    }

    /// Opens the disk. The caller passes in the first event.
    pub fn boot(&mut self) {
        self.life += 1;
        self.waiting.clear();
        self.is_shut_down = false;
        self.tick_at_ms = None;
        // A snapshot that was installed just before the crash.
        if let Some((&id, _)) = self.disk.snapshots.last_key_value()
            && id.end_offset.value() > self.disk.end()
        {
            self.disk.install(id);
        }
        let election = self
            .disk
            .quorum_state
            .as_deref()
            .map(|text| ElectionState::from_json(text).expect("was written"));
        let quorum = Quorum::new(QuorumOptions {
            config: self.config.clone(),
            local: self.voter(),
            can_become_voter: self.can_become_voter,
            listener_name: ByteString::from_static(LISTENER),
            bootstrap_servers: self
                .bootstrap
                .iter()
                .enumerate()
                .map(|(index, &id)| Node {
                    id: Quorum::bootstrap_id(index),
                    host: host(id),
                    port: 9093,
                })
                .collect(),
            control_records: self.disk.control_records(self.static_voters.clone()),
            election,
            log: self.disk.log_state(),
        })
        .expect("starts");
        self.quorum = Some(quorum);
        self.applied = self
            .disk
            .snapshots
            .keys()
            .last()
            .map_or(0, |id| id.end_offset.value());
    }

    pub fn crash(&mut self, random: u64) {
        self.quorum = None;
        self.disk.crash(random);
    }

    /// Receives a message; returns the resulting event.
    pub fn receive(&mut self, message: &Message) -> Option<Event> {
        match &message.payload {
            Payload::Request(request) => {
                let request_id = RequestId(self.next_request);
                self.next_request += 1;
                let voted_for = match request {
                    Request::Vote(vote) if !vote.pre_vote => Some((vote.candidate, vote.epoch)),
                    _ => None,
                };
                self.waiting.insert(
                    request_id,
                    Waiting {
                        from: message.from,
                        known_as: message.known_as,
                        correlation_id: message.correlation_id,
                        sender_life: message.life,
                        voted_for,
                    },
                );
                Some(Event::RequestReceived {
                    request_id,
                    request: request.clone(),
                })
            }
            Payload::Response {
                response,
                entries,
                snapshot,
            } => {
                if message.life != self.life {
                    return None;
                }
                let mut response = response.clone();
                self.incoming_snapshot = snapshot.clone();
                if let Response::Fetch(fetch) = &mut response
                    && let FetchData::ReadFrom { offset, .. } = fetch.data
                {
                    self.incoming = (offset.value(), entries.clone());
                    fetch.data = FetchData::Batches(batches_of(offset.value(), entries));
                }
                Some(Event::ResponseReceived {
                    from: message.known_as,
                    correlation_id: message.correlation_id,
                    response,
                })
            }
            Payload::Failure(error) => {
                (message.life == self.life).then_some(Event::RequestFailed {
                    from: message.known_as,
                    correlation_id: message.correlation_id,
                    error: *error,
                })
            }
        }
    }

    pub fn step(&mut self, moment: Moment, event: Event) -> Vec<Effect> {
        let quorum = self.quorum.as_mut().expect("is up");
        quorum.step(moment, event)
    }

    /// Executes one effect. Returns the observations for the checkers.
    pub fn carry_out(&mut self, effect: Effect) -> Vec<Seen> {
        let seen = match effect {
            Effect::PersistElectionState(election) => {
                let kraft_version = self.quorum.as_ref().expect("is up").kraft_version();
                self.disk.quorum_state = Some(election.to_json(kraft_version));
                None
            }
            Effect::StartEpoch {
                epoch,
                start_offset,
                records,
            } => {
                assert_eq!(
                    start_offset.value(),
                    self.disk.end(),
                    "the log's mirror is wrong"
                );
                self.append(epoch, records.into_iter().map(Value::Control));
                return vec![Seen::StartedEpoch(epoch), self.flush_later()];
            }
            Effect::AppendControlRecords {
                epoch,
                base_offset,
                records,
            } => {
                assert_eq!(
                    base_offset.value(),
                    self.disk.end(),
                    "the log's mirror is wrong"
                );
                self.append(epoch, records.into_iter().map(Value::Control));
                Some(self.flush_later())
            }
            Effect::AppendFetched { end_offset, flush } => {
                let (base, entries) = std::mem::take(&mut self.incoming);
                assert_eq!(base, self.disk.end(), "the log's mirror is wrong");
                let count = (end_offset.value() - base) as usize;
                self.disk.append(entries.into_iter().take(count));
                assert_eq!(end_offset.value(), self.disk.end());
                if flush {
                    self.disk.flush();
                }
                None
            }
            Effect::TruncateLog { end_offset } => {
                let before = self.disk.entries.clone();
                self.disk.truncate(end_offset.value());
                Some(Seen::Truncated {
                    before,
                    end: end_offset.value(),
                })
            }
            Effect::CreateSnapshot(id) => {
                self.disk.partial = Some((id, 0));
                None
            }
            Effect::AppendSnapshot {
                snapshot,
                position,
                length_bytes,
            } => {
                assert_eq!(self.disk.partial, Some((snapshot, position)));
                self.disk.partial = Some((snapshot, position + length_bytes));
                let content = self.incoming_snapshot.clone().expect("came along");
                if position + length_bytes == content.size_bytes() {
                    self.disk.snapshots.insert(snapshot, content);
                }
                None
            }
            Effect::InstallSnapshot(id) => {
                self.disk.install(id);
                let content = &self.disk.snapshots[&id];
                Some(Seen::Installed(Event::SnapshotInstalled {
                    snapshot: id,
                    kraft_version: content.kraft_version,
                    voters: content.voters.clone(),
                }))
            }
            Effect::AdvanceHighWatermark(offset) => Some(Seen::Committed(offset.value())),
            Effect::Send {
                to,
                correlation_id,
                request,
            } => Some(Seen::Send(Message {
                from: self.id,
                to: to.host[1..].parse().expect("a host of the simulation"),
                known_as: to.id,
                correlation_id,
                life: self.life,
                payload: Payload::Request(request),
            })),
            Effect::Respond {
                request_id,
                response,
            } => return self.answer(request_id, response),
            Effect::Report { refusal, .. } => Some(Seen::Reported(refusal)),
            Effect::CompleteShutdown { .. } => {
                self.is_shut_down = true;
                Some(Seen::Shutdown)
            }
            Effect::ActivateLeader(_)
            | Effect::DeactivateLeader(_)
            | Effect::ChangeLeader { .. } => None,
        };
        seen.into_iter().collect()
    }

    /// Appends a batch to its own log, unflushed.
    pub fn append(&mut self, epoch: LeaderEpoch, values: impl IntoIterator<Item = Value>) {
        let entries = values.into_iter().enumerate().map(|(index, value)| Entry {
            epoch,
            begins_batch: index == 0,
            value,
        });
        self.disk.append(entries);
    }

    fn flush_later(&self) -> Seen {
        Seen::Flush {
            end: self.disk.end(),
            generation: self.disk.generation,
        }
    }

    fn answer(&mut self, request_id: RequestId, response: Response) -> Vec<Seen> {
        let waiting = self.waiting.remove(&request_id).expect("is answered once");
        if waiting.from == ADMIN {
            return vec![Seen::Answered(response)];
        }
        let mut seen = Vec::new();
        let mut response = response;
        let mut entries = Vec::new();
        let mut snapshot = None;
        match &mut response {
            Response::Fetch(fetch) => {
                if let FetchData::ReadFrom { offset, .. } = fetch.data {
                    entries = self.disk.read(offset.value(), 4);
                }
            }
            Response::FetchSnapshot(part) => {
                if let Some(id) = part.snapshot {
                    match self.disk.snapshots.get(&id) {
                        Some(content) if part.position < content.size_bytes() => {
                            part.size_bytes = content.size_bytes();
                            part.length_bytes = (part.size_bytes - part.position).min(700);
                            snapshot = Some(content.clone());
                        }
                        _ => part.error = ErrorCode::PositionOutOfRange,
                    }
                }
            }
            Response::Vote(vote) => {
                if let (true, Some((candidate, epoch))) = (vote.is_granted, waiting.voted_for) {
                    seen.push(Seen::Voted { epoch, candidate });
                }
            }
            _ => {}
        }
        seen.push(Seen::Send(Message {
            from: self.id,
            to: waiting.from,
            known_as: waiting.known_as,
            correlation_id: waiting.correlation_id,
            life: waiting.sender_life,
            payload: Payload::Response {
                response,
                entries,
                snapshot,
            },
        }));
        seen
    }
}

pub(super) fn host(id: i32) -> ByteString {
    ByteString::from(format!("n{id}"))
}

fn endpoints(id: i32, port: u16) -> Vec<VoterEndpoint> {
    vec![VoterEndpoint {
        name: ByteString::from_static(LISTENER),
        host: host(id),
        port,
    }]
}
