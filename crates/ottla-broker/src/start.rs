//! Starts and stops a broker.
//!
//! The start proceeds from the disk outwards: everything that can fail is checked before anything
//! is changed, and client connections are accepted last, so that a connected client finds a working
//! broker. Only the controller of the node answers earlier, because other nodes need its vote, and
//! may need it as leader, to start. The stop proceeds in reverse: partitions are handed over,
//! requests in flight are answered, the logs are flushed and the clean-shutdown marker is written.
//! The controller stops last, as in `KafkaRaftServer`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::{BrokerConfig, InvalidRemoteStorage};
use ottla_context::{BrokerState, NodeContext, StopStep};
use ottla_log::Handles;
use ottla_metadata::{ConfigResource, MetadataImage};
use ottla_metrics::{Metric, advance_windows, flush_stats, stalls};
use ottla_net::{
    BoundAt, BoundListener, Connection, ListenerInfo, ListeningListener, Network,
    accept_connections, check_audit_file, check_kerberos, keep_token_keys, load_token_keys,
};
use ottla_node::{ControllerHandle, Membership};
use ottla_partition::cleaner::Cleaner;
use ottla_partition::maintenance::Maintenance;
use ottla_partition::partition::Partition;
use ottla_partition::replication;
use ottla_storage::format::{format_standalone, not_formatted, read_identity};
use ottla_storage::log_dirs::{DirLocks, LoadSettings, LogDirs};
use ottla_storage::preflight::Unformatted;
use ottla_sync::task::{Handle, JoinHandle, JoinSet};
use ottla_types::TopicPartition;
use tokio::runtime::Runtime;

use crate::Broker;
use crate::audit_topic::{AuditTopicWriter, check_audit_topic};
use crate::endpoint::Endpoint;
use crate::follow_listeners::{self, NotOpened};
use crate::http::HttpServer;
use crate::metrics;
use crate::publish::{apply_dynamic_settings, publish_to};

/// The maximum time for answering requests in flight at a stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long an active controller tries to hand over leadership at a stop. Kafka:
/// `KafkaRaftClientDriver.shutdown`.
const LEAD_AWAY: Duration = Duration::from_secs(5);
/// How many logs are closed at a time, so that their fsyncs share disk operations. Fewer than the
/// blocking threads of one log directory, some of which write topic IDs.
const LOGS_CLOSED_AT_ONCE: usize = 24;
/// The interval between attempts to open partitions that could not be opened.
const OPEN_RETRY: Duration = Duration::from_secs(10);
/// The maximum interval between searches for idle connections.
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// How often certificate files are checked.
const CERTIFICATES_CHECK: Duration = Duration::from_secs(3);
/// A connection that was idle for this long keeps no buffer.
const QUIET_MS: u64 = 5_000;

/// Why a broker did not start: one sentence for people, with the cause and the remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// A running broker. Dropping it without [`stop`](RunningBroker::stop) is a crash.
#[derive(Debug)]
pub struct RunningBroker {
    broker: Arc<Broker>,
    listeners: Vec<Arc<ListenerInfo>>,
    tasks: Vec<JoinHandle<()>>,
    /// Opens logs late. Stopping waits for it: a log that is opened while the logs are being closed
    /// would stay open.
    opener: JoinHandle<()>,
    /// The tasks that accept connections on controller listeners.
    controller_tasks: Vec<JoinHandle<()>>,
    /// Ends by itself when the broker stops.
    reporter: JoinHandle<()>,
    audit: JoinHandle<()>,
    audit_topic: Option<Arc<AuditTopicWriter>>,
    /// Serves until everything else has ended.
    http: Option<HttpServer>,
}

impl Broker {
    /// Starts a broker on formatted directories. Must be called within a tokio runtime.
    pub async fn start(config: BrokerConfig) -> Result<RunningBroker, StartError> {
        Broker::start_on(config, Unformatted::Refused, None).await
    }

    /// Like [`Broker::start`], but first formats the directories if none is formatted, for a new
    /// cluster.
    pub async fn format_and_start(config: BrokerConfig) -> Result<RunningBroker, StartError> {
        Broker::start_on(config, Unformatted::Formatted, None).await
    }

    /// Starts a broker whose work at remote storage runs on the threads of another runtime, which
    /// must live as long as the broker; without one, on those of the caller's.
    pub async fn start_on(
        mut config: BrokerConfig,
        unformatted: Unformatted,
        store_threads: Option<&Runtime>,
    ) -> Result<RunningBroker, StartError> {
        let store_threads = {
            let _entered = store_threads.map(Runtime::enter);
            Handle::current()
        };
        // Binding first detects an address in use before the data directory is changed. Connections
        // are refused until everything else works.
        let (mut bound, mut not_bound) = (Vec::new(), NotOpened::new());
        for listener in &config.listeners {
            match BoundListener::bind(&config, listener, BoundAt::Start) {
                Ok(listener) => bound.push(listener),
                // A dynamic setting may have removed it, which is not known yet.
                Err(error) if follow_listeners::is_removable(&config, listener) => {
                    not_bound.insert(listener.name.clone(), error);
                }
                Err(error) => return Err(StartError(error)),
            }
        }
        let listeners: Vec<_> = bound.iter().map(|bound| Arc::clone(&bound.info)).collect();
        for listener in &listeners {
            // Clients must not see port 0 if the kernel has chosen a port.
            let advertised = config.advertised_listeners.iter_mut();
            for advertised in advertised.chain(&mut config.advertised_controller_listeners) {
                if advertised.name == listener.name && advertised.port == 0 {
                    advertised.port = listener.local_addr.port();
                }
            }
        }

        let http = match &config.ottla_http_listener {
            Some(address) => Some(HttpServer::bind(address).await.map_err(StartError)?),
            None => None,
        };
        if let Ok(ms @ 1..) = u64::try_from(config.ottla_trace_stalls_ms) {
            stalls::set_threshold_ms(ms);
        }
        ottla_log::observe_flushes(flush_stats::record);
        let of_file = config.listeners.clone();
        let broker = Broker::new(config);
        let resolving = Arc::clone(&broker.network);
        let opening = Arc::clone(&broker);
        ottla_sync::task::spawn_blocking(move || {
            let context = &resolving.context;
            let config = context.config();
            context.tls.load(&config).map_err(|error| error.0)?;
            if config.ottla_ssl_kernel_enable {
                resolving.enable_kernel_tls();
            }
            load_token_keys(context)?;
            check_kerberos(&config, |_| true)?;
            check_audit_file(&config)?;
            check_audit_topic(&config)?;
            opening.open_remote_logs(store_threads)?;
            resolving.address_limits.resolve(&config)
        })
        .await
        .map_err(|error| StartError(format!("the start was aborted: {error}")))?
        .map_err(StartError)?;
        // From before the logs are opened, so that health checks can see the progress.
        let http = match http {
            Some(bound) => Some(HttpServer::start(Arc::clone(&broker), bound).map_err(StartError)?),
            None => None,
        };
        let (of_controller, of_broker): (Vec<_>, Vec<_>) = bound
            .into_iter()
            .partition(|bound| bound.info.is_controller);
        let authorizer = Arc::clone(&broker.authorizer);
        let audit =
            ottla_sync::task::spawn(authorizer.write_audit_file(Arc::clone(&broker.context)));
        let joining = Arc::clone(&broker);
        let of_broker = FileListeners {
            bound: of_broker,
            not_bound,
        };
        let joined = move || join_cluster(&joining, unformatted, of_controller, of_broker);
        let (controller_tasks, of_broker) = ottla_sync::task::spawn_blocking(joined)
            .await
            .map_err(|error| StartError(format!("the start was aborted: {error}")))?
            .map_err(StartError)?;
        let mut tasks = background_tasks(&broker);
        let audit_topic = AuditTopicWriter::of(&broker);
        tasks.extend(audit_topic.iter().map(|writer| {
            let writing = Arc::clone(writer).run();
            ottla_sync::task::spawn(writing)
        }));
        let opener = ottla_sync::task::spawn(open_missing_partitions(Arc::clone(&broker)));
        let reporter = ottla_sync::task::spawn(metrics::report_to_files(Arc::clone(&broker)));
        let moves = Arc::clone(&broker.directory_moves);
        ottla_sync::task::spawn_blocking(move || moves.resume_moves());
        for listening in of_broker {
            let bound = of_file.iter().find(|it| it.name == listening.info.name);
            let bound = bound.expect("it was bound for a listener of the file");
            follow_listeners::open(&broker, listening, bound.clone());
        }
        // The listeners of the dynamic settings.
        let not_opened = follow_listeners::apply(&broker, &NotOpened::new()).await;
        let following = follow_listeners::follow(Arc::clone(&broker), not_opened);
        tasks.push(ottla_sync::task::spawn(following));
        let mut listeners = listeners;
        listeners.retain(|it| {
            it.is_controller || follow_listeners::is_kept(&broker, &of_file, &it.name)
        });
        let partitions = broker.partitions.load().iter().count();
        for shortage in broker.context.limits().shortages(partitions) {
            tracing::warn!("{shortage}");
        }
        broker.context.set_state(BrokerState::Running);
        Ok(RunningBroker {
            broker,
            listeners,
            tasks,
            opener,
            controller_tasks,
            reporter,
            audit,
            audit_topic,
            http,
        })
    }
}

/// The tasks that run until the broker stops.
fn background_tasks(broker: &Arc<Broker>) -> Vec<JoinHandle<()>> {
    let context = Arc::clone(&broker.context);
    let windows = async move {
        ottla_sync::select! {
            () = advance_windows(&context.metrics) => {}
            () = context.stopping() => {}
        }
    };
    let context = Arc::clone(&broker.context);
    let heap = async move { context.watch_heap().await };
    let led = Arc::clone(broker);
    let led_with_followers = move || led.local_replicas.led_with_followers();
    let mut tasks = vec![
        ottla_sync::task::spawn(windows),
        ottla_sync::task::spawn(heap),
        ottla_sync::task::spawn(close_idle_connections(Arc::clone(&broker.network))),
        ottla_sync::task::spawn(watch_certificates(Arc::clone(&broker.context))),
        ottla_sync::task::spawn(keep_token_keys(Arc::clone(&broker.context))),
        ottla_sync::task::spawn(Arc::clone(broker).wake_at_stop()),
        ottla_sync::task::spawn(Arc::clone(&broker.dir_assignments).send_all()),
        ottla_sync::task::spawn(replication::keep_isr_current(
            Arc::clone(&broker.host),
            led_with_followers,
        )),
    ];
    if let Some(remote_logs) = broker.remote_logs() {
        tasks.push(ottla_sync::task::spawn(Arc::clone(remote_logs).run()));
    }
    if let Some(log_dirs) = broker.log_dirs() {
        let log_dirs = || Arc::clone(log_dirs);
        let (host, partitions) = (Arc::clone(&broker.host), Arc::clone(&broker.partitions));
        let maintenance = Maintenance::new(host.clone(), partitions.clone(), log_dirs());
        let cleaner = Arc::new(Cleaner::new(host, partitions, log_dirs()));
        let cleaner = broker.cleaner.get_or_init(|| cleaner);
        tasks.extend([
            ottla_sync::task::spawn(Arc::new(maintenance).maintain()),
            ottla_sync::task::spawn(Arc::clone(cleaner).keep_cleaning()),
            ottla_sync::task::spawn(log_dirs().watch_space(Arc::clone(&broker.context))),
            ottla_sync::task::spawn(Arc::clone(&broker.dir_reports).send_all(log_dirs())),
        ]);
    }
    tasks
}

/// Reloads certificates and trust stores when their files or settings have changed.
async fn watch_certificates(context: Arc<NodeContext>) {
    let watching = async {
        loop {
            ottla_sync::time::sleep(CERTIFICATES_CHECK).await;
            // A listener with TLS may be added later.
            if context.tls.all().is_empty() {
                continue;
            }
            let refreshed = Arc::clone(&context);
            let refresh = move || {
                refreshed.tls.refresh(&refreshed.config());
                let now = ottla_sync::time::wall_clock();
                refreshed.tls.warn_of_expiry(now);
            };
            if let Err(error) = ottla_sync::task::spawn_blocking(refresh).await {
                tracing::error!("cannot check the certificates: {error}");
            }
        }
    };
    ottla_sync::select! {
        () = watching => {}
        () = context.stopping() => {}
    }
}

fn accept(broker: &Arc<Broker>, bound: BoundListener) -> Result<JoinHandle<()>, String> {
    let network = Arc::clone(&broker.network);
    let accepting = accept_connections(network, Arc::clone(broker), bound.listen()?);
    Ok(ottla_sync::task::spawn(accepting))
}

/// Accepts connections on all of these listeners, or on none.
fn accept_all(
    broker: &Arc<Broker>,
    all: Vec<BoundListener>,
) -> Result<Vec<JoinHandle<()>>, String> {
    let mut accepting = Vec::new();
    for bound in all {
        match accept(broker, bound) {
            Ok(task) => accepting.push(task),
            Err(error) => {
                accepting.iter().for_each(JoinHandle::abort);
                return Err(error);
            }
        }
    }
    Ok(accepting)
}

/// The broker listeners of the file.
struct FileListeners {
    bound: Vec<BoundListener>,
    /// The reasons why listeners are not open, by name.
    not_bound: NotOpened,
}

/// Reads or formats the directories, joins the metadata quorum and the cluster. Returns the tasks
/// that accept connections on controller listeners, and the broker listeners, which listen. Blocks.
fn join_cluster(
    broker: &Arc<Broker>,
    unformatted: Unformatted,
    of_controller: Vec<BoundListener>,
    of_broker: FileListeners,
) -> Result<(Vec<JoinHandle<()>>, Vec<ListeningListener>), String> {
    let config = BrokerConfig::clone(&broker.config());
    let locks = DirLocks::take(&config)?;
    let read = || read_identity(&config).map_err(|error| error.to_string());
    let mut identity = read()?;
    if identity.is_none() && unformatted == Unformatted::Formatted {
        format_standalone(&config).map_err(|error| error.to_string())?;
        identity = read()?;
    }
    let identity = identity.ok_or_else(|| not_formatted(&config))?;
    let handles = Handles::new(broker.context.handles.logs);
    let log_dirs = Arc::new(LogDirs::new(locks, &identity, handles));
    let publish = publish_to(broker, config.clone());
    let membership = match config.process_roles.broker {
        // Both take long in a large cluster.
        true => ottla_sync::thread::scope(|scope| {
            let reading = scope.spawn(|| log_dirs.read_ahead());
            let membership = Membership::join(
                &broker.context,
                &config,
                &identity,
                log_dirs.epoch_of_clean_stop(),
                publish,
            );
            let read = reading.join();
            read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            membership
        }),
        false => Membership::control(&broker.context, &config, &identity, &log_dirs, publish),
    };
    // Before the node has fully joined, because the publisher sends requests to the controller.
    let joined = membership.map(|membership| broker.node.set_membership(membership));
    let accepting = joined.and_then(|()| {
        let accepting = accept_all(broker, of_controller);
        if accepting.is_err()
            && let Some(membership) = broker.node.membership()
        {
            ottla_sync::task::Handle::current().block_on(membership.abandon());
        }
        accepting
    });
    let joined = accepting.and_then(|accepting| {
        match load_and_serve(broker, &config, &log_dirs, of_broker) {
            Ok(listening) => Ok((accepting, listening)),
            Err(error) => {
                accepting.iter().for_each(JoinHandle::abort);
                Err(error)
            }
        }
    });
    if joined.is_err() {
        log_dirs.abandon();
    }
    joined
}

/// Loads the logs with the cluster's settings, starts to listen, and has the broker unfenced. Does
/// nothing on a node that is not a broker. Blocks.
fn load_and_serve(
    broker: &Arc<Broker>,
    file_config: &BrokerConfig,
    log_dirs: &Arc<LogDirs>,
    of_broker: FileListeners,
) -> Result<Vec<ListeningListener>, String> {
    let (Some(membership), Some(heartbeats)) = (broker.node.membership(), broker.heartbeats())
    else {
        return Ok(Vec::new());
    };
    let runtime = ottla_sync::task::Handle::current();
    let served = (|| -> Result<Vec<ListeningListener>, String> {
        let image = runtime.block_on(membership.catch_up(&broker.context, heartbeats))?;
        // Before the logs, so that each is opened with the settings of its topic, over the dynamic
        // settings of the cluster and this broker.
        broker.authorizer.load(&image);
        broker.follow_quotas(&image.client_quotas);
        let config = apply_dynamic_settings(broker, file_config, &image);
        let of_file = &file_config.listeners;
        let mut not_bound = of_broker.not_bound.into_iter();
        if let Some((_, error)) =
            not_bound.find(|(name, _)| follow_listeners::is_kept(broker, of_file, name))
        {
            return Err(error);
        }
        refuse_tiered_topics(broker, &config, &image)?;
        load_logs(broker, &config, &image, log_dirs)?;
        // Clients and other brokers connect as soon as the broker is unfenced. Listeners of the
        // file that a dynamic setting has removed or moved stay closed.
        let kept = of_broker
            .bound
            .into_iter()
            .filter(|it| follow_listeners::is_kept(broker, of_file, &it.info.name));
        let listening = kept
            .map(BoundListener::listen)
            .collect::<Result<Vec<_>, String>>()?;
        runtime.block_on(membership.serve(&broker.context, heartbeats, log_dirs))?;
        Ok(listening)
    })();
    if served.is_err() {
        runtime.block_on(membership.abandon());
    }
    served
}

/// Without tiered storage, a log would start with its local segments, and if it led again with tiered
/// storage, its remote segments would expire.
fn refuse_tiered_topics(
    broker: &Broker,
    config: &BrokerConfig,
    image: &MetadataImage,
) -> Result<(), String> {
    if config.remote_log_storage_system_enable {
        return Ok(());
    }
    let broker_id = broker.broker_id();
    let mut tiered = image.topics.iter().filter(|topic| {
        let resource = ConfigResource::topic(topic.name.to_string());
        let enabled = image.configs.value(&resource, "remote.storage.enable");
        enabled.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
            && topic
                .partitions()
                .any(|(_, it)| it.replicas.contains(&broker_id))
    });
    match tiered.next() {
        Some(topic) => Err(format!(
            "this broker has a replica of the tiered topic {}, and \
             remote.log.storage.system.enable is false: {}",
            topic.name,
            InvalidRemoteStorage::SystemDisabledWithTopics
        )),
        None => Ok(()),
    }
}

/// Opens the logs with the settings of their topics in the image, and starts to use the
/// directories.
fn load_logs(
    broker: &Arc<Broker>,
    config: &BrokerConfig,
    image: &MetadataImage,
    log_dirs: &Arc<LogDirs>,
) -> Result<(), String> {
    broker.context.set_state(BrokerState::Recovery);
    log_dirs.load(&LoadSettings {
        topic_config: &|topic| broker.local_replicas.topic_config(image, topic),
        assigned: &|replica| {
            let topic = image.topics.by_name(&replica.topic)?;
            let registration = topic.partition(replica.partition)?;
            Some((topic.id, registration.directory(broker.broker_id())?))
        },
        producer_id_expiration_ms: config.producer_id_expiration_ms.into(),
        threads_per_dir: config.num_recovery_threads_per_data_dir.max(1) as usize,
        loading: &broker.loading,
        now: broker.timestamp(),
    })?;
    log_dirs.look_at_space(broker.config().ottla_disk_reserve_bytes);
    broker.set_log_dirs(Arc::clone(log_dirs));
    Ok(())
}

impl RunningBroker {
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// The listeners of the properties file, including controller listeners, without the listeners
    /// that dynamic settings had removed before the start. Dynamic settings add and remove
    /// listeners later.
    pub fn listeners(&self) -> &[Arc<ListenerInfo>] {
        &self.listeners
    }

    /// The open listeners that dynamic settings have added.
    pub fn added_listeners(&self) -> Vec<Arc<ListenerInfo>> {
        self.broker.listeners.besides(&self.listeners)
    }

    /// The address of the HTTP listener for metrics and health.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.local_addr)
    }

    /// Answers requests in flight, and then writes everything to disk.
    pub async fn stop(mut self) {
        let broker = Arc::clone(&self.broker);
        broker
            .context
            .set_state(BrokerState::PendingControlledShutdown);
        let has_successors = has_successors(&broker);
        if has_successors {
            // Clients are served until other brokers lead these partitions.
            leave(&broker).await;
        }
        if let Some(writer) = &self.audit_topic {
            writer.finish().await;
        }
        broker.context.set_stop_step(StopStep::Clients);
        broker.context.begin_stop();
        // Otherwise members that wait for their group would prevent their connections from closing.
        broker.groups.stop();
        broker.transactions.stop();
        broker.share_groups.stop();
        self.drain(Endpoint::Broker).await;
        end(&mut self.tasks).await;
        // After the task that follows the settings.
        broker.listeners.close_all().await;
        // A panic was reported where it happened.
        let _ = (&mut self.opener).await;
        if let Some(remote_logs) = broker.remote_logs() {
            remote_logs.close().await;
        }
        broker.context.set_state(BrokerState::ShuttingDown);
        // It only writes a file. A panic was reported where it happened.
        let _ = (&mut self.reporter).await;
        let _ = (&mut self.audit).await;
        if let Some(writer) = &self.audit_topic {
            writer.report_rest().await;
        }
        if let Some(membership) = broker.node.membership() {
            if !has_successors {
                leave(&broker).await;
            }
            if let Some(heartbeats) = membership.heartbeats() {
                heartbeats.abort();
            }
            broker.context.set_stop_step(StopStep::Logs);
            broker.replication.end();
            broker.directory_moves.stop().await;
            self.stop_cleaner().await;
            let unclosed = self.close_logs().await;
            // Hands over leadership while other nodes can still be informed.
            stop_controller(&broker, &membership.controller).await;
            end(&mut self.controller_tasks).await;
            self.drain(Endpoint::Controller).await;
            if let Some(log_dirs) = broker.log_dirs() {
                let (log_dirs, broker_epoch) = (Arc::clone(log_dirs), membership.broker_epoch());
                let close = move || log_dirs.close(broker_epoch, &unclosed);
                // A panic was reported where it happened. Without the marker, the next start
                // recovers the logs.
                let _ = ottla_sync::task::spawn_blocking(close).await;
            }
        }
    }

    /// Answers the requests in flight on these connections and closes them. A failed broker does
    /// not answer: Kafka halts at once.
    async fn drain(&self, endpoint: Endpoint) {
        let connections = &self.broker.network.connections;
        let each = |act: fn(&Connection)| {
            connections.for_each(|connection| {
                if Endpoint::of(&connection.listener) == endpoint {
                    act(connection);
                }
            });
        };
        each(Connection::drain);
        let drained = connections.none_left(endpoint == Endpoint::Controller);
        let is_broken = self.broker.failure().is_some();
        if is_broken || ottla_sync::time::timeout(DRAIN, drained).await.is_err() {
            each(Connection::close);
        }
    }

    /// Ends the cleaner threads, which access the logs while they run.
    async fn stop_cleaner(&self) {
        if let Some(cleaner) = self.broker.cleaner.get().map(Arc::clone) {
            // A panic was reported where it happened.
            let _ = ottla_sync::task::spawn_blocking(move || cleaner.stop()).await;
        }
    }

    /// Closes all logs, several at a time. Returns the partitions whose logs could not be closed.
    async fn close_logs(&self) -> Vec<TopicPartition> {
        let partitions: Vec<_> = self
            .broker
            .partitions
            .load()
            .iter()
            .map(Arc::clone)
            .collect();
        let mut unclosed = Vec::new();
        let mut closing = JoinSet::new();
        for partition in partitions {
            if closing.len() >= LOGS_CLOSED_AT_ONCE
                && let Some(closed) = closing.join_next().await
            {
                unclosed.extend(closed.expect("a panic of a partition ends the process"));
            }
            closing.spawn(close_log(Arc::clone(&self.broker), partition));
        }
        unclosed.extend(closing.join_all().await.into_iter().flatten());
        unclosed
    }
}

/// Closes a log. Returns its partition if it could not be closed.
async fn close_log(broker: Arc<Broker>, partition: Arc<Partition>) -> Option<TopicPartition> {
    partition.ensure_topic_id(&broker.host).await;
    let topic_partition = &partition.topic_partition;
    let job = partition.close(&broker.host).await;
    let (Some(job), Some(log_dirs)) = (job, broker.log_dirs()) else {
        return Some(topic_partition.clone());
    };
    let (log_dirs, topic_id) = (Arc::clone(log_dirs), partition.topic_id);
    let close = move || log_dirs.close_log(&job, topic_id);
    let closed = ottla_sync::task::spawn_blocking(close).await;
    if let Ok(Err(error)) = &closed {
        tracing::error!(%topic_partition, "the log could not be closed: {error}");
    }
    // A panic was reported where it happened.
    match closed {
        Ok(Ok(())) => None,
        _ => Some(topic_partition.clone()),
    }
}

/// Aborts tasks and returns when they have ended. If they accept connections, their sockets are
/// then closed.
async fn end(tasks: &mut [JoinHandle<()>]) {
    for task in tasks {
        task.abort();
        // It was aborted or has ended before. A panic was reported where it happened.
        let _ = task.await;
    }
}

/// Whether another broker may take over this broker's partitions; if so, they are handed over
/// first. A broker that is alone in its cluster serves clients until the end.
fn has_successors(broker: &Broker) -> bool {
    let controls_itself = broker
        .node
        .quorum()
        .is_some_and(|quorum| quorum.status().is_active);
    let id = broker.broker_id();
    let metadata = broker.metadata();
    let mut brokers = metadata.cluster.brokers();
    !controls_itself || brokers.any(|other| other.id != id && !other.fenced)
}

/// Has the controller move leadership to other brokers. A failed broker does not request it.
async fn leave(broker: &Broker) {
    broker.context.set_stop_step(StopStep::Leaders);
    if let Some(heartbeats) = broker.heartbeats()
        && broker.failure().is_none()
        && broker.config().controlled_shutdown_enable
    {
        ottla_sync::select! {
            () = heartbeats.leave() => {}
            () = broker.context.hurried() => {}
        }
    }
}

async fn stop_controller(broker: &Broker, controller: &ControllerHandle) {
    broker.context.set_stop_step(StopStep::Quorum);
    ottla_sync::select! {
        () = controller.stop(LEAD_AWAY) => return,
        () = broker.context.hurried() => {}
    }
    controller.stop(Duration::ZERO).await;
}

/// Periodically retries to open partitions that could not be opened.
async fn open_missing_partitions(broker: Arc<Broker>) {
    loop {
        ottla_sync::select! {
            () = ottla_sync::time::sleep(OPEN_RETRY) => {}
            () = broker.stopping() => return,
        }
        let opening = Arc::clone(&broker);
        let open = move || opening.open_missing_partitions();
        // A panic was reported where it happened. The next attempt may succeed.
        let _ = ottla_sync::task::spawn_blocking(open).await;
    }
}

/// Closes connections that were idle for `connections.max.idle.ms`.
async fn close_idle_connections(network: Arc<Network>) {
    let context = &network.context;
    loop {
        let max_idle_ms = u64::try_from(context.config().connections_max_idle_ms).ok();
        let check = max_idle_ms.map_or(IDLE_CHECK, |ms| {
            Duration::from_millis(ms / 4).clamp(Duration::from_millis(10), IDLE_CHECK)
        });
        ottla_sync::select! {
            () = ottla_sync::time::sleep(check) => {}
            () = context.stopping() => return,
        }
        if let Some(since_ms) = context.now_ms().checked_sub(QUIET_MS) {
            network.connections.quieten(since_ms);
        }
        let Some(max_idle_ms) = max_idle_ms else {
            continue;
        };
        if let Some(since_ms) = context.now_ms().checked_sub(max_idle_ms) {
            let closed = network.connections.close_idle(since_ms);
            context.metrics.add(Metric::ConnectionsIdle, closed as u64);
        }
    }
}
