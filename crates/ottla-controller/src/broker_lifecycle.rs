//! The lifecycle of a broker as seen by the broker, the counterpart of `brokers`. Each event
//! returns effects.
//!
//! The state machine registers the broker, sends heartbeats, asks to be unfenced, and performs the
//! controlled shutdown. One request is in flight at a time; requests that become due before its
//! response are sent after it. The state machine holds the broker epoch and the deadlines. It uses
//! no clock and no socket: the caller executes the effects and reports the results as events.
//!
//! In Kafka: `BrokerLifecycleManager`, with these differences:
//! - A registration that no retry can save (another cluster, unknown features) fails the start at
//!   once instead of after `initial.broker.registration.timeout.ms`.
//! - A broker whose epoch the controller does not know any more registers again. Kafka's repeats
//!   its heartbeat until it is restarted. The controller refuses the registration while another
//!   process with that id is alive, so two processes cannot take the id from each other.
//! - A controlled shutdown without answers from a controller ends after a session timeout instead
//!   of 5 minutes: after that time the controllers have fenced the broker, and it has no leadership
//!   left to give away.
//! - While logs are loaded, heartbeats use an exponential backoff, where Kafka's broker sends one
//!   every 10 ms. A controlled shutdown sends more than two early heartbeats before the broker
//!   returns to its usual interval.

use std::collections::BTreeMap;

use ottla_types::{BrokerEpoch, DirectoryId, ErrorCode};

#[cfg(test)]
mod tests;

/// The first retry interval of a broker that has not caught up. It doubles with each retry, so that
/// a broker that takes long to load its logs does not keep the controller busy.
const FIRST_CATCH_UP_RETRY_MS: u64 = 10;
/// The first retry interval of a controlled shutdown, which doubles as well. The controller agrees
/// at the third heartbeat at the earliest, or at the second if there are no other brokers.
const FIRST_SHUTDOWN_RETRY_MS: u64 = 10;

/// Intervals and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleSettings {
    /// `broker.heartbeat.interval.ms`
    pub heartbeat_interval_ms: u64,
    /// `initial.broker.registration.timeout.ms`
    pub registration_timeout_ms: u64,
    /// `log.dir.failure.timeout.ms`
    pub dir_failure_timeout_ms: u64,
    /// `broker.session.timeout.ms`. The value of the controllers counts, which is normally the
    /// same.
    pub session_timeout_ms: u64,
}

/// The stage of the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Starting,
    /// It has caught up with the metadata, and loads its logs.
    Recovery,
    Running,
    PendingControlledShutdown,
    ShuttingDown,
}

/// The state of the broker's registration.
#[derive(Debug)]
pub struct BrokerLifecycle {
    settings: LifecycleSettings,
    stage: Stage,
    broker_epoch: BrokerEpoch,
    /// Whether the controller knows the broker under `broker_epoch`.
    is_registered: bool,
    /// The deadline of the first registration; `None` once it has succeeded.
    registration_deadline_ms: Option<u64>,
    /// The error code of the last refused registration.
    last_refusal: Option<ErrorCode>,
    /// Whether the logs are loaded and the metadata is published, so that clients can be served.
    is_ready_to_unfence: bool,
    is_fenced: bool,
    failed_directories: BTreeMap<DirectoryId, FailedDirectory>,
    cordoned_directories: Vec<DirectoryId>,
    /// The failed directories in the heartbeat that is in flight.
    directories_in_flight: Vec<DirectoryId>,
    is_in_flight: bool,
    /// Whether something became due while a request was in flight.
    is_hurried: bool,
    /// When the next request is sent; `None` while one is in flight, and at the end.
    next_ms: Option<u64>,
    catch_up_retry_ms: u64,
    shutdown_retry_ms: u64,
    /// Until when the controller must answer the controlled shutdown; `None` before it begins.
    let_go_deadline_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FailedDirectory {
    /// The controller must know of the failure by this time.
    deadline_ms: u64,
    is_told: bool,
}

/// An event of the broker.
#[derive(Clone, PartialEq, Debug)]
pub enum LifecycleEvent {
    /// The logs are loaded and the metadata is published.
    ReadyToUnfence,
    /// The failed and the cordoned directories have changed.
    DirectoriesChanged {
        failed: Vec<DirectoryId>,
        cordoned: Vec<DirectoryId>,
    },
    /// The controller has an outdated registration of this broker.
    RegistrationOutdated,
    ShutdownRequested,
    RegistrationAnswered(Result<BrokerEpoch, ErrorCode>),
    HeartbeatAnswered(Result<HeartbeatAnswer, ErrorCode>),
    /// The time of [`BrokerLifecycle::next_wakeup_ms`] has come.
    TimePassed,
}

/// The response to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    pub is_caught_up: bool,
    pub is_fenced: bool,
    pub should_shut_down: bool,
}

/// An action for the caller.
#[derive(Clone, PartialEq, Debug)]
pub enum LifecycleEffect {
    SendRegistration,
    SendHeartbeat(Heartbeat),
    /// The first registration was accepted.
    Registered,
    /// The controller agrees for the first time that the broker has caught up with the metadata.
    CaughtUp,
    /// The broker is unfenced for the first time.
    Unfenced,
    /// The controlled shutdown is complete, and no further request is sent.
    LetGo,
    /// No controller answers the controlled shutdown, so the broker must stop without it.
    GiveUpLeaving,
    /// The broker cannot continue.
    Fail(LifecycleFailure),
}

/// A heartbeat without the fields that the caller sets: the sender and the metadata offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    pub want_fence: bool,
    pub want_shut_down: bool,
    pub failed_directories: Vec<DirectoryId>,
    /// `None` before the broker has caught up, because its settings may be outdated until then.
    pub cordoned_directories: Option<Vec<DirectoryId>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifecycleFailure {
    /// No registration was accepted within `initial.broker.registration.timeout.ms`. Has the
    /// controller's last error code, if it answered.
    NotRegistered(Option<ErrorCode>),
    /// No retry can succeed.
    Refused(ErrorCode),
    /// The controller did not learn of a failed directory within `log.dir.failure.timeout.ms`. The
    /// partitions that the broker led from there would stay without a leader.
    DirectoryNotTold,
}

impl BrokerLifecycle {
    /// The first registration is due at once.
    pub fn new(settings: LifecycleSettings, now_ms: u64) -> BrokerLifecycle {
        BrokerLifecycle {
            settings,
            stage: Stage::Starting,
            broker_epoch: BrokerEpoch::UNKNOWN,
            is_registered: false,
            registration_deadline_ms: Some(now_ms.saturating_add(settings.registration_timeout_ms)),
            last_refusal: None,
            is_ready_to_unfence: false,
            is_fenced: true,
            failed_directories: BTreeMap::new(),
            cordoned_directories: Vec::new(),
            directories_in_flight: Vec::new(),
            is_in_flight: false,
            is_hurried: false,
            next_ms: Some(now_ms),
            catch_up_retry_ms: FIRST_CATCH_UP_RETRY_MS,
            shutdown_retry_ms: FIRST_SHUTDOWN_RETRY_MS,
            let_go_deadline_ms: None,
        }
    }

    /// The epoch of the last registration; unknown before the first.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.broker_epoch
    }

    /// Whether the controller keeps the broker fenced although it asks to be unfenced, according to
    /// the last response.
    pub fn is_fenced(&self) -> bool {
        // A broker in controlled shutdown is fenced at its own request.
        let is_stopping = matches!(
            self.stage,
            Stage::PendingControlledShutdown | Stage::ShuttingDown
        );
        self.is_fenced && !is_stopping
    }

    /// When the caller must send [`LifecycleEvent::TimePassed`].
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        let untold = self.failed_directories.values().filter(|dir| !dir.is_told);
        let deadlines = untold.map(|dir| dir.deadline_ms);
        let times = deadlines
            .chain(self.next_ms)
            .chain(self.registration_deadline_ms)
            .chain(self.let_go_deadline_ms);
        match self.stage {
            Stage::ShuttingDown => None,
            _ => times.min(),
        }
    }

    pub fn step(&mut self, now_ms: u64, event: LifecycleEvent) -> Vec<LifecycleEffect> {
        let mut effects = Vec::new();
        if self.stage == Stage::ShuttingDown {
            return effects;
        }
        match event {
            LifecycleEvent::ReadyToUnfence => {
                self.is_ready_to_unfence = true;
                self.catch_up_retry_ms = FIRST_CATCH_UP_RETRY_MS;
                self.communicate_at(now_ms);
            }
            LifecycleEvent::DirectoriesChanged { failed, cordoned } => {
                for directory in failed {
                    let deadline_ms = now_ms.saturating_add(self.settings.dir_failure_timeout_ms);
                    let failed = FailedDirectory {
                        deadline_ms,
                        is_told: false,
                    };
                    self.failed_directories.entry(directory).or_insert(failed);
                }
                self.cordoned_directories = cordoned;
                if self.is_registered {
                    self.communicate_at(now_ms);
                }
            }
            LifecycleEvent::RegistrationOutdated => {
                self.is_registered = false;
                self.communicate_at(now_ms);
            }
            LifecycleEvent::ShutdownRequested => self.on_shutdown_requested(now_ms, &mut effects),
            LifecycleEvent::RegistrationAnswered(answer) => {
                self.is_in_flight = false;
                self.on_registration_answered(now_ms, answer, &mut effects);
            }
            LifecycleEvent::HeartbeatAnswered(answer) => {
                self.is_in_flight = false;
                self.on_heartbeat_answered(now_ms, answer, &mut effects);
            }
            LifecycleEvent::TimePassed => {}
        }
        self.do_what_is_due(now_ms, &mut effects);
        effects
    }

    fn on_shutdown_requested(&mut self, now_ms: u64, effects: &mut Vec<LifecycleEffect>) {
        match self.stage {
            Stage::Running => {
                self.stage = Stage::PendingControlledShutdown;
                self.expect_answer(now_ms);
                self.communicate_at(now_ms);
            }
            Stage::PendingControlledShutdown => {}
            // It has no leaderships to give away.
            _ => self.let_go(effects),
        }
    }

    fn on_registration_answered(
        &mut self,
        now_ms: u64,
        answer: Result<BrokerEpoch, ErrorCode>,
        effects: &mut Vec<LifecycleEffect>,
    ) {
        match answer {
            Ok(broker_epoch) => {
                // After a new registration, the controller does not know yet that the broker has
                // caught up with it.
                self.is_fenced |= broker_epoch != self.broker_epoch;
                self.broker_epoch = broker_epoch;
                self.is_registered = true;
                if self.registration_deadline_ms.take().is_some() {
                    effects.push(LifecycleEffect::Registered);
                }
                self.communicate_at(now_ms);
            }
            Err(code) => {
                let is_first = self.registration_deadline_ms.is_some();
                if is_first && is_hopeless(code) {
                    return self.fail(LifecycleFailure::Refused(code), effects);
                }
                self.last_refusal = Some(code);
                self.retry_later(now_ms);
            }
        }
    }

    fn on_heartbeat_answered(
        &mut self,
        now_ms: u64,
        answer: Result<HeartbeatAnswer, ErrorCode>,
        effects: &mut Vec<LifecycleEffect>,
    ) {
        let told = std::mem::take(&mut self.directories_in_flight);
        let answer = match answer {
            Ok(answer) => answer,
            Err(ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered) => {
                if self.stage == Stage::PendingControlledShutdown {
                    return self.let_go(effects);
                }
                self.is_registered = false;
                return self.retry_later(now_ms);
            }
            Err(_) => return self.retry_later(now_ms),
        };
        for directory in told {
            if let Some(failed) = self.failed_directories.get_mut(&directory) {
                failed.is_told = true;
            }
        }
        self.is_fenced = answer.is_fenced;
        if self.let_go_deadline_ms.is_some() {
            self.expect_answer(now_ms);
        }
        let interval_ms = self.settings.heartbeat_interval_ms;
        match self.stage {
            Stage::Starting => {
                if answer.is_caught_up {
                    self.stage = Stage::Recovery;
                    effects.push(LifecycleEffect::CaughtUp);
                    self.catch_up_retry_ms = FIRST_CATCH_UP_RETRY_MS;
                }
                // If the logs were loaded before the broker had caught up, one response can say
                // both.
                if answer.is_caught_up && !answer.is_fenced {
                    self.stage = Stage::Running;
                    effects.push(LifecycleEffect::Unfenced);
                    return self.communicate_within(now_ms, interval_ms);
                }
                let wait_ms = self.catch_up_retry_ms.min(interval_ms);
                self.catch_up_retry_ms = wait_ms.saturating_mul(2);
                self.communicate_within(now_ms, wait_ms);
            }
            Stage::Recovery => {
                if !answer.is_fenced {
                    self.stage = Stage::Running;
                    effects.push(LifecycleEffect::Unfenced);
                }
                self.communicate_within(now_ms, interval_ms);
            }
            Stage::Running => self.communicate_within(now_ms, interval_ms),
            Stage::PendingControlledShutdown if answer.should_shut_down => {
                self.let_go(effects);
            }
            Stage::PendingControlledShutdown => {
                let wait_ms = self.shutdown_retry_ms.min(interval_ms);
                self.shutdown_retry_ms = wait_ms.saturating_mul(2);
                self.communicate_within(now_ms, wait_ms);
            }
            Stage::ShuttingDown => {}
        }
    }

    /// Sends due requests, and fails if a deadline has passed.
    fn do_what_is_due(&mut self, now_ms: u64, effects: &mut Vec<LifecycleEffect>) {
        if self.stage == Stage::ShuttingDown {
            return;
        }
        if self.registration_deadline_ms.is_some_and(|at| at <= now_ms) {
            let failure = LifecycleFailure::NotRegistered(self.last_refusal);
            return self.fail(failure, effects);
        }
        let mut failed = self.failed_directories.values();
        if failed.any(|dir| !dir.is_told && dir.deadline_ms <= now_ms) {
            return self.fail(LifecycleFailure::DirectoryNotTold, effects);
        }
        if self.let_go_deadline_ms.is_some_and(|at| at <= now_ms) {
            self.stage = Stage::ShuttingDown;
            effects.push(LifecycleEffect::GiveUpLeaving);
            return;
        }
        if self.next_ms.is_some_and(|at| at <= now_ms) {
            self.next_ms = None;
            self.is_in_flight = true;
            effects.push(if self.is_registered {
                LifecycleEffect::SendHeartbeat(self.heartbeat())
            } else {
                LifecycleEffect::SendRegistration
            });
        }
    }

    fn heartbeat(&mut self) -> Heartbeat {
        let failed: Vec<DirectoryId> = self.failed_directories.keys().copied().collect();
        self.directories_in_flight.clone_from(&failed);
        let has_caught_up = self.stage != Stage::Starting;
        Heartbeat {
            want_fence: !self.is_ready_to_unfence,
            want_shut_down: self.stage == Stage::PendingControlledShutdown,
            failed_directories: failed,
            cordoned_directories: has_caught_up.then(|| self.cordoned_directories.clone()),
        }
    }

    /// Sets the time of the next request, which waits for the one in flight.
    fn communicate_at(&mut self, now_ms: u64) {
        if self.is_in_flight {
            self.is_hurried = true
        } else {
            self.communicate_within(now_ms, 0)
        }
    }

    fn communicate_within(&mut self, now_ms: u64, wait_ms: u64) {
        let wait_ms = if std::mem::take(&mut self.is_hurried) {
            0
        } else {
            wait_ms
        };
        self.next_ms = Some(now_ms.saturating_add(wait_ms));
    }

    /// Never at once, even if a request is due: that would add load to a controller that has
    /// problems.
    fn retry_later(&mut self, now_ms: u64) {
        self.is_hurried = false;
        self.communicate_within(now_ms, self.settings.heartbeat_interval_ms);
    }

    /// Sets the deadline for the next answer to the controlled shutdown.
    fn expect_answer(&mut self, now_ms: u64) {
        let session_ms = self.settings.session_timeout_ms;
        self.let_go_deadline_ms = Some(now_ms.saturating_add(session_ms));
    }

    fn let_go(&mut self, effects: &mut Vec<LifecycleEffect>) {
        self.stage = Stage::ShuttingDown;
        effects.push(LifecycleEffect::LetGo);
    }

    fn fail(&mut self, failure: LifecycleFailure, effects: &mut Vec<LifecycleEffect>) {
        self.stage = Stage::ShuttingDown;
        effects.push(LifecycleEffect::Fail(failure));
    }
}

/// Whether a retry of a registration that was refused with that code cannot succeed without a
/// change by the operator.
fn is_hopeless(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InconsistentClusterId
            | ErrorCode::UnsupportedVersion
            | ErrorCode::InvalidRegistration
    )
}
