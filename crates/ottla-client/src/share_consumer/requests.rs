//! Requests to the partition leaders. Each contains the acknowledgements of earlier records, and
//! most also fetch.
//!
//! There is at most one request at a time to a broker, because the epochs of a session are
//! sequential. A failed request ends the session, and with it the locks of all held records.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_protocol::messages::share_acknowledge_request::{
    self, AcknowledgePartition, AcknowledgeTopic,
};
use ottla_protocol::messages::share_fetch_request::{
    self, FetchPartition, FetchTopic, ForgottenTopic,
};
use ottla_protocol::messages::share_fetch_response::PartitionData;
use ottla_protocol::messages::{ShareAcknowledgeRequest, ShareFetchRequest};
use ottla_types::{ErrorCode, Uuid};

use super::acknowledgements::{Batch, HeldRecords};
use super::acquired::{Acquired, Ranges};
use super::node::{Answer, Answered, Finished, Node, Purpose, Request, SentAcknowledgements};
use super::session::{FINAL_EPOCH, TopicIdAndPartition};
use super::{AcquireMode, Partition, ShareConsumer, Source};
use crate::client::{Client, Owner};
use crate::consumer::CompletedFetch;
use crate::error::ClientError;
use crate::metadata::{BrokerNode, Metadata, NamedLeader};

/// The error code and the message of a partition in a response.
type PartitionResult = (i16, Option<ByteString>);

/// Has the client learn the leaders that the errors of a response name, and their addresses. The two
/// responses have these fields in types of their own.
macro_rules! learn_leaders {
    ($client:expr, $response:expr) => {{
        let metadata = $client.metadata();
        let mut leaders = Vec::new();
        for topic in &$response.responses {
            // In other partitions the fields are zeros.
            let mut moved = topic
                .partitions
                .iter()
                .filter(|it| has_moved(it.error_code))
                .peekable();
            // Nearly always none. The name is searched among all topics.
            if moved.peek().is_none() {
                continue;
            }
            let Some(name) = metadata.topic_name(topic.topic_id) else {
                continue;
            };
            leaders.extend(moved.map(|partition| NamedLeader {
                topic: name,
                partition: partition.partition_index,
                leader: partition.current_leader.leader_id,
                leader_epoch: partition.current_leader.leader_epoch,
            }));
        }
        let nodes = $response
            .node_endpoints
            .iter()
            .map(|node| BrokerNode::new(node.node_id, &node.host, node.port, node.rack.as_deref()));
        $client.learn_leaders(&leaders, nodes);
    }};
}

impl ShareConsumer {
    /// Whether any renewal has not been answered yet.
    pub(super) fn is_renewing(&self) -> bool {
        let mut nodes = self.nodes.values();
        let mut in_hand = self.in_hand.values();
        nodes.any(|node| {
            matches!(
                node.request,
                Some(Request::Acknowledge { renews: true, .. })
            )
        }) || in_hand.any(HeldRecords::has_renewals)
    }

    /// Sends a request to every leader without one in flight. With a strict record limit, only one
    /// leader is asked at a time, in turn. While records are being renewed, nothing is fetched.
    pub(super) fn start_requests(&mut self) {
        if self.is_renewing() {
            return self.start_acknowledgements(Purpose::Poll);
        }
        self.fail_what_is_lost(Purpose::Poll);
        let mut wanted = self.wanted();
        if self.config.acquire_mode == AcquireMode::RecordLimit {
            let is_fetching = |node: &Node| matches!(node.request, Some(Request::Fetch));
            let next = match self.nodes.values().any(is_fetching) {
                true => None,
                false => next_in_turn(wanted.keys().copied(), self.last_asked),
            };
            self.last_asked = next.or(self.last_asked);
            wanted.retain(|id, _| Some(*id) == next);
        }
        let now = ottla_sync::time::now();
        for (id, wanted) in wanted {
            let is_said_of_others = self.in_hand.iter().any(|((of, partition), in_hand)| {
                *of == id && in_hand.has_said() && !wanted.contains(partition)
            });
            if self.nodes.entry(id).or_default().is_free(now) && !is_said_of_others {
                self.start_fetch(id, &wanted);
            }
        }
        self.start_acknowledgements(Purpose::Poll);
    }

    /// The assigned partitions by leader. Includes leaders without any that still have a session.
    fn wanted(&mut self) -> BTreeMap<i32, BTreeSet<TopicIdAndPartition>> {
        let membership = self.membership.as_ref();
        let assignment = membership.map_or_else(Default::default, |it| it.assignment());
        let metadata = self.metadata_of(assignment.keys().copied());
        let has_session = |node: &&i32| !self.nodes[node].session.partitions().is_empty();
        let mut wanted: BTreeMap<i32, BTreeSet<TopicIdAndPartition>> = BTreeMap::new();
        for id in self.nodes.keys().filter(has_session) {
            wanted.entry(*id).or_default();
        }
        for (topic_id, partitions) in assignment {
            let Some(name) = metadata.topic_name(topic_id) else {
                continue;
            };
            for index in partitions {
                let leader = metadata.partition(name, index).map(|it| it.leader);
                match leader.filter(|leader| *leader >= 0) {
                    Some(leader) => {
                        wanted.entry(leader).or_default().insert((topic_id, index));
                    }
                    // The leader is unknown or newer than the metadata.
                    None => self.is_stale = true,
                }
            }
        }
        wanted
    }

    /// The metadata of these topics. Refreshes it in the background if names or leaders are missing
    /// or stale, and returns the known metadata until then.
    fn metadata_of(&mut self, ids: impl Iterator<Item = Uuid>) -> Arc<Metadata> {
        let metadata = self.client.metadata();
        let ids: Vec<Uuid> = ids.collect();
        let unknown = ids.iter().any(|id| metadata.topic_name(*id).is_none());
        let is_old = self.client.metadata_age() > self.client.config().metadata_max_age;
        let now = ottla_sync::time::now();
        let may_ask = !self.is_refreshing && self.refreshed_from.is_none_or(|from| from <= now);
        if may_ask && !ids.is_empty() && (unknown || is_old || self.is_stale) {
            (self.is_stale, self.is_refreshing) = (false, true);
            let client = self.client.clone();
            self.tasks.spawn(async move {
                let refreshed = client.refresh_topic_ids(&ids).await;
                Finished::Refreshed(refreshed.map(|_| ()))
            });
        }
        metadata
    }

    fn on_refreshed(&mut self, result: Result<(), ClientError>) {
        self.is_refreshing = false;
        self.refreshed_from = Some(ottla_sync::time::now() + self.client.config().retry_backoff);
        match result {
            Ok(()) => {}
            Err(error) if error.is_retriable() || matches!(error, ClientError::GaveUp { .. }) => {
                tracing::debug!(%error, "the leaders of the partitions are not known");
                self.is_stale = true;
            }
            Err(error) => self.tell_owner(error),
        }
    }

    /// Locks end with their session, so records of an ended session cannot be acknowledged any
    /// more.
    fn fail_what_is_lost(&mut self, purpose: Purpose) {
        let is_over = |id: &i32| {
            let node = self.nodes.get(id);
            node.is_none_or(|node| !node.is_busy() && !node.session.is_open())
        };
        let lost: Vec<Source> = self
            .in_hand
            .iter()
            .filter(|((node, _), in_hand)| in_hand.has_said() && is_over(node))
            .map(|(source, _)| *source)
            .collect();
        for source in lost {
            let said = self.take_said(|it| it == source);
            let what = format!(
                "share group {} at broker {}",
                self.config.group_id, source.0
            );
            self.tell(source.0, said, purpose, |_| {
                Err(ClientError::broker(
                    &what,
                    ErrorCode::NotLeaderOrFollower.code(),
                    Some("the share session has ended, and with it the locks of its records"),
                ))
            });
        }
    }

    /// Takes the acknowledgements to send.
    fn take_said(&mut self, of: impl Fn(Source) -> bool) -> Vec<SentAcknowledgements> {
        let of_these = self.in_hand.iter_mut().filter(|(source, _)| of(**source));
        let said = of_these.filter_map(|((_, partition), in_hand)| {
            let (batches, renewed) = in_hand.take_said();
            (!batches.is_empty()).then_some(SentAcknowledgements {
                partition: *partition,
                batches,
                renewed,
            })
        });
        let said = said.collect();
        self.in_hand.retain(|_, in_hand| !in_hand.is_empty());
        said
    }

    fn start_fetch(&mut self, id: i32, wanted: &BTreeSet<TopicIdAndPartition>) {
        let said = self.take_said(|(node, _)| node == id);
        let node = self.nodes.entry(id).or_default();
        let change = node.session.next_fetch(wanted);
        let mut topics: BTreeMap<Uuid, BTreeMap<i32, FetchPartition>> = BTreeMap::new();
        let mut partition = |(topic_id, index): TopicIdAndPartition| {
            let partitions = topics.entry(topic_id).or_default();
            let partition = partitions.entry(index).or_default();
            partition.partition_index = index;
            partition.acknowledgement_batches = said_of((topic_id, index), &said, |batch| {
                share_fetch_request::AcknowledgementBatch {
                    first_offset: batch.first_offset,
                    last_offset: batch.last_offset,
                    acknowledge_types: vec![batch.kind],
                    ..Default::default()
                }
            });
        };
        change.added.into_iter().for_each(&mut partition);
        said.iter().map(|it| it.partition).for_each(&mut partition);
        let mut forgotten: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for (topic_id, index) in change.forgotten {
            forgotten.entry(topic_id).or_default().push(index);
        }
        let max_records = i32::try_from(self.config.max_poll_records).unwrap_or(i32::MAX);
        let request = ShareFetchRequest {
            group_id: Some(self.config.group_id.clone().into()),
            member_id: Some(self.member_id.clone().into()),
            share_session_epoch: change.epoch,
            max_wait_ms: self.config.fetch_max_wait.as_millis() as i32,
            min_bytes: self.config.fetch_min_bytes,
            max_bytes: self.config.fetch_max_bytes,
            max_records,
            batch_size: max_records,
            share_acquire_mode: self.config.acquire_mode as i8,
            topics: topics
                .into_iter()
                .map(|(topic_id, partitions)| FetchTopic {
                    topic_id,
                    partitions: partitions.into_values().collect(),
                    ..Default::default()
                })
                .collect(),
            forgotten_topics_data: forgotten
                .into_iter()
                .map(|(topic_id, partitions)| ForgottenTopic {
                    topic_id,
                    partitions,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let held_back = self.config.fetch_max_wait;
        self.start(id, Request::Fetch, said, async move |client, owner| {
            let connection = client.node_of(id, Some(owner)).await?;
            let response = connection.send_waiting(&request, held_back).await?;
            Ok(Answer::Fetch(response))
        });
    }

    /// Sends acknowledgements to brokers without a request in flight. The last time also closes the
    /// sessions.
    pub(super) fn start_acknowledgements(&mut self, purpose: Purpose) {
        self.fail_what_is_lost(purpose);
        let now = ottla_sync::time::now();
        let free = self.nodes.iter().filter(|(_, node)| {
            let is_free = match purpose {
                Purpose::Close => !node.is_busy(),
                _ => node.is_free(now),
            };
            is_free && node.session.is_open()
        });
        let free: Vec<i32> = free.map(|(id, _)| *id).collect();
        for id in free {
            let said = self.take_said(|(node, _)| node == id);
            if purpose == Purpose::Close || !said.is_empty() {
                self.start_acknowledge(id, purpose, said);
            }
        }
    }

    fn start_acknowledge(&mut self, id: i32, purpose: Purpose, said: Vec<SentAcknowledgements>) {
        let epoch = match purpose {
            Purpose::Close => FINAL_EPOCH,
            _ => self.nodes.entry(id).or_default().session.epoch(),
        };
        let renews = said.iter().any(|it| !it.renewed.is_empty());
        let topics = said.iter().map(|it| {
            let (topic_id, partition_index) = it.partition;
            AcknowledgeTopic {
                topic_id,
                partitions: vec![AcknowledgePartition {
                    partition_index,
                    acknowledgement_batches: said_of(it.partition, &said, |batch| {
                        share_acknowledge_request::AcknowledgementBatch {
                            first_offset: batch.first_offset,
                            last_offset: batch.last_offset,
                            acknowledge_types: vec![batch.kind],
                            ..Default::default()
                        }
                    }),
                    ..Default::default()
                }],
                ..Default::default()
            }
        });
        let request = ShareAcknowledgeRequest {
            group_id: Some(self.config.group_id.clone().into()),
            member_id: Some(self.member_id.clone().into()),
            share_session_epoch: epoch,
            is_renew_ack: renews,
            topics: one_of_each(topics.collect()),
            ..Default::default()
        };
        let kind = Request::Acknowledge { purpose, renews };
        self.start(id, kind, said, async move |client, owner| {
            let connection = client.node_of(id, Some(owner)).await?;
            let response = connection.send(&request).await?;
            Ok(Answer::Acknowledge(response))
        });
    }

    fn start<F>(
        &mut self,
        node: i32,
        request: Request,
        said: Vec<SentAcknowledgements>,
        ask: impl FnOnce(Client, Owner) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Answer, ClientError>> + Send + 'static,
    {
        self.nodes.entry(node).or_default().request = Some(request);
        let (client, owner) = (self.client.clone(), self.owner);
        self.tasks.spawn(async move {
            let result = ask(client, owner).await;
            Finished::Answered(Answered { node, said, result })
        });
    }

    pub(super) fn on_finished(&mut self, finished: Finished) {
        match finished {
            Finished::Answered(answered) => self.on_answered(answered),
            Finished::Refreshed(result) => self.on_refreshed(result),
        }
    }

    /// Handles the response of a broker.
    fn on_answered(&mut self, Answered { node, said, result }: Answered) {
        let request = self.nodes.entry(node).or_default().request.take();
        let purpose = match request {
            Some(Request::Acknowledge { purpose, .. }) => purpose,
            _ => Purpose::Poll,
        };
        let result = result.and_then(|answer| {
            let (code, message) = match &answer {
                Answer::Fetch(response) => (response.error_code, &response.error_message),
                Answer::Acknowledge(response) => (response.error_code, &response.error_message),
            };
            let what = format!("share group {} at broker {node}", self.config.group_id);
            ClientError::check(what, code, message.as_deref()).map(|()| answer)
        });
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.on_failed(node, said, purpose, error),
        };
        self.nodes.entry(node).or_default().session.on_answered();
        // Before the results are handled: a partition with a known leader waits for no metadata (KIP-951).
        match &answer {
            Answer::Fetch(response) => learn_leaders!(self.client, response),
            Answer::Acknowledge(response) => learn_leaders!(self.client, response),
        }
        let mut told: BTreeMap<TopicIdAndPartition, PartitionResult> = BTreeMap::new();
        match answer {
            Answer::Fetch(response) => {
                self.on_lock_timeout(response.acquisition_lock_timeout_ms);
                for topic in response.responses {
                    for partition in topic.partitions {
                        let key = (topic.topic_id, partition.partition_index);
                        let code = partition.acknowledge_error_code;
                        let message = partition.acknowledge_error_message.clone();
                        told.insert(key, (code, message));
                        self.on_fetched((node, key), partition);
                    }
                }
            }
            Answer::Acknowledge(response) => {
                self.on_lock_timeout(response.acquisition_lock_timeout_ms);
                for topic in response.responses {
                    for partition in topic.partitions {
                        let key = (topic.topic_id, partition.partition_index);
                        told.insert(key, (partition.error_code, partition.error_message));
                    }
                }
            }
        }
        self.settle(node, said, purpose, &told);
    }

    fn on_lock_timeout(&mut self, timeout_ms: i32) {
        if let Ok(timeout_ms @ 1..) = u64::try_from(timeout_ms) {
            self.lock_timeout = Some(Duration::from_millis(timeout_ms));
        }
    }

    /// The session has ended, and the acknowledgements in the request were not received.
    fn on_failed(
        &mut self,
        id: i32,
        said: Vec<SentAcknowledgements>,
        purpose: Purpose,
        error: ClientError,
    ) {
        self.nodes.entry(id).or_default().session.on_failed();
        self.pause(id);
        self.is_stale = true;
        self.tell(id, said, purpose, |_| Err(error.clone()));
        let passes = match error.code() {
            Some(
                ErrorCode::ShareSessionNotFound
                | ErrorCode::InvalidShareSessionEpoch
                | ErrorCode::ShareSessionLimitReached
                | ErrorCode::UnknownTopicId
                | ErrorCode::UnknownServerError,
            ) => true,
            _ => error.is_retriable(),
        };
        if passes {
            tracing::debug!(%error, "a share session ended; another one is begun");
        } else {
            self.tell_owner(error);
        }
    }

    /// Reports the result of each partition. Retriable ones are sent again if the purpose allows
    /// it.
    fn settle(
        &mut self,
        node: i32,
        mut said: Vec<SentAcknowledgements>,
        purpose: Purpose,
        told: &BTreeMap<TopicIdAndPartition, PartitionResult>,
    ) {
        let group = self.config.group_id.clone();
        let result_of = |partition: TopicIdAndPartition| {
            let what = format!("acknowledging records of share group {group}");
            match told.get(&partition) {
                Some((code, message)) => ClientError::check(what, *code, message.as_deref()),
                None => Err(ClientError::broker(
                    what,
                    ErrorCode::InvalidRecordState.code(),
                    Some("the broker's response does not mention them"),
                )),
            }
        };
        let repeats =
            matches!(purpose, Purpose::Commit { until } if ottla_sync::time::now() < until);
        for said in said.extract_if(.., |said| {
            repeats && result_of(said.partition).is_err_and(|error| helps_to_repeat(&error))
        }) {
            self.pause(node);
            let in_hand = self.in_hand.entry((node, said.partition)).or_default();
            in_hand.put_back(said.batches, said.renewed);
        }
        self.tell(node, said, purpose, result_of);
    }

    /// Calls the listener, and returns renewed records again.
    fn tell(
        &mut self,
        node: i32,
        said: Vec<SentAcknowledgements>,
        purpose: Purpose,
        result_of: impl Fn(TopicIdAndPartition) -> Result<(), ClientError>,
    ) {
        for said in said {
            let result = result_of(said.partition);
            match &result {
                Ok(()) => self.renewed.extend(said.renewed),
                Err(error) => {
                    self.is_stale |=
                        error.is_retriable() && !self.is_led_elsewhere((node, said.partition));
                }
            }
            let Some(name) = self.name_of(said.partition.0) else {
                continue;
            };
            let partition: Partition = (name.to_string(), said.partition.1);
            if let Err(error) = &result {
                tracing::debug!(%error, node, ?partition, "acknowledgements failed");
            }
            if let Some(listener) = &mut self.listener {
                let batches = said.batches.iter();
                let offsets: Vec<_> = batches
                    .map(|batch| batch.first_offset..=batch.last_offset)
                    .collect();
                listener(&partition, &offsets, &result);
            }
            if let Purpose::Commit { .. } = purpose {
                // Only one error is reported for a partition.
                let told = self.committed.entry(partition).or_insert(Ok(()));
                if told.is_ok() {
                    *told = result;
                }
            }
        }
    }

    fn on_fetched(&mut self, source: Source, data: PartitionData) {
        let (node, partition) = source;
        let code = ErrorCode::from_code(data.error_code);
        match code {
            ErrorCode::None => {}
            ErrorCode::UnknownServerError => self.pause(node),
            _ if code != ErrorCode::CorruptMessage
                && (code.is_retriable() || code == ErrorCode::UnknownTopicId) =>
            {
                if !self.is_led_elsewhere(source) {
                    self.is_stale = true;
                    self.pause(node);
                }
            }
            _ => {
                self.pause(node);
                let what = self.partition_name(partition);
                let message = data.error_message.as_deref();
                self.tell_owner(ClientError::broker(what, data.error_code, message));
                return;
            }
        }
        let Some(first) = data.acquired_records.first() else {
            return;
        };
        let Some(name) = self.name_of(partition.0) else {
            // The topic was deleted.
            return;
        };
        let ranges = match Ranges::read(&data.acquired_records) {
            Ok(ranges) => ranges,
            Err(reason) => {
                self.nodes.entry(node).or_default().session.on_failed();
                self.tell_owner(ClientError::Unreadable {
                    address: format!("broker {node}"),
                    what: format!("acquired records of {name}-{}", partition.1),
                    reason,
                });
                return;
            }
        };
        let records = data.records.as_ref();
        let bytes = records.and_then(|records| records.as_bytes().cloned());
        let fetch = CompletedFetch::new(
            name,
            partition.1,
            bytes.unwrap_or_default(),
            first.first_offset,
            Vec::new(),
            self.config.check_crcs,
        );
        self.fetched
            .push_back((source, Acquired::new(fetch, ranges)));
    }

    /// Whether another broker leads the partition according to the metadata.
    fn is_led_elsewhere(&self, (node, (topic_id, index)): Source) -> bool {
        let metadata = self.client.metadata();
        let name = metadata.topic_name(topic_id);
        let known = name.and_then(|name| metadata.partition(name, index));
        known.is_some_and(|known| known.leader >= 0 && known.leader != node)
    }

    /// Reports an error with the next poll. Of several, the first one.
    fn tell_owner(&mut self, error: ClientError) {
        self.untold.get_or_insert(error);
    }

    fn pause(&mut self, node: i32) {
        let backoff = self.client.config().retry_backoff;
        self.nodes.entry(node).or_default().asked_from = Some(ottla_sync::time::now() + backoff);
    }
}

/// Whether the error of a partition means that another broker leads it, which the response then names.
fn has_moved(code: i16) -> bool {
    matches!(
        ErrorCode::from_code(code),
        ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch
    )
}

/// Whether a retry with the same broker may succeed. Not if the locks are lost with the leadership
/// or the topic.
fn helps_to_repeat(error: &ClientError) -> bool {
    let is_gone = matches!(
        error.code(),
        Some(
            ErrorCode::NotLeaderOrFollower
                | ErrorCode::FencedLeaderEpoch
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
        )
    );
    error.is_retriable() && !is_gone
}

/// The id after the last one, or the first id.
fn next_in_turn(ids: impl Iterator<Item = i32>, last: Option<i32>) -> Option<i32> {
    ids.min_by_key(|id| (last.is_some_and(|last| *id <= last), *id))
}

fn said_of<T>(
    partition: TopicIdAndPartition,
    said: &[SentAcknowledgements],
    wire: impl Fn(&Batch) -> T,
) -> Vec<T> {
    let of_partition = said.iter().filter(|it| it.partition == partition);
    of_partition.flat_map(|it| &it.batches).map(wire).collect()
}

/// Merges the partitions of each topic.
fn one_of_each(topics: Vec<AcknowledgeTopic>) -> Vec<AcknowledgeTopic> {
    let mut merged: Vec<AcknowledgeTopic> = Vec::new();
    for topic in topics {
        match merged.last_mut() {
            Some(last) if last.topic_id == topic.topic_id => {
                last.partitions.extend(topic.partitions);
            }
            _ => merged.push(topic),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
