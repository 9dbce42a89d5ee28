//! The transaction that a request of a producer belongs to.

use bytestring::ByteString;
use ottla_coordinator::TransactionalProducer;

/// Who makes partitions part of the transaction, which the version of the request tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddedBy {
    /// The client, which knows no error that asks it to abort.
    Client,
    /// The client.
    ClientThatMayAbort,
    /// The brokers whose partitions are written to.
    Broker,
}

/// Who wants to know, which decides what the coordinator's trouble is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskedFor {
    /// Clients of Produce try again where there are not enough replicas, and know none of the errors of coordinators.
    Produce,
    /// A coordinator of groups has words of its own.
    Coordinator,
}

/// A transaction that a request of its producer belongs to.
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
