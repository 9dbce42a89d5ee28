//! Keeps secrets out of core dumps: the memory of a node contains its passwords and private keys.

use ottla_config::BrokerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit that forbids core dumps. With 0, the kernel still passes them to the program that
/// `kernel.core_pattern` may name; with 1, which is how it recognizes that this program itself
/// crashes, it does not. A file needs more than that.
const FORBIDDEN: u64 = 1;

/// Sets the soft limit of the size of core dumps so that there are none, if the configuration has
/// secrets and `ottla.core.dump.enable` does not allow dumps. The hard limit stays, so that `prlimit`
/// can allow them for a process that runs.
pub fn forbid_with_secrets(config: &BrokerConfig) {
    let limit = getrlimit(Resource::Core);
    // The hard limit may be 0.
    let forbidden = limit
        .maximum
        .map_or(FORBIDDEN, |maximum| maximum.min(FORBIDDEN));
    if config.ottla_core_dump_enable || limit.current == Some(forbidden) || !config.has_secrets() {
        return;
    }
    let lowered = Rlimit {
        current: Some(forbidden),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Core, lowered) {
        Ok(()) => tracing::debug!(
            "the configuration has secrets, so a crash leaves no core dump; ottla.core.dump.enable=true allows it"
        ),
        Err(error) => tracing::warn!(
            "a core dump of this process would contain secrets, and the limit cannot be lowered: {error}; start it \
             with `prlimit --core=1:`"
        ),
    }
}
