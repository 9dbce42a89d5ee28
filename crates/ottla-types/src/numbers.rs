//! Typed numbers. Each wraps the integer used on the wire and on disk.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The integer as encoded on the wire.
            pub const fn value(self) -> $inner {
                self.0
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }

        impl From<$name> for $inner {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

number! {
    /// The position of a record in its partition. Exclusive ends (log end offset, high watermark)
    /// use the same type: they are the offset of the next record.
    Offset(i64)
}

impl Offset {
    pub const ZERO: Offset = Offset(0);
    /// "No offset", as Kafka encodes it in requests, responses and checkpoints.
    pub const UNKNOWN: Offset = Offset(-1);

    /// The offset `count` records after this one.
    pub const fn plus(self, count: i64) -> Offset {
        Offset(self.0 + count)
    }

    /// The number of offsets from `earlier` to this one.
    pub const fn since(self, earlier: Offset) -> i64 {
        self.0 - earlier.0
    }
}

number! {
    /// Incremented with every new leader of a partition, and of the metadata quorum (KIP-101,
    /// KIP-595).
    LeaderEpoch(i32)
}

impl LeaderEpoch {
    /// "No epoch", as Kafka encodes it.
    pub const UNKNOWN: LeaderEpoch = LeaderEpoch(-1);
}

number! {
    /// Incremented with every change of a partition's registration: leader, ISR, replicas
    /// (KIP-497).
    PartitionEpoch(i32)
}

number! {
    /// Assigned by the controller at each registration of a broker (KIP-380, KIP-631).
    BrokerEpoch(i64)
}

impl BrokerEpoch {
    pub const UNKNOWN: BrokerEpoch = BrokerEpoch(-1);
}

number! {
    /// `node.id`: identifies a broker or a controller in its cluster.
    BrokerId(i32)
}

impl BrokerId {
    /// "No broker": a partition without a leader.
    pub const NONE: BrokerId = BrokerId(-1);
}

number! {
    /// The number of a partition within its topic, from 0.
    PartitionIndex(i32)
}

number! {
    /// Identifies an idempotent or transactional producer (KIP-98).
    ProducerId(i64)
}

impl ProducerId {
    pub const NONE: ProducerId = ProducerId(-1);
}

number! {
    /// Fences older instances of the same producer ID (KIP-98).
    ProducerEpoch(i16)
}

impl ProducerEpoch {
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

number! {
    /// The sequence number that an idempotent producer assigns to each record of a partition. It
    /// wraps from `i32::MAX` to 0.
    Sequence(i32)
}

impl Sequence {
    pub const NONE: Sequence = Sequence(-1);

    /// The sequence `count` records later, wrapping past `i32::MAX` to 0 as Kafka's
    /// `DefaultRecordBatch.incrementSequence` does.
    pub const fn plus(self, count: i32) -> Sequence {
        if self.0 > i32::MAX - count {
            Sequence(count - (i32::MAX - self.0) - 1)
        } else {
            Sequence(self.0 + count)
        }
    }
}

number! {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Timestamp(i64)
}

impl Timestamp {
    /// A record or batch without a timestamp.
    pub const NONE: Timestamp = Timestamp(-1);
}

#[cfg(test)]
mod tests {
    use super::Sequence;

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence(0));
        assert_eq!(Sequence(i32::MAX - 1).plus(3), Sequence(1));
        assert_eq!(Sequence(7).plus(3), Sequence(10));
    }
}
