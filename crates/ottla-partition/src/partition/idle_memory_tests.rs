//! Heap memory of an idle partition. With `--nocapture` the test prints the sizes.

use ottla_log::Log;
use ottla_metadata::PartitionRegistration;
use ottla_records::RecordBatch;
use ottla_replica::{Effect, Replica};
use ottla_types::Uuid;

use super::append::Ack;
use super::event::PartitionEvent;
use super::{Partition, PartitionState};
use crate::test_host::{TestHost, led_topic};

/// Each has a file open until it has been idle for a while.
const PARTITIONS: i32 = 400;
/// With its registration in the metadata and its places in the maps of the broker.
const MOST_BYTES: i64 = 2_600;
/// The allocator's block for a partition and its two reference counts; the next one has 1,280 bytes.
const BLOCK_BYTES: usize = 1_024;

#[tokio::test]
async fn an_idle_partition_is_small() {
    let host = TestHost::start();
    // Registers the broker, and makes the allocations of the first partition.
    host.lead(&[]);
    let used = allocation_counter::measure(|| {
        host.apply(led_topic("idle", Uuid::from_u128(99), PARTITIONS))
    });
    let each = used.bytes_current / i64::from(PARTITIONS);
    println!("| type | bytes |\n| --- | --- |");
    for (name, bytes) in [
        ("Partition, with its state", size_of::<Partition>()),
        (
            "PartitionState, with log and replica",
            size_of::<PartitionState>(),
        ),
        ("Log", size_of::<Log>()),
        ("Replica", size_of::<Replica<Ack>>()),
        (
            "PartitionEvent, one in the inbox",
            size_of::<PartitionEvent>(),
        ),
        ("Effect, none kept", size_of::<Effect<Ack>>()),
        ("RecordBatch, none kept", size_of::<RecordBatch>()),
        ("PartitionRegistration", size_of::<PartitionRegistration>()),
    ] {
        println!("| {name} | {bytes} |");
    }
    println!("| heap of an idle partition | {each} |");
    assert!(each > 0, "nothing was counted");
    assert!(each <= MOST_BYTES, "{each} bytes");
    let block = size_of::<Partition>() + 2 * size_of::<usize>();
    assert!(block <= BLOCK_BYTES, "{block} bytes in one block");
}
