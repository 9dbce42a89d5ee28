//! The transaction of a producer's request.

use bytestring::ByteString;
use ottla_coordinator::TransactionalProducer;

/// Whether the client or the broker adds partitions to the transaction. Depends on the request
/// version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddedBy {
    /// The client, whose version does not know `TRANSACTION_ABORTABLE`.
    Client,
    /// The client, whose version knows `TRANSACTION_ABORTABLE`.
    ClientThatMayAbort,
    /// The brokers that lead the partitions.
    Broker,
}

/// The requester, which decides how a coordinator's error is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedFor {
    /// Produce clients retry `NOT_ENOUGH_REPLICAS` and know no errors of coordinators.
    Produce,
    /// A group coordinator maps errors itself.
    Coordinator,
}

/// A transaction that a producer's request belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducerTransaction {
    pub transactional_id: ByteString,
    pub producer: TransactionalProducer,
    pub added_by: AddedBy,
    pub asked_for: AskedFor,
}

impl ProducerTransaction {
    pub fn adds_partitions(&self) -> bool {
        self.added_by == AddedBy::Broker
    }
}
