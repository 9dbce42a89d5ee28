//! Epochs and producer ids: fencing, recovery after an error (KIP-360), exhausted epochs.

use ottla_types::ErrorCode;

use super::super::TransactionState as State;
use super::{Script, expect, producer, transaction};

#[test]
fn a_second_instance_fences_the_first() {
    let mut script = Script::new(2);
    script.init();
    expect(
        script.init(),
        "write Empty 100:1
         reply 100:1",
    );
    expect(script.add(producer(100, 0), &[0]), "reply PRODUCER_FENCED");
    expect(
        script.end(producer(100, 0), true, 0),
        "reply PRODUCER_FENCED",
    );
    expect(
        script.add(producer(99, 1), &[0]),
        "reply INVALID_PRODUCER_ID_MAPPING",
    );
}

#[test]
fn an_open_transaction_is_aborted_before_the_second_instance_gets_its_epoch() {
    for (version, prepared, completed, epoch) in [
        (
            2,
            "PrepareAbort 100:1 last 0 [0]",
            "CompleteAbort 100:1 last 0",
            2,
        ),
        (1, "PrepareAbort 100:1 [0]", "CompleteAbort 100:1", 2),
        (0, "PrepareAbort 100:1 [0]", "CompleteAbort 100:1", 2),
    ] {
        let mut script = Script::new(version);
        script.init();
        script.add_as(producer(100, 0), &[0], if version < 2 { 0 } else { 2 });
        let of_marker = if version < 2 { 0 } else { 2 };
        expect(
            script.init(),
            &format!(
                "write {prepared}
                 reply CONCURRENT_TRANSACTIONS
                 markers abort 100:1 v{of_marker} to 1
                 write {completed}"
            ),
        );
        expect(
            script.init(),
            &format!(
                "write Empty 100:{epoch}
                 reply 100:{epoch}"
            ),
        );
    }
}

#[test]
fn a_producer_continues_after_an_error_with_its_epoch() {
    let mut script = Script::new(2);
    script.init();
    expect(
        script.init_with(Some(producer(100, 0))),
        "write Empty 100:1 last 0
         reply 100:1",
    );
    // The response was lost: the same epoch is returned again.
    expect(
        script.init_with(Some(producer(100, 0))),
        "write Empty 100:1 last 0
         reply 100:1",
    );
    expect(
        script.init_with(Some(producer(99, 0))),
        "reply PRODUCER_FENCED",
    );
    // Another instance has started in between.
    script.init();
    expect(
        script.init_with(Some(producer(100, 0))),
        "reply PRODUCER_FENCED",
    );
}

#[test]
fn a_producer_whose_id_was_forgotten_gets_a_new_one() {
    let mut script = Script::new(2);
    expect(
        script.init_with(Some(producer(55, 3))),
        "write Empty 100:0 last -1
         reply 100:0"
            .replace(" last -1", "")
            .as_str(),
    );
}

#[test]
fn an_id_without_epochs_is_replaced() {
    let last = i16::MAX - 1;
    let mut script = Script::new(2).load(transaction(State::CompleteCommit, last));
    expect(
        script.init(),
        "write Empty 100:0
         reply 100:0",
    );
    let mut script = Script::new(2).load(transaction(State::CompleteCommit, last));
    expect(
        script.init_with(Some(producer(5, last))),
        "write Empty 100:0 last 32766
         reply 100:0",
    );
    // The response was lost: the producer sends its previous id and its last epoch.
    expect(
        script.init_with(Some(producer(5, last))),
        "write Empty 100:0 last 32766
         reply 100:0",
    );
}

#[test]
fn the_end_of_a_transaction_takes_the_producer_to_the_next_id() {
    let last = i16::MAX - 1;
    let mut script = Script::new(2).load(transaction(State::Ongoing, last));
    expect(
        script.end(producer(5, last), true, 2),
        "write PrepareCommit 5:32767 last 32766 next 100 [0]
         reply 100:0
         markers commit 5:32767 v2 to 1
         write CompleteCommit 100:0 last 32766",
    );
    expect(script.end(producer(5, last), true, 2), "reply 100:0");
    expect(
        script.add(producer(100, 0), &[3]),
        "write Ongoing 100:0 last 32766 [3]
         reply NONE",
    );
}

#[test]
fn fencing_uses_the_epoch_that_is_kept_back() {
    let last = i16::MAX - 1;
    let mut script = Script::new(2).load(transaction(State::Ongoing, last));
    expect(
        script.init(),
        "write PrepareAbort 5:32767 last 32766 next 100 [0]
         reply CONCURRENT_TRANSACTIONS
         markers abort 5:32767 v2 to 1
         write CompleteAbort 100:0 last 32766",
    );
    let mut script = Script::new(0).load(transaction(State::Ongoing, last));
    expect(
        script.init(),
        "write PrepareAbort 5:32767 [0]
         reply CONCURRENT_TRANSACTIONS
         markers abort 5:32767 v0 to 1
         write CompleteAbort 5:32767",
    );
    expect(
        script.init(),
        "write Empty 100:0
         reply 100:0",
    );
}

#[test]
fn requests_wait_for_the_producer_id_that_they_need() {
    let mut script = Script::new(2);
    script.has_producer_ids = false;
    expect(script.init(), "allocate");
    expect(script.init(), "allocate");
    expect(
        script.give_producer_id(Ok(70)),
        "write Empty 70:0
         reply 70:0",
    );
    // The second request does not need its id any more, which is kept for the next one.
    expect(
        script.give_producer_id(Ok(71)),
        "write Empty 70:1
         reply 70:1",
    );
    let last = i16::MAX - 1;
    let mut script = Script::new(2).load(transaction(State::Ongoing, last));
    script.has_producer_ids = false;
    expect(script.end(producer(5, last), false, 2), "allocate");
    expect(
        script.give_producer_id(Err(ErrorCode::CoordinatorLoadInProgress)),
        "reply COORDINATOR_LOAD_IN_PROGRESS",
    );
    assert_eq!(script.state(), "Ongoing 5:32766 [0]");
}
