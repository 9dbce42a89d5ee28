//! Goal 2: no rack has more than its share of a partition's replicas.

use crate::placement::Placement;

/// Moves replicas out of racks that have more than their share.
pub(crate) fn spread_over_racks(placement: &mut Placement) {
    for partition in 0..placement.replicas.len() {
        if !placement.is_movable[partition] {
            continue;
        }
        while let Some((from, to)) = correction(placement, partition) {
            placement.replace(partition, from, to);
        }
    }
}

/// A move that takes a replica out of a rack with too many. A follower rather than the leader.
fn correction(placement: &Placement, partition: usize) -> Option<(usize, usize)> {
    let mut sources = surplus(placement, partition);
    sources.sort_by_key(|from| {
        let is_leader = placement.leaders[partition] == Some(*from);
        (
            is_leader,
            std::cmp::Reverse(placement.replica_counts[*from]),
            *from,
        )
    });
    sources.into_iter().find_map(|from| {
        let is_meant =
            |to: usize| placement.receives[to] && placement.racks[to] != placement.racks[from];
        let to = placement.best_target(partition, from, is_meant)?;
        Some((from, to))
    })
}

/// The replicas in racks with too many.
pub(crate) fn surplus(placement: &Placement, partition: usize) -> Vec<usize> {
    let share = placement.share_of_rack(partition);
    let replicas = placement.replicas[partition].iter().copied();
    replicas
        .filter(|broker| placement.in_rack(partition, placement.racks[*broker]) > share)
        .collect()
}
