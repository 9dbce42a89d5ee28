//! WriteTxnMarkers: a transaction coordinator, or an administrator that aborts a hanging
//! transaction, writes markers to partitions of this broker. Kafka:
//! `KafkaApis.handleWriteTxnMarkersRequest`.

use std::sync::Arc;

use ottla_coordinator::{TransactionEnd, TransactionalProducer};
use ottla_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use ottla_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use ottla_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use ottla_sync::task::JoinSet;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use ottla_coordination::transactions::{EndedTransaction, write_markers};
use ottla_net::{Operation, RequestContext, ResourceType};

use super::merged::merge_by;
use crate::Broker;

/// The resource name of the cluster in ACLs.
const CLUSTER: &str = "kafka-cluster";

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: WriteTxnMarkersRequest,
) -> WriteTxnMarkersResponse {
    let authorizer = &broker.authorizer;
    let (alter, act, cluster) = (
        Operation::Alter,
        Operation::ClusterAction,
        ResourceType::Cluster,
    );
    if !authorizer.is_allowed_quietly(context, alter, cluster, CLUSTER)
        && !authorizer.is_allowed(context, act, cluster, CLUSTER)
    {
        let markers = request.markers.iter().map(|marker| {
            let partitions = partitions_of(marker);
            let refused = partitions.map(|it| (it, ErrorCode::ClusterAuthorizationFailed));
            result(marker.producer_id, refused.collect())
        });
        return WriteTxnMarkersResponse {
            markers: markers.collect(),
            ..Default::default()
        };
    }
    let mut writing = JoinSet::new();
    for marker in request.markers {
        let ended = EndedTransaction {
            producer: TransactionalProducer {
                id: ProducerId(marker.producer_id),
                epoch: ProducerEpoch(marker.producer_epoch),
            },
            end: TransactionEnd {
                is_commit: marker.transaction_result,
                coordinator_epoch: marker.coordinator_epoch,
                transaction_version: i16::from(marker.transaction_version),
            },
        };
        let partitions = partitions_of(&marker).collect();
        let broker = Arc::clone(broker);
        writing.spawn(async move {
            let written = write_markers(&broker.groups, ended, partitions).await;
            result(marker.producer_id, written)
        });
    }
    let mut results = Vec::new();
    while let Some(written) = writing.join_next().await {
        // A panic was reported where it happened.
        let Ok(written) = written else {
            continue;
        };
        results.push(written);
    }
    let mut markers = Vec::new();
    let producer_id = |it: &WritableTxnMarkerResult| it.producer_id;
    merge_by(&mut markers, results, producer_id, |known, written| {
        known.topics.extend(written.topics);
    });
    WriteTxnMarkersResponse {
        markers,
        ..Default::default()
    }
}

fn partitions_of(marker: &WritableTxnMarker) -> impl Iterator<Item = TopicPartition> + '_ {
    marker.topics.iter().flat_map(|topic| {
        let indexes = topic.partition_indexes.iter();
        indexes.map(|index| TopicPartition::new(topic.name.clone(), *index))
    })
}

fn result(producer_id: i64, written: Vec<(TopicPartition, ErrorCode)>) -> WritableTxnMarkerResult {
    let of_partitions = written.into_iter().map(|(partition, error)| {
        let result = WritableTxnMarkerPartitionResult {
            partition_index: partition.partition.0,
            error_code: error.code(),
            ..Default::default()
        };
        WritableTxnMarkerTopicResult {
            name: partition.topic,
            partitions: vec![result],
            ..Default::default()
        }
    });
    let mut topics = Vec::new();
    let name = |it: &WritableTxnMarkerTopicResult| it.name.clone();
    merge_by(&mut topics, of_partitions, name, |known, topic| {
        known.partitions.extend(topic.partitions);
    });
    WritableTxnMarkerResult {
        producer_id,
        topics,
        ..Default::default()
    }
}
