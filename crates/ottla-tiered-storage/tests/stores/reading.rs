use std::time::{Duration, Instant};

use futures_util::StreamExt;
use ottla_testkit::fault_server::{FaultKind, FaultServer};
use ottla_tiered_storage::{IndexType, read_all};

use crate::faults::s3;
use crate::segments::{Segment, open, segment};

pub const MEMORY: &[(&str, &str)] = &[
    (
        "rsm.config.fetch.chunk.cache.class",
        "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache",
    ),
    ("rsm.config.fetch.chunk.cache.size", "5000000"),
];

/// As [`MEMORY`], in files.
fn on_disk(path: &str) -> [(&str, &str); 3] {
    [
        (
            "rsm.config.fetch.chunk.cache.class",
            "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache",
        ),
        ("rsm.config.fetch.chunk.cache.path", path),
        ("rsm.config.fetch.chunk.cache.size", "5000000"),
    ]
}

async fn uploaded(server: &FaultServer, dir: &std::path::Path) -> Segment {
    let segment = segment(dir, 10_000_000);
    let store = open(&s3(server, &[("rsm.config.compression.enabled", "true")]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    server.requests();
    segment
}

fn gets(server: &FaultServer) -> usize {
    let requests = server.requests();
    requests.iter().filter(|line| line.contains(".log")).count()
}

/// The number of requests for chunks, when there are as many as expected and no more follow for a while.
async fn settled_gets(server: &FaultServer, expected: usize, a_while: Duration) -> usize {
    let began = Instant::now();
    let mut found = gets(server);
    while found < expected && began.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        found += gets(server);
    }
    tokio::time::sleep(a_while).await;
    found + gets(server)
}

#[tokio::test]
async fn the_first_byte_takes_two_round_trips_and_then_one() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    server.delay(Duration::from_millis(100));
    let store = open(&s3(&server, &[]));
    for (position, round_trips) in [(5_000_000, 2), (8_000_000, 1)] {
        let began = Instant::now();
        let end = position + 10;
        let stream = store
            .fetch_log_segment(&segment.metadata, position, Some(end))
            .await;
        let first = stream.unwrap().next().await.unwrap().unwrap();
        assert_eq!(first, segment.log[position as usize..=end as usize]);
        assert_eq!(server.requests().len(), round_trips);
        assert!(began.elapsed() >= Duration::from_millis(100) * round_trips as u32);
    }
}

#[tokio::test]
async fn without_a_cache_only_the_bytes_that_are_read_of_a_plain_chunk_are_fetched() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = segment(dir.path(), 3_000_000);
    let store = open(&s3(&server, &[]));
    let copy = store.copy_log_segment_data(&segment.metadata, &segment.data);
    copy.await.unwrap();
    let read = async |start: u32, end: u32| {
        server.requests();
        let stream = store.fetch_log_segment(&segment.metadata, start, Some(end));
        let bytes = read_all(stream.await.unwrap()).await.unwrap();
        assert!(bytes == segment.log[start as usize..=end as usize]);
        let mut requests = server.requests();
        requests.retain(|line| line.contains(".log"));
        requests.sort();
        let ranges = requests.iter().map(|line| line.rsplit('=').next());
        ranges
            .map(|range| range.unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(read(1_500_000, 1_500_009).await, ["1500000-1500009"]);
    let both = ["1999990-1999999", "2000000-2000010"];
    assert_eq!(read(1_999_990, 2_000_010).await, both);
}

#[tokio::test]
async fn readers_at_the_same_time_share_the_fetch_of_a_chunk() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    // Each chunk is asked for by all of them before it arrives.
    server.delay(Duration::from_millis(300));
    let store = open(&s3(&server, &[]));
    let read = async || {
        let stream = store.fetch_log_segment(&segment.metadata, 0, None).await;
        assert!(read_all(stream.unwrap()).await.unwrap() == segment.log);
    };
    tokio::join!(read(), read(), read(), read());
    let requests = server.requests();
    assert_eq!(requests.len(), 11, "{requests:?}");
}

#[tokio::test]
async fn a_cache_keeps_chunks_within_its_limit() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().display().to_string();
    let on_disk = on_disk(&path);
    for cache in [MEMORY, &on_disk] {
        let store = open(&s3(&server, cache));
        let read = async |start: u32, end: u32| {
            let stream = store
                .fetch_log_segment(&segment.metadata, start, Some(end))
                .await;
            let bytes = read_all(stream.unwrap()).await.unwrap();
            assert!(bytes == segment.log[start as usize..=end as usize]);
            gets(&server)
        };
        assert_eq!(read(0, 9_999_999).await, 10);
        // Five are kept: the last ones, but for chunks that were fetched at the same time.
        assert!(read(5_000_000, 9_999_999).await <= 2);
        assert_eq!(read(5_000_000, 9_999_999).await, 0);
        assert_eq!(read(5_500_000, 5_500_001).await, 0);
        assert_eq!(read(0, 0).await, 1);
        let files = std::fs::read_dir(disk.path()).unwrap().count();
        assert_eq!(files, if cache == MEMORY { 0 } else { 5 });
    }
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_chunk_whose_file_was_deleted_or_changed_is_fetched_again() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().display().to_string();
    let store = open(&s3(&server, &on_disk(&path)));
    let read = async || {
        let stream = store.fetch_log_segment(&segment.metadata, 0, Some(3_999_999));
        let bytes = read_all(stream.await.unwrap()).await.unwrap();
        assert!(bytes == segment.log[..4_000_000]);
        gets(&server)
    };
    assert_eq!((read().await, read().await), (4, 0));
    for (number, file) in std::fs::read_dir(disk.path()).unwrap().enumerate() {
        let file = file.unwrap().path();
        match number % 2 {
            0 => std::fs::remove_file(file).unwrap(),
            _ => std::fs::write(file, "changed").unwrap(),
        }
    }
    assert_eq!((read().await, read().await), (4, 0));
}

#[tokio::test]
async fn chunks_are_fetched_ahead_of_a_reader_until_it_goes() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    let ahead = ("rsm.config.fetch.chunk.cache.prefetch.max.size", "2000000");
    let all: Vec<(&str, &str)> = MEMORY.iter().copied().chain([ahead]).collect();

    // It reads its whole range: the chunks after that are prefetched for its next request.
    let store = open(&s3(&server, &all));
    let stream = store
        .fetch_log_segment(&segment.metadata, 0, Some(99))
        .await;
    read_all(stream.unwrap()).await.unwrap();
    let a_while = Duration::from_millis(300);
    assert_eq!(settled_gets(&server, 3, a_while).await, 3);
    let stream = store
        .fetch_log_segment(&segment.metadata, 1_000_000, Some(2_000_000))
        .await;
    read_all(stream.unwrap()).await.unwrap();
    // Chunks 3 and 4, ahead of chunks 1 and 2.
    assert_eq!(settled_gets(&server, 2, a_while).await, 2);

    // It stops before the end of its range: only the chunk that it waited for is fetched.
    let store = open(&s3(&server, &all));
    server.fail(".log bytes=", 100, FaultKind::Slow(Duration::from_secs(2)));
    let mut stream = store
        .fetch_log_segment(&segment.metadata, 0, None)
        .await
        .unwrap();
    let first = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
    assert!(first.is_err());
    drop(stream);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = gets(&server);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(gets(&server), 0, "after {begun} had begun");
}

/// Prefetched chunks that displaced each other would all be fetched again.
#[tokio::test]
async fn a_small_cache_limits_the_chunks_that_are_prefetched() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    // Room for one prefetched chunk beside what readers take, and for none.
    for (size, ahead) in [("3000000", 1), ("1500000", 0)] {
        let settings = [
            MEMORY[0],
            ("rsm.config.fetch.chunk.cache.size", size),
            ("rsm.config.fetch.chunk.cache.prefetch.max.size", "8000000"),
        ];
        let store = open(&s3(&server, &settings));
        for half in 0..20_usize {
            let (start, end) = (half * 500_000, half * 500_000 + 499_999);
            let stream = store.fetch_log_segment(&segment.metadata, start as u32, Some(end as u32));
            let bytes = read_all(stream.await.unwrap()).await.unwrap();
            assert!(bytes == segment.log[start..=end]);
            let chunks = match half {
                0 => 1 + ahead,
                _ if half % 2 == 0 && half < 20 - 2 * ahead => 1,
                _ => 0,
            };
            let found = settled_gets(&server, chunks, Duration::from_millis(50)).await;
            assert_eq!(found, chunks, "{size}: half chunk {half}");
        }
    }
}

#[tokio::test]
async fn a_chunk_that_takes_longer_than_its_readers_wait_arrives_nevertheless() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    let store = open(&s3(&server, MEMORY));
    let slow = FaultKind::Slow(Duration::from_secs(2));
    server.fail(".log bytes=", 100, slow);
    for _ in 0..2 {
        let stream = store.fetch_log_segment(&segment.metadata, 0, Some(99));
        let mut stream = stream.await.unwrap();
        let first = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
        assert!(first.is_err());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(gets(&server), 1);
    let stream = store
        .fetch_log_segment(&segment.metadata, 0, Some(99))
        .await;
    let bytes = read_all(stream.unwrap()).await.unwrap();
    assert!(bytes == segment.log[..100]);
    assert_eq!(gets(&server), 0, "it is in the cache");
}

#[tokio::test]
async fn an_index_that_takes_longer_than_its_readers_wait_arrives_nevertheless() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    let store = open(&s3(&server, &[]));
    server.delay(Duration::from_secs(1));
    let limit = Duration::from_millis(50);
    let index = store.fetch_index(&segment.metadata, IndexType::Offset);
    assert!(tokio::time::timeout(limit, index).await.is_err());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let index = store.fetch_index(&segment.metadata, IndexType::Offset);
    // Half of a round trip.
    let index = tokio::time::timeout(10 * limit, index).await;
    assert_eq!(index.expect("it is in the cache").unwrap(), [7; 80][..]);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn the_cache_of_indexes_counts_its_keys_and_entries() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let segment = uploaded(&server, dir.path()).await;
    // The indexes have 80 and 24 bytes.
    let size = ("rsm.config.fetch.indexes.cache.size", "550");
    let store = open(&s3(&server, &[size]));
    let read = async |index| {
        store.fetch_index(&segment.metadata, index).await.unwrap();
        let requests = server.requests();
        let of_indexes = requests.iter().filter(|line| line.contains(".indexes"));
        of_indexes.count()
    };
    let (offset, time) = (IndexType::Offset, IndexType::Timestamp);
    assert_eq!((read(offset).await, read(offset).await), (1, 0));
    assert_eq!((read(time).await, read(time).await), (1, 0));
    assert_eq!(read(offset).await, 1, "displaced");
}

#[tokio::test]
async fn an_offset_index_does_not_wait_for_the_manifest() {
    let server = FaultServer::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut segment = uploaded(&server, dir.path()).await;
    let requests = |server: &FaultServer| {
        let mut requests = server.requests();
        requests.sort();
        let kinds = requests
            .iter()
            .map(|line| line.rsplit('.').next().unwrap_or_default().to_owned());
        kinds.collect::<Vec<_>>()
    };
    // 10,000,000 bytes have 2,442 entries of eight bytes at most, if the interval is the default.
    let both = ["indexes bytes=0-19563", "rsm-manifest"];
    let never = FaultKind::Slow(Duration::from_secs(300));
    server.fail(".rsm-manifest", 1, never);
    let store = open(&s3(&server, &[]));
    let begun = async {
        let mut begun = Vec::new();
        while begun.len() < both.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            begun.extend(requests(&server));
        }
        begun.sort();
        begun
    };
    tokio::select! {
        index = store.fetch_index(&segment.metadata, IndexType::Offset) => {
            panic!("{index:?} without the manifest")
        }
        begun = begun => assert_eq!(begun, both),
    }
    let store = open(&s3(&server, &[]));
    let index = store.fetch_index(&segment.metadata, IndexType::Offset);
    assert_eq!(index.await.unwrap(), [7; 80][..]);
    assert_eq!(requests(&server), both);

    // Larger than expected: it is fetched from its place.
    segment.metadata.segment.segment_size_bytes = 0;
    let store = open(&s3(&server, &[]));
    let index = store.fetch_index(&segment.metadata, IndexType::Offset);
    assert_eq!(index.await.unwrap(), [7; 80][..]);
    let three = ["indexes bytes=0-35", "indexes bytes=0-79", "rsm-manifest"];
    assert_eq!(requests(&server), three);
    let times = store.fetch_index(&segment.metadata, IndexType::Timestamp);
    assert_eq!(times.await.unwrap(), [8; 24][..]);
    assert_eq!(requests(&server), ["indexes bytes=80-103"]);
}
