//! Membership in a group whose coordinator assigns the partitions (`group.protocol=consumer`, KIP-848).
//!
//! [`member`] decides what the heartbeats contain, and [`crate::heartbeats`] sends them. The owner
//! of the consumer reconciles with a new target, from within `poll`.

pub(super) mod member;

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::messages::offset_commit_request::OffsetCommitRequest;
use ottla_types::ErrorCode;

use self::member::{Member, MemberSettings};
use super::metrics::ConsumerSensors;
use super::offset_commits::commit_topics;
use super::{CommitOffset, ConsumerConfig, Partition};
use crate::client::Client;
use crate::error::ClientError;
use crate::heartbeats::{self, GroupSession, Heartbeats};

/// A membership in a group, kept alive by heartbeats.
pub(super) type ModernMembership = Heartbeats<Member>;

impl ModernMembership {
    pub(super) fn new(
        client: Client,
        group: String,
        config: &ConsumerConfig,
        sensors: Arc<ConsumerSensors>,
    ) -> ModernMembership {
        let backoff = client.config();
        let member = Member::new(MemberSettings {
            group_id: group.clone(),
            member_id: heartbeats::new_member_id(),
            instance_id: config.group_instance_id.clone(),
            rack: config.client_rack.clone(),
            assignor: config.group_remote_assignor.clone(),
            max_poll_interval_ms: config.max_poll_interval.as_millis() as u64,
            retry_backoff_ms: backoff.retry_backoff.as_millis() as u64,
            retry_backoff_max_ms: backoff.retry_backoff_max.as_millis() as u64,
        });
        Heartbeats::start(client, group, member, Some(sensors))
    }

    /// The member epoch, -1 outside a group, and the member id.
    pub(super) fn epoch_and_id(&self) -> (i32, String) {
        epoch_and_id(self.session())
    }

    /// Commits as this member.
    pub(super) fn committer(&self) -> Committer {
        Committer(self.session().clone())
    }
}

/// Commits as a member, in its current epoch.
pub(super) struct Committer(Arc<GroupSession<Member>>);

impl Committer {
    /// Commits, and retries once if the coordinator has assigned another epoch in the meantime.
    pub(super) async fn commit(
        &self,
        offsets: &BTreeMap<Partition, CommitOffset>,
    ) -> Result<(), ClientError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let Committer(session) = self;
        let instance_id = session.member().instance_id().map(str::to_owned);
        loop {
            let (epoch, member_id) = epoch_and_id(session);
            let request = OffsetCommitRequest {
                group_id: session.group().to_owned().into(),
                generation_id_or_member_epoch: epoch,
                member_id: member_id.into(),
                group_instance_id: instance_id.clone().map(Into::into),
                topics: commit_topics(&session.client().metadata(), offsets),
                ..Default::default()
            };
            let response = session.ask(&request).await?;
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            let mut codes = partitions.map(|partition| partition.error_code);
            let code = codes.find(|code| *code != 0).unwrap_or(0);
            let now = epoch_and_id(session).0;
            if code == ErrorCode::StaleMemberEpoch.code() && now > epoch {
                continue;
            }
            let what = format!("committing offsets of group {}", session.group());
            let result = ClientError::check_code(what, code);
            if result.as_ref().is_err_and(ClientError::is_retriable) {
                session.forget_coordinator();
            }
            return result;
        }
    }
}

/// The member epoch, -1 outside a group, and the member id.
fn epoch_and_id(session: &GroupSession<Member>) -> (i32, String) {
    let member = session.member();
    let epoch = match member.epoch() {
        member::JOIN_EPOCH => -1,
        epoch => epoch,
    };
    (epoch, member.id().to_owned())
}
