//! Executes the effects of the broker lifecycle: sends the registration and the heartbeats to the
//! controller, and reports the results to the rest of the broker.
//!
//! There is one task per broker. The decisions are in `ottla_controller::BrokerLifecycle`; this
//! module adds the clock, the channel to the controller and the log messages.
//!
//! Kafka: the event queue of `BrokerLifecycleManager`.

use ottla_sync::atomic::{AtomicI64, Ordering};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_controller::{
    BrokerLifecycle, Heartbeat, HeartbeatAnswer, LifecycleEffect as Effect,
    LifecycleEvent as Event, LifecycleFailure, LifecycleSettings,
};
use ottla_protocol::messages::{BrokerHeartbeatRequest, BrokerRegistrationRequest};
use ottla_sync::task::AbortHandle;
use ottla_sync::{Mutex, mpsc, watch};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, ErrorCode};

use ottla_context::NodeContext;

use crate::controller::handle::ControllerHandle;
use ottla_metrics::complaints::Complaints;

#[cfg(test)]
mod tests;

/// The time limit of a controlled shutdown, as in Kafka.
const MAX_SHUTDOWN: Duration = Duration::from_secs(5 * 60);

/// The task that keeps this broker registered.
#[derive(Debug)]
pub struct Heartbeats {
    /// Unbounded, but holds little: each sender sends once, or when a directory or the registration
    /// changes.
    events: mpsc::UnboundedSender<Event>,
    phase: watch::Receiver<Phase>,
    /// Held while the state of the directories is read and sent.
    reporting: Mutex<()>,
    task: AbortHandle,
}

/// The phase of the broker's lifecycle.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Joining,
    Registered,
    Unfenced,
    LetGo,
    /// Why the broker cannot continue, as a sentence for a log message.
    Failed(String),
}

impl Heartbeats {
    /// Registers the broker, and keeps it registered until [`leave`](Self::leave). `broker_epoch`
    /// is updated with each registration.
    pub fn start(
        context: &Arc<NodeContext>,
        controller: ControllerHandle,
        registration: BrokerRegistrationRequest,
        broker_epoch: Arc<AtomicI64>,
    ) -> Heartbeats {
        let (events, queue) = mpsc::unbounded_channel();
        let (phase, watched) = watch::channel(Phase::Joining);
        let member = Member {
            context: Arc::clone(context),
            controller,
            registration,
            broker_epoch,
            phase,
            complaints: Complaints::default(),
        };
        let task = ottla_sync::task::spawn(member.live(queue));
        Heartbeats {
            events,
            phase: watched,
            reporting: Mutex::default(),
            task: task.abort_handle(),
        }
    }

    /// Completes when the controller has accepted the registration. The error says why it never
    /// will.
    pub async fn registered(&self) -> Result<(), String> {
        match self.wait_for(|phase| *phase != Phase::Joining).await {
            Phase::Failed(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Asks to be unfenced, when the broker is ready for clients. Completes when the controller has
    /// unfenced it. The error says why it never will.
    pub async fn unfence(&self) -> Result<(), String> {
        self.tell(Event::ReadyToUnfence);
        let is_over = |phase: &Phase| !matches!(phase, Phase::Joining | Phase::Registered);
        match self.wait_for(is_over).await {
            Phase::Failed(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Completes with the reason when the broker cannot join the cluster or cannot stay in it.
    pub async fn failed(&self) -> String {
        let is_failed = |phase: &Phase| matches!(phase, Phase::Failed(_));
        match self.wait_for(is_failed).await {
            Phase::Failed(reason) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Reports the failed and the cordoned directories that `current` returns. Of several callers at
    /// the same time, the last one to read sends last: an outdated state would stay until the next
    /// change.
    pub fn on_directories_changed(
        &self,
        current: impl FnOnce() -> (Vec<DirectoryId>, Vec<DirectoryId>),
    ) {
        let _reporting = self.reporting.lock();
        let (failed, cordoned) = current();
        self.tell(Event::DirectoriesChanged { failed, cordoned });
    }

    /// Registers again: the controller has an outdated registration of this broker.
    pub fn on_registration_outdated(&self) {
        self.tell(Event::RegistrationOutdated);
    }

    /// Asks the controller for a controlled shutdown. Completes when the broker may stop, or when
    /// the time limit is over.
    pub async fn leave(&self) {
        self.tell(Event::ShutdownRequested);
        let is_over = |phase: &Phase| matches!(phase, Phase::LetGo | Phase::Failed(_));
        let left = ottla_sync::time::timeout(MAX_SHUTDOWN, self.wait_for(is_over));
        if left.await.is_err() {
            tracing::error!(
                "the controllers did not complete the controlled shutdown of this broker within {} s; it stops anyway",
                MAX_SHUTDOWN.as_secs()
            );
        }
        self.abort();
    }

    /// Ends the task without a controlled shutdown.
    pub fn abort(&self) {
        self.task.abort();
    }

    fn tell(&self, event: Event) {
        // An error means that the task has ended. Waiting callers see the reason in the phase.
        let _ = self.events.send(event);
    }

    /// Waits for a phase that matches; returns the last phase if the task ends before.
    async fn wait_for(&self, is_it: impl Fn(&Phase) -> bool) -> Phase {
        let mut phase = self.phase.clone();
        let reached = phase
            .wait_for(|phase| is_it(phase))
            .await
            .map(|it| it.clone());
        reached.unwrap_or_else(|_| self.phase.borrow().clone())
    }
}

/// The state of the task.
struct Member {
    context: Arc<NodeContext>,
    controller: ControllerHandle,
    /// The same for every registration: its incarnation id identifies this process.
    registration: BrokerRegistrationRequest,
    broker_epoch: Arc<AtomicI64>,
    phase: watch::Sender<Phase>,
    complaints: Complaints,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Event> + Send + 'a>>;

impl Member {
    async fn live(self, mut events: mpsc::UnboundedReceiver<Event>) {
        let millis = |ms: i64| ms.max(0) as u64;
        let config = self.context.config().clone();
        let settings = LifecycleSettings {
            heartbeat_interval_ms: millis(config.broker_heartbeat_interval_ms.into()).max(1),
            registration_timeout_ms: millis(config.initial_broker_registration_timeout_ms.into()),
            dir_failure_timeout_ms: millis(config.log_dir_failure_timeout_ms),
            session_timeout_ms: millis(config.broker_session_timeout_ms.into()),
        };
        let mut lifecycle = BrokerLifecycle::new(settings, self.context.now_ms());
        let mut under_way: Option<Answer<'_>> = None;
        let mut event = Event::TimePassed;
        loop {
            let before = (lifecycle.is_fenced(), lifecycle.broker_epoch());
            let effects = lifecycle.step(self.context.now_ms(), event);
            let broker_epoch = lifecycle.broker_epoch();
            self.broker_epoch
                .store(broker_epoch.value(), Ordering::Release);
            // A new registration starts fenced, regardless of earlier heartbeats.
            if before.1 == broker_epoch {
                self.tell_of_fence(before.0, lifecycle.is_fenced());
            }
            for effect in effects {
                match effect {
                    Effect::SendRegistration => under_way = Some(Box::pin(self.register())),
                    Effect::SendHeartbeat(heartbeat) => {
                        under_way = Some(Box::pin(self.heartbeat(broker_epoch, heartbeat)));
                    }
                    Effect::Registered => drop(self.phase.send_replace(Phase::Registered)),
                    Effect::CaughtUp => {
                        tracing::info!("the broker has the current metadata of the cluster")
                    }
                    Effect::Unfenced => drop(self.phase.send_replace(Phase::Unfenced)),
                    Effect::LetGo => return drop(self.phase.send_replace(Phase::LetGo)),
                    Effect::GiveUpLeaving => {
                        tracing::warn!(
                            "no controller has answered for {} ms (broker.session.timeout.ms): this broker stops \
                             without having handed over its partitions",
                            settings.session_timeout_ms
                        );
                        return drop(self.phase.send_replace(Phase::LetGo));
                    }
                    Effect::Fail(failure) => return self.fail(failure),
                }
            }
            let next_ms = lifecycle.next_wakeup_ms();
            let wakeup = async {
                match next_ms {
                    Some(at_ms) => {
                        let wait_ms = at_ms.saturating_sub(self.context.now_ms());
                        ottla_sync::time::sleep(Duration::from_millis(wait_ms)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            let answer = async {
                match &mut under_way {
                    Some(answer) => answer.await,
                    None => std::future::pending().await,
                }
            };
            event = ottla_sync::select! {
                event = events.recv() => match event {
                    Some(event) => event,
                    // All senders are gone.
                    None => return,
                },
                event = answer => {
                    under_way = None;
                    event
                }
                () = wakeup => Event::TimePassed,
            };
        }
    }

    async fn register(&self) -> Event {
        let answer = self.controller.submit(self.registration.clone()).await;
        let answer = answer.and_then(|response| {
            ErrorCode::from_code(response.error_code).into_result()?;
            Ok(BrokerEpoch(response.broker_epoch))
        });
        let id = self.registration.broker_id;
        match &answer {
            Ok(epoch) => tracing::info!("broker {id} is registered with epoch {epoch}"),
            // The channel has logged the reason.
            Err(ErrorCode::RequestTimedOut) => {}
            Err(ErrorCode::DuplicateBrokerRegistration) => {
                self.complaints.say(|| {
                    tracing::warn!(
                        "node.id={id} is in use: either the last broker with this ID was killed, and its session ends \
                         soon, or another one is running; trying again"
                    );
                });
            }
            Err(code) => {
                let complaint = || tracing::warn!("broker {id} is not registered yet: {code}");
                self.complaints.say(complaint);
            }
        }
        Event::RegistrationAnswered(answer)
    }

    async fn heartbeat(&self, broker_epoch: BrokerEpoch, heartbeat: Heartbeat) -> Event {
        let image = self.context.metadata().clone();
        let is_cordoning_known = image.metadata_version().is_cordoned_log_dirs_supported();
        let request = BrokerHeartbeatRequest {
            broker_id: self.registration.broker_id,
            broker_epoch: broker_epoch.value(),
            current_metadata_offset: image.provenance.last_contained_offset.value(),
            want_fence: heartbeat.want_fence,
            want_shut_down: heartbeat.want_shut_down,
            offline_log_dirs: heartbeat.failed_directories,
            cordoned_log_dirs: heartbeat
                .cordoned_directories
                .filter(|_| is_cordoning_known),
            ..Default::default()
        };
        let answer = self.controller.submit(request).await.and_then(|response| {
            ErrorCode::from_code(response.error_code).into_result()?;
            Ok(HeartbeatAnswer {
                is_caught_up: response.is_caught_up,
                is_fenced: response.is_fenced,
                should_shut_down: response.should_shut_down,
            })
        });
        let id = self.registration.broker_id;
        match &answer {
            Ok(_) | Err(ErrorCode::RequestTimedOut) => {}
            Err(ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered) => {
                tracing::warn!(
                    "the controller no longer knows broker {id} with epoch {broker_epoch}: it was \
                     unregistered, or another process registered with its node.id; registering again"
                );
            }
            Err(code) => {
                let complaint = || tracing::warn!("a heartbeat of broker {id} is refused: {code}");
                self.complaints.say(complaint);
            }
        }
        Event::HeartbeatAnswered(answer)
    }

    fn tell_of_fence(&self, was_fenced: bool, is_fenced: bool) {
        let id = self.registration.broker_id;
        match (was_fenced, is_fenced) {
            (false, true) => tracing::warn!(
                "the controller has fenced broker {id}: its heartbeats did not arrive in time \
                 (broker.session.timeout.ms of the controllers)"
            ),
            (true, false) => tracing::info!("broker {id} is unfenced"),
            _ => {}
        }
    }

    fn fail(&self, failure: LifecycleFailure) {
        let config = self.context.config();
        let trouble = self.controller.trouble();
        let reason = reason_of(failure, &config, &self.registration, trouble.as_deref());
        let before = self.phase.send_replace(Phase::Failed(reason.clone()));
        // Before that, the caller of the start gets the reason.
        if before == Phase::Unfenced {
            self.context.fail(reason);
        }
    }
}

/// The error message for controllers of another cluster.
pub(super) fn of_other_cluster(id: BrokerId, cluster_id: &str) -> String {
    format!(
        "the directories of node {id} belong to cluster {cluster_id}, and the controllers to another one; give the \
         controllers of that cluster, or directories that were formatted with the id of theirs"
    )
}

/// The error message for a refused registration, with advice for the operator.
fn reason_of(
    failure: LifecycleFailure,
    config: &BrokerConfig,
    registration: &BrokerRegistrationRequest,
    trouble: Option<&str>,
) -> String {
    let id = registration.broker_id;
    let within = format!(
        "initial.broker.registration.timeout.ms={}",
        config.initial_broker_registration_timeout_ms
    );
    match failure {
        LifecycleFailure::NotRegistered(Some(ErrorCode::DuplicateBrokerRegistration)) => format!(
            "node.id={id} is in use: another broker with this ID is registered and stayed alive \
             for {within}; stop it, or give this node another node.id"
        ),
        LifecycleFailure::NotRegistered(Some(code)) if code != ErrorCode::RequestTimedOut => {
            format!(
                "node {id} cannot register within {within}: the controller answers {code}; its log says why"
            )
        }
        LifecycleFailure::NotRegistered(_) => format!(
            "node {id} cannot register within {within}: {}; start the controllers, or correct \
             controller.quorum.bootstrap.servers, controller.quorum.voters or log.dirs",
            trouble.unwrap_or("no controller answers")
        ),
        LifecycleFailure::Refused(ErrorCode::InconsistentClusterId) => {
            of_other_cluster(BrokerId(id), &registration.cluster_id)
        }
        LifecycleFailure::Refused(ErrorCode::UnsupportedVersion) => {
            let known = registration.features.iter().map(|feature| {
                let (min, max) = (feature.min_supported_version, feature.max_supported_version);
                format!("{} {min}-{max}", feature.name)
            });
            format!(
                "node {id} cannot register: the cluster has a feature level that this release does \
                 not support ({}); see kafka-features describe, and run a release that supports it",
                known.collect::<Vec<_>>().join(", ")
            )
        }
        LifecycleFailure::Refused(ErrorCode::InvalidRegistration) => format!(
            "the controller refuses the registration of node {id}, for example because a log directory is a copy of \
             another broker's, with the same directory.id; its log says why. Give this node directories of its own"
        ),
        LifecycleFailure::Refused(code) => {
            format!(
                "the controller refuses the registration of node {id}: {code}; its log says why"
            )
        }
        LifecycleFailure::DirectoryNotTold => format!(
            "could not report a failed log directory to the controller within \
             log.dir.failure.timeout.ms={}. Repair the directory and start again",
            config.log_dir_failure_timeout_ms
        ),
    }
}
