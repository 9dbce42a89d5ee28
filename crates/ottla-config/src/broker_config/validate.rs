//! Rules across settings.
//!
//! Kafka: `KafkaConfig.validateValues`.

mod groups;

use super::{
    BrokerConfig, ConfigError, QuorumVoter, SaslConfig, SecurityProtocol, Values, Warning,
};
use groups::groups;

use crate::remote_storage::check_remote_storage_defaults;

use super::listeners::no_controller_listener;
use super::values::require;

/// The problems of a configuration: settings that contradict each other, or require unsupported
/// features. Reports the first problem of each check.
pub(super) fn problems(config: &BrokerConfig, values: &Values<'_>) -> Vec<ConfigError> {
    let checks = [
        identity,
        logs,
        quorum,
        listeners,
        connections,
        replication,
        groups,
        super_users,
        tiered_storage,
    ];
    let mut problems: Vec<ConfigError> = checks
        .iter()
        .filter_map(|check| check(config, values).err())
        .collect();
    problems.extend(SaslConfig::resolve(&config.listeners_with_sasl(), values).1);
    problems
}

/// The stores of tiered storage, by the names of Kafka's class and of Aiven's plugin.
const REMOTE_STORES: [&str; 2] = [
    "io.aiven.kafka.tieredstorage.RemoteStorageManager",
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
];
const REMOTE_METADATA: &str =
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager";

/// A controller has no store. It has the setting so that topics may be tiered.
fn tiered_storage(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    if !config.remote_log_storage_system_enable || !config.process_roles.broker {
        return Ok(());
    }
    let key = "remote.log.storage.manager.class.name";
    let store = values.optional_text(key).unwrap_or_default();
    require(values, REMOTE_STORES.contains(&store.trim()), key, || {
        let known = REMOTE_STORES.join(" or ");
        match store.trim() {
            "" => format!("{key} is missing, and tiered storage is enabled; give {known}"),
            store => format!("{key}={store} is a plugin of a JVM; give {known}"),
        }
    })?;
    let key = "remote.log.metadata.manager.class.name";
    let manager: String = values.get(key);
    require(values, manager.trim() == REMOTE_METADATA, key, || {
        format!("{key}={manager} is a plugin of a JVM; give {REMOTE_METADATA}, or remove the line")
    })?;
    check_remote_storage_defaults(&config.topic_defaults)
        .map_err(|error| values.conflict("log.local.retention.ms", &error.to_string()))
}

fn replication(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let fetch_wait: i32 = values.get("replica.fetch.wait.max.ms");
    let socket_timeout: i32 = values.get("replica.socket.timeout.ms");
    require(
        values,
        fetch_wait <= socket_timeout,
        "replica.fetch.wait.max.ms",
        || {
            format!(
                "replica.fetch.wait.max.ms={fetch_wait} is more than \
             replica.socket.timeout.ms={socket_timeout}; lower it, or fetches would time out"
            )
        },
    )?;
    let lag = config.replica_lag_time_max_ms;
    require(
        values,
        i64::from(fetch_wait) <= lag,
        "replica.fetch.wait.max.ms",
        || {
            format!(
                "replica.fetch.wait.max.ms={fetch_wait} is more than replica.lag.time.max.ms={lag}; \
             lower it, or replicas would leave the ISR repeatedly"
            )
        },
    )
}

fn identity(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let broker_id: i32 = values.get("broker.id");
    require(values, broker_id == config.node_id, "broker.id", || {
        format!(
            "broker.id={broker_id} and node.id={} differ; give the same number or remove broker.id",
            config.node_id
        )
    })
}

fn logs(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let topic = &config.topic_defaults;
    require(values, topic.segment_ms >= 1, "log.roll.ms", || {
        format!(
            "log.roll.ms={}: give milliseconds, at least 1",
            topic.segment_ms
        )
    })?;
    require(
        values,
        topic.segment_jitter_ms >= 0,
        "log.roll.jitter.ms",
        || {
            format!(
                "log.roll.jitter.ms={}: give milliseconds, at least 0",
                topic.segment_jitter_ms
            )
        },
    )?;
    let key = [
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    ]
    .into_iter()
    .find(|key| values.is_given(key))
    .unwrap_or("log.retention.ms");
    require(values, topic.retention_ms != 0, key, || {
        format!("{key}=0: give -1 for no limit, or at least 1")
    })?;
    let (min, max) = (topic.min_compaction_lag_ms, topic.max_compaction_lag_ms);
    require(
        values,
        min <= max,
        "log.cleaner.min.compaction.lag.ms",
        || {
            format!(
                "log.cleaner.min.compaction.lag.ms={min} is more than \
             log.cleaner.max.compaction.lag.ms={max}; lower it"
            )
        },
    )?;
    let buffer: i64 = values.get("log.cleaner.dedupe.buffer.size");
    let threads: i32 = values.get("log.cleaner.threads");
    let enough = threads == 0 || buffer / i64::from(threads) > 1024 * 1024;
    require(values, enough, "log.cleaner.dedupe.buffer.size", || {
        format!(
            "log.cleaner.dedupe.buffer.size={buffer} is too small for {threads} cleaner threads; \
             give more than 1048576 bytes for each"
        )
    })?;
    let cordoned = &config.cordoned_log_dirs;
    if cordoned.iter().any(|dir| dir == "*") {
        return require(values, cordoned.len() == 1, "cordoned.log.dirs", || {
            "cordoned.log.dirs has * and other directories; give * alone".into()
        });
    }
    let unknown: Vec<&str> = cordoned
        .iter()
        .filter(|dir| !config.log_dirs.contains(dir))
        .map(String::as_str)
        .collect();
    require(values, unknown.is_empty(), "cordoned.log.dirs", || {
        format!(
            "cordoned.log.dirs has {}, which is not in log.dirs; write it as in log.dirs",
            unknown.join(", ")
        )
    })
}

fn quorum(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let voters = &config.controller_quorum_voters;
    let bootstrap = &config.controller_quorum_bootstrap_servers;
    let known = !voters.is_empty() || !bootstrap.is_empty();
    require(values, known, "controller.quorum.voters", || {
        "no controllers are given; give controller.quorum.bootstrap.servers=host:port, or \
         controller.quorum.voters=id@host:port"
            .into()
    })?;
    let mut ids: Vec<i32> = voters.iter().map(|voter| voter.id).collect();
    ids.sort_unstable();
    ids.dedup();
    require(
        values,
        ids.len() == voters.len(),
        "controller.quorum.voters",
        || "controller.quorum.voters has two voters of one id; give each its own".into(),
    )?;
    let is_voter = voters.iter().any(|voter| voter.id == config.node_id);
    let roles = config.process_roles;
    if roles.controller {
        return require(
            values,
            voters.is_empty() || is_voter,
            "controller.quorum.voters",
            || {
                format!(
                    "controller.quorum.voters does not have this controller; add {}@host:port, or \
                     correct node.id",
                    config.node_id
                )
            },
        );
    }
    require(values, !is_voter, "controller.quorum.voters", || {
        format!(
            "controller.quorum.voters has node.id={}, but process.roles does not have controller; \
             add the role or remove the voter",
            config.node_id
        )
    })?;
    let auto_join: bool = values.get("controller.quorum.auto.join.enable");
    require(
        values,
        !auto_join,
        "controller.quorum.auto.join.enable",
        || {
            "controller.quorum.auto.join.enable=true needs the role controller in process.roles; give \
         false"
            .into()
        },
    )
}

fn listeners(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let roles = config.process_roles;
    let controller_listeners: Vec<&str> = config
        .listeners
        .iter()
        .filter(|listener| listener.is_controller)
        .map(|listener| listener.name.as_str())
        .collect();
    if roles.controller {
        let missing = config
            .controller_listener_names
            .iter()
            .find(|name| !controller_listeners.contains(&name.as_str()));
        require(
            values,
            missing.is_none(),
            "controller.listener.names",
            || {
                let name = missing.map(String::as_str).unwrap_or_default();
                let others = config.listeners.iter().filter(|it| !it.is_controller);
                no_controller_listener(name, others.map(|it| it.name.as_str()))
            },
        )?;
        if !roles.broker {
            let other = config
                .listeners
                .iter()
                .find(|listener| !listener.is_controller);
            require(values, other.is_none(), "listeners", || {
                format!(
                    "listeners has {}, which controller.listener.names does not have; a node that \
                     is only a controller has no other listeners",
                    other
                        .map(|listener| listener.name.as_str())
                        .unwrap_or_default()
                )
            })?;
        }
    } else {
        require(values, controller_listeners.is_empty(), "listeners", || {
            format!(
                "listeners has {}, which is for controllers, but process.roles does not have \
                 controller; remove the listener or add the role",
                controller_listeners.join(", ")
            )
        })?;
    }
    let advertised = config
        .advertised_listeners
        .iter()
        .chain(&config.advertised_controller_listeners);
    for listener in advertised {
        require(
            values,
            listener.host.as_deref() != Some("0.0.0.0"),
            if values.is_given("advertised.listeners") {
                "advertised.listeners"
            } else {
                "listeners"
            },
            || {
                format!(
                    "{listener} would be advertised to clients, which cannot connect to 0.0.0.0; \
                     give advertised.listeners={}://host:{} with a name or address of this machine",
                    listener.name, listener.port
                )
            },
        )?;
    }
    if !roles.broker {
        return Ok(());
    }
    require(
        values,
        !config.advertised_listeners.is_empty(),
        "listeners",
        || {
            "every listener is for controllers; add one for clients, such as PLAINTEXT://:9092, to \
         listeners"
                .into()
        },
    )?;
    let names: Vec<&str> = config
        .advertised_listeners
        .iter()
        .map(|listener| listener.name.as_str())
        .collect();
    let inter_broker = config.inter_broker_listener_name.as_str();
    require(
        values,
        names.contains(&inter_broker),
        "inter.broker.listener.name",
        || {
            format!(
                "brokers would talk over listener {inter_broker}, which is not advertised; give \
             inter.broker.listener.name={}",
                names.join(" or ")
            )
        },
    )?;
    for name in &names {
        let bound = config
            .listeners
            .iter()
            .any(|listener| listener.name == *name);
        require(values, bound, "advertised.listeners", || {
            format!(
                "advertised.listeners has {name}, which listeners does not have; add it there or \
                 correct the name"
            )
        })?;
    }
    Ok(())
}

fn super_users(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let mut users = config.super_users.split(';').map(str::trim);
    let stray = users.find(|user| !user.is_empty() && !user.contains(':'));
    require(values, stray.is_none(), "super.users", || {
        let stray = stray.unwrap_or_default();
        format!(
            "super.users has {stray}, which is not a principal; give principals as User:name, \
             separated by semicolons"
        )
    })
}

fn connections(config: &BrokerConfig, values: &Values<'_>) -> Result<(), ConfigError> {
    let (queued, request) = (
        config.queued_max_request_bytes,
        config.socket_request_max_bytes,
    );
    require(
        values,
        queued <= 0 || queued >= i64::from(request),
        "queued.max.request.bytes",
        || {
            format!(
                "queued.max.request.bytes={queued} is less than \
                 socket.request.max.bytes={request}; raise it, or give -1 for no limit"
            )
        },
    )?;
    let useless =
        config.max_connections_per_ip == 0 && config.max_connections_per_ip_overrides.is_empty();
    require(values, !useless, "max.connections.per.ip", || {
        "max.connections.per.ip=0 would refuse every client; list the allowed ones in \
         max.connections.per.ip.overrides=host:count"
            .into()
    })?;
    let delay: i32 = values.get("connection.failed.authentication.delay.ms");
    let idle = config.connections_max_idle_ms;
    require(
        values,
        idle < 0 || i64::from(delay) < idle,
        "connections.max.idle.ms",
        || {
            format!(
                "connection.failed.authentication.delay.ms={delay} is not less than \
                 connections.max.idle.ms={idle}; lower it"
            )
        },
    )
}

/// Warns about settings that are valid together, but probably a mistake.
pub(super) fn warnings(config: &BrokerConfig, values: &Values<'_>, warnings: &mut Vec<Warning>) {
    let mut warn = |key: &str, message: String| {
        let ConfigError::Conflict { place, message } = values.conflict(key, &message) else {
            return;
        };
        warnings.push(Warning { place, message });
    };
    let (heartbeat, session) = (
        config.broker_heartbeat_interval_ms,
        config.broker_session_timeout_ms,
    );
    if i64::from(heartbeat) * 2 > i64::from(session) {
        warn(
            "broker.heartbeat.interval.ms",
            format!(
                "broker.heartbeat.interval.ms={heartbeat} is more than half of \
                 broker.session.timeout.ms={session}: a single late heartbeat fences the broker"
            ),
        );
    }
    if let Some(QuorumVoter { id, host, port }) = unserved_voter(config, values) {
        let listeners = config.listeners.iter().filter(|it| it.is_controller);
        let listeners: Vec<String> = listeners.map(ToString::to_string).collect();
        warn(
            "controller.quorum.voters",
            format!(
                "controller.quorum.voters has {id}@{host}:{port} for this node, but its controller listens on {}: \
                 unless port {port} is mapped to that, other nodes cannot reach this controller; correct one of \
                 the ports",
                listeners.join(", ")
            ),
        );
    }
    // Without TLS and SASL, nodes and all clients have this principal.
    let anonymous = "User:ANONYMOUS";
    let nodes = nodes_principal(config);
    let is_super = |user: &str| config.super_users.split(';').any(|it| it.trim() == user);
    if config.has_authorizer() && is_super(anonymous) {
        warn(
            "super.users",
            format!(
                "super.users has {anonymous}: every client that can connect without TLS or SASL may do \
                 everything"
            ),
        );
    }
    if let Some(nodes) = nodes.filter(|nodes| config.has_authorizer() && !is_super(nodes)) {
        warn(
            "authorizer.class.name",
            format!(
                "the nodes of the cluster authenticate to each other as {nodes}, which is not in super.users: \
                 add it there. An ACL is not enough: it is known only once a controller leads, and none can be \
                 elected before"
            ),
        );
    }
    if values.is_given("log.cleaner.enable") && !config.log_cleaner_enable {
        warn(
            "log.cleaner.enable",
            "log.cleaner.enable=false: compacted topics, the consumer offsets among them, would \
             grow for ever"
                .into(),
        );
    }
}

/// This controller in `controller.quorum.voters`, if none of its listeners is bound to or advertised
/// with that port. Kafka accepts it, because the port may be mapped to a listener.
fn unserved_voter<'a>(config: &'a BrokerConfig, values: &Values<'_>) -> Option<&'a QuorumVoter> {
    let mut voters = config.controller_quorum_voters.iter();
    let voter = voters.find(|it| it.id == config.node_id)?;
    let mut own = config.listeners.iter().filter(|it| it.is_controller);
    // The kernel chooses a free port for port 0.
    let is_bound = own.any(|it| it.port == voter.port || it.port == 0);
    let port = format!(":{}", voter.port);
    let advertised = values.optional_list("advertised.listeners");
    let is_advertised = advertised.iter().flatten().any(|it| it.ends_with(&port));
    (config.process_roles.controller && !is_bound && !is_advertised).then_some(voter)
}

/// The principal of the nodes; `None` if it comes from a certificate.
fn nodes_principal(config: &BrokerConfig) -> Option<String> {
    let controller = config.controller_listener_names.first();
    let inter_broker =
        Some(&config.inter_broker_listener_name).filter(|_| config.process_roles.broker);
    let mut listeners = controller.into_iter().chain(inter_broker);
    listeners.find_map(|name| match config.listener_protocol(name)? {
        SecurityProtocol::Plaintext => Some("User:ANONYMOUS".to_owned()),
        SecurityProtocol::Ssl => None,
        SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => {
            let username = config.sasl.peer(name)?.credentials.username()?;
            Some(format!("User:{username}"))
        }
    })
}
