//! The request for the markers of several transactions, and what its response says of each.

use ottla_coordinator::transaction::Markers;
use ottla_protocol::messages::write_txn_markers_request::{
    WritableTxnMarker, WritableTxnMarkerTopic,
};
use ottla_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, TopicName, TopicPartition};

pub fn request_of<'a>(markers: impl Iterator<Item = &'a Markers>) -> WriteTxnMarkersRequest {
    WriteTxnMarkersRequest {
        markers: markers.map(marker_of).collect(),
        ..Default::default()
    }
}

fn marker_of(markers: &Markers) -> WritableTxnMarker {
    let mut topics: Vec<WritableTxnMarkerTopic> = Vec::new();
    let mut places: HashMap<&TopicName, usize> = HashMap::default();
    for partition in &markers.partitions {
        let place = *places.entry(&partition.topic).or_insert_with(|| {
            topics.push(WritableTxnMarkerTopic {
                name: partition.topic.clone(),
                ..Default::default()
            });
            topics.len() - 1
        });
        topics[place].partition_indexes.push(partition.partition.0);
    }
    WritableTxnMarker {
        producer_id: markers.producer.id.0,
        producer_epoch: markers.producer.epoch.0,
        transaction_result: markers.end.is_commit,
        topics,
        coordinator_epoch: markers.end.coordinator_epoch,
        transaction_version: markers.end.transaction_version as i8,
        ..Default::default()
    }
}

/// The results of a response, by producer ID and partition.
#[derive(Debug, Default)]
pub struct AnsweredMarkers(HashMap<(i64, TopicPartition), ErrorCode>);

impl AnsweredMarkers {
    pub fn of(response: &WriteTxnMarkersResponse) -> AnsweredMarkers {
        let mut answered = HashMap::default();
        for marker in &response.markers {
            for topic in &marker.topics {
                for partition in &topic.partitions {
                    let index = partition.partition_index;
                    let of_topic = TopicPartition::new(topic.name.clone(), index);
                    let error = ErrorCode::from_code(partition.error_code);
                    answered.insert((marker.producer_id, of_topic), error);
                }
            }
        }
        AnsweredMarkers(answered)
    }

    /// The results for a transaction, without the partitions that the response does not name.
    pub fn to(&self, markers: &Markers) -> Vec<(TopicPartition, ErrorCode)> {
        let producer_id = markers.producer.id.0;
        let answers = markers.partitions.iter().filter_map(|partition| {
            let error = self.0.get(&(producer_id, partition.clone()))?;
            Some((partition.clone(), *error))
        });
        answers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_coordinator::{TransactionEnd, TransactionalProducer};
    use ottla_protocol::messages::write_txn_markers_response::{
        WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
    };
    use ottla_types::{ProducerEpoch, ProducerId};

    fn markers(producer_id: i64, partitions: &[(&'static str, i32)]) -> Markers {
        let partitions = partitions.iter();
        Markers {
            transactional_id: "id".into(),
            producer: TransactionalProducer {
                id: ProducerId(producer_id),
                epoch: ProducerEpoch(3),
            },
            end: TransactionEnd {
                is_commit: true,
                coordinator_epoch: 2,
                transaction_version: 2,
            },
            partitions: partitions
                .map(|&(topic, index)| TopicPartition::new(topic, index))
                .collect(),
        }
    }

    #[test]
    fn each_partition_gets_the_result_of_its_transaction() {
        let first = markers(1, &[("a", 0), ("b", 0), ("a", 1)]);
        let second = markers(2, &[("a", 0)]);
        let request = request_of([&first, &second].into_iter());
        let topics = &request.markers[0].topics;
        assert_eq!(topics.len(), 2, "each topic once");
        assert_eq!(topics[0].partition_indexes, [0, 1]);
        assert_eq!(request.markers[1].producer_id, 2);

        let fenced = ErrorCode::InvalidProducerEpoch;
        let result = |producer_id, topic: &'static str, results: &[(i32, ErrorCode)]| {
            let partitions =
                results
                    .iter()
                    .map(|(index, error)| WritableTxnMarkerPartitionResult {
                        partition_index: *index,
                        error_code: error.code(),
                        ..Default::default()
                    });
            WritableTxnMarkerResult {
                producer_id,
                topics: vec![WritableTxnMarkerTopicResult {
                    name: topic.into(),
                    partitions: partitions.collect(),
                    ..Default::default()
                }],
                ..Default::default()
            }
        };
        let response = WriteTxnMarkersResponse {
            markers: vec![
                result(1, "a", &[(1, ErrorCode::None), (0, fenced)]),
                result(2, "a", &[(0, ErrorCode::None)]),
            ],
            ..Default::default()
        };
        let answered = AnsweredMarkers::of(&response);
        let of = |topic: &'static str, index| TopicPartition::new(topic, index);
        assert_eq!(
            answered.to(&first),
            [(of("a", 0), fenced), (of("a", 1), ErrorCode::None)],
            "b is not named"
        );
        assert_eq!(answered.to(&second), [(of("a", 0), ErrorCode::None)]);
    }
}
