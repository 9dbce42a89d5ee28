//! The life of a broker under its controllers: the other end of `brokers`. An event in, effects out.
//!
//! It registers the broker, sends heartbeats, says when it may serve, and gives its partitions away before it
//! stops. One request is under way at a time; what becomes due meanwhile goes out when the answer is there. It
//! owns the broker's epoch and the times at which something is due. It never touches a clock, a socket or the
//! rest of the broker: a shell carries out the effects and reports back.
//!
//! In Kafka: `BrokerLifecycleManager`. Three things are otherwise. A registration that no later attempt could
//! save (another cluster, features that are not known here) ends the start at once instead of after
//! `initial.broker.registration.timeout.ms`. And a broker whose epoch the controller does not know any more
//! registers again, where Kafka's repeats its heartbeat until somebody restarts it: the controller refuses
//! while another process lives under that id, so that two cannot take it from each other. A broker that is to stop and
//! that no controller answers waits for a session, where Kafka's waits 5 minutes: after a session the controllers take it
//! for dead, and it has nothing left to give away.
//! While logs are loaded the controller is asked less and less often, where Kafka's broker asks every 10 ms, and a stop
//! is asked for more than twice before the broker goes back to its usual pace.

use std::collections::BTreeMap;

use ottla_types::{BrokerEpoch, DirectoryId, ErrorCode};

#[cfg(test)]
mod tests;

/// How soon a broker that has not caught up asks again, the first time; each further time it waits twice as long, so
/// that one whose logs take long to load does not keep the controller busy.
const FIRST_CATCH_UP_RETRY_MS: u64 = 10;
/// How soon the controller is asked again whether the broker may stop, the first time; likewise twice as long each
/// further time. It says yes at the third at the earliest, or at the second where there is nobody else.
const FIRST_SHUTDOWN_RETRY_MS: u64 = 10;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleSettings {
    /// `broker.heartbeat.interval.ms`
    pub heartbeat_interval_ms: u64,
    /// `initial.broker.registration.timeout.ms`
    pub registration_timeout_ms: u64,
    /// `log.dir.failure.timeout.ms`
    pub dir_failure_timeout_ms: u64,
    /// `broker.session.timeout.ms`, which counts at the controllers, and is the same there as a rule.
    pub session_timeout_ms: u64,
}

/// How far the broker has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Starting,
    /// It knows the cluster as it is, and loads its logs.
    Recovery,
    Running,
    PendingControlledShutdown,
    ShuttingDown,
}

/// The broker's place in its cluster.
#[derive(Debug)]
pub struct BrokerLifecycle {
    settings: LifecycleSettings,
    stage: Stage,
    broker_epoch: BrokerEpoch,
    /// The controller knows the broker under `broker_epoch`.
    is_registered: bool,
    /// Until when the first registration has to succeed; `None` once it has.
    registration_deadline_ms: Option<u64>,
    /// Why the controller refused the last registration.
    last_refusal: Option<ErrorCode>,
    /// The logs are loaded and the metadata is in force: clients may come.
    is_ready_to_unfence: bool,
    is_fenced: bool,
    failed_directories: BTreeMap<DirectoryId, FailedDirectory>,
    cordoned_directories: Vec<DirectoryId>,
    /// The failed directories that the heartbeat under way names.
    directories_in_flight: Vec<DirectoryId>,
    is_in_flight: bool,
    /// Something became due while a request was under way.
    is_hurried: bool,
    /// When the next request goes out; `None` while one is under way, and at the end.
    next_ms: Option<u64>,
    catch_up_retry_ms: u64,
    shutdown_retry_ms: u64,
    /// Until when the controller has to answer a broker that is to stop; `None` before it is.
    let_go_deadline_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct FailedDirectory {
    /// Until when the controller has to know.
    deadline_ms: u64,
    is_told: bool,
}

/// What happens to the broker.
#[derive(Clone, PartialEq, Debug)]
pub enum LifecycleEvent {
    /// The logs are loaded and the metadata is in force.
    ReadyToUnfence,
    /// Which directories have failed, and which get no new logs.
    DirectoriesChanged {
        failed: Vec<DirectoryId>,
        cordoned: Vec<DirectoryId>,
    },
    /// What the controller has noted of this broker is not what it should be.
    RegistrationOutdated,
    ShutdownRequested,
    RegistrationAnswered(Result<BrokerEpoch, ErrorCode>),
    HeartbeatAnswered(Result<HeartbeatAnswer, ErrorCode>),
    /// The time has come that [`BrokerLifecycle::next_wakeup_ms`] named.
    TimePassed,
}

/// What the controller says to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    pub is_caught_up: bool,
    pub is_fenced: bool,
    pub should_shut_down: bool,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum LifecycleEffect {
    SendRegistration,
    SendHeartbeat(Heartbeat),
    /// The controller has taken the broker in, for the first time.
    Registered,
    /// The controller agrees that the broker knows the cluster as it is, for the first time.
    CaughtUp,
    /// Clients may come, for the first time.
    Unfenced,
    /// The broker may stop: nothing is asked of the controller any more.
    LetGo,
    /// The broker has to stop without having given its partitions away: no controller answers.
    GiveUpLeaving,
    /// The broker cannot go on.
    Fail(LifecycleFailure),
}

/// A heartbeat without what only the shell knows: who sends it, and what metadata is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    pub want_fence: bool,
    pub want_shut_down: bool,
    pub failed_directories: Vec<DirectoryId>,
    /// `None` before the broker has caught up: until then its settings may be old.
    pub cordoned_directories: Option<Vec<DirectoryId>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifecycleFailure {
    /// Within `initial.broker.registration.timeout.ms`; with what the controller last said, if it said anything.
    NotRegistered(Option<ErrorCode>),
    /// No later attempt could succeed.
    Refused(ErrorCode),
    /// The controller was not told of a failed directory within `log.dir.failure.timeout.ms`: what the broker led
    /// from there would stay without a leader.
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

    /// Whether the controller keeps clients away from this broker that is to have some, as far as it has said.
    pub fn is_fenced(&self) -> bool {
        // One that asks to stop is fenced because it asks.
        let is_stopping = matches!(
            self.stage,
            Stage::PendingControlledShutdown | Stage::ShuttingDown
        );
        self.is_fenced && !is_stopping
    }

    /// When [`LifecycleEvent::TimePassed`] is due.
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
            // It leads nothing that could be given away.
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
                // Of a registration that is new the controller has not heard that the broker knows it.
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
                // Where the logs were loaded before it had caught up, one answer says both.
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

    /// Sends what is due, and fails where something should have happened by now.
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

    /// As soon as nothing is under way.
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

    /// Never at once, however much it is hurried: a controller in trouble would be hurried too.
    fn retry_later(&mut self, now_ms: u64) {
        self.is_hurried = false;
        self.communicate_within(now_ms, self.settings.heartbeat_interval_ms);
    }

    /// A broker that is to stop waits for the next answer this long.
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

/// Whether a registration that is refused with that code is refused for as long as nobody changes anything.
fn is_hopeless(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InconsistentClusterId
            | ErrorCode::UnsupportedVersion
            | ErrorCode::InvalidRegistration
    )
}
