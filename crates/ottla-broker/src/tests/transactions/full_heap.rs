//! Offsets that are committed in a transaction while the heap is full.

use super::super::memory::fill_heap;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_add_offsets_are_refused() {
    let (broker, mut client) = broker(&[]).await;
    let producer = init(&mut client, 60_000).await;
    let error = commit_offsets(&mut client, producer, 5, 5).await;
    assert_eq!(error, ErrorCode::None);
    let next = end(&mut client, producer, true, 5)
        .await
        .expect("committed");
    state_until(&mut client, "CompleteCommit").await;
    committed_offset_until(&mut client, 5).await;

    fill_heap(&broker).await;
    let error = commit_offsets(&mut client, next, 6, 5).await;
    assert_eq!(error, ErrorCode::None);
    let mut other_partition = offsets(next, 7);
    other_partition.topics[0].partitions[0].partition_index = 1;
    let mut metadata = offsets(next, 7);
    metadata.topics[0].partitions[0].committed_metadata = Some("m".into());
    // Producers of version 1 fail with the first of these errors.
    for (version, refused) in [
        (5, ErrorCode::CoordinatorLoadInProgress),
        (1, ErrorCode::CoordinatorNotAvailable),
    ] {
        for growing in [&other_partition, &metadata] {
            let response = client.ask(version, growing).await;
            let error = response.topics[0].partitions[0].error_code;
            assert_eq!(code(error), refused, "version {version}: {growing:?}");
        }
    }
    end(&mut client, next, true, 5).await.expect("committed");
    committed_offset_until(&mut client, 6).await;
}
