//! Reads from a store that does not answer, whose clients go.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, mkfifoat};

use super::super::TestBroker;
use super::super::produce_and_fetch::fetch_from;
use super::{
    PATIENCE, SETTINGS, expected, first_object, produce, read_all, settings, wait_for_local_start,
    wait_until,
};

/// A pipe in the place of an object: opening it waits for a writer.
pub(super) struct Unanswering {
    object: PathBuf,
    aside: PathBuf,
}

impl Unanswering {
    pub(super) fn instead_of(object: PathBuf) -> Unanswering {
        let aside = object.with_extension("aside");
        std::fs::rename(&object, &aside).expect("it is there");
        mkfifoat(CWD, &object, Mode::RUSR | Mode::WUSR).expect("a pipe");
        Unanswering { object, aside }
    }
}

impl Drop for Unanswering {
    /// The threads that wait continue, and would otherwise keep the runtime from its end.
    fn drop(&mut self) {
        let writer = OpenOptions::new().read(true).write(true).open(&self.object);
        std::fs::rename(&self.aside, &self.object).expect("the object is back");
        drop(writer);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_whose_client_goes_is_cancelled_and_leaves_nothing_behind() {
    let store = tempfile::tempdir().expect("a directory");
    let mut all = settings(store.path());
    // Without a client that goes, it waits longer than this test.
    all.push(("remote.fetch.max.wait.ms", "3600000"));
    let broker = TestBroker::start_with(&all).await;
    broker.create_topic("tiered", 1, &SETTINGS).await;
    let mut client = broker.connect().await;
    produce(&mut client, 0, 20).await;
    wait_for_local_start(&broker, 150).await;
    let remote_logs = Arc::clone(broker.broker().remote_logs().expect("it is tiered"));
    let budget = remote_logs.available_read_bytes();
    let has_ended = || {
        let has_all_memory = remote_logs.available_read_bytes() == budget;
        has_all_memory && remote_logs.waiting_reads() == 0
    };
    let is_idle = || has_ended() && remote_logs.idle_readers() >= 1.0;
    assert!(is_idle());

    let unanswering = Unanswering::instead_of(first_object(store.path()));
    let deadline = Instant::now() + PATIENCE;
    let mut end = 200;
    loop {
        let mut clients = Vec::new();
        // Ten of them read, and one waits for its turn (`remote.log.reader.threads`).
        for _ in 0..11 {
            let mut client = broker.connect().await;
            client.send(12, &fetch_from("tiered", 0, 0)).await;
            clients.push(client);
        }
        wait_until("the reads do not begin", || {
            let has_begun = remote_logs.idle_readers() <= 0.0 && remote_logs.waiting_reads() == 1;
            has_begun && remote_logs.available_read_bytes() < budget
        })
        .await;
        // They delay neither producers nor readers of local records.
        produce(&mut client, end, 1).await;
        let last = read_all(&mut client, end, end + 10).await;
        assert_eq!(last, expected(end, end + 10));
        end += 10;
        // Until those that have memory wait for the object.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(clients);
        wait_until("the reads are not cancelled", has_ended).await;
        // Otherwise each client that comes back would take another thread.
        if remote_logs.idle_readers() < 1.0 {
            break;
        }
        // A read that is cancelled before it waits for the object leaves nothing.
        assert!(
            Instant::now() < deadline,
            "threads still wait for the object, without a turn"
        );
    }

    drop(unanswering);
    wait_until("the threads keep their turns", is_idle).await;
    assert_eq!(read_all(&mut client, 0, end).await, expected(0, end));
    // The memory of a response is free when it has left.
    wait_until("a read keeps something", is_idle).await;
}
