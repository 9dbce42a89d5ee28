//! A consumer in its group: subscribing, joining and taking over its assignment, from within
//! `poll`.
//!
//! In the classic protocol the members join together and one of them computes the assignment;
//! joining is a task that runs between polls. In the consumer protocol the coordinator gives each
//! member a target, and the member reconciles with it here, one poll at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex::Regex;

use super::classic::Membership;
use super::metrics::ListenerCall;
use super::modern::ModernMembership;
use super::modern::member::{Member, Partitions, Reconciliation, Subscription};
use super::pattern::Pattern;
use super::{Consumer, GroupProtocol, Partition, RebalanceListener};
use crate::error::ClientError;
use crate::metadata::Metadata;

impl Consumer {
    /// Subscribes to these topics.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.subscribe(&["orders".to_owned(), "payments".to_owned()])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe(&mut self, topics: &[String]) -> Result<(), ClientError> {
        self.pattern = None;
        self.subscribe_as(topics.to_vec(), None)
    }

    /// As [`Consumer::subscribe`] with a rebalance listener.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RebalanceListener;
    ///
    /// struct Telling;
    ///
    /// impl RebalanceListener for Telling {
    ///     fn on_partitions_revoked(&mut self, partitions: &[(String, i32)]) {
    ///         println!("revoked {partitions:?}");
    ///     }
    /// }
    ///
    /// consumer.subscribe_with_listener(&["orders".to_owned()], Box::new(Telling))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_with_listener(
        &mut self,
        topics: &[String],
        listener: Box<dyn RebalanceListener>,
    ) -> Result<(), ClientError> {
        self.listener = Some(listener);
        self.subscribe(topics)
    }

    /// Subscribes to the topics whose names match a regular expression completely, including future
    /// ones. The metadata is checked every `metadata.max.age.ms`. Internal topics are excluded
    /// unless `exclude.internal.topics` is false.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.subscribe_pattern("orders-(eu|us)")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), ClientError> {
        let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
            ClientError::Config(format!("{pattern}: not a regular expression: {error}"))
        })?;
        self.subscribe_as(Vec::new(), None)?;
        self.pattern = Some(Pattern { regex, seen: None });
        Ok(())
    }

    /// As [`Consumer::subscribe_pattern`], but the coordinator matches the topics, so that members
    /// need not request all names. Only with `group.protocol=consumer`; the syntax is RE2.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.subscribe_regex("orders-.*")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn subscribe_regex(&mut self, regex: &str) -> Result<(), ClientError> {
        if self.config.group_protocol == GroupProtocol::Classic {
            return Err(ClientError::Config(format!(
                "{regex}: only with group.protocol=consumer does the coordinator find topics by a regular \
                 expression; set that, or subscribe to a pattern"
            )));
        }
        self.pattern = None;
        self.subscribe_as(Vec::new(), Some(regex.to_owned()))
    }

    /// Sets the listener for assigned and revoked partitions.
    ///
    /// ```no_run
    /// # fn example(consumer: &mut ottla_client::Consumer) {
    /// use ottla_client::RebalanceListener;
    ///
    /// struct Telling;
    ///
    /// impl RebalanceListener for Telling {
    ///     fn on_partitions_assigned(&mut self, partitions: &[(String, i32)]) {
    ///         println!("assigned {partitions:?}");
    ///     }
    /// }
    ///
    /// consumer.set_rebalance_listener(Box::new(Telling));
    /// # }
    /// ```
    pub fn set_rebalance_listener(&mut self, listener: Box<dyn RebalanceListener>) {
        self.listener = Some(listener);
    }

    fn subscribe_as(
        &mut self,
        topics: Vec<String>,
        regex: Option<String>,
    ) -> Result<(), ClientError> {
        let Some(group) = self.config.group_id.clone() else {
            return Err(ClientError::Config(
                "subscribing to topics needs a group; give group.id".into(),
            ));
        };
        self.subscription = topics;
        let client = self.client.clone();
        match self.config.group_protocol {
            GroupProtocol::Consumer => {
                let modern = self.modern.get_or_insert_with(|| {
                    let sensors = self.sensors.clone();
                    ModernMembership::new(client, group, &self.config, sensors)
                });
                // Sent with the next poll.
                modern.session().member().subscribe(Subscription {
                    topics: self.subscription.iter().cloned().collect(),
                    regex,
                });
            }
            GroupProtocol::Classic => match &self.membership {
                Some(membership) => membership.rejoin(),
                None if self.joining.is_some() => self.has_resubscribed = true,
                None => {
                    let (config, sensors) = (self.config.clone(), self.sensors.clone());
                    let membership = Membership::new(client, group, config, sensors);
                    self.member_handle = Some(membership.member_handle());
                    self.membership = Some(membership);
                }
            },
        }
        Ok(())
    }

    /// Removes the subscription and leaves the group.
    ///
    /// ```no_run
    /// # async fn example(consumer: &mut ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// consumer.unsubscribe().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unsubscribe(&mut self) {
        self.subscription.clear();
        self.pattern = None;
        self.give_up_joining().await;
        self.leave_group().await;
        self.replace_assignment(&[]);
    }

    /// Aborts a running join and leaves the group. Returns whether there was one.
    pub(super) async fn give_up_joining(&mut self) -> bool {
        let Some(joining) = self.joining.take() else {
            return false;
        };
        joining.abort();
        if let Some(member_handle) = self.member_handle.take() {
            member_handle.give_up_while_joining().await;
        }
        true
    }

    /// Revokes all partitions and leaves the group.
    pub(super) async fn leave_group(&mut self) {
        self.tell_revoked();
        if let Some(membership) = self.membership.take() {
            membership.leave().await;
        }
        if let Some(modern) = self.modern.take() {
            modern.leave().await;
        }
    }

    /// Starts a rebalance with the next poll. Does nothing if the coordinator assigns partitions,
    /// as in Kafka.
    ///
    /// ```no_run
    /// # fn example(consumer: &ottla_client::Consumer) {
    /// consumer.enforce_rebalance();
    /// # }
    /// ```
    pub fn enforce_rebalance(&self) {
        if let Some(membership) = &self.membership {
            membership.rejoin();
        }
    }

    /// Notifies the listener that all partitions are revoked, if this consumer is in a group.
    fn tell_revoked(&mut self) {
        let held = self.assignment();
        let is_member = self.membership.is_some() || self.modern.is_some();
        if is_member && !held.is_empty() {
            self.call_listener(ListenerCall::Revoked, &held);
        }
    }

    fn call_listener(&mut self, call: ListenerCall, partitions: &[Partition]) {
        let Some(listener) = &mut self.listener else {
            return;
        };
        let began = ottla_sync::time::now();
        match call {
            ListenerCall::Assigned => listener.on_partitions_assigned(partitions),
            ListenerCall::Revoked => listener.on_partitions_revoked(partitions),
            ListenerCall::Lost => listener.on_partitions_lost(partitions),
        }
        self.sensors
            .on_listener_called(call, ottla_sync::time::elapsed(began));
    }

    /// Does the pending work of the membership. Returns false while it waits for other members.
    pub(super) async fn keep_membership(&mut self, deadline: Instant) -> Result<bool, ClientError> {
        self.match_topics().await?;
        if self.modern.is_some() {
            self.keep_modern().await?;
            return Ok(true);
        }
        self.keep_classic(deadline).await
    }

    /// Updates the subscription from the pattern, if there is one and the topics may have changed.
    async fn match_topics(&mut self) -> Result<(), ClientError> {
        let Some(pattern) = &self.pattern else {
            return Ok(());
        };
        let metadata = match &pattern.seen {
            Some(_) => self.client.metadata(),
            None => self.client.refresh_metadata(None, false).await?,
        };
        let Some(pattern) = &mut self.pattern else {
            return Ok(());
        };
        if let Some(seen) = &pattern.seen
            && Arc::ptr_eq(seen, &metadata)
        {
            return Ok(());
        }
        let excludes_internal = self.config.exclude_internal_topics;
        let matching: Vec<String> = metadata
            .topics
            .values()
            .filter(|topic| pattern.regex.is_match(&topic.name))
            .filter(|topic| !(excludes_internal && topic.is_internal))
            .map(|topic| topic.name.clone())
            .collect();
        pattern.seen = Some(metadata);
        match matching == self.subscription {
            true => Ok(()),
            false => self.subscribe_as(matching, None),
        }
    }

    async fn keep_modern(&mut self) -> Result<(), ClientError> {
        let Some(modern) = &self.modern else {
            return Ok(());
        };
        let polled = modern.on_polled();
        if modern.session().member().has_lost() {
            self.give_up_all(true);
            if let Some(modern) = &self.modern {
                modern.change(Member::on_given_up);
            }
        }
        polled?;
        let reconciliation = self.modern.as_ref();
        let reconciliation = reconciliation.and_then(|it| it.session().member().reconciliation());
        match reconciliation {
            Some(reconciliation) => self.reconcile(&reconciliation).await,
            None => Ok(()),
        }
    }

    /// Revokes partitions that are not in the target, adds new ones, and reports the result.
    async fn reconcile(&mut self, target: &Reconciliation) -> Result<(), ClientError> {
        let began = ottla_sync::time::now();
        let metadata = self.metadata_of(&target.partitions).await;
        // A topic without a name was just created or deleted; the next poll checks again.
        let mut named = Partitions::new();
        let mut assigned: Vec<Partition> = Vec::new();
        for (topic_id, numbers) in &target.partitions {
            if let Some(name) = metadata.topic_name(*topic_id) {
                named.insert(*topic_id, numbers.clone());
                assigned.extend(numbers.iter().map(|number| (name.to_owned(), *number)));
            }
        }
        let held: BTreeSet<Partition> = self.positions.keys().cloned().collect();
        let wanted: BTreeSet<Partition> = assigned.iter().cloned().collect();
        if held != wanted && self.config.auto_commit && !held.is_empty() {
            // The new owners will start at this commit.
            self.commit_quietly().await;
        }
        if held != wanted || named == target.partitions {
            self.exchange(&held, &wanted);
        }
        self.last_auto_commit = ottla_sync::time::now();
        if held != wanted {
            self.sensors.on_rebalanced(ottla_sync::time::elapsed(began));
        }
        if let Some(modern) = &self.modern {
            modern.change(|member| member.on_reconciled(target, named));
        }
        Ok(())
    }

    /// Metadata with the names of these topics, as far as they can be found. Missing ones are
    /// requested at most as often as a failed request is retried.
    async fn metadata_of(&mut self, partitions: &Partitions) -> Arc<Metadata> {
        let metadata = self.client.metadata();
        let pause = self.client.config().retry_backoff;
        let has_just_asked = self
            .last_naming
            .is_some_and(|last| ottla_sync::time::elapsed(last) < pause);
        if has_just_asked
            || partitions
                .keys()
                .all(|id| metadata.topic_name(*id).is_some())
        {
            return metadata;
        }
        self.last_naming = Some(ottla_sync::time::now());
        let ids: Vec<_> = partitions.keys().copied().collect();
        match self.client.refresh_topic_ids(&ids).await {
            Ok(metadata) => metadata,
            Err(error) => {
                tracing::debug!(%error, "no metadata");
                metadata
            }
        }
    }

    /// Joins the group, or rejoins it during a rebalance. Returns false while it waits for other
    /// members. Joining continues between polls, because it takes as long as the slowest member,
    /// which may be used by the same thread.
    async fn keep_classic(&mut self, deadline: Instant) -> Result<bool, ClientError> {
        if let Some(membership) = &self.membership {
            membership.on_polled();
        }
        if self.joining.is_none() {
            let Some(membership) = &self.membership else {
                return Ok(true);
            };
            if !membership.must_join() {
                return Ok(true);
            }
            let is_lost = membership.is_forgotten();
            let keeps_reading = membership.is_cooperative() && !is_lost;
            if self.config.auto_commit && !self.positions.is_empty() && !is_lost {
                // The new owners will start at this commit.
                self.commit_quietly().await;
            }
            if !keeps_reading {
                self.give_up_all(is_lost);
            }
            let Some(mut membership) = self.membership.take() else {
                return Ok(true);
            };
            let (topics, owned) = (self.subscription.clone(), self.assignment());
            self.joining = Some(ottla_sync::task::spawn(async move {
                let joined = membership.join(&topics, &owned).await;
                (membership, joined)
            }));
        }
        let Some(joining) = &mut self.joining else {
            return Ok(true);
        };
        // Until then, the kept partitions are read.
        let left = match self.positions.is_empty() {
            true => deadline.saturating_duration_since(ottla_sync::time::now()),
            false => Duration::ZERO,
        };
        let waker = self.waker.clone();
        let finished = ottla_sync::select! {
            finished = ottla_sync::time::timeout(left, joining) => finished,
            // Joining continues in its task; only the wait ends.
            () = waker.woken() => return Err(ClientError::WokenUp),
        };
        let Ok(finished) = finished else {
            return Ok(!self.positions.is_empty());
        };
        self.joining = None;
        let (membership, joined) = finished.map_err(|_| ClientError::ClientClosed)?;
        if std::mem::take(&mut self.has_resubscribed) {
            membership.rejoin();
        }
        self.membership = Some(membership);
        self.take_assignment(&joined?);
        self.last_auto_commit = ottla_sync::time::now();
        Ok(true)
    }

    /// Revokes all partitions before joining.
    fn give_up_all(&mut self, is_lost: bool) {
        let held = self.assignment();
        self.replace_assignment(&[]);
        if !held.is_empty() {
            let call = if is_lost {
                ListenerCall::Lost
            } else {
                ListenerCall::Revoked
            };
            self.call_listener(call, &held);
        }
    }

    fn take_assignment(&mut self, assigned: &[Partition]) {
        let held: BTreeSet<Partition> = self.positions.keys().cloned().collect();
        let kept: BTreeSet<Partition> = assigned.iter().cloned().collect();
        if held.difference(&kept).next().is_some()
            && let Some(membership) = &self.membership
        {
            // Their new owners get them in another rebalance.
            membership.rejoin();
        }
        self.exchange(&held, &kept);
    }

    /// Changes the assignment, and calls the listener.
    fn exchange(&mut self, held: &BTreeSet<Partition>, wanted: &BTreeSet<Partition>) {
        let revoked: Vec<Partition> = held.difference(wanted).cloned().collect();
        let added: Vec<Partition> = wanted.difference(held).cloned().collect();
        if !revoked.is_empty() {
            self.call_listener(ListenerCall::Revoked, &revoked);
        }
        let wanted: Vec<Partition> = wanted.iter().cloned().collect();
        self.replace_assignment(&wanted);
        self.call_listener(ListenerCall::Assigned, &added);
    }

    /// Replaces the assignment. Partitions that stay keep their positions.
    pub(super) fn replace_assignment(&mut self, partitions: &[Partition]) {
        let mut positions = BTreeMap::new();
        for partition in partitions {
            let position = match self.positions.remove(partition) {
                Some(position) => position,
                None => self.new_position(),
            };
            positions.insert(partition.clone(), position);
        }
        self.positions = positions;
        self.sensors.on_assigned(self.positions.keys());
    }

    /// Checks periodically whether subscribed topics were created, deleted or extended; more often
    /// while one is missing. The group leader starts a rebalance then.
    pub(super) fn watch_topics(&mut self) {
        let metadata = self.client.metadata();
        if let Some(membership) = &self.membership {
            membership.on_metadata(&metadata);
        }
        let config = self.client.config();
        // Called by every poll, and usually too early for any check.
        let soonest = config.retry_backoff_max.min(config.metadata_max_age);
        if ottla_sync::time::elapsed(self.last_refresh) < soonest {
            return;
        }
        if self
            .refreshing
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        let mut names: BTreeSet<&String> = self.subscription.iter().collect();
        names.extend(self.positions.keys().map(|(topic, _)| topic));
        let is_missing = |name: &&String| !metadata.topics.contains_key(*name);
        let wants_all = self.pattern.is_some();
        let patience = match !wants_all && names.iter().any(is_missing) {
            true => config.retry_backoff_max,
            false => config.metadata_max_age,
        };
        if names.is_empty() && !wants_all || ottla_sync::time::elapsed(self.last_refresh) < patience
        {
            return;
        }
        self.last_refresh = ottla_sync::time::now();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let (client, creates) = (self.client.clone(), self.config.allow_auto_create_topics);
        self.refreshing = Some(ottla_sync::task::spawn(async move {
            let refreshed = match wants_all {
                true => client.refresh_metadata(None, false).await,
                false => client.refresh_metadata(Some(&names), creates).await,
            };
            if let Err(error) = refreshed {
                tracing::debug!(%error, "no metadata");
            }
        }));
    }
}
