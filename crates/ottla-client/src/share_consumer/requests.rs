//! Requests to the leaders of partitions: each acknowledges what was said of earlier records, and most ask for more.
//!
//! There is at most one request at a time to a broker, since the epochs of a session follow each other. A request that
//! fails ends the session, and with it the locks of all that was in hand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use ottla_protocol::messages::share_acknowledge_request::{
    self, AcknowledgePartition, AcknowledgeTopic,
};
use ottla_protocol::messages::share_fetch_request::{
    self, FetchPartition, FetchTopic, ForgottenTopic,
};
use ottla_protocol::messages::share_fetch_response::PartitionData;
use ottla_protocol::messages::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
};
use ottla_types::{ErrorCode, Uuid};

use super::acknowledgements::Batch;
use super::session::{FINAL_EPOCH, ShareSession, TopicIdAndPartition};
use super::{Partition, ShareConsumer, ShareRecord};
use crate::client::{Client, Owner};
use crate::consumer::CompletedFetch;
use crate::error::ClientError;
use crate::metadata::Metadata;

/// What a share consumer has to do with one broker.
#[derive(Default)]
pub(super) struct Node {
    pub(super) session: ShareSession,
    pub(super) is_busy: bool,
    /// After a failure it is not asked before.
    asked_from: Option<Instant>,
}

/// What a request said of a partition, and what is renewed by it.
pub(super) struct Said {
    partition: TopicIdAndPartition,
    batches: Vec<Batch>,
    renewed: Vec<ShareRecord>,
}

pub(super) struct Answered {
    node: i32,
    said: Vec<Said>,
    result: Result<Answer, ClientError>,
}

enum Answer {
    Fetch(ShareFetchResponse),
    Acknowledge(ShareAcknowledgeResponse),
}

impl ShareConsumer {
    /// Asks every leader that is not being asked.
    pub(super) async fn start_fetches(&mut self) -> Result<(), ClientError> {
        let assignment = match &self.membership {
            Some(membership) => membership.assignment(),
            None => return Ok(()),
        };
        let metadata = self.metadata_of(assignment.keys().copied()).await?;
        let mut wanted: BTreeMap<i32, BTreeSet<TopicIdAndPartition>> = BTreeMap::new();
        // Those that have nothing any more are told so.
        for (id, node) in &self.nodes {
            if !node.session.partitions().is_empty() || self.has_said(*id) {
                wanted.entry(*id).or_default();
            }
        }
        for (topic_id, partitions) in assignment {
            let Some(name) = metadata.topic_name(topic_id) else {
                continue;
            };
            for index in partitions {
                let leader = metadata.partition(name, index).map(|it| it.leader);
                if let Some(leader) = leader.filter(|leader| *leader >= 0) {
                    wanted.entry(leader).or_default().insert((topic_id, index));
                }
            }
        }
        let now = Instant::now();
        for (id, wanted) in wanted {
            let node = self.nodes.entry(id).or_default();
            if node.is_busy || node.asked_from.is_some_and(|from| from > now) {
                continue;
            }
            let is_said_of_others = self.in_hand.iter().any(|((of, partition), in_hand)| {
                *of == id && in_hand.has_said() && !wanted.contains(partition)
            });
            match is_said_of_others && self.nodes[&id].session.is_open() {
                true => self.start_acknowledge(id, false),
                false => self.start_fetch(id, &wanted),
            }
        }
        Ok(())
    }

    /// Asks for names and leaders where they are not known, or known to be of the past.
    async fn metadata_of(
        &mut self,
        ids: impl Iterator<Item = Uuid>,
    ) -> Result<std::sync::Arc<Metadata>, ClientError> {
        let metadata = self.client.metadata();
        let ids: Vec<Uuid> = ids.collect();
        let unknown = ids.iter().any(|id| metadata.topic_name(*id).is_none());
        let is_old = self.client.metadata_age() > self.client.config().metadata_max_age;
        if !ids.is_empty() && (unknown || is_old || std::mem::take(&mut self.is_stale)) {
            return self.client.refresh_topic_ids(&ids).await;
        }
        Ok(metadata)
    }

    fn has_said(&self, node: i32) -> bool {
        let mut in_hand = self.in_hand.iter();
        in_hand.any(|((of, _), in_hand)| *of == node && in_hand.has_said())
    }

    /// Takes what is to be said to a broker, if there is a session in which it can be.
    fn take_said(&mut self, node: i32) -> Vec<Said> {
        let is_open = self
            .nodes
            .get(&node)
            .is_some_and(|node| node.session.is_open());
        if !is_open {
            return Vec::new();
        }
        let of_node = self.in_hand.iter_mut().filter(|((of, _), _)| *of == node);
        let said = of_node.filter_map(|((_, partition), in_hand)| {
            let (batches, renewed) = in_hand.take_said();
            (!batches.is_empty()).then_some(Said {
                partition: *partition,
                batches,
                renewed,
            })
        });
        said.collect()
    }

    fn start_fetch(&mut self, id: i32, wanted: &BTreeSet<TopicIdAndPartition>) {
        let said = self.take_said(id);
        let node = self.nodes.entry(id).or_default();
        let change = node.session.next_fetch(wanted);
        if change.epoch == 0 && wanted.is_empty() {
            return;
        }
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
        self.start(id, said, async move |client, owner| {
            let connection = client.node_of(id, Some(owner)).await?;
            let response = connection.send_waiting(&request, held_back).await?;
            Ok(Answer::Fetch(response))
        });
    }

    /// Says what is to be said, and asks for nothing. The last one ends the session.
    pub(super) fn start_acknowledge(&mut self, id: i32, is_last: bool) {
        let said = self.take_said(id);
        let Some(node) = self.nodes.get(&id).filter(|node| node.session.is_open()) else {
            return;
        };
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
            share_session_epoch: match is_last {
                true => FINAL_EPOCH,
                false => node.session.epoch(),
            },
            is_renew_ack: said.iter().any(|it| !it.renewed.is_empty()),
            topics: one_of_each(topics.collect()),
            ..Default::default()
        };
        self.start(id, said, async move |client, owner| {
            let connection = client.node_of(id, Some(owner)).await?;
            let response = connection.send(&request).await?;
            Ok(Answer::Acknowledge(response))
        });
    }

    fn start<F>(
        &mut self,
        node: i32,
        said: Vec<Said>,
        ask: impl FnOnce(Client, Owner) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<Answer, ClientError>> + Send + 'static,
    {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.is_busy = true;
        }
        let (client, owner) = (self.client.clone(), self.owner);
        self.requests.spawn(async move {
            let result = ask(client, owner).await;
            Answered { node, said, result }
        });
    }

    /// Takes in what a broker has answered.
    pub(super) fn on_answered(&mut self, answered: Answered) -> Result<(), ClientError> {
        let Answered { node, said, result } = answered;
        self.nodes.entry(node).or_default().is_busy = false;
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
            Err(error) => return self.on_failed(node, said, error),
        };
        self.nodes.entry(node).or_default().session.on_answered();
        match answer {
            Answer::Fetch(response) => {
                self.on_lock_timeout(response.acquisition_lock_timeout_ms);
                let mut failed = Ok(());
                let mut errors = BTreeMap::new();
                for topic in response.responses {
                    for partition in topic.partitions {
                        let key = (topic.topic_id, partition.partition_index);
                        let code = partition.acknowledge_error_code;
                        let message = partition.acknowledge_error_message.clone();
                        errors.insert(key, (code, message));
                        let taken = self.on_fetched(node, key, partition);
                        failed = failed.and(taken);
                    }
                }
                self.settle(node, said, |partition| errors.get(&partition).cloned());
                failed
            }
            Answer::Acknowledge(response) => {
                self.on_lock_timeout(response.acquisition_lock_timeout_ms);
                let mut errors = BTreeMap::new();
                for topic in response.responses {
                    for partition in topic.partitions {
                        let key = (topic.topic_id, partition.partition_index);
                        errors.insert(key, (partition.error_code, partition.error_message));
                    }
                }
                self.settle(node, said, |partition| errors.get(&partition).cloned());
                Ok(())
            }
        }
    }

    fn on_lock_timeout(&mut self, timeout_ms: i32) {
        if let Ok(timeout_ms @ 1..) = u64::try_from(timeout_ms) {
            self.lock_timeout = Some(std::time::Duration::from_millis(timeout_ms));
        }
    }

    /// The session is over, and what was said in it has not been heard.
    fn on_failed(
        &mut self,
        id: i32,
        said: Vec<Said>,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let node = self.nodes.entry(id).or_default();
        node.session.on_failed();
        node.asked_from = Some(Instant::now() + self.client.config().retry_backoff);
        self.is_stale = true;
        self.tell(id, said, |_| Err(error.clone()));
        let is_about_session = matches!(
            error.code(),
            Some(
                ErrorCode::ShareSessionNotFound
                    | ErrorCode::InvalidShareSessionEpoch
                    | ErrorCode::ShareSessionLimitReached
            )
        );
        match is_about_session || error.is_retriable() {
            true => {
                tracing::debug!(%error, "a share session ended; another one is begun");
                Ok(())
            }
            false => Err(error),
        }
    }

    fn settle(
        &mut self,
        node: i32,
        said: Vec<Said>,
        error_of: impl Fn(TopicIdAndPartition) -> Option<(i16, Option<bytestring::ByteString>)>,
    ) {
        let group = self.config.group_id.clone();
        self.tell(node, said, |partition| {
            let (code, message) = error_of(partition).unwrap_or_default();
            let what = format!("acknowledging records of share group {group}");
            ClientError::check(what, code, message.as_deref())
        });
    }

    /// Tells whoever wants to know, and gives again what is renewed.
    fn tell(
        &mut self,
        node: i32,
        said: Vec<Said>,
        result_of: impl Fn(TopicIdAndPartition) -> Result<(), ClientError>,
    ) {
        for said in said {
            let result = result_of(said.partition);
            let Some(name) = self.name_of(said.partition.0) else {
                continue;
            };
            let partition: Partition = (name.to_string(), said.partition.1);
            if let Some(listener) = &mut self.listener {
                let batches = said.batches.iter();
                let offsets: Vec<i64> = batches
                    .flat_map(|batch| batch.first_offset..=batch.last_offset)
                    .collect();
                listener(&partition, &offsets, &result);
            }
            if result.is_ok() {
                let key = (node, said.partition);
                let renewed = said.renewed.into_iter();
                self.renewed.extend(renewed.map(|record| (key, record)));
            }
            // One failure is what is told of a partition.
            let told = self.committed.entry(partition).or_insert(Ok(()));
            if told.is_ok() {
                *told = result;
            }
        }
    }

    fn on_fetched(
        &mut self,
        node: i32,
        key: TopicIdAndPartition,
        data: PartitionData,
    ) -> Result<(), ClientError> {
        let code = ErrorCode::from_code(data.error_code);
        match code {
            ErrorCode::None => {}
            ErrorCode::UnknownServerError => self.pause(node),
            _ if code.is_retriable() || code == ErrorCode::UnknownTopicId => {
                self.is_stale = true;
                self.pause(node);
            }
            _ => {
                let name = self.name_of(key.0);
                let what = format!("{}-{}", name.as_deref().unwrap_or("a topic"), key.1);
                let message = data.error_message.as_deref();
                return Err(ClientError::broker(what, data.error_code, message));
            }
        }
        let Some(first) = data.acquired_records.first() else {
            return Ok(());
        };
        let mut deliveries: BTreeMap<i64, i16> = BTreeMap::new();
        for acquired in &data.acquired_records {
            let offsets = acquired.first_offset..=acquired.last_offset;
            deliveries.extend(offsets.map(|offset| (offset, acquired.delivery_count)));
        }
        let records = data.records.as_ref();
        let bytes = records.and_then(|records| records.as_bytes().cloned());
        let Some(name) = self.name_of(key.0) else {
            // A topic that is gone by now.
            return Ok(());
        };
        let mut fetch = CompletedFetch::new(
            name.clone(),
            key.1,
            bytes.unwrap_or_default(),
            first.first_offset,
            Vec::new(),
            self.config.check_crcs,
        );
        let in_hand = self.in_hand.entry((node, key)).or_default();
        loop {
            match fetch.next_record() {
                Ok(Some(record)) => {
                    if let Some(delivery_count) = deliveries.remove(&record.offset) {
                        let record = ShareRecord {
                            record,
                            delivery_count,
                        };
                        self.fetched.push_back(((node, key), record));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    return Err(ClientError::Records {
                        partition: format!("{name}-{}", key.1),
                        error,
                    });
                }
            }
        }
        for offset in deliveries.into_keys() {
            in_hand.on_gap(offset);
        }
        Ok(())
    }

    fn pause(&mut self, node: i32) {
        let backoff = self.client.config().retry_backoff;
        self.nodes.entry(node).or_default().asked_from = Some(Instant::now() + backoff);
    }
}

fn said_of<T>(partition: TopicIdAndPartition, said: &[Said], wire: impl Fn(&Batch) -> T) -> Vec<T> {
    let of_partition = said.iter().filter(|it| it.partition == partition);
    of_partition.flat_map(|it| &it.batches).map(wire).collect()
}

/// Each topic once, with all of its partitions.
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
