//! `kafka-transactions.sh` beside `ottla transactions`: all that each can be asked, on what the script of transactions has
//! left behind, which is ids in every state and, in a topic for each tool, a transaction that hangs: its coordinator knows
//! nothing of the partition.

use super::tool_pairs::{Step, measuring, step};
use super::tools::{OFFSETS, TRANSACTIONS};

/// Producer ids and times are compared by their shape.
#[rustfmt::skip]
pub const STEPS: &[Step] = &[
    measuring(TRANSACTIONS, "BROKER list"),
    measuring(TRANSACTIONS, "BROKER list --duration-filter 86400000"),
    measuring(TRANSACTIONS, "BROKER list --transactional-id-pattern transactions-v2-.*"),
    step(TRANSACTIONS, "BROKER list --transactional-id-pattern nothing.*"),
    step(TRANSACTIONS, "BROKER list --transactional-id-pattern (["),
    measuring(TRANSACTIONS, "BROKER describe --transactional-id transactions-v2-ended"),
    step(TRANSACTIONS, "BROKER describe --transactional-id nothing"),
    step(TRANSACTIONS, "BROKER describe"),
    measuring(TRANSACTIONS, "BROKER describe-producers --topic hanging-SUBJECT --partition 0"),
    measuring(TRANSACTIONS, "BROKER describe-producers --broker-id 1 --topic hanging-SUBJECT --partition 0"),
    step(TRANSACTIONS, "BROKER describe-producers --broker-id 77 --topic hanging-SUBJECT --partition 0"),
    step(TRANSACTIONS, "BROKER describe-producers --topic hanging-SUBJECT --partition 9"),
    step(TRANSACTIONS, "BROKER describe-producers --topic hanging-SUBJECT"),
    step(TRANSACTIONS, "BROKER find-hanging"),
    measuring(TRANSACTIONS, "BROKER find-hanging --topic hanging-SUBJECT --partition 0"),
    measuring(TRANSACTIONS, "BROKER find-hanging --topic hanging-SUBJECT"),
    measuring(TRANSACTIONS, "BROKER find-hanging --broker-id 1"),
    step(TRANSACTIONS, "BROKER find-hanging --topic hanging-SUBJECT --max-transaction-timeout 100000000"),
    step(TRANSACTIONS, "BROKER find-hanging --partition 0"),
    step(TRANSACTIONS, "BROKER abort --topic hanging-SUBJECT"),
    step(TRANSACTIONS, "BROKER abort --topic hanging-SUBJECT --partition 0"),
    step(TRANSACTIONS, "BROKER abort --topic hanging-SUBJECT --partition 0 --start-offset 7"),
    step(OFFSETS, "BROKER --topic hanging-SUBJECT"),
    step(TRANSACTIONS, "BROKER abort --topic hanging-SUBJECT --partition 0 --start-offset 0"),
    step(OFFSETS, "BROKER --topic hanging-SUBJECT"),
    step(TRANSACTIONS, "BROKER abort --topic hanging-SUBJECT --partition 0 --start-offset 0"),
    step(TRANSACTIONS, "BROKER find-hanging --topic hanging-SUBJECT --partition 0"),
    step(TRANSACTIONS, "BROKER forceTerminateTransaction --transactionalId transactions-v2-open"),
    step(TRANSACTIONS, "BROKER forceTerminateTransaction --transactionalId terminated-SUBJECT"),
    step(TRANSACTIONS, "BROKER"),
    step(TRANSACTIONS, "BROKER nothing"),
];
