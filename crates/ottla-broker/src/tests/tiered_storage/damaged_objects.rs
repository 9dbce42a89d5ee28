//! Objects that are damaged, or that an upload left half written, until they are whole again.

use super::super::produce_and_fetch::fetch_from;
use super::{
    SETTINGS, expected, first_object, produce, read_all, wait_for_local_start, with_topic,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_damaged_object_fail_until_it_is_whole_again() {
    let (store, broker, mut client) = with_topic(1, &SETTINGS).await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let object = first_object(store.path());
    let whole = std::fs::read(&object).expect("the object");
    // The length of the first batch.
    let mut damaged = whole.clone();
    damaged[8..12].fill(0xff);
    for bad in [&damaged[..], &whole[..100], &whole[..0]] {
        std::fs::write(&object, bad).expect("the store can be written");
        let response = client.ask(12, &fetch_from("tiered", 0, 0)).await;
        let partition = &response.responses[0].partitions[0];
        let has_records = partition.records.as_ref().is_some_and(|it| !it.is_empty());
        // KAFKA_STORAGE_ERROR, after which clients try again.
        assert_eq!((partition.error_code, has_records), (56, false));
        // Segments after it are read, and records are written.
        assert_eq!(read_all(&mut client, 100, 200).await, expected(100, 200));
    }
    produce(&mut client, 200, 10).await;
    wait_for_local_start(&broker, 250).await;
    std::fs::write(&object, &whole).expect("the store can be written");
    assert_eq!(read_all(&mut client, 0, 300).await, expected(0, 300));
}
