//! `ottla.audit.topic`: writes the decisions of this broker's authorizer to a topic, as JSON.
//!
//! The topic is one like any other: a batch goes to the leader of one of its partitions by a Produce
//! request over the inter-broker listener, also if that is this broker. The decisions wait in a
//! bounded queue (`AuditQueue`), so no request waits for the topic. Decisions stay in the queue until
//! they are written; a batch whose acknowledgement is lost is written again.
//!
//! If the topic does not exist, it is created with `num.partitions` and
//! `default.replication.factor` of the cluster. Reads and writes of the topic itself are not written
//! to it, and waiting decisions are written only a few times per second: otherwise the requests that
//! each write causes, of followers and consumers, would cause the next write at once.

use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_controller::{is_internal, validate_topic_name};
use ottla_net::{AuditReports, AuditTopic, BrokerPeers, ProduceTo, lost_line};
use ottla_node::Node;
use ottla_protocol::messages::CreateTopicsRequest;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_sync::async_lock;
use ottla_types::ErrorCode;

use crate::Broker;

/// How long a decision waits for others, to be written with them.
const LINGER: Duration = Duration::from_millis(250);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// The number of failures in a row that are not reported, because leaders move.
const QUIET_FAILURES: usize = 10;
/// How long a stop waits until the last decisions are written.
const AT_STOP: Duration = Duration::from_secs(2);
const CREATE_TIMEOUT_MS: i32 = 30_000;
const MAX_BATCH_LINES: usize = 4_096;
/// Less than the default of `max.message.bytes`.
const MAX_BATCH_BYTES: usize = 512 << 10;

/// Checks that decisions can be written to `ottla.audit.topic`, if there are any. The error starts
/// with the setting.
pub(crate) fn check_audit_topic(config: &BrokerConfig) -> Result<(), String> {
    let Some(name) = &config.ottla_audit_topic else {
        return Ok(());
    };
    if !config.has_authorizer() {
        return Ok(());
    }
    let is_own =
        is_internal(name) || name == "__cluster_metadata" || name == "__remote_log_metadata";
    let checked = match is_own {
        true => Err("the cluster writes this topic itself".to_owned()),
        false => validate_topic_name(name),
    };
    checked.map_err(|error| {
        format!("ottla.audit.topic={name}: {error}; give the name of a topic for decisions only")
    })
}

/// Writes the decisions of this broker to the topic.
#[derive(Debug)]
pub(crate) struct AuditTopicWriter {
    context: Arc<NodeContext>,
    node: Arc<Node>,
    topic: Arc<AuditTopic>,
    peers: BrokerPeers,
    /// Held while a batch is written.
    sending: async_lock::Mutex<Sending>,
}

#[derive(Debug)]
struct Sending {
    reports: AuditReports,
    /// Is reduced while the topic refuses a batch as too large.
    max_lines: usize,
    /// Determines the partition of the next batch.
    batches: usize,
    failures: usize,
}

enum Failure {
    TooLarge,
    /// It is tried again.
    Other(String),
}

impl AuditTopicWriter {
    /// `None` if no topic is configured, or this node is not a broker.
    pub fn of(broker: &Broker) -> Option<Arc<AuditTopicWriter>> {
        let config = broker.config();
        if let Some(name) = &config.ottla_audit_topic
            && config.has_authorizer()
            && !config.process_roles.broker
        {
            tracing::warn!(
                "ottla.audit.topic={name}: only brokers write to a topic, and this node is only a controller; its \
                 own decisions are in the file of ottla.audit.file, if that is set"
            );
        }
        let topic = Arc::clone(broker.authorizer.audit_topic()?);
        Some(Arc::new(AuditTopicWriter {
            context: Arc::clone(&broker.context),
            node: Arc::clone(&broker.node),
            topic,
            peers: BrokerPeers::default(),
            sending: async_lock::Mutex::new(Sending {
                reports: AuditReports::begin(),
                max_lines: MAX_BATCH_LINES,
                batches: 0,
                failures: 0,
            }),
        }))
    }

    /// Writes decisions until the task is aborted.
    pub async fn run(self: Arc<Self>) {
        // Also without a decision, so that consumers find the topic.
        if let Err(error) = self.create().await {
            tracing::warn!("{error}; it is tried again with the first decision");
        }
        loop {
            self.topic.queue.filled().await;
            ottla_sync::time::sleep(LINGER).await;
            self.write_waiting().await;
        }
    }

    /// Writes what is waiting before this broker stops to serve clients. Decisions that come later
    /// are lost.
    pub async fn finish(&self) {
        ottla_sync::select! {
            _ = ottla_sync::time::timeout(AT_STOP, self.write_waiting()) => {}
            () = self.context.hurried() => {}
        }
    }

    /// Reports how many decisions were lost, after the last write.
    pub async fn report_rest(&self) {
        let queue = &self.topic.queue;
        let rest = queue.len();
        queue.lose(rest);
        queue.remove(rest);
        let lost = self.sending.lock().await.reports.lost_lines(queue, true);
        if lost > 0 {
            self.report_lost(lost);
        }
    }

    fn report_lost(&self, lost: u64) {
        let name = &self.topic.name;
        tracing::warn!("{lost} decisions are missing in the topic {name} of ottla.audit.topic");
    }

    /// Writes the decisions that are waiting now, but not those that this causes.
    async fn write_waiting(&self) {
        let mut sending = self.sending.lock().await;
        let queue = &self.topic.queue;
        let mut waiting = queue.len();
        while waiting > 0 {
            let lines = queue.first(waiting.min(sending.max_lines), MAX_BATCH_BYTES);
            let count = lines.len();
            let written = self.write_batch(&mut sending, &lines).await;
            match written {
                Ok(()) => {
                    queue.remove(count);
                    waiting -= count;
                    sending.failures = 0;
                    sending.max_lines = MAX_BATCH_LINES;
                }
                Err(Failure::TooLarge) if count > 1 => sending.max_lines = count / 2,
                Err(Failure::TooLarge) => {
                    queue.lose(1);
                    queue.remove(1);
                    waiting -= 1;
                }
                Err(Failure::Other(error)) => {
                    sending.failures += 1;
                    if sending.failures >= QUIET_FAILURES && sending.reports.is_failure_due() {
                        tracing::error!("decisions cannot be written, and are lost later: {error}");
                    }
                    ottla_sync::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn write_batch(&self, sending: &mut Sending, lines: &[Arc<str>]) -> Result<(), Failure> {
        let name = &self.topic.name;
        let to = match self.partition(sending.batches) {
            Some(to) => to,
            None => {
                self.create().await.map_err(Failure::Other)?;
                let unled = || Failure::Other(format!("topic {name}: no partition has a leader"));
                self.partition(sending.batches).ok_or_else(unled)?
            }
        };
        sending.batches = sending.batches.wrapping_add(1);
        let now = self.context.timestamp();
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for line in lines {
            builder.append(now, None, Some(line.as_bytes()), &[]);
        }
        let lost = sending.reports.lost_lines(&self.topic.queue, false);
        if lost > 0 {
            self.report_lost(lost);
            builder.append(now, None, Some(lost_line(lost).as_bytes()), &[]);
        }
        let records = builder.build_in_place();
        let answer = self.peers.produce(&self.context, to, records).await;
        let answer = answer.map_err(|error| Failure::Other(error.to_string()))?;
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::None => {
                sending.reports.on_written(lost);
                Ok(())
            }
            ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => Err(Failure::TooLarge),
            ErrorCode::TopicAuthorizationFailed => Err(Failure::Other(format!(
                "topic {name}: this broker may not write it; allow WRITE to the principal of the brokers"
            ))),
            code => Err(Failure::Other(format!("topic {name}: {code}"))),
        }
    }

    /// A partition that has a leader, another one for each batch.
    fn partition(&self, batch: usize) -> Option<ProduceTo> {
        let metadata = self.context.metadata();
        let topic = metadata.topics.by_name(&self.topic.name)?;
        let led = || topic.partitions().filter(|(_, it)| it.leader.0 >= 0);
        let (partition, registration) = led().nth(batch % led().count().max(1))?;
        Some(ProduceTo {
            leader: registration.leader,
            topic: self.topic.name.as_str().into(),
            topic_id: topic.id,
            partition: partition.0,
        })
    }

    /// Creates the topic, if it does not exist.
    async fn create(&self) -> Result<(), String> {
        let name = &self.topic.name;
        if self.context.metadata().topics.by_name(name).is_some() {
            return Ok(());
        }
        // The number of partitions and the replication factor are the controller's defaults.
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.as_str().into(),
                num_partitions: -1,
                replication_factor: -1,
                ..Default::default()
            }],
            timeout_ms: CREATE_TIMEOUT_MS,
            ..Default::default()
        };
        let cannot = |reason: &str| {
            format!(
                "ottla.audit.topic={name}: the topic cannot be created: {reason}; create it with ottla topics --create"
            )
        };
        let response = self.node.ask_controller(request).await;
        let response = response.map_err(|error| cannot(&error.to_string()))?;
        for topic in response.topics {
            let error = ErrorCode::from_code(topic.error_code);
            if !matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists) {
                let reason = topic.error_message.unwrap_or_default();
                return Err(cannot(&format!("{error}: {reason}")));
            }
        }
        Ok(())
    }
}
