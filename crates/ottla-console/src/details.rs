//! The data of a topic's page besides the snapshot. It is requested at most once a second, whatever the number of tabs:
//! a topic can have very many partitions, and for the latest timestamp a broker may read a part of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join3;
use ottla_client::admin::{ListedOffset, OffsetSpec};
use ottla_client::{Admin, ClientError};

use crate::view::Partition;

/// How long it is good.
const AGE: Duration = Duration::from_secs(1);

/// The details of one partition. Unknown values are `None`.
#[derive(Clone, Default, Debug)]
pub(crate) struct PartitionDetails {
    /// Eligible leader replicas (KIP-966).
    pub(crate) elr: Option<Vec<i32>>,
    pub(crate) last_stable_offset: Option<i64>,
    pub(crate) latest_timestamp: Option<i64>,
}

/// By the number of the partition.
pub(crate) type TopicDetails = BTreeMap<i32, PartitionDetails>;

/// The details of a topic, and the time of the request. The holder of the lock requests new ones.
type Slot = tokio::sync::Mutex<Option<(Instant, Arc<TopicDetails>)>>;

#[derive(Default)]
pub(crate) struct Details {
    slots: parking_lot::Mutex<HashMap<String, Arc<Slot>>>,
}

impl Details {
    pub(crate) async fn of_topic(
        &self,
        admin: &Admin,
        topic: &str,
        partitions: &[Partition],
    ) -> Arc<TopicDetails> {
        let slot = self.slot(topic);
        let mut known = slot.lock().await;
        if let Some((_, details)) = known.as_ref().filter(|(since, _)| is_good(*since)) {
            return details.clone();
        }
        let details = Arc::new(ask(admin, topic, partitions).await);
        *known = Some((Instant::now(), details.clone()));
        details
    }

    /// Drops old entries of other topics, unless a request uses them.
    fn slot(&self, topic: &str) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        slots.retain(|_, slot| match slot.try_lock() {
            Ok(known) => known.as_ref().is_some_and(|(since, _)| is_good(*since)),
            Err(_) => true,
        });
        slots.entry(topic.to_owned()).or_default().clone()
    }
}

fn is_good(since: Instant) -> bool {
    since.elapsed() < AGE
}

/// One request to each leader for each kind of offset, and one for the topic.
async fn ask(admin: &Admin, topic: &str, partitions: &[Partition]) -> TopicDetails {
    let names = [topic.to_owned()];
    let (described, stable, latest) = join3(
        admin.describe_topics(&names),
        admin.list_offsets_once(partitions, OffsetSpec::Latest, true),
        admin.list_offsets_once(partitions, OffsetSpec::MaxTimestamp, false),
    )
    .await;
    let mut details = TopicDetails::new();
    for partition in described.iter().flatten().flat_map(|it| &it.partitions) {
        let of_partition = details.entry(partition.partition).or_default();
        of_partition.elr = partition.eligible_leader_replicas.clone();
    }
    for (number, listed) in known(stable) {
        details.entry(number).or_default().last_stable_offset = Some(listed.offset);
    }
    for (number, listed) in known(latest) {
        let timestamp = Some(listed.timestamp).filter(|it| *it >= 0);
        details.entry(number).or_default().latest_timestamp = timestamp;
    }
    details
}

fn known(
    listed: BTreeMap<Partition, Result<ListedOffset, ClientError>>,
) -> impl Iterator<Item = (i32, ListedOffset)> {
    let listed = listed.into_iter();
    listed.filter_map(|((_, number), it)| Some((number, it.ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn new_details_are_reused_and_old_ones_are_dropped() {
        let details = Details::default();
        let slot = details.slot("t");
        let now = Arc::new(TopicDetails::new());
        *slot.lock().await = Some((Instant::now(), now.clone()));
        assert!(Arc::ptr_eq(&slot, &details.slot("t")));
        // A request uses it.
        let asking = details.slot("busy");
        let held = asking.lock().await;
        details.slot("other");
        assert!(Arc::ptr_eq(&asking, &details.slot("busy")));
        drop(held);
        *slot.lock().await = Instant::now().checked_sub(AGE).map(|it| (it, now));
        details.slot("third");
        assert_eq!(details.slots.lock().len(), 1);
    }
}
