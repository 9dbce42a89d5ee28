//! The markers of an ended transaction.

use std::time::Duration;

use ottla_coordination::transactions::{AnsweredMarkers, request_of};
use ottla_coordinator::transaction::Markers;
use ottla_coordinator::{TransactionEnd, TransactionalProducer};
use ottla_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use ottla_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use crate::measure::{Row, best_of};

pub const ROW: Row = Row {
    name: "transaction-markers",
    operation: "one partition of a request for markers and of its response",
    counted: "partitions of the transaction, 10 per topic",
    smallest: 100,
    measure: one_partition,
};

const PARTITIONS_OF_TOPIC: i32 = 10;

fn one_partition(count: u64) -> Duration {
    let partitions = (0..count as i32).map(|number| {
        let topic = format!("topic-{}", number / PARTITIONS_OF_TOPIC);
        TopicPartition::new(topic, number % PARTITIONS_OF_TOPIC)
    });
    let markers = Markers {
        transactional_id: "id".into(),
        producer: TransactionalProducer {
            id: ProducerId(1),
            epoch: ProducerEpoch(0),
        },
        end: TransactionEnd {
            is_commit: true,
            coordinator_epoch: 1,
            transaction_version: 2,
        },
        partitions: partitions.collect(),
    };
    let response = answer(&request_of(std::iter::once(&markers)));
    best_of(count as u32, || {
        let request = request_of(std::iter::once(&markers));
        assert_eq!(request.markers.len(), 1);
        let answers = AnsweredMarkers::of(&response).to(&markers);
        assert_eq!(answers.len() as u64, count);
    })
}

/// All markers are written.
fn answer(request: &WriteTxnMarkersRequest) -> WriteTxnMarkersResponse {
    let results = request.markers.iter().map(|marker| {
        let topics = marker.topics.iter().map(|topic| {
            let partitions = topic.partition_indexes.iter();
            WritableTxnMarkerTopicResult {
                name: topic.name.clone(),
                partitions: partitions
                    .map(|index| WritableTxnMarkerPartitionResult {
                        partition_index: *index,
                        error_code: ErrorCode::None.code(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }
        });
        WritableTxnMarkerResult {
            producer_id: marker.producer_id,
            topics: topics.collect(),
            ..Default::default()
        }
    });
    WriteTxnMarkersResponse {
        markers: results.collect(),
        ..Default::default()
    }
}
