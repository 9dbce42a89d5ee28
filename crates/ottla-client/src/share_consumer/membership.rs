//! The membership of a share consumer: [`Member`] decides what the heartbeats contain, and
//! [`crate::heartbeats`] sends them.

use super::ShareConsumerConfig;
use super::member::{Member, MemberSettings, Partitions};
use crate::client::Client;
use crate::heartbeats::Heartbeats;

/// A membership in a share group, kept alive by heartbeats.
pub(super) type ShareMembership = Heartbeats<Member>;

impl ShareMembership {
    pub(super) fn new(
        client: Client,
        config: &ShareConsumerConfig,
        member_id: String,
    ) -> ShareMembership {
        let backoff = client.config();
        let member = Member::new(MemberSettings {
            group_id: config.group_id.clone(),
            member_id,
            rack: config.client_rack.clone(),
            max_poll_interval_ms: config.max_poll_interval.as_millis() as u64,
            retry_backoff_ms: backoff.retry_backoff.as_millis() as u64,
            retry_backoff_max_ms: backoff.retry_backoff_max.as_millis() as u64,
        });
        Heartbeats::start(client, config.group_id.clone(), member, None)
    }

    pub(super) fn assignment(&self) -> Partitions {
        self.session().member().assignment().clone()
    }
}
