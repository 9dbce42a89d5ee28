//! A quorum of one, and the reaction of every role to every event.

mod quorum_of_one;
mod replication;
mod transitions;
mod voter_changes;

use bytestring::ByteString;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

use crate::*;

const LISTENER: &str = "CONTROLLER";

fn key(id: i32) -> ReplicaKey {
    ReplicaKey::new(BrokerId(id), Uuid::from_u128(id as u128 * 100))
}

fn endpoints(id: i32) -> Vec<VoterEndpoint> {
    vec![VoterEndpoint {
        name: ByteString::from_static(LISTENER),
        host: ByteString::from_static("localhost"),
        port: 9090 + id as u16,
    }]
}

fn voter(id: i32) -> Voter {
    Voter {
        key: key(id),
        endpoints: endpoints(id),
        supported_kraft_versions: (0, 1),
    }
}

fn voters(ids: &[i32]) -> VoterSet {
    VoterSet::new(ids.iter().map(|&id| voter(id))).expect("voters")
}

/// A log of ten records of epoch 3. The first is the voter set.
fn options(id: i32, voter_ids: &[i32]) -> QuorumOptions {
    let mut control_records = ControlRecordHistory::new(VoterSet::empty());
    control_records.set_kraft_version(Offset(0), KRaftVersion::V1);
    control_records.set_voters(Offset(0), voters(voter_ids));
    let epochs = vec![EpochStart {
        epoch: LeaderEpoch(3),
        start_offset: Offset(0),
    }];
    QuorumOptions {
        config: QuorumConfig::default(),
        local: voter(id),
        can_become_voter: true,
        listener_name: ByteString::from_static(LISTENER),
        bootstrap_servers: vec![Node {
            id: Quorum::bootstrap_id(0),
            host: ByteString::from_static("bootstrap"),
            port: 9093,
        }],
        control_records,
        election: None,
        log: LogState::new(Offset(0), Offset(10), epochs, []),
    }
}

fn log_end(offset: i64, epoch: i32) -> LogEnd {
    LogEnd {
        offset: Offset(offset),
        epoch: LeaderEpoch(epoch),
    }
}

fn led_by(leader: Option<i32>, epoch: i32) -> CurrentLeader {
    CurrentLeader {
        leader: leader.map(BrokerId),
        epoch: LeaderEpoch(epoch),
        endpoints: leader.map(endpoints).unwrap_or_default(),
    }
}

/// A node, with its last requests to other nodes.
struct Story {
    quorum: Quorum,
    now_ms: u64,
    requests: u64,
    sent: Vec<(BrokerId, u64, Request)>,
    effects: Vec<Effect>,
}

impl Story {
    fn begin(options: QuorumOptions) -> Story {
        let mut story = Story {
            quorum: Quorum::new(options).expect("starts"),
            now_ms: 10_000,
            requests: 0,
            sent: Vec::new(),
            effects: Vec::new(),
        };
        story.step(Event::Started);
        story
    }

    /// Node 1 of the voters 1, 2 and 3.
    fn of_three() -> Story {
        Story::begin(options(1, &[1, 2, 3]))
    }

    fn step(&mut self, event: Event) -> &[Effect] {
        let moment = Moment {
            now_ms: self.now_ms,
            random: 0,
        };
        self.effects = self.quorum.step(moment, event);
        for effect in &self.effects {
            if let Effect::Send {
                to,
                correlation_id,
                request,
            } = effect
            {
                self.sent.push((to.id, *correlation_id, request.clone()));
            }
        }
        &self.effects
    }

    fn after(&mut self, ms: u64) -> &[Effect] {
        self.now_ms += ms;
        self.step(Event::Ticked)
    }

    fn request(&mut self, request: Request) -> &[Effect] {
        self.requests += 1;
        let request_id = RequestId(self.requests);
        self.step(Event::RequestReceived {
            request_id,
            request,
        })
    }

    /// Responds to the last request sent to `from`.
    fn response(&mut self, from: i32, response: Response) -> &[Effect] {
        let from = BrokerId(from);
        let (_, correlation_id, _) = self
            .sent
            .iter()
            .rfind(|(to, _, _)| *to == from)
            .expect("was asked");
        let correlation_id = *correlation_id;
        self.step(Event::ResponseReceived {
            from,
            correlation_id,
            response,
        })
    }

    fn flush(&mut self) -> &[Effect] {
        let end_offset = self.quorum.log_end().offset;
        self.step(Event::LogFlushed { end_offset })
    }

    fn into_prospective(mut self) -> Story {
        self.after(2_000);
        assert_eq!(self.quorum.role(), Role::Prospective);
        self
    }

    fn into_candidate(self) -> Story {
        let mut story = self.into_prospective();
        story.response(2, granted(3, true));
        assert_eq!(story.quorum.role(), Role::Candidate);
        story
    }

    /// Leads epoch 4 without a committed record.
    fn into_leader(self) -> Story {
        let mut story = self.into_candidate();
        story.response(2, granted(4, true));
        assert_eq!(story.quorum.role(), Role::Leader { is_active: false });
        story
    }

    fn into_active_leader(self) -> Story {
        let mut story = self.into_leader();
        story.flush();
        let end = story.quorum.log_end();
        story.request(fetch(2, end, 4));
        assert_eq!(story.quorum.role(), Role::Leader { is_active: true });
        story
    }

    /// Follows node 2 in epoch 4.
    fn into_follower(mut self) -> Story {
        self.request(begin(2, 4));
        assert_eq!(self.quorum.role(), Role::Follower);
        self
    }

    fn into_resigned(self) -> Story {
        let mut story = self.into_leader();
        let epoch = story.quorum.epoch();
        story.step(Event::ResignRequested { epoch });
        assert_eq!(story.quorum.role(), Role::Resigned);
        story
    }

    /// The only response among the effects.
    fn answer(&self) -> &Response {
        let mut answers = self.effects.iter().filter_map(|effect| match effect {
            Effect::Respond { response, .. } => Some(response),
            _ => None,
        });
        let answer = answers.next().expect("an answer");
        assert_eq!(answers.next(), None);
        answer
    }
}

fn granted(epoch: i32, is_granted: bool) -> Response {
    Response::Vote(VoteResponse {
        error: ErrorCode::None,
        current_leader: led_by(None, epoch),
        is_granted,
    })
}

fn vote(candidate: i32, epoch: i32, log_end: LogEnd, pre_vote: bool) -> Request {
    Request::Vote(VoteRequest {
        epoch: LeaderEpoch(epoch),
        candidate: key(candidate),
        voter: Some(key(1)),
        log_end,
        pre_vote,
    })
}

fn begin(leader: i32, epoch: i32) -> Request {
    Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        leader: BrokerId(leader),
        epoch: LeaderEpoch(epoch),
        endpoints: endpoints(leader),
        voter: Some(key(1)),
    })
}

fn end(leader: i32, epoch: i32, successors: &[i32]) -> Request {
    Request::EndQuorumEpoch(EndQuorumEpochRequest {
        leader: BrokerId(leader),
        epoch: LeaderEpoch(epoch),
        endpoints: endpoints(leader),
        preferred_successors: successors.iter().map(|&id| key(id)).collect(),
    })
}

fn fetch(from: i32, log_end: LogEnd, epoch: i32) -> Request {
    Request::Fetch(FetchRequest {
        replica: key(from),
        current_leader_epoch: LeaderEpoch(epoch),
        log_end,
        high_watermark: Offset(-1),
        max_bytes: 1000,
        max_wait_ms: 500,
    })
}

fn fetched(leader: i32, epoch: i32, data: FetchData, high_watermark: Option<i64>) -> Response {
    Response::Fetch(FetchResponse {
        error: ErrorCode::None,
        current_leader: led_by(Some(leader), epoch),
        log_start_offset: Offset(0),
        high_watermark: high_watermark.map(Offset),
        data,
    })
}

fn batch(base: i64, last: i64, epoch: i32) -> LogBatch {
    LogBatch {
        base_offset: Offset(base),
        last_offset: Offset(last),
        epoch: LeaderEpoch(epoch),
        control_records: Vec::new(),
    }
}
