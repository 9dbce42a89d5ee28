//! Keeps secrets out of core dumps: the memory of a node contains its passwords and private keys.

use ottla_config::BrokerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets the soft limit of the size of core dumps to 0 if the configuration has secrets and
/// `ottla.core.dump.enable` does not allow dumps. The hard limit stays, so that `prlimit` can allow
/// them for a process that runs.
pub fn forbid_with_secrets(config: &BrokerConfig) {
    let limit = getrlimit(Resource::Core);
    if config.ottla_core_dump_enable || limit.current == Some(0) || !config.has_secrets() {
        return;
    }
    let lowered = Rlimit {
        current: Some(0),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Core, lowered) {
        Ok(()) => tracing::debug!(
            "the configuration has secrets, so a crash leaves no core dump; ottla.core.dump.enable=true allows it"
        ),
        Err(error) => tracing::warn!(
            "a core dump of this process would contain secrets, and the limit cannot be set to 0: {error}; start it \
             with `ulimit -c 0`"
        ),
    }
}
