//! Goal 3: no log directory is filled beyond the limit.

use crate::placement::Placement;

/// Moves replicas out of directories over the limit: one that is large enough, if there is one.
pub(crate) fn relieve_disks(placement: &mut Placement) {
    for (broker, dir) in over_limit(placement) {
        while let Some((partition, to)) = relief(placement, broker, dir) {
            placement.replace(partition, broker, to);
        }
    }
}

fn relief(placement: &Placement, broker: usize, dir: usize) -> Option<(usize, usize)> {
    let limit = placement.limit(broker, dir)?;
    let excess = placement.used[broker][dir]
        .checked_sub(limit)
        .filter(|it| *it > 0)?;
    let mut candidates = placement.in_directory(broker, dir, excess);
    candidates.find_map(|partition| {
        // An empty replica frees nothing.
        if placement.image.partitions[partition].size_bytes == 0 {
            return None;
        }
        let is_meant = |to: usize| placement.receives[to] && to != broker;
        let to = placement.best_target(partition, broker, is_meant)?;
        Some((partition, to))
    })
}

/// The directories over the limit, of brokers that stay.
pub(crate) fn over_limit(placement: &Placement) -> Vec<(usize, usize)> {
    let mut over = Vec::new();
    for broker in (0..placement.broker_count()).filter(|it| placement.stays[*it]) {
        for (dir, used) in placement.used[broker].iter().enumerate() {
            if placement
                .limit(broker, dir)
                .is_some_and(|limit| *used > limit)
            {
                over.push((broker, dir));
            }
        }
    }
    over
}
