//! The latency trace of a running broker names the operation that occupied a thread.

use std::time::Duration;

use ottla_metrics::stalls;

use super::TestBroker;

const LONG: Duration = Duration::from_millis(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_work_under_the_run_token_is_reported_by_name() {
    let broker = TestBroker::start_with(&[("ottla.trace.stalls.ms", "100")]).await;
    broker.create_topic("stalled", 1, &[]).await;
    let partition = broker.partition("stalled", 0);
    let stall = |_: &mut ottla_log::Log| std::thread::sleep(LONG);
    let host = &broker.broker().host;
    partition.with_log(host, stall).await.unwrap();
    stalls::set_threshold_ms(0);
    let latest = stalls::latest();
    for operation in ["work on the log", "holding the run token"] {
        let found = latest
            .iter()
            .find(|stall| stall.operation == operation && stall.of == "stalled-0");
        assert!(found.is_some_and(|stall| stall.took >= LONG), "{operation}");
    }
}
