//! Every setting of Kafka 4.3.1, one line each.
//!
//! The columns are: name, type, default, valid values, importance, update mode, what Ottla does with
//! it, and `internal` for settings that Kafka hides from clients. Defaults are written as Kafka prints
//! them; `null` is no value, `required` one that must be given. The tests parse every default, and
//! check the tables against the typed configurations.

use crate::config_def::*;

/// Turns the lines of a table into [`ConfigDef`]s.
macro_rules! configs {
    ($vis:vis const $table:ident; $( $name:literal $kind:ident $default:tt $valid:tt
        $importance:ident $mode:ident $support:ident $($internal:ident)?; )*) => {
        $vis const $table: &[ConfigDef] = &[$( ConfigDef {
            name: $name,
            config_type: ConfigType::$kind,
            default: configs!(@default $default),
            validator: configs!(@valid $valid),
            importance: Importance::$importance,
            update_mode: UpdateMode::$mode,
            support: $support,
            internal: configs!(@internal $($internal)?),
        }, )*];
    };
    (@default null) => { DefaultValue::Null };
    (@default required) => { DefaultValue::Required };
    (@default $text:literal) => { DefaultValue::Text($text) };
    (@valid _) => { Validator::Any };
    (@valid (at_least $min:literal)) => { Validator::AtLeast($min as f64) };
    (@valid (between $min:literal, $max:literal)) => {
        Validator::Between($min as f64, $max as f64)
    };
    (@valid (one_of $($value:literal),*)) => { Validator::OneOf(&[$($value),*]) };
    (@valid (one_of_any_case $($value:literal),*)) => { Validator::OneOfAnyCase(&[$($value),*]) };
    (@valid (list_of $($value:literal),*)) => { Validator::ListOf(&[$($value),*]) };
    (@valid (non_empty_list_of $($value:literal),*)) => {
        Validator::NonEmptyListOf(&[$($value),*])
    };
    (@valid (list)) => { Validator::List };
    (@valid (non_empty_list)) => { Validator::NonEmptyList };
    (@valid (non_empty)) => { Validator::NonEmpty };
    (@valid (gzip_level)) => { Validator::GzipLevel };
    (@valid (quorum_voters)) => { Validator::QuorumVoters };
    (@valid (host_port)) => { Validator::HostPort };
    (@valid (bootstrap_servers)) => { Validator::BootstrapServers };
    (@valid (throttled_replicas)) => { Validator::ThrottledReplicas };
    (@valid (share_offset_reset)) => { Validator::ShareOffsetReset };
    (@internal) => { false };
    (@internal internal) => { true };
}

mod client_metrics;
mod controller;
mod group;
mod groups;
mod listeners;
mod log;
mod metrics_and_quotas;
mod ottla;
mod remote_log;
mod replication;
mod security;
mod server;
mod share_and_streams;
mod topic;
mod transactions;

/// The settings of a topic.
pub const TOPIC_CONFIGS: &[ConfigDef] = topic::ROWS;

/// The settings of a group.
pub const GROUP_CONFIGS: &[ConfigDef] = group::ROWS;

/// The settings of a client metrics subscription.
pub const CLIENT_METRICS_CONFIGS: &[ConfigDef] = client_metrics::ROWS;

/// The settings of a broker or controller, area by area.
pub const BROKER_CONFIG_AREAS: &[(&str, &[ConfigDef])] = &[
    (
        "Node, roles, controller quorum, metadata log",
        controller::ROWS,
    ),
    ("Listeners and connections", listeners::ROWS),
    ("Server", server::ROWS),
    ("Logs", log::ROWS),
    ("Replication", replication::ROWS),
    ("Consumer groups", groups::ROWS),
    ("Transactions and producers", transactions::ROWS),
    ("Share groups and streams groups", share_and_streams::ROWS),
    ("Metrics and quotas", metrics_and_quotas::ROWS),
    ("Security", security::ROWS),
    ("Tiered storage", remote_log::ROWS),
    ("Ottla's own", ottla::ROWS),
];

/// All settings of a broker or controller.
pub fn broker_configs() -> impl Iterator<Item = &'static ConfigDef> {
    BROKER_CONFIG_AREAS.iter().flat_map(|(_, rows)| rows.iter())
}

/// The broker setting with this name.
pub fn broker_config(name: &str) -> Option<&'static ConfigDef> {
    broker_configs().find(|def| def.name == name)
}

/// The topic setting with this name.
pub fn topic_config(name: &str) -> Option<&'static ConfigDef> {
    TOPIC_CONFIGS.iter().find(|def| def.name == name)
}

/// The group setting with this name.
pub fn group_config(name: &str) -> Option<&'static ConfigDef> {
    GROUP_CONFIGS.iter().find(|def| def.name == name)
}

/// The client metrics setting with this name.
pub fn client_metrics_config(name: &str) -> Option<&'static ConfigDef> {
    CLIENT_METRICS_CONFIGS.iter().find(|def| def.name == name)
}

const SUPPORTED: Support = Support::Supported;
const THREADS: Support =
    Support::AcceptedWithoutEffect("the machine determines the number of threads, not the setting");
const PURGATORY: Support =
    Support::AcceptedWithoutEffect("a waiting request is removed as soon as it is answered");
const APPENDS_AT_ONCE: Support = Support::AcceptedWithoutEffect(
    "the controller writes everything that is waiting in one batch and does not wait for more",
);
const REBALANCE: Support = Support::AcceptedWithoutEffect(
    "the controller does not move leaders back automatically yet; use `leader-election`",
);
const BY_CHANGE: Support =
    Support::AcceptedWithoutEffect("elections are triggered by changes, not by time");
const STARTED_LISTENERS: Support = Support::AcceptedWithoutEffect(
    "each listener opens as soon as the node can serve its requests",
);
const CONNECTION_SETUP: Support = Support::AcceptedWithoutEffect(
    "every attempt to connect to another node uses socket.connection.setup.timeout.ms",
);
const KERNEL_BUFFER: Support =
    Support::AcceptedWithoutEffect("the kernel sizes the buffers of connections to other nodes");
const COORDINATOR_BUFFERS: Support =
    Support::AcceptedWithoutEffect("coordinators write without an additional buffer or delay");
const QUOTAS: Support = Support::AcceptedWithoutEffect("quotas are not enforced yet");
const METRICS: Support = Support::AcceptedWithoutEffect("there are no JMX metrics to sample");
const REMOTE: Support = Support::AcceptedWithoutEffect("tiered storage is not supported yet");
const TLS: Support =
    Support::AcceptedWithoutEffect("TLS is not supported yet; TLS listeners are refused");
const SASL: Support =
    Support::AcceptedWithoutEffect("SASL is not supported yet; SASL listeners are refused");
const TOKENS: Support =
    Support::AcceptedWithoutEffect("delegation tokens need SASL, which is not supported yet");
const IDLE: Support =
    Support::AcceptedWithoutEffect("an idle controller writes nothing to the metadata log");
const QUEUE: Support = Support::AcceptedWithoutEffect(
    "there is no request queue: each connection is bounded, and queued.max.request.bytes bounds \
     all of them together",
);
const UNSTABLE: Support =
    Support::AcceptedWithoutEffect("what Kafka marks as unstable is not supported");
const UNUSED: Support = Support::AcceptedWithoutEffect("nothing here depends on it");

const PLUGIN: Support = Support::Refused {
    reason: "it names a Java class, which Ottla cannot load; remove the line",
    except: &[],
};
const AUTHORIZER: Support = Support::Refused {
    reason: "ACLs are not enforced yet, and starting without them would leave the data open to \
             everyone; if that is intended, remove the line",
    except: &[],
};
const REPORTERS: Support = Support::Refused {
    reason: "a metrics reporter is a Java class, which Ottla cannot load; remove the line",
    except: &["org.apache.kafka.common.metrics.JmxReporter"],
};
const REPLICA_SELECTOR: Support = Support::Refused {
    reason: "only org.apache.kafka.common.replica.RackAwareReplicaSelector and \
             org.apache.kafka.common.replica.LeaderSelector are supported; others are Java \
             classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    ],
};
const CONSUMER_ASSIGNORS: Support = Support::Refused {
    reason: "only the assignors uniform and range are supported; others are Java classes, which \
             Ottla cannot load",
    except: &[
        "uniform",
        "range",
        "range,uniform",
        "uniform, range",
        "range, uniform",
    ],
};
const SHARE_ASSIGNORS: Support = Support::Refused {
    reason: "only the assignor simple is supported; others are Java classes, which Ottla cannot load",
    except: &[],
};
const REMOTE_ENABLE: Support = Support::Refused {
    reason: "tiered storage is not supported yet; give false, or remove the line",
    except: &["FALSE", "False"],
};
const REMOTE_TOPIC: Support = Support::Refused {
    reason: "tiered storage is not supported yet",
    except: &["FALSE", "False"],
};
