//! Heartbeat: keeps a member alive, and tells it whether it must rejoin.
//! Source: `GroupMetadataManager.classicGroupHeartbeat`.

use ottla_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::{ClassicGroup, ClassicGroupState};
use super::coordinator::GroupCoordinator;
use super::outcome::{Outcome, ReplyTo};
use super::refused::Refused;

impl GroupCoordinator {
    pub fn handle_heartbeat(
        &mut self,
        to: ReplyTo<HeartbeatResponse>,
        request: HeartbeatRequest,
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        if let Some(group) = self.consumer_group(&request.group_id).cloned() {
            self.heartbeat_in_consumer_group(to, &group, &request, &mut effects);
            return self.finish(effects);
        }
        let validated = match self.classic_group(&request.group_id) {
            _ if request.group_id.is_empty() => Err(ErrorCode::InvalidGroupId),
            None => Err(ErrorCode::UnknownMemberId),
            Some(group) => validate(group, &request).map(|()| group.state()),
        };
        let error = match validated {
            Err(error) => {
                effects.refuse(to, error);
                return self.finish(effects);
            }
            Ok(ClassicGroupState::Empty) => ErrorCode::UnknownMemberId,
            Ok(ClassicGroupState::PreparingRebalance) => ErrorCode::RebalanceInProgress,
            Ok(ClassicGroupState::CompletingRebalance | ClassicGroupState::Stable) => {
                ErrorCode::None
            }
        };
        self.with_classic_group(&request.group_id, now, &mut effects, |group, _, effects| {
            if let Some(member) = group.member(&request.member_id) {
                let timer = group.session_timer(&member.member_id);
                effects.set_timer(timer, member.session_timeout_ms);
            }
        });
        let response = HeartbeatResponse::refused(error);
        self.reply_when_committed(to, response, &mut effects);
        self.finish(effects)
    }
}

fn validate(group: &ClassicGroup, request: &HeartbeatRequest) -> Result<(), ErrorCode> {
    group.validate_member(&request.member_id, request.group_instance_id.as_deref())?;
    if request.generation_id != group.generation_id() {
        return Err(ErrorCode::IllegalGeneration);
    }
    Ok(())
}
