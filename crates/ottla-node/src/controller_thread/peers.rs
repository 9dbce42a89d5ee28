//! Responses and requests of the other nodes of the quorum, and the log messages about nodes that
//! do not answer.

use ottla_raft::wire::Unusable;
use ottla_raft::{Event, ReplicaState, Request, RequestId, Response};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, Offset};

use ottla_context::time_of_day;

use super::Controller;
use crate::quorum::outgoing::{self, Payload, Received};
use crate::quorum::served::{QuorumDescription, ServedData};
use crate::quorum::status::QuorumStatus;
use crate::quorum::work::{Answered, Failure};
use ottla_storage::metadata::metadata_log::MetadataLogError;
use ottla_storage::metadata::static_voters::bootstrap_servers;

/// The maximum number of unanswered requests of other nodes. Each occupies a connection, and
/// connections are bounded as well.
const MAX_ASKED: usize = 10_000;

impl Controller {
    /// Handles a response, or the failure of a request.
    pub(super) fn on_answered(&mut self, answered: Answered) -> Result<(), MetadataLogError> {
        let Answered {
            from,
            correlation_id,
            outcome,
        } = answered;
        let listener_name = self.quorum.listener_name().clone();
        let address = format!("{}:{}", from.host, from.port);
        let received = match outcome {
            Ok(response) => outgoing::read(response, &listener_name).map_err(|unusable| {
                let reason = match &unusable {
                    Unusable::Refused(ErrorCode::InconsistentClusterId) => format!(
                        "{address} belongs to another cluster than {}",
                        self.cluster_id
                    ),
                    Unusable::Refused(error) => format!("{address} refuses: {error}"),
                    other => format!("{address}: {other}"),
                };
                (unusable.error_code(), reason, unusable)
            }),
            Err(Failure { error, reason }) => Err((error, reason, Unusable::Refused(error))),
        };
        match received {
            Ok(Received { response, payload }) => {
                self.trouble.foreign.clear();
                self.note_answer(&response);
                self.incoming = payload;
                let outcome = self.step(Event::ResponseReceived {
                    from: from.id,
                    correlation_id,
                    response,
                });
                self.incoming = Payload::None;
                outcome
            }
            // The content cannot be skipped, and a retry would return the same.
            Err((_, reason, Unusable::Undecodable(_))) => Err(self.log.error(reason)),
            Err((error, reason, _)) => {
                if error == ErrorCode::InconsistentClusterId {
                    let address = (from.host.clone(), from.port);
                    self.trouble.foreign.insert(address);
                }
                self.trouble.report(&reason);
                if self.trouble.reason.as_ref() != Some(&reason) {
                    self.trouble.reason = Some(reason);
                    self.update_status();
                }
                self.step(Event::RequestFailed {
                    from: from.id,
                    correlation_id,
                    error,
                })
            }
        }
    }

    /// Notes that the leader has answered, and its high watermark.
    fn note_answer(&mut self, response: &Response) {
        let Response::Fetch(fetch) = response else {
            return;
        };
        if fetch.error != ErrorCode::None {
            return;
        }
        if fetch.high_watermark.is_some() {
            self.leader_high_watermark = fetch.high_watermark;
        }
        if self.trouble.reason.take().is_some() {
            self.update_status();
        }
    }

    /// Handles a request of another node.
    pub(super) fn on_asked(
        &mut self,
        request: Request,
        respond: oneshot::Sender<(Response, ServedData)>,
    ) -> Result<(), MetadataLogError> {
        self.asked.retain(|_, waiting| !waiting.is_closed());
        if self.asked.len() >= MAX_ASKED {
            return Ok(());
        }
        let request_id = RequestId(self.next_request_id);
        self.next_request_id += 1;
        self.asked.insert(request_id, respond);
        self.step(Event::RequestReceived {
            request_id,
            request,
        })
    }

    /// The quorum as this node sees it; `None` if it is not the leader.
    pub(super) fn describe(&self) -> Option<QuorumDescription> {
        let (now_ms, now) = (self.moment().now_ms, time_of_day());
        let (voters, observers) = self.quorum.replicas(now_ms)?;
        // The clock of the state machine starts with the node.
        let on_the_wall = |at: Option<u64>| {
            at.map(|at| (now.value() as u64).saturating_sub(now_ms.saturating_sub(at)))
        };
        let states = |states: Vec<&ReplicaState>| {
            let states = states.into_iter().cloned().map(|mut state| {
                state.last_fetch_ms = on_the_wall(state.last_fetch_ms);
                state.last_caught_up_ms = on_the_wall(state.last_caught_up_ms);
                state
            });
            states.collect()
        };
        Some(QuorumDescription {
            leader: self.quorum.local_key().id,
            epoch: self.quorum.epoch(),
            high_watermark: self.quorum.high_watermark().unwrap_or(Offset(-1)),
            voters: self.quorum.voters().clone(),
            voter_states: states(voters),
            observer_states: states(observers),
        })
    }

    /// Reports the address of the leader and the state of this node when they change.
    pub(super) fn note_leader_and_state(&mut self) {
        let endpoint = self.quorum.leader_node().map(|node| (node.host, node.port));
        let status = self.status.load();
        let is_same =
            status.leader_endpoint == endpoint && status.state_name == self.quorum.state_name();
        drop(status);
        if !is_same {
            self.update_status();
        }
    }

    pub(super) fn update_status(&self) {
        let mut status = QuorumStatus::of(&self.quorum, time_of_day());
        status.is_caught_up = self.is_caught_up;
        status.trouble = self.trouble.reason.clone();
        let given = bootstrap_servers(&self.file_config);
        status.is_of_other_cluster = !given.is_empty()
            && given.iter().all(|node| {
                let address = (node.host.clone(), node.port);
                self.trouble.foreign.contains(&address)
            });
        self.status.store(std::sync::Arc::new(status));
    }
}
