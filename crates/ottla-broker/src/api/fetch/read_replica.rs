//! Directs consumers to a replica in their own rack if `replica.selector.class` is set (KIP-392).
//!
//! Kafka: `ReplicaManager.findPreferredReadReplica`.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_replica::{ReplicaSelector, select_read_replica};
use ottla_types::Offset;

use super::read::Wanted;
use ottla_net::RequestContext;

use crate::Broker;

const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

/// `replica.selector.class`.
fn selector(broker: &Broker) -> ReplicaSelector {
    match broker.config().replica_selector_class.as_deref() {
        Some(RACK_AWARE) => ReplicaSelector::RackAware,
        // Any other class is rejected at start.
        Some(_) | None => ReplicaSelector::Leader,
    }
}

/// Sets the answers of partitions that the consumer should read from another replica.
pub(super) async fn send_to_read_replicas(
    broker: &Arc<Broker>,
    context: &RequestContext,
    rack: &str,
    targets: &mut [Wanted],
) {
    let selector = selector(broker);
    if selector == ReplicaSelector::Leader || rack.is_empty() {
        return;
    }
    let image = broker.metadata().clone();
    let listener = &context.listener().name;
    let rack_of = |id| {
        let registration = image.cluster.broker(id).filter(|broker| !broker.fenced)?;
        registration.listener(listener)?;
        registration.rack.as_deref()
    };
    for wanted in targets {
        let Ok(partition) = &wanted.target else {
            continue;
        };
        let requested = &wanted.requested;
        // The read reports errors of the request.
        if partition
            .check_leader(requested.current_leader_epoch)
            .is_err()
        {
            continue;
        }
        let (fetch_offset, now_ms) = (Offset(requested.fetch_offset), broker.now_ms());
        let candidates = partition.look(&broker.host, move |replica, _| {
            let candidates = replica.read_candidates(fetch_offset, now_ms);
            candidates.collect::<Vec<_>>()
        });
        let candidates = candidates.await.unwrap_or_default();
        let leader = broker.broker_id();
        let chosen = select_read_replica(selector, rack, leader, candidates.into_iter(), rack_of);
        if let Some(chosen) = chosen {
            let reader = partition.reader();
            let answer = PartitionData {
                partition_index: requested.partition,
                high_watermark: reader.high_watermark().0,
                last_stable_offset: reader.last_stable_offset().0,
                log_start_offset: reader.log_start_offset().0,
                preferred_read_replica: chosen.0,
                records: Some(Records::Bytes(Bytes::new())),
                ..Default::default()
            };
            drop(reader);
            wanted.target = Err(Box::new(answer));
        }
    }
}
