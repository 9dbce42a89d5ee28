//! Keeps secrets out of core dumps: the memory of a node contains its passwords and private keys.

use std::sync::Arc;

use ottla_broker::Broker;
use ottla_config::BrokerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that forbids core dumps. With 0, the kernel still passes them to the program that
/// `kernel.core_pattern` may name; with 1, which is how it recognizes that this program itself
/// crashes, it does not. A file needs more than that.
const FORBIDDEN: u64 = 1;

/// Forbids core dumps if the configuration has secrets, unless `ottla.core.dump.enable` allows them.
pub fn forbid_with_secrets(config: &BrokerConfig) {
    if config.has_secrets() {
        forbid(config);
    }
}

/// Forbids core dumps as soon as a broker has secrets: in its configuration, or in the metadata.
pub async fn forbid_once_secret(broker: Arc<Broker>) {
    tokio::select! {
        () = broker.context.has_secrets() => forbid(&broker.config()),
        () = broker.stopping() => {}
    }
}

/// Sets the soft limit of the size of core dumps so that there are none. The hard limit stays, so that
/// `prlimit` can allow them for a process that runs.
fn forbid(config: &BrokerConfig) {
    let limit = getrlimit(Resource::Core);
    // The hard limit may be 0.
    let forbidden = limit
        .maximum
        .map_or(FORBIDDEN, |maximum| maximum.min(FORBIDDEN));
    if config.ottla_core_dump_enable || limit.current == Some(forbidden) {
        return;
    }
    let lowered = Rlimit {
        current: Some(forbidden),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Core, lowered) {
        Ok(()) => tracing::debug!(
            "the memory of this process has secrets, so a crash leaves no core dump; \
             ottla.core.dump.enable=true allows it"
        ),
        Err(error) => tracing::warn!(
            "a core dump of this process would contain secrets, and the limit cannot be lowered: {error}; start it \
             with `prlimit --core=1:`"
        ),
    }
}
