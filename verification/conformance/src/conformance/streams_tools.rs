//! Compares `kafka-streams-groups.sh` with `ottla streams-groups` on the groups that the streams
//! script left for each: one whose application has stopped, and one with members.

use super::tool_pairs::{Step, measuring, step};
use super::tools::{STREAMS_GROUPS, TOPICS};

/// Epochs and task assignments are compared by shape.
#[rustfmt::skip]
pub const STEPS: &[Step] = &[
    step(STREAMS_GROUPS, "BROKER --list"),
    step(STREAMS_GROUPS, "BROKER --list --state"),
    step(STREAMS_GROUPS, "BROKER --list --state empty,dead"),
    step(STREAMS_GROUPS, "BROKER --list --state gone"),
    step(STREAMS_GROUPS, "BROKER --describe"),
    step(STREAMS_GROUPS, "BROKER --describe --group busy-SUBJECT"),
    step(STREAMS_GROUPS, "BROKER --describe --group busy-SUBJECT --offsets --verbose"),
    measuring(STREAMS_GROUPS, "BROKER --describe --group busy-SUBJECT --members"),
    measuring(STREAMS_GROUPS, "BROKER --describe --group busy-SUBJECT --members --verbose"),
    measuring(STREAMS_GROUPS, "BROKER --describe --group busy-SUBJECT --state --verbose"),
    step(STREAMS_GROUPS, "BROKER --describe --group idle-SUBJECT"),
    step(STREAMS_GROUPS, "BROKER --describe --group idle-SUBJECT --members"),
    step(STREAMS_GROUPS, "BROKER --describe --group idle-SUBJECT --state"),
    step(STREAMS_GROUPS, "BROKER --describe --group nothing-SUBJECT"),
    step(STREAMS_GROUPS, "BROKER --reset-offsets --group busy-SUBJECT --all-input-topics --to-earliest --dry-run"),
    step(STREAMS_GROUPS, "BROKER --reset-offsets --group idle-SUBJECT --all-input-topics --to-earliest"),
    step(STREAMS_GROUPS, "BROKER --reset-offsets --group idle-SUBJECT --all-input-topics --shift-by -1 --dry-run --export"),
    step(STREAMS_GROUPS, "BROKER --reset-offsets --group idle-SUBJECT --input-topic source-SUBJECT --to-latest --dry-run"),
    step(
        STREAMS_GROUPS,
        "BROKER --reset-offsets --group idle-SUBJECT --input-topic source-SUBJECT:0 --to-offset 1 --execute \
         --delete-internal-topic nowhere-SUBJECT",
    ),
    step(STREAMS_GROUPS, "BROKER --reset-offsets --group nothing-SUBJECT --all-input-topics --to-current --execute"),
    step(STREAMS_GROUPS, "BROKER --delete-offsets --group busy-SUBJECT --all-input-topics"),
    step(STREAMS_GROUPS, "BROKER --delete-offsets --group nothing-SUBJECT --input-topic source-SUBJECT"),
    step(STREAMS_GROUPS, "BROKER --delete-offsets --group idle-SUBJECT --input-topic source-SUBJECT --input-topic nowhere-SUBJECT"),
    step(STREAMS_GROUPS, "BROKER --delete --group busy-SUBJECT --group nothing-SUBJECT --delete-all-internal-topics"),
    step(STREAMS_GROUPS, "BROKER --delete --group idle-SUBJECT --delete-all-internal-topics"),
    step(STREAMS_GROUPS, "BROKER --list --state"),
    step(TOPICS, "BROKER --list"),
];
