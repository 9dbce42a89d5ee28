use ottla_sync::atomic::{AtomicUsize, Ordering};

use ottla_metadata::Provenance;
use ottla_protocol::messages::assign_replicas_to_dirs_response as response;
use ottla_protocol::metadata_records::{MetadataRecord, PartitionRecord, TopicRecord};
use ottla_types::Uuid;

use super::*;

const TOPIC: TopicId = Uuid::from_u128(2001);
const GONE: TopicId = Uuid::from_u128(2002);
const FIRST: DirectoryId = Uuid::from_u128(3001);
const SECOND: DirectoryId = Uuid::from_u128(3002);

/// A topic whose replicas are all on broker 1.
fn image(partitions: i32) -> MetadataImage {
    let mut records = vec![MetadataRecord::Topic(TopicRecord {
        name: "orders".into(),
        topic_id: TOPIC,
        ..Default::default()
    })];
    records.extend((0..partitions).map(|partition_id| {
        MetadataRecord::Partition(PartitionRecord {
            partition_id,
            topic_id: TOPIC,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            ..Default::default()
        })
    }));
    let applied = MetadataImage::empty().apply(&records, Provenance::EMPTY);
    applied.expect("good records").0
}

fn queue(assignments: &[(TopicId, i32, DirectoryId)]) -> Queue {
    let mut queue = Queue::default();
    for (topic_id, index, directory) in assignments {
        let assignment = Assignment {
            directory: *directory,
            on_assigned: None,
        };
        queue
            .ready
            .insert((*topic_id, PartitionIndex(*index)), assignment);
    }
    queue
}

/// The partitions of each directory in the request.
fn named(request: &AssignReplicasToDirsRequest) -> Vec<(DirectoryId, Vec<i32>)> {
    let partitions = |directory: &DirectoryData| {
        let topics = directory.topics.iter();
        let all = topics.flat_map(|topic| &topic.partitions);
        all.map(|partition| partition.partition_index).collect()
    };
    let directories = request.directories.iter();
    directories.map(|dir| (dir.id, partitions(dir))).collect()
}

fn answer(request: &AssignReplicasToDirsRequest, code: ErrorCode) -> AssignReplicasToDirsResponse {
    AssignReplicasToDirsResponse {
        directories: request
            .directories
            .iter()
            .map(|directory| response::DirectoryData {
                id: directory.id,
                topics: directory
                    .topics
                    .iter()
                    .map(|topic| response::TopicData {
                        topic_id: topic.topic_id,
                        partitions: topic
                            .partitions
                            .iter()
                            .map(|partition| response::PartitionData {
                                partition_index: partition.partition_index,
                                error_code: code.code(),
                                ..Default::default()
                            })
                            .collect(),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

#[test]
fn requests_list_replicas_by_directory_without_deleted_ones() {
    let mut queue = queue(&[
        (TOPIC, 0, FIRST),
        (TOPIC, 1, SECOND),
        (TOPIC, 2, FIRST),
        (TOPIC, 9, FIRST),
        (GONE, 0, FIRST),
    ]);
    let request = queue.take(BrokerId(1), &image(3)).unwrap();
    assert_eq!(named(&request), [(FIRST, vec![0, 2]), (SECOND, vec![1])]);
    assert_eq!(queue.delay(), None, "the other assignments are obsolete");
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let of_first = queue.in_flight.get_mut(&(TOPIC, PartitionIndex(0)));
    of_first.unwrap().on_assigned = Some(Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    for on_assigned in queue.on_response(Ok(answer(&request, ErrorCode::None))) {
        on_assigned();
    }
    assert_eq!(notified.load(Ordering::Relaxed), 1);
    assert_eq!(queue.delay(), None);
    let of_another = super::tests::queue(&[(TOPIC, 0, FIRST)]).take(BrokerId(2), &image(1));
    assert_eq!(of_another, None, "it has no such replica");
}

#[test]
fn a_refused_assignment_is_retried_unless_replaced() {
    let mut queue = queue(&[(TOPIC, 0, FIRST), (TOPIC, 1, FIRST)]);
    let request = queue.take(BrokerId(1), &image(2)).unwrap();
    let replacing = Assignment {
        directory: SECOND,
        on_assigned: None,
    };
    queue.ready.insert((TOPIC, PartitionIndex(0)), replacing);
    queue.on_response(Ok(answer(&request, ErrorCode::UnknownTopicOrPartition)));
    let again = queue.take(BrokerId(1), &image(2)).unwrap();
    assert_eq!(named(&again), [(FIRST, vec![1]), (SECOND, vec![0])]);
}

#[test]
fn failed_requests_are_retried_with_backoff() {
    let mut queue = queue(&[(TOPIC, 0, FIRST)]);
    let mut delays = Vec::new();
    for _ in 0..9 {
        queue.take(BrokerId(1), &image(1)).unwrap();
        queue.on_response(Err(ErrorCode::KafkaStorageError));
        delays.push(queue.delay().unwrap().as_millis());
    }
    assert_eq!(
        delays,
        [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]
    );
    let request = queue.take(BrokerId(1), &image(1)).unwrap();
    queue.on_response(Ok(answer(&request, ErrorCode::None)));
    assert_eq!(queue.failures, 0);
}

/// A refusal may be for good. It must not delay other replicas.
#[test]
fn refused_assignments_are_retried_with_backoff() {
    let mut queue = queue(&[(TOPIC, 0, FIRST)]);
    let mut delays = Vec::new();
    for _ in 0..8 {
        let request = queue.take(BrokerId(1), &image(2)).unwrap();
        queue.on_response(Ok(answer(&request, ErrorCode::UnknownTopicOrPartition)));
        delays.push(queue.delay().unwrap().as_millis());
    }
    assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
    let another = || Assignment {
        directory: SECOND,
        on_assigned: None,
    };
    assert!(queue.add((TOPIC, PartitionIndex(1)), another()));
    assert!(!queue.add((TOPIC, PartitionIndex(1)), another()));
    assert_eq!(queue.delay(), Some(GATHER));
    let request = queue.take(BrokerId(1), &image(2)).unwrap();
    assert_eq!(named(&request), [(FIRST, vec![0]), (SECOND, vec![1])]);
}

#[test]
fn a_full_request_is_followed_by_the_next_at_once() {
    let count = MAX_ASSIGNMENTS_PER_REQUEST as i32 + 5;
    let all: Vec<_> = (0..count).map(|index| (TOPIC, index, FIRST)).collect();
    let mut queue = queue(&all);
    assert_eq!(queue.delay(), Some(Duration::ZERO));
    let request = queue.take(BrokerId(1), &image(count)).unwrap();
    assert_eq!(named(&request)[0].1.len(), MAX_ASSIGNMENTS_PER_REQUEST);
    queue.on_response(Ok(answer(&request, ErrorCode::None)));
    let rest = queue.take(BrokerId(1), &image(count)).unwrap();
    assert_eq!(named(&rest)[0].1.len(), 5);
}
