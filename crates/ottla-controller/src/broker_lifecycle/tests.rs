//! Single events, each with its exact effects.

use ottla_types::Uuid;

use super::*;

const SETTINGS: LifecycleSettings = LifecycleSettings {
    heartbeat_interval_ms: 2_000,
    registration_timeout_ms: 60_000,
    dir_failure_timeout_ms: 30_000,
    session_timeout_ms: 9_000,
};
const CAUGHT_UP: HeartbeatAnswer = HeartbeatAnswer {
    is_caught_up: true,
    is_fenced: true,
    should_shut_down: false,
};
const UNFENCED: HeartbeatAnswer = HeartbeatAnswer {
    is_fenced: false,
    ..CAUGHT_UP
};
const BEHIND: HeartbeatAnswer = HeartbeatAnswer {
    is_caught_up: false,
    ..CAUGHT_UP
};
const MAY_STOP: HeartbeatAnswer = HeartbeatAnswer {
    should_shut_down: true,
    ..CAUGHT_UP
};

/// The heartbeat of an unfenced broker.
fn heartbeat() -> Heartbeat {
    Heartbeat {
        want_fence: false,
        want_shut_down: false,
        failed_directories: Vec::new(),
        cordoned_directories: Some(Vec::new()),
    }
}

fn registered(epoch: i64) -> LifecycleEvent {
    LifecycleEvent::RegistrationAnswered(Ok(BrokerEpoch(epoch)))
}

fn refused(code: ErrorCode) -> LifecycleEvent {
    LifecycleEvent::RegistrationAnswered(Err(code))
}

fn answered(answer: HeartbeatAnswer) -> LifecycleEvent {
    LifecycleEvent::HeartbeatAnswered(Ok(answer))
}

fn directories(failed: &[u128], cordoned: &[u128]) -> LifecycleEvent {
    let ids = |ids: &[u128]| ids.iter().map(|id| Uuid::from_u128(*id)).collect();
    LifecycleEvent::DirectoriesChanged {
        failed: ids(failed),
        cordoned: ids(cordoned),
    }
}

fn begun() -> BrokerLifecycle {
    let mut broker = BrokerLifecycle::new(SETTINGS, 0);
    let effects = broker.step(0, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendRegistration]);
    broker
}

/// A broker that has been unfenced since 1,000; its next heartbeat is due at 3,000.
fn running() -> BrokerLifecycle {
    let mut broker = begun();
    broker.step(900, registered(5));
    broker.step(950, answered(CAUGHT_UP));
    broker.step(960, LifecycleEvent::TimePassed);
    broker.step(970, LifecycleEvent::ReadyToUnfence);
    broker.step(980, answered(CAUGHT_UP));
    let effects = broker.step(1_000, answered(UNFENCED));
    assert_eq!(effects, [LifecycleEffect::Unfenced]);
    assert_eq!(broker.next_wakeup_ms(), Some(3_000));
    broker
}

#[test]
fn a_broker_registers_catches_up_and_is_unfenced() {
    let mut broker = begun();
    let starting = Heartbeat {
        want_fence: true,
        cordoned_directories: None,
        ..heartbeat()
    };
    let effects = broker.step(10, registered(5));
    let first = LifecycleEffect::SendHeartbeat(starting.clone());
    assert_eq!(effects, [LifecycleEffect::Registered, first]);
    assert_eq!(broker.broker_epoch(), BrokerEpoch(5));
    assert_eq!(broker.step(20, answered(BEHIND)), []);
    assert_eq!(broker.next_wakeup_ms(), Some(30));
    let effects = broker.step(30, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(starting.clone())]);
    assert_eq!(broker.step(35, answered(BEHIND)), []);
    assert_eq!(broker.next_wakeup_ms(), Some(55));
    let effects = broker.step(55, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(starting)]);
    assert_eq!(
        broker.step(60, answered(CAUGHT_UP)),
        [LifecycleEffect::CaughtUp]
    );
    assert_eq!(broker.next_wakeup_ms(), Some(70));
    let effects = broker.step(65, LifecycleEvent::ReadyToUnfence);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(heartbeat())]);
    assert!(broker.is_fenced());
    assert_eq!(
        broker.step(80, answered(UNFENCED)),
        [LifecycleEffect::Unfenced]
    );
    assert!(!broker.is_fenced());
    assert_eq!(broker.next_wakeup_ms(), Some(2_080));
    let effects = broker.step(2_080, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(heartbeat())]);
    assert_eq!(broker.step(2_090, answered(UNFENCED)), []);
}

#[test]
fn one_response_may_report_caught_up_and_unfenced() {
    let mut broker = begun();
    broker.step(5, LifecycleEvent::ReadyToUnfence);
    broker.step(10, registered(5));
    let effects = broker.step(20, answered(UNFENCED));
    assert_eq!(
        effects,
        [LifecycleEffect::CaughtUp, LifecycleEffect::Unfenced]
    );
    assert_eq!(broker.next_wakeup_ms(), Some(2_020));
}

#[test]
fn a_due_request_is_sent_when_the_current_one_is_answered() {
    let mut broker = running();
    broker.step(3_000, LifecycleEvent::TimePassed);
    assert_eq!(broker.step(3_001, directories(&[], &[7])), []);
    let cordoned = Heartbeat {
        cordoned_directories: Some(vec![Uuid::from_u128(7)]),
        ..heartbeat()
    };
    let effects = broker.step(3_002, answered(UNFENCED));
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(cordoned)]);
    // Not after a failure: that would add load to a controller that has problems.
    broker.step(3_003, directories(&[], &[]));
    let failed = LifecycleEvent::HeartbeatAnswered(Err(ErrorCode::RequestTimedOut));
    assert_eq!(broker.step(3_004, failed), []);
    assert_eq!(broker.next_wakeup_ms(), Some(5_004));
}

#[test]
fn a_duplicate_id_is_retried_until_the_timeout() {
    let mut broker = begun();
    let in_use = ErrorCode::DuplicateBrokerRegistration;
    for attempt in 0..29 {
        let now_ms = attempt * 2_000 + 1;
        assert_eq!(broker.step(now_ms, refused(in_use)), []);
        let effects = broker.step(now_ms + 2_000, LifecycleEvent::TimePassed);
        assert_eq!(effects, [LifecycleEffect::SendRegistration]);
    }
    assert_eq!(broker.next_wakeup_ms(), Some(60_000));
    let effects = broker.step(60_000, LifecycleEvent::TimePassed);
    let failure = LifecycleFailure::NotRegistered(Some(in_use));
    assert_eq!(effects, [LifecycleEffect::Fail(failure)]);
    assert_eq!(broker.next_wakeup_ms(), None);
}

#[test]
fn an_unanswered_registration_fails_at_the_timeout() {
    let mut broker = begun();
    let effects = broker.step(60_000, LifecycleEvent::TimePassed);
    let failure = LifecycleFailure::NotRegistered(None);
    assert_eq!(effects, [LifecycleEffect::Fail(failure)]);
}

#[test]
fn permanent_errors_end_the_start_at_once() {
    for code in [
        ErrorCode::InconsistentClusterId,
        ErrorCode::UnsupportedVersion,
        ErrorCode::InvalidRegistration,
    ] {
        let effects = begun().step(5, refused(code));
        assert_eq!(
            effects,
            [LifecycleEffect::Fail(LifecycleFailure::Refused(code))]
        );
    }
    // A running broker continues: the controller may have been changed to another version.
    let mut broker = running();
    broker.step(1_100, LifecycleEvent::RegistrationOutdated);
    assert_eq!(
        broker.step(1_200, refused(ErrorCode::UnsupportedVersion)),
        []
    );
    assert_eq!(broker.next_wakeup_ms(), Some(3_200));
}

#[test]
fn an_unregistered_broker_registers_again() {
    for code in [
        ErrorCode::StaleBrokerEpoch,
        ErrorCode::BrokerIdNotRegistered,
    ] {
        let mut broker = running();
        broker.step(3_000, LifecycleEvent::TimePassed);
        assert_eq!(
            broker.step(3_010, LifecycleEvent::HeartbeatAnswered(Err(code))),
            []
        );
        let effects = broker.step(5_010, LifecycleEvent::TimePassed);
        assert_eq!(effects, [LifecycleEffect::SendRegistration]);
        let effects = broker.step(5_020, registered(9));
        assert_eq!(effects, [LifecycleEffect::SendHeartbeat(heartbeat())]);
        assert_eq!(broker.broker_epoch(), BrokerEpoch(9));
        // Fenced until it has caught up with its new registration.
        assert!(broker.is_fenced());
        assert_eq!(broker.step(5_030, answered(CAUGHT_UP)), []);
        assert!(broker.is_fenced());
        assert_eq!(broker.next_wakeup_ms(), Some(7_030));
    }
}

#[test]
fn an_outdated_registration_is_repeated_at_once() {
    let mut broker = running();
    let effects = broker.step(1_100, LifecycleEvent::RegistrationOutdated);
    assert_eq!(effects, [LifecycleEffect::SendRegistration]);
    // The registration is updated and keeps its epoch.
    let effects = broker.step(1_110, registered(5));
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(heartbeat())]);
}

#[test]
fn a_failed_directory_is_reported_until_acknowledged() {
    let mut broker = running();
    let telling = Heartbeat {
        failed_directories: vec![Uuid::from_u128(7)],
        ..heartbeat()
    };
    let effects = broker.step(1_100, directories(&[7], &[]));
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(telling.clone())]);
    broker.step(1_200, answered(UNFENCED));
    // The directory stays in the heartbeats, and no deadline is left.
    let effects = broker.step(40_000, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(telling)]);
}

#[test]
fn an_unacknowledged_directory_failure_stops_the_broker() {
    let mut broker = running();
    broker.step(1_100, directories(&[7], &[]));
    let failed = LifecycleEvent::HeartbeatAnswered(Err(ErrorCode::RequestTimedOut));
    broker.step(30_000, failed);
    // Reported again: the deadline counts from the first report.
    broker.step(30_500, directories(&[7], &[]));
    assert_eq!(broker.next_wakeup_ms(), Some(31_100));
    let effects = broker.step(31_100, LifecycleEvent::TimePassed);
    let failure = LifecycleFailure::DirectoryNotTold;
    assert_eq!(effects, [LifecycleEffect::Fail(failure)]);
}

#[test]
fn a_broker_stops_when_the_controller_permits_it() {
    let mut broker = running();
    let asking = Heartbeat {
        want_shut_down: true,
        ..heartbeat()
    };
    let effects = broker.step(1_100, LifecycleEvent::ShutdownRequested);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(asking.clone())]);
    assert_eq!(broker.step(1_110, LifecycleEvent::ShutdownRequested), []);
    // The retry interval grows.
    broker.step(1_120, answered(UNFENCED));
    assert_eq!(broker.next_wakeup_ms(), Some(1_130));
    let effects = broker.step(1_130, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::SendHeartbeat(asking)]);
    broker.step(1_140, answered(CAUGHT_UP));
    assert!(!broker.is_fenced());
    assert_eq!(broker.next_wakeup_ms(), Some(1_160));
    broker.step(1_160, LifecycleEvent::TimePassed);
    assert_eq!(
        broker.step(1_170, answered(MAY_STOP)),
        [LifecycleEffect::LetGo]
    );
    assert!(!broker.is_fenced());
    assert_eq!(broker.next_wakeup_ms(), None);
    assert_eq!(broker.step(1_300, LifecycleEvent::ReadyToUnfence), []);
}

#[test]
fn a_broker_without_leaderships_stops_at_once() {
    let mut broker = begun();
    assert_eq!(
        broker.step(10, LifecycleEvent::ShutdownRequested),
        [LifecycleEffect::LetGo]
    );
    let mut broker = running();
    broker.step(1_100, LifecycleEvent::ShutdownRequested);
    let unknown = LifecycleEvent::HeartbeatAnswered(Err(ErrorCode::StaleBrokerEpoch));
    assert_eq!(broker.step(1_110, unknown), [LifecycleEffect::LetGo]);
}

#[test]
fn a_broker_without_a_controller_stops_after_a_session() {
    let unanswered = || LifecycleEvent::HeartbeatAnswered(Err(ErrorCode::RequestTimedOut));
    let mut broker = running();
    broker.step(2_000, LifecycleEvent::ShutdownRequested);
    for now_ms in [4_000, 6_000, 8_000] {
        assert_eq!(broker.step(now_ms, unanswered()), []);
        broker.step(now_ms + 2_000, LifecycleEvent::TimePassed);
    }
    // Also while a heartbeat is in flight.
    assert_eq!(broker.next_wakeup_ms(), Some(11_000));
    let effects = broker.step(11_000, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::GiveUpLeaving]);
    assert_eq!(broker.next_wakeup_ms(), None);

    // With an answer the deadline moves: the controller is moving the leaderships.
    let mut broker = running();
    broker.step(2_000, LifecycleEvent::ShutdownRequested);
    broker.step(10_900, answered(UNFENCED));
    assert_eq!(broker.step(19_800, unanswered()), []);
    let effects = broker.step(19_900, LifecycleEvent::TimePassed);
    assert_eq!(effects, [LifecycleEffect::GiveUpLeaving]);
}
