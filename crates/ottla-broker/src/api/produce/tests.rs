use ottla_testkit::peer::client_context;

use super::*;
use crate::tests::TestBroker;

fn pending(broker: &TestBroker) -> Arc<PendingProduce> {
    Arc::new(PendingProduce {
        broker: Arc::clone(broker.broker()),
        context: client_context(ApiKey::Produce, 9),
        acks: Some(RequiredAcks::Leader),
        transactional_id: None,
        response: Mutex::default(),
        remaining: AtomicUsize::new(1),
        started: OnceLock::new(),
        throttle_time_ms: AtomicI32::new(0),
        obstacle: Mutex::new(None),
    })
}

/// Otherwise the quota for request time would be charged for it, and all compressed batches would
/// be validated on other threads.
#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_metadata_is_no_work() {
    const WAIT: Duration = Duration::from_secs(3);
    let broker = TestBroker::start().await;
    let pending = pending(&broker);
    let applied = Box::pin(ottla_sync::time::sleep(WAIT));
    let handed_in = pending.hand_in_after(applied, ProduceRequest::default());
    assert_eq!(pending.worked(), Duration::ZERO);
    handed_in.await;
    assert!(pending.is_ready());
    assert!(pending.worked() > Duration::ZERO && pending.worked() < WAIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_on_another_thread_is_answered_with_an_error() {
    let broker = TestBroker::start().await;
    let topic = TopicProduceResponse {
        partition_responses: vec![PartitionProduceResponse::default()],
        ..Default::default()
    };
    let pending = pending(&broker);
    pending.response.lock().responses = vec![topic];
    let unanswered = Unanswered {
        pending: Arc::clone(&pending),
        place: AppendPlace {
            topic: 0,
            partition: 0,
        },
        is_answered: false,
    };
    let task = ottla_sync::task::spawn(async move {
        let unanswered = unanswered;
        assert!(unanswered.is_answered, "a panic that this test wants");
    });
    assert!(task.await.is_err());
    assert!(pending.is_ready());
    let response = pending.response.lock();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::UnknownServerError.code());
}
