//! A fetch session as the one who fetches keeps it (KIP-227): all partitions are named once, and from then on those
//! whose position has changed.
//!
//! Knows what the leader takes for the position of each partition; an answer is about that. Has no socket.
//!
//! Kafka: `FetchSessionHandler`.

use hashbrown::HashMap;
use ottla_protocol::messages::FetchResponse;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use ottla_replica::FetchPosition;
use ottla_types::{ErrorCode, PartitionIndex, TopicIdPartition};

/// The id of no session.
const NO_SESSION: i32 = 0;
/// The epoch of a request that names everything and asks for a session.
const FULL: i32 = 0;

/// What was asked of a leader.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    /// The session that the next request is of, or closes where it is a full one.
    pub(super) id: i32,
    /// What the next request carries.
    pub(super) epoch: i32,
    asked: HashMap<TopicIdPartition, Asked>,
}

#[derive(Debug)]
struct Asked {
    position: FetchPosition,
    request: FetchPartition,
}

/// What a request says of partitions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Change {
    pub(super) topics: Vec<FetchTopic>,
    pub(super) forgotten: Vec<ForgottenTopic>,
}

/// Why an answer says nothing of partitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unusable {
    /// The session is gone; a full fetch may follow at once.
    SessionLost,
    /// The leader failed.
    Refused(ErrorCode),
    /// It names partitions that were not asked for, or leaves out some that were.
    WrongPartitions,
}

impl FetchSession {
    /// Whether the next request has to name everything.
    pub(super) fn is_full(&self) -> bool {
        self.epoch == FULL
    }

    /// The position that the leader answers for.
    pub(super) fn position(&self, key: &TopicIdPartition) -> Option<&FetchPosition> {
        self.asked.get(key).map(|asked| &asked.position)
    }

    /// Takes up what has changed, and returns what the next request says: of each partition what is asked of it now,
    /// or nothing where it is not fetched. For a full request all partitions are given. `None` where there is nothing to say:
    /// a session whose last partition is not fetched any more is still to be told so.
    pub(super) fn change(
        &mut self,
        changes: impl IntoIterator<Item = (TopicIdPartition, Option<(FetchPosition, FetchPartition)>)>,
    ) -> Option<Change> {
        if self.is_full() {
            self.asked.clear();
        }
        let (mut named, mut forgotten) = (Vec::new(), Vec::new());
        for (key, wanted) in changes {
            let Some((position, request)) = wanted else {
                if self.asked.remove(&key).is_some() {
                    forgotten.push(key);
                }
                continue;
            };
            let known = self.asked.get(&key);
            if known.is_none_or(|known| known.request != request) {
                named.push((key, request.clone()));
            }
            self.asked.insert(key, Asked { position, request });
        }
        named.sort_unstable_by_key(|(key, _)| *key);
        forgotten.sort_unstable();
        let mut change = Change::default();
        for (key, request) in named {
            match change.topics.last_mut() {
                Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(request),
                _ => change.topics.push(FetchTopic {
                    topic_id: key.topic_id,
                    partitions: vec![request],
                    ..Default::default()
                }),
            }
        }
        for key in forgotten {
            let index = key.partition.0;
            match change.forgotten.last_mut() {
                Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(index),
                _ => change.forgotten.push(ForgottenTopic {
                    topic_id: key.topic_id,
                    partitions: vec![index],
                    ..Default::default()
                }),
            }
        }
        let has_something = !self.asked.is_empty() || !change.forgotten.is_empty();
        has_something.then_some(change)
    }

    /// Takes the answer to the last request. Only a usable one says something of partitions.
    pub(super) fn on_answer(&mut self, response: &FetchResponse) -> Result<(), Unusable> {
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            ErrorCode::FetchSessionIdNotFound => {
                self.begin_anew(NO_SESSION);
                return Err(Unusable::SessionLost);
            }
            ErrorCode::InvalidFetchSessionEpoch => {
                self.begin_anew(self.id);
                return Err(Unusable::SessionLost);
            }
            refused => {
                self.begin_anew(self.id);
                return Err(Unusable::Refused(refused));
            }
        }
        let mut answered = 0;
        for topic in &response.responses {
            for partition in &topic.partitions {
                let key = TopicIdPartition {
                    topic_id: topic.topic_id,
                    partition: PartitionIndex(partition.partition_index),
                };
                if !self.asked.contains_key(&key) {
                    self.begin_anew(self.id);
                    return Err(Unusable::WrongPartitions);
                }
                answered += 1;
            }
        }
        if self.is_full() && answered != self.asked.len() {
            self.begin_anew(NO_SESSION);
            return Err(Unusable::WrongPartitions);
        }
        match response.session_id {
            NO_SESSION => self.begin_anew(NO_SESSION),
            id => {
                self.id = id;
                self.epoch = match self.epoch {
                    i32::MAX => 1,
                    epoch => epoch + 1,
                };
            }
        }
        Ok(())
    }

    /// No answer came. The session may live on at the leader, and is closed with the next request.
    pub(super) fn on_failure(&mut self) {
        self.begin_anew(self.id);
    }

    fn begin_anew(&mut self, closes: i32) {
        self.id = closes;
        self.epoch = FULL;
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use ottla_types::{BrokerId, LeaderEpoch, Offset, Uuid};

    use super::*;

    fn key(partition: i32) -> TopicIdPartition {
        TopicIdPartition {
            topic_id: Uuid([1; 16]),
            partition: PartitionIndex(partition),
        }
    }

    fn wanted(partition: i32, offset: i64) -> (FetchPosition, FetchPartition) {
        let position = FetchPosition {
            leader: BrokerId(1),
            leader_epoch: LeaderEpoch(3),
            fetch_offset: Offset(offset),
            last_fetched_epoch: None,
            is_in_sync: false,
        };
        let request = FetchPartition {
            partition,
            fetch_offset: offset,
            ..Default::default()
        };
        (position, request)
    }

    fn answer(session_id: i32, partitions: &[i32]) -> FetchResponse {
        let partitions = partitions.iter().map(|&partition_index| PartitionData {
            partition_index,
            ..Default::default()
        });
        FetchResponse {
            session_id,
            responses: vec![FetchableTopicResponse {
                topic_id: Uuid([1; 16]),
                partitions: partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn named(change: &Option<Change>) -> (Vec<i32>, Vec<i32>) {
        let change = change.as_ref().expect("something to say");
        let topics = change.topics.iter().flat_map(|topic| &topic.partitions);
        let forgotten = change.forgotten.iter().flat_map(|topic| &topic.partitions);
        (
            topics.map(|partition| partition.partition).collect(),
            forgotten.copied().collect(),
        )
    }

    /// A session of partitions 1 and 2, both at offset 0.
    fn begun() -> FetchSession {
        let mut session = FetchSession::default();
        let change = session.change([(key(2), Some(wanted(2, 0))), (key(1), Some(wanted(1, 0)))]);
        assert_eq!(named(&change), (vec![1, 2], vec![]));
        assert_eq!(session.on_answer(&answer(77, &[1, 2])), Ok(()));
        assert_eq!((session.id, session.epoch), (77, 1));
        session
    }

    #[test]
    fn only_what_changed_is_named_again() {
        let mut session = begun();
        let change = session.change([
            (key(1), Some(wanted(1, 0))),
            (key(2), Some(wanted(2, 9))),
            (key(3), Some(wanted(3, 0))),
        ]);
        assert_eq!(named(&change), (vec![2, 3], vec![]));
        assert_eq!(session.on_answer(&answer(77, &[3])), Ok(()));
        assert_eq!((session.id, session.epoch), (77, 2));
        let change = session.change([(key(2), None), (key(9), None)]);
        assert_eq!(named(&change), (vec![], vec![2]));
        assert_eq!(session.position(&key(2)), None);
        assert_eq!(session.position(&key(3)).unwrap().fetch_offset, Offset(0));
    }

    #[test]
    fn a_session_whose_last_partition_has_to_wait_is_told_so() {
        let mut session = begun();
        let change = session.change([(key(1), None), (key(2), None)]);
        assert_eq!(named(&change), (vec![], vec![1, 2]));
        assert_eq!(session.on_answer(&answer(77, &[])), Ok(()));
        assert_eq!(session.change([(key(1), None)]), None);
        let change = session.change([(key(2), Some(wanted(2, 0)))]);
        assert_eq!(named(&change), (vec![2], vec![]));
        assert_eq!(session.on_answer(&answer(77, &[2])), Ok(()));
        assert_eq!((session.id, session.epoch), (77, 3));
    }

    #[test]
    fn without_a_session_everything_is_named_each_time() {
        let mut session = FetchSession::default();
        session.change([(key(1), Some(wanted(1, 0)))]);
        assert_eq!(session.on_answer(&answer(0, &[1])), Ok(()));
        assert!(session.is_full());
        let change = session.change([(key(1), Some(wanted(1, 0)))]);
        assert_eq!(named(&change), (vec![1], vec![]));
    }

    #[test]
    fn a_session_that_ended_begins_anew() {
        let lost = |code: ErrorCode| FetchResponse {
            error_code: code.code(),
            ..Default::default()
        };
        let mut session = begun();
        let gone = session.on_answer(&lost(ErrorCode::FetchSessionIdNotFound));
        assert_eq!(gone, Err(Unusable::SessionLost));
        assert_eq!((session.id, session.epoch), (0, 0));

        let mut session = begun();
        let wrong = session.on_answer(&lost(ErrorCode::InvalidFetchSessionEpoch));
        assert_eq!(wrong, Err(Unusable::SessionLost));
        assert_eq!((session.id, session.epoch), (77, 0), "it is closed");
        let change = session.change([(key(1), Some(wanted(1, 0)))]);
        assert_eq!(named(&change), (vec![1], vec![]));

        let mut session = begun();
        session.on_failure();
        assert_eq!((session.id, session.epoch), (77, 0));
    }

    #[test]
    fn an_answer_about_other_partitions_is_not_taken() {
        let mut session = begun();
        let wrong = session.on_answer(&answer(77, &[5]));
        assert_eq!(wrong, Err(Unusable::WrongPartitions));
        assert!(session.is_full());
        session.change([(key(1), Some(wanted(1, 0))), (key(2), Some(wanted(2, 0)))]);
        let wrong = session.on_answer(&answer(78, &[1]));
        assert_eq!(wrong, Err(Unusable::WrongPartitions), "one is missing");
    }
}
