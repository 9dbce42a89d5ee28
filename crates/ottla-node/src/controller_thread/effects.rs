//! Executes the effects of the quorum's state machine in order, each completed before the next.

use ottla_protocol::Records;
use ottla_raft::{Effect, Event, FetchData, RequestId, Response, SnapshotId};
use ottla_types::{ErrorCode, Offset};

use ottla_context::time_of_day;

use super::Controller;
use crate::quorum::outgoing::Payload;
use crate::quorum::served::ServedData;
use ottla_storage::metadata::metadata_log::{MetadataLog, MetadataLogError};

impl Controller {
    /// Executes an effect. Returns the event that must be handled next, if there is one.
    pub(super) fn execute(
        &mut self,
        effects: Vec<Effect>,
    ) -> Result<Option<Event>, MetadataLogError> {
        let mut next = None;
        for effect in effects {
            match effect {
                Effect::PersistElectionState(election) => {
                    let kraft_version = self.quorum.kraft_version();
                    self.when_there_is_space(|log| {
                        log.write_election_state(&election, kraft_version)
                    })?;
                }
                Effect::StartEpoch {
                    epoch,
                    start_offset,
                    records,
                } => {
                    self.begin_deciding()?;
                    self.log.assign_leader_epoch(epoch, start_offset);
                    self.append_control(epoch, start_offset, records)?;
                }
                Effect::AppendControlRecords {
                    epoch,
                    base_offset,
                    records,
                } => self.append_control(epoch, base_offset, records)?,
                Effect::AppendFetched { end_offset, flush } => {
                    self.append_fetched(end_offset, flush)?;
                }
                Effect::TruncateLog { end_offset } => self.truncate(end_offset)?,
                Effect::CreateSnapshot(id) => {
                    tracing::info!("fetching snapshot {id} of the metadata log from the leader");
                    self.when_there_is_space(|log| log.begin_snapshot(id))?;
                }
                Effect::AppendSnapshot {
                    snapshot, position, ..
                } => {
                    let Payload::SnapshotBytes(bytes) = std::mem::take(&mut self.incoming) else {
                        return Err(self.log.error("a snapshot came without bytes".to_owned()));
                    };
                    self.when_there_is_space(|log| {
                        log.append_to_snapshot(snapshot, position, &bytes)
                    })?;
                }
                Effect::InstallSnapshot(id) => next = Some(self.install_snapshot(id)?),
                Effect::AdvanceHighWatermark(offset) => {
                    self.log.set_high_watermark(offset);
                    self.update_status();
                }
                Effect::ActivateLeader(epoch) => {
                    tracing::debug!("the controller of epoch {epoch} is active");
                    if let Some(deciding) = &mut self.deciding {
                        deciding.is_activation_due = true;
                    }
                    self.update_status();
                }
                Effect::DeactivateLeader(epoch) => {
                    tracing::info!(
                        "this node no longer leads epoch {epoch} of the metadata quorum"
                    );
                    self.end_deciding()?;
                    self.update_status();
                }
                Effect::ChangeLeader { leader, epoch } => {
                    match leader {
                        Some(leader) => {
                            tracing::info!(
                                "node {leader} leads epoch {epoch} of the metadata quorum"
                            );
                        }
                        None => {
                            tracing::info!(
                                "no leader is known for epoch {epoch} of the metadata quorum"
                            );
                        }
                    }
                    self.update_status();
                }
                Effect::Send {
                    to,
                    correlation_id,
                    request,
                } => match &mut self.network {
                    Some(network) => network.send(to, correlation_id, request),
                    None => {
                        let reason = format!("the only voter is asked to send {request:?}");
                        return Err(self.log.error(reason));
                    }
                },
                Effect::Respond {
                    request_id,
                    response,
                } => self.respond(request_id, response)?,
                Effect::Report { from, refusal } => {
                    self.trouble.report(&format!("node {from} {refusal}"));
                }
                Effect::CompleteShutdown { timed_out } => {
                    if timed_out {
                        tracing::warn!("could not hand over leadership of the metadata quorum");
                    }
                    self.is_shut_down = true;
                }
            }
        }
        Ok(next)
    }

    /// Appends the batches of a Fetch response, up to the offset that the state machine gives.
    fn append_fetched(&mut self, end_offset: Offset, flush: bool) -> Result<(), MetadataLogError> {
        let Payload::Batches(received) = std::mem::take(&mut self.incoming) else {
            return Err(self.log.error("a Fetch brought no batches".to_owned()));
        };
        let (batches, decoded): (Vec<_>, Vec<_>) = received
            .into_iter()
            .take_while(|(_, decoded)| decoded.last_offset < end_offset)
            .unzip();
        self.when_there_is_space(|log| log.append_fetched(&batches, time_of_day()))?;
        self.uncommitted.extend(decoded);
        if flush {
            self.when_there_is_space(MetadataLog::flush)?;
        }
        self.log.maintain()
    }

    /// Truncates the log to `end_offset`. The leader does not have the removed records, so they
    /// were never committed.
    fn truncate(&mut self, end_offset: Offset) -> Result<(), MetadataLogError> {
        tracing::info!(
            "the metadata log is truncated to offset {end_offset}, where it diverges from the leader's"
        );
        self.when_there_is_space(|log| log.truncate_to(end_offset, time_of_day()))?;
        self.when_there_is_space(MetadataLog::flush)?;
        while self
            .uncommitted
            .back()
            .is_some_and(|batch| batch.last_offset >= end_offset)
        {
            self.uncommitted.pop_back();
        }
        self.log.maintain()
    }

    fn install_snapshot(&mut self, id: SnapshotId) -> Result<Event, MetadataLogError> {
        let snapshot = self.log.install_snapshot(id, time_of_day())?;
        tracing::info!("the metadata log continues after snapshot {id}");
        self.take_snapshot(id, &snapshot)?;
        Ok(Event::SnapshotInstalled {
            snapshot: id,
            kraft_version: snapshot.kraft_version,
            voters: snapshot.voters,
        })
    }

    /// Answers another node, with the requested part of the log or of a snapshot.
    fn respond(
        &mut self,
        request_id: RequestId,
        response: Response,
    ) -> Result<(), MetadataLogError> {
        let Some(asked) = self.asked.remove(&request_id) else {
            return Ok(());
        };
        let mut response = response;
        let mut data = ServedData::None;
        match &mut response {
            Response::Fetch(fetch) => {
                if let FetchData::ReadFrom { offset, max_bytes } = fetch.data {
                    let max_bytes = u64::try_from(max_bytes).unwrap_or_default();
                    match self.log.region_from(offset, max_bytes) {
                        Ok(region) => data = region.map_or(ServedData::None, ServedData::from),
                        // Without a file handle the response has no records, and the replica asks
                        // again after its back-off.
                        Err(error) if error.is_temporary => {
                            tracing::warn!("a replica is sent nothing: {error}");
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Response::FetchSnapshot(part) => {
                if let Some(id) = part.snapshot {
                    match self
                        .log
                        .snapshot_region(id, part.position, part.length_bytes)
                    {
                        Ok(Some((region, size))) => {
                            part.size_bytes = size as i64;
                            part.length_bytes = region.len as i64;
                            data = ServedData::from(region);
                        }
                        Ok(None) => {
                            part.error = ErrorCode::PositionOutOfRange;
                            part.snapshot = None;
                        }
                        Err(error) => {
                            tracing::error!("snapshot {id} cannot be read: {error}");
                            part.error = ErrorCode::SnapshotNotFound;
                            part.snapshot = None;
                        }
                    }
                }
            }
            _ => {}
        }
        // The requester may be gone.
        let _ = asked.send((response, data));
        Ok(())
    }
}

impl From<ottla_log::FileRegion> for ServedData {
    fn from(region: ottla_log::FileRegion) -> ServedData {
        ServedData::Records(Records::File(ottla_protocol::FileRegion {
            file: region.file,
            position: region.position,
            len: region.len,
        }))
    }
}
