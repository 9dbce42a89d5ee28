//! Carries out what the broker's lifecycle asks for: sends its registration and its heartbeats to the controller, and
//! tells the rest of the broker what came of them.
//!
//! One task per broker, wherever its controller is. What is decided stands in `ottla_controller::BrokerLifecycle`; here are
//! the clock, the way to the controller, and the sentences for people.
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
use ottla_sync::{mpsc, watch};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, ErrorCode};

use ottla_context::NodeContext;

use crate::controller::handle::ControllerHandle;
use ottla_metrics::complaints::Complaints;

#[cfg(test)]
mod tests;

/// How long the controller may take to let the broker go, as in Kafka.
const MAX_SHUTDOWN: Duration = Duration::from_secs(5 * 60);

/// The task that keeps this broker in its cluster.
#[derive(Debug)]
pub struct Heartbeats {
    /// Holds little: whoever sends does so once, or when a directory or the registration changes.
    events: mpsc::UnboundedSender<Event>,
    phase: watch::Receiver<Phase>,
    task: AbortHandle,
}

/// How far the broker has come.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    Joining,
    Registered,
    Unfenced,
    LetGo,
    /// Why it cannot go on: a sentence for people.
    Failed(String),
}

impl Heartbeats {
    /// Registers the broker, and keeps it registered until [`leave`](Self::leave). `broker_epoch` follows the
    /// registration.
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
            task: task.abort_handle(),
        }
    }

    /// Returns when the controller has taken the broker in, or with why it never will.
    pub async fn registered(&self) -> Result<(), String> {
        match self.wait_for(|phase| *phase != Phase::Joining).await {
            Phase::Failed(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Clients may come from here on. Returns when the controller sends them, or with why it never will.
    pub async fn unfence(&self) -> Result<(), String> {
        self.tell(Event::ReadyToUnfence);
        let is_over = |phase: &Phase| !matches!(phase, Phase::Joining | Phase::Registered);
        match self.wait_for(is_over).await {
            Phase::Failed(reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Returns when the broker cannot join its cluster or stay in it, with the reason.
    pub async fn failed(&self) -> String {
        let is_failed = |phase: &Phase| matches!(phase, Phase::Failed(_));
        match self.wait_for(is_failed).await {
            Phase::Failed(reason) => reason,
            _ => std::future::pending().await,
        }
    }

    pub fn on_directories_changed(&self, failed: Vec<DirectoryId>, cordoned: Vec<DirectoryId>) {
        self.tell(Event::DirectoriesChanged { failed, cordoned });
    }

    /// What the controller has noted of this broker is not what it should be.
    pub fn on_registration_outdated(&self) {
        self.tell(Event::RegistrationOutdated);
    }

    /// Has the controller move the leaders away. Returns when the broker may stop, or has waited for long enough.
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

    /// Sends nothing any more.
    pub fn abort(&self) {
        self.task.abort();
    }

    fn tell(&self, event: Event) {
        // An error means that the task has ended: whoever waits sees why.
        let _ = self.events.send(event);
    }

    /// The first phase of that kind; the last one where the task ends before.
    async fn wait_for(&self, is_it: impl Fn(&Phase) -> bool) -> Phase {
        let mut phase = self.phase.clone();
        let reached = phase
            .wait_for(|phase| is_it(phase))
            .await
            .map(|it| it.clone());
        reached.unwrap_or_else(|_| self.phase.borrow().clone())
    }
}

/// What the task works with.
struct Member {
    context: Arc<NodeContext>,
    controller: ControllerHandle,
    /// The same each time: it says which life of the broker this is.
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
            // With a new registration it is fenced, whatever its heartbeats were.
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
                    Effect::CaughtUp => tracing::info!("the broker knows the cluster as it is"),
                    Effect::Unfenced => drop(self.phase.send_replace(Phase::Unfenced)),
                    Effect::LetGo => return drop(self.phase.send_replace(Phase::LetGo)),
                    Effect::GiveUpLeaving => {
                        tracing::warn!(
                            "no controller has answered for {} ms (broker.session.timeout.ms): this broker stops \
                             without having given its partitions away",
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
                    // Nobody is there any more who could want anything.
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
            // The channel has said why.
            Err(ErrorCode::RequestTimedOut) => {}
            Err(ErrorCode::DuplicateBrokerRegistration) => {
                self.complaints.say(|| {
                    tracing::warn!(
                        "node.id={id} is in use: either the last broker of that id was killed, and its session ends \
                         soon, or another one runs; trying again"
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
                "the controller has fenced broker {id}: its heartbeats did not come in time \
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
        // Before that whoever starts the broker is told.
        if before == Phase::Unfenced {
            self.context.fail(reason);
        }
    }
}

/// What to do about controllers of another cluster.
pub(super) fn of_other_cluster(id: BrokerId, cluster_id: &str) -> String {
    format!(
        "the directories of node {id} belong to cluster {cluster_id}, and the controllers to another one; give the \
         controllers of that cluster, or directories that were formatted with the id of theirs"
    )
}

/// What is wrong, and what to do about it.
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
            "the controller refuses the registration of node {id}, as it does where a log directory is a copy of one \
             of another broker, with its directory.id; its log says more. Give directories of this node's own"
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
