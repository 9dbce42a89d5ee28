//! Sending and reading a record allocates nothing; only batches allocate.
//!
//! Allocations are counted in the whole process, so this file has only one test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use ottla_client::{ConsumerConfig, OfflineConsumer, OfflineProducer, ProducerConfig, RecordRef};
use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
use ottla_types::{Offset, Timestamp};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls go to the system allocator, which fulfils the contract; the counter does not
// touch its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller fulfils the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: it came from the system's allocator.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: it came from the system's allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RECORDS: usize = 20_000;
const VALUE: [u8; 100] = [b'x'; 100];
/// A batch of `batch.size` contains about 150 of these records.
const FEWEST_IN_A_BATCH: usize = 100;

/// The number of calls that have allocated anything.
fn allocating(mut call: impl FnMut(usize)) -> usize {
    let mut count = 0;
    for index in 0..RECORDS {
        let before = ALLOCATIONS.load(Relaxed);
        call(index);
        count += usize::from(ALLOCATIONS.load(Relaxed) != before);
    }
    count
}

#[test]
fn only_batches_are_allocated() {
    let headers = [RecordHeader::new("trace", Some(Bytes::from_static(b"1")))];
    let keys: Vec<String> = (0..64).map(|key| key.to_string()).collect();
    let plain = |_| RecordRef::new("topic", &VALUE);
    let with_key = |index: usize| RecordRef {
        key: Some(keys[index % keys.len()].as_bytes()),
        headers: &headers,
        ..RecordRef::new("topic", &VALUE)
    };
    for compression in [Compression::None, Compression::Snappy] {
        let config = ProducerConfig {
            compression,
            buffer_memory: 64 << 20,
            ..ProducerConfig::default()
        };
        let mut producer =
            OfflineProducer::new(config, "topic", 6).expect("settings that go together");
        let mut sent = |what: &str, send: &dyn Fn(&OfflineProducer, usize)| {
            // Buffers that grow on first use have grown before the second round.
            for is_counted in [false, true] {
                let count = allocating(|index| send(&producer, index));
                assert!(producer.deliver_all() > RECORDS);
                // A batch allocates in the call that begins it, and in another one if its room,
                // which follows the compression ratio, is larger than that of the buffer it got.
                // Which partition, and so which buffer, is random.
                let calls_per_batch = if compression == Compression::None {
                    1
                } else {
                    2
                };
                let most = calls_per_batch * RECORDS / FEWEST_IN_A_BATCH;
                assert!(
                    !is_counted || count <= most,
                    "{what}, {compression:?}: {count} of {RECORDS} calls allocate"
                );
            }
        };
        sent("tagged", &|producer, index| {
            producer.try_send_tagged(plain(index), 1).expect("room");
        });
        sent("with deliveries", &|producer, index| {
            producer.try_send(plain(index)).expect("room");
        });
        sent("with keys and headers", &|producer, index| {
            producer.try_send(with_key(index)).expect("room");
        });
    }
    read();
}

fn read() {
    let mut batch = RecordBatchBuilder::new(Compression::None).base_offset(Offset(0));
    for _ in 0..RECORDS {
        batch.append(
            Timestamp(1_700_000_000_000),
            Some(b"key"),
            Some(&VALUE),
            &[],
        );
    }
    let config = ConsumerConfig {
        max_poll_records: RECORDS,
        ..ConsumerConfig::default()
    };
    let mut consumer = OfflineConsumer::new(config, "topic");
    consumer.answer(batch.build_in_place());
    let batches = consumer.take_batches().expect("a whole batch");
    let mut records = batches.iter().flat_map(|batch| batch.iter());
    let count = allocating(|_| {
        let record = records
            .next()
            .expect("one for each")
            .expect("a whole record");
        assert_eq!(record.value.map(<[u8]>::len), Some(VALUE.len()));
    });
    assert!(records.next().is_none());
    // When a batch is opened.
    assert!(count <= 1, "{count} of {RECORDS} records allocate");
}
