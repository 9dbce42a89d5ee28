//! The dead-letter queue of a share group (KIP-1191): which topic it is, what its records say about
//! the original, and how often a failed write is tried again.
//!
//! Which records go there is decided in [`share_partition`](crate::share_partition). Source:
//! `ShareGroupDLQStateManager`.

use ottla_types::{ErrorCode, Offset, PartitionIndex};
use thiserror::Error;

use crate::share_partition::DeadLetters;

/// The topic that a group names as its dead-letter queue, as the cluster knows it.
#[derive(Clone, Copy, Debug)]
pub struct QueueTopic<'a> {
    /// `errors.deadletterqueue.topic.name` of the group; empty if there is none.
    pub name: &'a str,
    /// The topic from which the group got the records.
    pub source: &'a str,
    /// `errors.deadletterqueue.topic.name.prefix` of the broker; empty allows every name.
    pub prefix: &'a str,
    pub exists: bool,
    /// `errors.deadletterqueue.group.enable` of the topic.
    pub is_enabled: bool,
    /// `errors.deadletterqueue.auto.create.topics.enable` of the broker.
    pub may_be_created: bool,
}

/// Why a topic cannot be the dead-letter queue of a group.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum QueueRefusal {
    #[error("the group has no errors.deadletterqueue.topic.name")]
    NoName,
    #[error("errors.deadletterqueue.topic.name={name}: the name must not start with __")]
    InternalName { name: String },
    /// Each letter would be delivered to the same group, and lead to another one.
    #[error("the records are already in topic {name}, which is the dead-letter queue of the group")]
    Source { name: String },
    #[error(
        "topic {name} is no dead-letter queue; set its errors.deadletterqueue.group.enable=true"
    )]
    NotEnabled { name: String },
    #[error(
        "topic {name} does not exist; create it, or set errors.deadletterqueue.auto.create.topics.enable=true"
    )]
    Missing { name: String },
    #[error(
        "errors.deadletterqueue.topic.name={name} does not start with errors.deadletterqueue.topic.name.prefix={prefix}; name another topic, or change the prefix"
    )]
    Prefix { name: String, prefix: String },
}

impl QueueTopic<'_> {
    /// Checked before each write, because everything can change in between. Refusals because of the
    /// name come first: creating or enabling such a topic would not help.
    pub fn check(&self) -> Result<(), QueueRefusal> {
        let name = self.name.to_owned();
        if name.is_empty() {
            return Err(QueueRefusal::NoName);
        }
        if name.starts_with("__") {
            return Err(QueueRefusal::InternalName { name });
        }
        if !name.starts_with(self.prefix) {
            let prefix = self.prefix.to_owned();
            return Err(QueueRefusal::Prefix { name, prefix });
        }
        if name == self.source {
            return Err(QueueRefusal::Source { name });
        }
        if self.exists && !self.is_enabled {
            return Err(QueueRefusal::NotEnabled { name });
        }
        if !self.exists && !self.may_be_created {
            return Err(QueueRefusal::Missing { name });
        }
        Ok(())
    }
}

/// The partition of the queue that gets the records of a partition.
pub fn queue_partition(source: PartitionIndex, partitions: usize) -> PartitionIndex {
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX).max(1);
    PartitionIndex(source.0 % partitions)
}

/// Where dead letters come from.
#[derive(Clone, Copy, Debug)]
pub struct LetterSource<'a> {
    pub group_id: &'a str,
    pub topic: &'a str,
    pub partition: PartitionIndex,
}

impl LetterSource<'_> {
    /// The headers of the record in the queue. The headers of the original are not copied.
    pub fn headers(&self, offset: Offset, letters: &DeadLetters) -> [(&'static str, String); 6] {
        [
            ("__dlq.errors.topic", self.topic.to_owned()),
            ("__dlq.errors.partition", self.partition.0.to_string()),
            ("__dlq.errors.offset", offset.0.to_string()),
            ("__dlq.errors.group", self.group_id.to_owned()),
            (
                "__dlq.errors.delivery.count",
                letters.delivery_count.to_string(),
            ),
            ("__dlq.errors.message", letters.cause.message().to_owned()),
        ]
    }
}

/// What follows the answer to a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterWrite {
    Written,
    /// The leader is another broker, does not know the topic yet, or cannot write at present.
    TryAgain,
    /// The queue refuses the contents of the batch, which may be one letter of several.
    Split,
    GiveUp,
}

impl AfterWrite {
    /// Kafka tries again only with another leader. It gives up if the leader does not know the
    /// topic, as after the creation of a topic, and if replicas are missing, as during restarts of
    /// brokers. With retries, a write that the leader has appended without its replicas may be in
    /// the queue twice, as after a broken connection.
    pub fn of(error: ErrorCode) -> AfterWrite {
        match error {
            ErrorCode::None => AfterWrite::Written,
            ErrorCode::NotLeaderOrFollower
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::RequestTimedOut
            | ErrorCode::KafkaStorageError => AfterWrite::TryAgain,
            ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::InvalidRecord
            | ErrorCode::InvalidTimestamp
            | ErrorCode::CorruptMessage => AfterWrite::Split,
            _ => AfterWrite::GiveUp,
        }
    }
}

/// The maximum number of letters in the next batch. It isolates a letter that the queue refuses: a
/// refused batch is halved, and after a written batch the next one may be twice as large. Kafka
/// gives up the whole batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LettersPerBatch(i64);

impl Default for LettersPerBatch {
    /// As many as there is room for.
    fn default() -> Self {
        LettersPerBatch(i64::MAX)
    }
}

impl LettersPerBatch {
    pub fn max(self) -> i64 {
        self.0
    }

    pub fn on_written(&mut self) {
        self.0 = self.0.saturating_mul(2);
    }

    /// The queue has refused a batch of this many letters. Returns whether the same letters are
    /// tried in smaller batches; otherwise the refused letter is given up.
    pub fn on_refused(&mut self, letters: i64) -> bool {
        self.0 = (letters / 2).max(1);
        letters > 1
    }
}

/// The failed attempts at one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FailedAttempts(u32);

impl FailedAttempts {
    const MAX_ATTEMPTS: u32 = 5;
    const PAUSE_MS: u64 = 1000;
    const MAX_PAUSE_MS: u64 = 30_000;

    /// Counts a failure. Returns the pause before the next attempt, if there is one.
    pub fn next_pause_ms(&mut self) -> Option<u64> {
        self.0 += 1;
        let pause_ms = (Self::PAUSE_MS << self.0.min(16)).min(Self::MAX_PAUSE_MS);
        (self.0 < Self::MAX_ATTEMPTS).then_some(pause_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share_partition::DeadLetterCause;

    const USUAL: QueueTopic<'static> = QueueTopic {
        name: "dlq.orders",
        source: "payments",
        prefix: "dlq.",
        exists: true,
        is_enabled: true,
        may_be_created: false,
    };

    #[test]
    fn a_queue_is_an_enabled_topic_with_the_prefix() {
        let missing = QueueTopic {
            exists: false,
            is_enabled: false,
            ..USUAL
        };
        let created = QueueTopic {
            may_be_created: true,
            ..missing
        };
        let named = |name| QueueTopic { name, ..USUAL };
        let refused = |topic: QueueTopic<'_>| topic.check().unwrap_err();
        let name = || "dlq.orders".to_owned();
        assert_eq!(USUAL.check(), Ok(()));
        assert_eq!(created.check(), Ok(()));
        assert_eq!(refused(missing), QueueRefusal::Missing { name: name() });
        assert_eq!(refused(named("")), QueueRefusal::NoName);
        let internal = QueueRefusal::InternalName {
            name: "__dlq".to_owned(),
        };
        assert_eq!(refused(named("__dlq")), internal);
        let disabled = QueueTopic {
            is_enabled: false,
            may_be_created: true,
            ..USUAL
        };
        assert_eq!(refused(disabled), QueueRefusal::NotEnabled { name: name() });
        let elsewhere = QueueRefusal::Prefix {
            name: "orders".to_owned(),
            prefix: "dlq.".to_owned(),
        };
        assert_eq!(refused(named("orders")), elsewhere);
        let not_there = QueueTopic {
            name: "orders",
            ..missing
        };
        assert_eq!(refused(not_there), elsewhere);
        let itself = QueueTopic {
            source: "dlq.orders",
            ..USUAL
        };
        assert_eq!(refused(itself), QueueRefusal::Source { name: name() });
        let any = QueueTopic {
            prefix: "",
            ..named("orders")
        };
        assert_eq!(any.check(), Ok(()));
    }

    #[test]
    fn a_record_says_where_it_comes_from_and_why() {
        let source = LetterSource {
            group_id: "g",
            topic: "orders",
            partition: PartitionIndex(3),
        };
        let letters = DeadLetters {
            first_offset: Offset(7),
            last_offset: Offset(9),
            delivery_count: 5,
            cause: DeadLetterCause::DeliveryCountExceeded,
        };
        let headers = source.headers(Offset(8), &letters);
        let headers = headers.map(|(key, value)| format!("{key}={value}"));
        let expected = [
            "__dlq.errors.topic=orders",
            "__dlq.errors.partition=3",
            "__dlq.errors.offset=8",
            "__dlq.errors.group=g",
            "__dlq.errors.delivery.count=5",
            "__dlq.errors.message=Offset delivery count exceeded the threshold.",
        ];
        assert_eq!(headers, expected);
        assert_eq!(queue_partition(PartitionIndex(3), 2), PartitionIndex(1));
        assert_eq!(queue_partition(PartitionIndex(3), 8), PartitionIndex(3));
    }

    #[test]
    fn a_write_is_tried_five_times() {
        let mut failed = FailedAttempts::default();
        let pauses: Vec<Option<u64>> = (0..5).map(|_| failed.next_pause_ms()).collect();
        let expected = [Some(2_000), Some(4_000), Some(8_000), Some(16_000), None];
        assert_eq!(pauses, expected);
    }

    #[test]
    fn only_transient_failures_are_retried() {
        for (error, after) in [
            (ErrorCode::None, AfterWrite::Written),
            (ErrorCode::NotLeaderOrFollower, AfterWrite::TryAgain),
            (ErrorCode::UnknownTopicOrPartition, AfterWrite::TryAgain),
            (ErrorCode::NotEnoughReplicas, AfterWrite::TryAgain),
            (ErrorCode::RequestTimedOut, AfterWrite::TryAgain),
            (ErrorCode::KafkaStorageError, AfterWrite::TryAgain),
            (ErrorCode::MessageTooLarge, AfterWrite::Split),
            (ErrorCode::RecordListTooLarge, AfterWrite::Split),
            (ErrorCode::InvalidRecord, AfterWrite::Split),
            (ErrorCode::InvalidTimestamp, AfterWrite::Split),
            (ErrorCode::CorruptMessage, AfterWrite::Split),
            (ErrorCode::TopicAuthorizationFailed, AfterWrite::GiveUp),
        ] {
            assert_eq!(AfterWrite::of(error), after, "{error}");
        }
    }

    #[test]
    fn a_refused_letter_does_not_fail_the_other_letters() {
        let bad = [3, 70, 71, 99];
        let (mut next, mut requests) = (0, 0);
        let (mut written, mut given_up) = (Vec::new(), Vec::new());
        let mut per_batch = LettersPerBatch::default();
        while next < 100 {
            let letters = per_batch.max().min(100 - next);
            let batch = next..next + letters;
            requests += 1;
            if !bad.iter().any(|letter| batch.contains(letter)) {
                per_batch.on_written();
                written.extend(batch);
                next += letters;
            } else if !per_batch.on_refused(letters) {
                given_up.push(next);
                next += 1;
            }
        }
        assert_eq!(given_up, bad);
        assert_eq!(written.len(), 96);
        assert!(requests < 50, "{requests}");
    }
}
