//! Compares Kafka's share group tools with Ottla's, each on its own groups, on nodes whose members
//! learn of assignments quickly.

use super::tool_pairs::{Step, measuring, step};
use super::tools::{
    CONFIGS, GROUPS, PRODUCER_TEST, SHARE_CONSUMER, SHARE_GROUPS, SHARE_TEST, SHARE_VERIFIABLE,
    TOPICS,
};

/// Times are compared by shape.
#[rustfmt::skip]
pub const STEPS: &[Step] = &[
    step(TOPICS, "BROKER --create --topic shared-SUBJECT --partitions 1"),
    measuring(PRODUCER_TEST, "BROKER --topic shared-SUBJECT --num-records 12 --payload-monotonic --throughput -1 --reporting-interval 600000"),
    step(CONFIGS, "BROKER --alter --entity-type groups --entity-name shared-SUBJECT --add-config share.auto.offset.reset=earliest"),
    step(CONFIGS, "BROKER --describe --entity-type groups --entity-name shared-SUBJECT"),
    step(
        SHARE_CONSUMER,
        "BROKER --topic shared-SUBJECT --group shared-SUBJECT --max-messages 5 --timeout-ms 15000 --release \
         --formatter-property print.delivery=true --formatter-property print.offset=true",
    ),
    step(
        SHARE_CONSUMER,
        "BROKER --topic shared-SUBJECT --group shared-SUBJECT --max-messages 12 --timeout-ms 15000 \
         --formatter-property print.delivery=true --formatter-property print.partition=true",
    ),
    step(SHARE_CONSUMER, "BROKER --topic shared-SUBJECT --group shared-SUBJECT --timeout-ms 1000"),
    step(SHARE_CONSUMER, "BROKER --topic shared-SUBJECT --group one --command-property group.id=other"),
    step(SHARE_CONSUMER, "BROKER --topic shared-SUBJECT --reject --release"),
    step(SHARE_CONSUMER, "BROKER"),
    step(SHARE_GROUPS, "BROKER --list"),
    step(SHARE_GROUPS, "BROKER --list --state empty"),
    step(SHARE_GROUPS, "BROKER --list --state gone"),
    step(GROUPS, "BROKER --list --share"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT --offsets --verbose"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT --state"),
    measuring(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT --state --verbose"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT --members"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT --members --state"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-nothing"),
    step(SHARE_GROUPS, "BROKER --describe"),
    step(SHARE_GROUPS, "BROKER --reset-offsets --group shared-SUBJECT --topic shared-SUBJECT --to-earliest --dry-run"),
    step(SHARE_GROUPS, "BROKER --reset-offsets --group shared-SUBJECT --all-topics --to-earliest --execute"),
    step(SHARE_GROUPS, "BROKER --describe --group shared-SUBJECT"),
    step(
        SHARE_GROUPS,
        "BROKER --reset-offsets --group shared-SUBJECT --topic shared-SUBJECT:0 --to-datetime 2023-01-01T00:00:00.000 \
         --execute",
    ),
    step(SHARE_GROUPS, "BROKER --reset-offsets --group shared-SUBJECT --topic shared-SUBJECT:7 --to-latest --execute"),
    step(SHARE_GROUPS, "BROKER --reset-offsets --group shared-SUBJECT --topic shared-SUBJECT --to-latest"),
    step(SHARE_GROUPS, "BROKER --reset-offsets --group made-SUBJECT --topic shared-SUBJECT --to-latest --execute"),
    step(SHARE_GROUPS, "BROKER --describe --group made-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --delete-offsets --group made-SUBJECT --topic shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --delete-offsets --group made-SUBJECT --topic shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --delete-offsets --group shared-nothing --topic shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --describe --group made-SUBJECT"),
    measuring(SHARE_TEST, "BROKER --topic shared-SUBJECT --group shared-SUBJECT --num-records 12 --timeout 15000 --show-consumer-stats"),
    // The consumer stops at a record count. With a timeout, Kafka's tool gives its threads 100 ms
    // to end, and a single poll may take that long.
    measuring(PRODUCER_TEST, "BROKER --topic shared-SUBJECT --num-records 12 --payload-monotonic --throughput -1 --reporting-interval 600000"),
    measuring(
        SHARE_TEST,
        "BROKER --topic shared-SUBJECT --group shared-SUBJECT --num-records 12 --timeout 15000 --hide-header --threads 2 \
         --show-consumer-stats",
    ),
    measuring(SHARE_TEST, "BROKER --topic shared-SUBJECT"),
    measuring(SHARE_TEST, "BROKER --num-records 1"),
    measuring(
        SHARE_VERIFIABLE,
        "BROKER --topic shared-SUBJECT --group-id verified-SUBJECT --max-messages 12 --acknowledgement-mode sync \
         --offset-reset-strategy earliest --verbose",
    ),
    step(SHARE_GROUPS, "BROKER --delete --group shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --delete --group shared-nothing --group made-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --delete --group shared-SUBJECT"),
    step(SHARE_GROUPS, "BROKER --list"),
    step(TOPICS, "BROKER --delete --topic shared-SUBJECT"),
];
