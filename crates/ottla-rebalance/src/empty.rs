//! Goal 1: brokers that are to be emptied have no replicas.

use crate::image::PlanError;
use crate::placement::Placement;

pub(crate) fn empty_brokers(placement: &mut Placement) -> Result<(), PlanError> {
    let mut leaving = Vec::new();
    for (partition, replicas) in placement.replicas.iter().enumerate() {
        for from in replicas {
            let id = placement.image.brokers[*from].id;
            if placement.options.emptied.contains(&id) {
                leaving.push((partition, *from, id));
            }
        }
    }
    // The largest replicas first, as long as there is room for them.
    let size = |partition: usize| placement.image.partitions[partition].size_bytes;
    leaving.sort_by_key(|(partition, from, _)| {
        (std::cmp::Reverse(size(*partition)), *partition, *from)
    });
    for (partition, from, broker) in leaving {
        let it = &placement.image.partitions[partition];
        if !placement.is_movable[partition] {
            let partition = it.name();
            return Err(match it.leader {
                Some(_) => PlanError::ExcludedOnEmptied { broker, partition },
                None => PlanError::LeaderlessOnEmptied { broker, partition },
            });
        }
        let Some(to) = placement.best_target(partition, from, |_| true) else {
            let replicas = &placement.replicas[partition];
            let mut staying = (0..placement.broker_count()).filter(|at| placement.stays[*at]);
            return Err(PlanError::NowhereToGo {
                broker,
                partition: it.name(),
                size_bytes: it.size_bytes,
                lacks_brokers: staying.all(|at| replicas.contains(&at)),
            });
        };
        let was_leader = placement.leaders[partition] == Some(from);
        placement.replace(partition, from, to);
        if was_leader {
            // Clients need not wait for the new replica.
            let others = placement.replicas[partition].iter().copied();
            let heir = others
                .filter(|it| placement.was_on(partition, *it) && placement.may_lead(partition, *it))
                .min_by_key(|it| (placement.leader_counts[*it], *it));
            if let Some(heir) = heir {
                placement.lead(partition, heir);
            }
        }
    }
    Ok(())
}
