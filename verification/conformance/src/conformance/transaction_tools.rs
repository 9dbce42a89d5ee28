//! Compares `kafka-transactions.sh` with `ottla transactions` on the state that the transactions
//! script left: transactional IDs in every state, and for each tool a topic with a hanging
//! transaction, whose coordinator does not know the partition.

use super::tool_pairs::{Step, measuring, step};
use super::tools::{OFFSETS, TRANSACTIONS};

/// Producer IDs and times are compared by shape.
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
