//! Compares Kafka's tools with Ottla's on a secured broker: ACLs, credentials, quotas, delegation
//! tokens and topics, by a super user and by users with few or no permissions.

use super::tool_pairs::{Step, of_tokens, step};
use super::tools::{ACLS, CONFIGS, CONSUMER_GROUPS, TOKENS, TOPICS};

#[rustfmt::skip]
pub const STEPS: &[Step] = &[
    step(ACLS, "AS-root --add --allow-principal User:pairs-SUBJECT --operation Read --operation Write --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --add --allow-principal User:pairs-SUBJECT --deny-principal User:other --deny-host 10.0.0.1 --operation All --group pairs-SUBJECT --resource-pattern-type prefixed"),
    step(ACLS, "AS-root --add --allow-principal User:pairs-SUBJECT --producer --topic pairs-SUBJECT --idempotent --transactional-id pairs-SUBJECT"),
    step(ACLS, "AS-root --list --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --list --principal User:pairs-SUBJECT"),
    step(ACLS, "AS-root --remove --force --allow-principal User:pairs-SUBJECT --operation Write --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --remove --force --allow-principal User:pairs-SUBJECT --operation Write --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --list --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --add --allow-principal pairs-SUBJECT --operation Read --topic pairs-SUBJECT"),
    step(ACLS, "AS-root --add --allow-principal User:pairs-SUBJECT --operation Create --group pairs-SUBJECT"),
    step(ACLS, "AS-carol --list --topic pairs-SUBJECT"),
    step(ACLS, "AS-carol --add --allow-principal User:pairs-SUBJECT --operation Read --topic pairs-SUBJECT"),
    step(ACLS, "AS-wrong --list"),
    step(CONFIGS, "AS-root --alter --entity-type users --entity-name pairs-SUBJECT --add-config SCRAM-SHA-512=[iterations=8192,password=secret]"),
    step(CONFIGS, "AS-root --alter --entity-type users --entity-name pairs-SUBJECT --add-config producer_byte_rate=1024"),
    step(CONFIGS, "AS-root --alter --entity-type users --entity-name pairs-SUBJECT --entity-type clients --entity-name pairs-SUBJECT --add-config consumer_byte_rate=2048,request_percentage=50"),
    step(CONFIGS, "AS-root --describe --entity-type users --entity-name pairs-SUBJECT"),
    step(CONFIGS, "AS-root --describe --entity-type users --entity-name pairs-SUBJECT --entity-type clients"),
    step(CONFIGS, "AS-carol --describe --entity-type users --entity-name pairs-SUBJECT"),
    step(CONFIGS, "AS-carol --alter --entity-type users --entity-name pairs-SUBJECT --add-config producer_byte_rate=1"),
    step(CONFIGS, "AS-root --alter --entity-type users --entity-name pairs-SUBJECT --delete-config SCRAM-SHA-512,producer_byte_rate"),
    step(CONFIGS, "AS-root --describe --entity-type users --entity-name pairs-SUBJECT"),
    step(TOPICS, "AS-root --create --topic pairs-SUBJECT"),
    step(TOPICS, "AS-carol --create --topic pairs-SUBJECT-more"),
    step(TOPICS, "AS-carol --delete --topic pairs-SUBJECT"),
    step(CONSUMER_GROUPS, "AS-carol --describe --group pairs-SUBJECT"),
    of_tokens("AS-root --create --max-life-time-period -1 --renewer-principal User:pairs-SUBJECT"),
    of_tokens("AS-root --create --max-life-time-period 3600000 --owner-principal User:pairs-SUBJECT"),
    of_tokens("AS-root --describe --owner-principal User:pairs-SUBJECT"),
    of_tokens("AS-carol --describe --owner-principal User:pairs-SUBJECT"),
    of_tokens("AS-carol --create --max-life-time-period -1 --owner-principal User:pairs-SUBJECT"),
    step(TOKENS, "AS-root --renew --renew-time-period -1 --hmac bm90aGluZw=="),
    step(TOPICS, "AS-root --delete --topic pairs-SUBJECT"),
];
