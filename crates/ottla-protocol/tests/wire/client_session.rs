use ottla_protocol::fetch_session::client::{Change, FetchSession, Unusable};
use ottla_types::ErrorCode;

/// Partitions by number, with the fetch offset.
type Session = FetchSession<i32, i64>;

fn wanted(partition: i32, offset: i64) -> (i32, Option<i64>) {
    (partition, Some(offset))
}

fn answer(session: &mut Session, id: i32, partitions: &[i32]) -> Result<(), Unusable> {
    session.on_answer(ErrorCode::None, id, partitions.iter().copied())
}

fn said(change: &Change<i32, i64>) -> (Vec<i32>, Vec<i32>) {
    let requested = change.requested.iter().map(|(key, _)| *key);
    (requested.collect(), change.forgotten.clone())
}

/// A session of partitions 1 and 2, both at offset 0.
fn begun() -> Session {
    let mut session = Session::default();
    let change = session.change([wanted(2, 0), wanted(1, 0)]);
    assert_eq!(said(&change), (vec![1, 2], vec![]));
    assert_eq!(answer(&mut session, 77, &[1, 2]), Ok(()));
    assert_eq!((session.id(), session.epoch()), (77, 1));
    assert!(session.is_open());
    session
}

#[test]
fn only_changed_partitions_are_sent_again() {
    let mut session = begun();
    let change = session.change([wanted(1, 0), wanted(2, 9), wanted(3, 0)]);
    assert_eq!(said(&change), (vec![2, 3], vec![]));
    assert_eq!(answer(&mut session, 77, &[3]), Ok(()));
    assert_eq!((session.id(), session.epoch()), (77, 2));
    let change = session.change([(2, None), (9, None)]);
    assert_eq!(said(&change), (vec![], vec![2]));
    assert_eq!(
        (session.requested(&2), session.requested(&3)),
        (None, Some(&0))
    );
}

#[test]
fn partitions_missing_in_a_full_request_are_forgotten() {
    let mut session = begun();
    let change = session.change_to([(2, 9), (3, 0)]);
    assert_eq!(said(&change), (vec![2, 3], vec![1]));
    assert_eq!(answer(&mut session, 77, &[]), Ok(()));
    let change = session.change_to([]);
    assert_eq!(said(&change), (vec![], vec![2, 3]));
    assert!(session.is_empty());
}

#[test]
fn without_a_session_everything_is_named_each_time() {
    let mut session = Session::default();
    session.change([wanted(1, 0)]);
    assert_eq!(answer(&mut session, 0, &[1]), Ok(()));
    assert!(session.is_full() && !session.is_open());
    let change = session.change([wanted(1, 0)]);
    assert_eq!(said(&change), (vec![1], vec![]));
}

#[test]
fn a_session_that_ended_begins_anew() {
    let fail = |session: &mut Session, error| session.on_answer(error, 0, []);
    let mut session = begun();
    let gone = fail(&mut session, ErrorCode::FetchSessionIdNotFound);
    assert_eq!(gone, Err(Unusable::SessionLost));
    assert_eq!((session.id(), session.epoch()), (0, 0));

    let mut session = begun();
    let wrong = fail(&mut session, ErrorCode::InvalidFetchSessionEpoch);
    assert_eq!(wrong, Err(Unusable::SessionLost));
    assert_eq!((session.id(), session.epoch()), (77, 0), "it is closed");
    let change = session.change([wanted(1, 0)]);
    assert_eq!(said(&change), (vec![1], vec![]));

    let mut session = begun();
    let refused = fail(&mut session, ErrorCode::UnknownServerError);
    let expected = Unusable::Refused(ErrorCode::UnknownServerError);
    assert_eq!(refused, Err(expected));
    assert_eq!((session.id(), session.epoch()), (77, 0));

    let mut session = begun();
    session.on_failure(None);
    assert_eq!((session.id(), session.epoch()), (77, 0));
}

#[test]
fn an_answer_about_other_partitions_is_not_taken() {
    let mut session = begun();
    let wrong = answer(&mut session, 77, &[5]);
    assert_eq!(wrong, Err(Unusable::WrongPartitions));
    assert!(session.is_full());
    session.change([wanted(1, 0), wanted(2, 0)]);
    let wrong = answer(&mut session, 78, &[1]);
    assert_eq!(wrong, Err(Unusable::WrongPartitions), "one is missing");
}

#[test]
fn epochs_go_round_past_the_initial_one() {
    let mut session = begun();
    session.skip_to(i32::MAX);
    assert_eq!(answer(&mut session, 77, &[]), Ok(()));
    assert_eq!(session.epoch(), 1);
}
