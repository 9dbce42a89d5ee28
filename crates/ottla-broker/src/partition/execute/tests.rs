//! What becomes of flushes and maintenance when the disk is full or fails.

use std::io::ErrorKind;

use super::*;
use crate::tests::TestBroker;

fn error(kind: ErrorKind) -> StorageError {
    StorageError {
        action: "create",
        path: "spare.log.deleted".into(),
        error: kind.into(),
    }
}

/// A partition with a flush under way and another wanted up to here.
async fn flushing(wanted: Option<Offset>) -> (TestBroker, Arc<Partition>) {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]);
    let partition = broker.partition("orders", 0);
    partition.stepped.lock().flush = FlushState::Running(wanted);
    (broker, partition)
}

fn flush_of(partition: &Partition) -> FlushState {
    partition.stepped.lock().flush
}

#[tokio::test]
async fn maintenance_that_fails_leaves_the_flush_alone() {
    let (broker, partition) = flushing(Some(Offset(5))).await;
    let failed = PartitionEvent::JobFailed(error(ErrorKind::StorageFull));
    partition.put(broker.broker(), failed);
    assert_eq!(flush_of(&partition), FlushState::Running(Some(Offset(5))));
    assert!(partition.is_leader());
    let failed = PartitionEvent::JobFailed(error(ErrorKind::Other));
    partition.put(broker.broker(), failed);
    assert!(!partition.is_leader());
}

#[tokio::test]
async fn a_flush_that_a_full_disk_refused_is_tried_again_with_what_was_wanted_meanwhile() {
    for (wanted, kept) in [(None, 3), (Some(Offset(7)), 7)] {
        let (broker, partition) = flushing(wanted).await;
        let refused = PartitionEvent::FlushEnded {
            up_to: Offset(3),
            result: Err(error(ErrorKind::StorageFull)),
        };
        partition.put(broker.broker(), refused);
        assert_eq!(
            flush_of(&partition),
            FlushState::Running(Some(Offset(kept)))
        );
        let deadline = Instant::now() + 10 * FLUSH_RETRY;
        while flush_of(&partition) != FlushState::Idle {
            assert!(Instant::now() < deadline, "nobody tries again");
            tokio::time::sleep(2 * FLUSH_RETRY).await;
        }
        assert!(partition.is_leader());
    }
}
