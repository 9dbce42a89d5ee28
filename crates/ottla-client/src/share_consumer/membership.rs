//! A share consumer's place in its group: [`Member`] says what the heartbeats say, and [`crate::heartbeats`] sends them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_sync::Notify;

use super::ShareConsumerConfig;
use super::member::{Member, MemberSettings, Partitions};
use crate::client::Client;
use crate::error::ClientError;
use crate::heartbeats::Heartbeats;

/// A place in a share group, kept by heartbeats.
pub(super) struct ShareMembership(Heartbeats<Member>);

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
        let group = config.group_id.clone();
        ShareMembership(Heartbeats::start(client, group, member, None))
    }

    pub(super) fn subscribe(&self, topics: BTreeSet<String>) {
        self.0.change(|member| member.subscribe(topics));
    }

    /// Notified when there may be something to do.
    pub(super) fn news(&self) -> Arc<Notify> {
        self.0.news()
    }

    /// The owner is there. Fails with what the coordinator has refused: every time, if that is for good.
    pub(super) fn on_polled(&self) -> Result<(), ClientError> {
        self.0.on_polled()
    }

    pub(super) fn assignment(&self) -> Partitions {
        self.0.place().member().assignment().clone()
    }

    /// Leaves the group, so that the others need not wait for the place to expire.
    pub(super) async fn leave(self) {
        self.0.leave().await;
    }
}
