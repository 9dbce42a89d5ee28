//! Requests about the state of share groups that name many partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ottla_coordination::share_groups::{AT_ONCE, ask_for_each, panicked};
use ottla_protocol::ApiKey;
use ottla_testkit::peer::client_context;
use ottla_types::Uuid;

use super::TestBroker;

#[tokio::test(flavor = "multi_thread")]
async fn the_partitions_per_request_are_bounded() {
    let broker = TestBroker::start().await;
    let context = client_context(ApiKey::ReadShareGroupState, 0);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (group_id, count) = ("g".into(), 3 * AT_ONCE as i32);
    let topics = [1, 2].map(|id| (Uuid::from_u128(id), Vec::from_iter(0..count)));
    let answers = ask_for_each(
        &broker.broker().share_groups.coordinators,
        &context,
        &group_id,
        topics.clone(),
        |number| *number,
        |_, key, number| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                running.fetch_sub(1, Relaxed);
                assert_ne!(number, 7, "this one fails");
                Ok((key.topic_id, key.partition))
            }
        },
    );
    let answers = answers.await;
    for ((topic_id, numbers), (answered_of, answers)) in topics.into_iter().zip(answers) {
        assert_eq!(topic_id, answered_of);
        let expected = numbers.into_iter().map(|number| match number {
            7 => (number, Err(panicked())),
            _ => (number, Ok((topic_id, number))),
        });
        assert_eq!(answers, Vec::from_iter(expected));
    }
    assert_eq!(most.load(Relaxed), AT_ONCE);
}
