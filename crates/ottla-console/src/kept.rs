//! The values that a visit keeps for a later request, under unguessable names. Bounded in number: the oldest is dropped
//! first.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::budget::Reservation;

pub(crate) struct Kept<T> {
    most: usize,
    /// The oldest first.
    things: Mutex<VecDeque<(String, T)>>,
}

impl<T: Clone> Kept<T> {
    pub(crate) fn new(most: usize) -> Kept<T> {
        let things = Mutex::default();
        Kept { most, things }
    }

    /// Keeps a thing, and returns its name.
    pub(crate) fn keep(&self, thing: T) -> String {
        let name = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 16]>());
        self.put_back(name.clone(), thing);
        name
    }

    /// Keeps a thing that was taken.
    pub(crate) fn put_back(&self, name: String, thing: T) {
        let mut things = self.things.lock();
        if things.len() >= self.most {
            things.pop_front();
        }
        things.push_back((name, thing));
    }

    pub(crate) fn get(&self, name: &str) -> Option<T> {
        let things = self.things.lock();
        let found = things.iter().find(|(it, _)| it == name);
        found.map(|(_, thing)| thing.clone())
    }

    /// Of concurrent callers, one gets it.
    pub(crate) fn take(&self, name: &str) -> Option<T> {
        let mut things = self.things.lock();
        let at = things.iter().position(|(it, _)| it == name)?;
        things.remove(at).map(|(_, thing)| thing)
    }
}

/// The contents of a preview, which one change can use.
pub(crate) struct Promise {
    /// The request without what differs between the preview and the change.
    pub(crate) what: String,
    /// Of the topic with the records. Offsets mean nothing in a later topic of the same name.
    pub(crate) topic_id: String,
    /// Partition, first offset and end (exclusive), in order.
    pub(crate) ranges: Vec<(i32, i64, i64)>,
    pub(crate) _reservation: Reservation,
}

/// Where a search of very many partitions continues.
pub(crate) struct Place {
    /// The next offset of each partition that is not read to its end.
    pub(crate) offsets: BTreeMap<i32, i64>,
    pub(crate) _reservation: Reservation,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_taken_once_and_the_oldest_is_forgotten() {
        let kept = Kept::new(2);
        let names: Vec<String> = (0..3).map(|thing| kept.keep(thing)).collect();
        assert_eq!((kept.get(&names[0]), kept.get("guessed")), (None, None));
        assert_eq!(
            (kept.get(&names[1]), kept.get(&names[1])),
            (Some(1), Some(1))
        );
        assert_eq!(
            (kept.take(&names[2]), kept.take(&names[2])),
            (Some(2), None)
        );
        kept.put_back(names[2].clone(), 2);
        assert_eq!(kept.take(&names[2]), Some(2));
    }
}
