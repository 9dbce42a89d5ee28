//! The version of Apache Kafka that a run compares with.
//!
//! Wherever a command names the peer `kafka`, it means the reference. Brokers, controllers, tools
//! and Java clients of a run are therefore of one version. Another version is named as its file is
//! (`kafka39`).

use std::path::PathBuf;
use std::sync::OnceLock;

use ottla_workspace::workspace;

/// The name of the reference in lists of peers, and of the file that describes it by default.
pub const KAFKA: &str = "kafka";

static CHOSEN: OnceLock<String> = OnceLock::new();

/// Makes the file `peers/NAME.toml` the reference. Returns whether none was chosen before.
pub(super) fn choose(name: &str) -> bool {
    CHOSEN.set(name.to_owned()).is_ok()
}

/// The name of the file that describes the reference.
pub fn chosen() -> &'static str {
    CHOSEN.get().map_or(KAFKA, String::as_str)
}

/// A folder below the target directory for the runs of a command, separate for each reference,
/// because suites with different references run at the same time.
pub fn run_dir(command: &str) -> PathBuf {
    let folder = match chosen() {
        KAFKA => command.to_owned(),
        other => format!("{command}-{other}"),
    };
    workspace::target_dir().join(folder)
}
