//! The notation of the tables, and the texts that describe the support of a setting.

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
    (@valid (host_port_or_none)) => { Validator::HostPortOrNone };
    (@valid (bootstrap_servers)) => { Validator::BootstrapServers };
    (@valid (throttled_replicas)) => { Validator::ThrottledReplicas };
    (@valid (share_offset_reset)) => { Validator::ShareOffsetReset };
    (@internal) => { false };
    (@internal internal) => { true };
}

pub(super) use configs;

pub(super) const SUPPORTED: Support = Support::Supported;
pub(super) const THREADS: Support =
    Support::AcceptedWithoutEffect("the machine determines the number of threads, not the setting");
pub(super) const PURGATORY: Support =
    Support::AcceptedWithoutEffect("a waiting request is removed as soon as it is answered");
pub(super) const APPENDS_AT_ONCE: Support = Support::AcceptedWithoutEffect(
    "the controller writes everything that is waiting in one batch and does not wait for more",
);
pub(super) const STARTED_LISTENERS: Support = Support::AcceptedWithoutEffect(
    "each listener opens as soon as the node can serve its requests",
);
pub(super) const CONNECTION_SETUP: Support = Support::AcceptedWithoutEffect(
    "every attempt to connect to another node uses socket.connection.setup.timeout.ms",
);
pub(super) const KERNEL_BUFFER: Support =
    Support::AcceptedWithoutEffect("the kernel sizes the buffers of connections to other nodes");
pub(super) const COORDINATOR_BUFFERS: Support =
    Support::AcceptedWithoutEffect("coordinators write without an additional buffer or delay");
pub(super) const EVEN_PACE: Support = Support::AcceptedWithoutEffect(
    "a move between directories keeps to replica.alter.log.dirs.io.max.bytes.per.second at any time, without windows",
);
pub(super) const METRICS: Support =
    Support::AcceptedWithoutEffect("there are no JMX metrics to sample");
pub(super) const REMOTE_CACHE_TIME: Support = Support::AcceptedWithoutEffect(
    "indexes of remote segments stay in memory until others need the space",
);
pub(super) const REMOTE_THREADS: Support =
    Support::AcceptedWithoutEffect("the tasks of tiered storage need no threads of their own");
pub(super) const REMOTE_RETRIES: Support = Support::AcceptedWithoutEffect(
    "what failed is tried again after remote.log.manager.task.interval.ms",
);
pub(super) const REMOTE_CLASS_PATH: Support =
    Support::AcceptedWithoutEffect("the stores are part of Ottla, and no Java class is loaded");
pub(super) const REMOTE_LISTENER: Support = Support::AcceptedWithoutEffect(
    "the metadata of remote segments is written and read over the inter-broker listener",
);
pub(super) const JAVA_TLS: Support = Support::AcceptedWithoutEffect(
    "it selects a part of Java's TLS, and Ottla has its own (ssl.enabled.protocols and ssl.cipher.suites count)",
);
pub(super) const KERBEROS: Support = Support::AcceptedWithoutEffect(
    "the Kerberos library gets and renews tickets from a keytab by itself, and kinit is not run",
);
pub(super) const IDLE: Support =
    Support::AcceptedWithoutEffect("an idle controller writes nothing to the metadata log");
pub(super) const QUEUE: Support = Support::AcceptedWithoutEffect(
    "there is no request queue: each connection is bounded, and queued.max.request.bytes bounds \
     all of them together",
);
pub(super) const UNSTABLE: Support =
    Support::AcceptedWithoutEffect("what Kafka marks as unstable is not supported");
pub(super) const UNUSED: Support = Support::AcceptedWithoutEffect("nothing here depends on it");

pub(super) const PLUGIN: Support = Support::Refused {
    reason: "it names a Java class, which Ottla cannot load; remove the line",
    except: &[],
};
pub(super) const ENGINE_FACTORY: Support = Support::Refused {
    reason: "only those of Kafka are supported; others are Java classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        "org.apache.kafka.common.security.ssl.CommonNameLoggingSslEngineFactory",
    ],
};
pub(super) const TOKEN_HANDLER: Support = Support::Refused {
    reason: "only OAUTHBEARER has handlers, those of Kafka by name; others are Java classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    ],
};
pub(super) const LOGIN_HANDLER: Support = Support::Refused {
    reason: "only OAUTHBEARER has such a handler, that of Kafka by name; others are Java classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    ],
};
pub(super) const TOKEN_RETRIEVER: Support = Support::Refused {
    reason: "only those of Kafka are supported; others are Java classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever",
    ],
};
pub(super) const TOKEN_VALIDATOR: Support = Support::Refused {
    reason: "only those of Kafka are supported; others are Java classes, which Ottla cannot load",
    except: &["org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"],
};
pub(super) const AUTHORIZER: Support = Support::Refused {
    reason: "only org.apache.kafka.metadata.authorizer.StandardAuthorizer is supported; others are \
             Java classes, which Ottla cannot load",
    except: &["org.apache.kafka.metadata.authorizer.StandardAuthorizer"],
};
pub(super) const REPORTERS: Support = Support::Refused {
    reason: "a metrics reporter is a Java class, which Ottla cannot load; remove the line",
    except: &["org.apache.kafka.common.metrics.JmxReporter"],
};
pub(super) const REPLICA_SELECTOR: Support = Support::Refused {
    reason: "only org.apache.kafka.common.replica.RackAwareReplicaSelector and \
             org.apache.kafka.common.replica.LeaderSelector are supported; others are Java \
             classes, which Ottla cannot load",
    except: &[
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    ],
};
pub(super) const CONSUMER_ASSIGNORS: Support = Support::Refused {
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
pub(super) const UNVERIFIED: Support = Support::AcceptedWithoutEffect(
    "audience and issuer of a token are checked if the expected ones are set",
);
pub(super) const STREAMS_ASSIGNORS: Support = Support::Refused {
    reason: "only the assignor sticky is supported; others are Java classes, which Ottla cannot load",
    except: &["sticky"],
};
pub(super) const ASSIGNS_AT_ONCE: Support =
    Support::AcceptedWithoutEffect("assignments are computed by the thread that needs them");
pub(super) const WARMUP: Support =
    Support::AcceptedWithoutEffect("Kafka 4.4 assigns no warm-up tasks either");
pub(super) const SHARE_ASSIGNORS: Support = Support::Refused {
    reason: "only the assignor simple is supported; others are Java classes, which Ottla cannot load",
    except: &[],
};
