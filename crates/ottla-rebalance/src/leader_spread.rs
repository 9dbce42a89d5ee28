//! Goals 5 and 6: each broker's number of leaders, and the bytes that producers write to them, are
//! near the average. No replica moves for them.

use std::cmp::Reverse;

use crate::leader_links::LeaderLinks;
use crate::placement::Placement;
use crate::replica_spread::{Range, staying};

/// A transfer for the sake of bytes must be worth at least this share of the average.
const LEAST_SHARE: u64 = 200;
/// How many partitions are tried as the return of a swap.
const TRIED_RETURNS: usize = 4;

pub(crate) fn spread_leaders(placement: &mut Placement) {
    let mut links = LeaderLinks::new(placement);
    let range = Range::of(placement, &placement.leader_counts);
    while let Some(path) = path_from_fullest(placement, &links, range) {
        follow(placement, &mut links, &path);
    }
    while let Some(path) = path_to_emptiest(placement, &links, range) {
        follow(placement, &mut links, &path);
    }
    spread_bytes_in(placement, &mut links, range);
}

/// Passes one leader on along each step of a path.
fn follow(placement: &mut Placement, links: &mut LeaderLinks, path: &[usize]) {
    for step in path.windows(2) {
        let (from, to) = (step[0], step[1]);
        let half = placement.bytes_in[from].saturating_sub(placement.bytes_in[to]) / 2;
        if let Some((_, partition)) = links.nearest(from, to, half) {
            links.transfer(placement, partition, to);
        }
    }
}

/// The shortest way on which a leader can leave a broker that has too many.
fn path_from_fullest(
    placement: &Placement,
    links: &LeaderLinks,
    range: Range,
) -> Option<Vec<usize>> {
    let counts = &placement.leader_counts;
    let mut sources: Vec<usize> = staying(placement)
        .filter(|it| counts[*it] > range.upper)
        .collect();
    sources.sort_by_key(|it| (Reverse(counts[*it]), *it));
    let has_room = |broker: usize| counts[broker] < range.upper;
    let mut paths = sources.into_iter().filter_map(|from| {
        path(placement, from, has_room, |at, next| {
            !links.between(at, next).is_empty()
        })
    });
    paths.next()
}

/// The shortest chain of leader changes that gives a leader to a broker with too few.
fn path_to_emptiest(
    placement: &Placement,
    links: &LeaderLinks,
    range: Range,
) -> Option<Vec<usize>> {
    let counts = &placement.leader_counts;
    let mut targets: Vec<usize> = staying(placement)
        .filter(|it| counts[*it] < range.lower)
        .collect();
    targets.sort_by_key(|it| (counts[*it], *it));
    let can_spare = |broker: usize| counts[broker] > range.lower;
    let mut paths = targets.into_iter().filter_map(|to| {
        let mut path = path(placement, to, can_spare, |at, next| {
            !links.between(next, at).is_empty()
        })?;
        path.reverse();
        Some(path)
    });
    paths.next()
}

/// A shortest path to a broker that will do, over brokers that stay.
fn path(
    placement: &Placement,
    from: usize,
    will_do: impl Fn(usize) -> bool,
    is_linked: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    let mut before: Vec<Option<usize>> = vec![None; placement.broker_count()];
    let mut level = vec![from];
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for at in level {
            for next in staying(placement) {
                if next != from && before[next].is_none() && is_linked(at, next) {
                    before[next] = Some(at);
                    next_level.push(next);
                }
            }
        }
        // Of equally short paths the one to the broker farthest from the source.
        let distance =
            |it: &usize| placement.leader_counts[*it].abs_diff(placement.leader_counts[from]);
        let found = next_level.iter().copied().filter(|it| will_do(*it));
        if let Some(mut at) = found.max_by_key(|it| (distance(it), Reverse(*it))) {
            let mut path = vec![at];
            while let Some(previous) = before[at] {
                path.push(previous);
                at = previous;
            }
            path.reverse();
            return Some(path);
        }
        level = next_level;
    }
    None
}

/// A leader moves to another broker, and possibly one moves back.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    from: usize,
    to: usize,
    partition: usize,
    back: Option<usize>,
    /// By how much the sum of the squares of the two brokers' bytes in decreases, halved.
    gain: u128,
}

fn spread_bytes_in(placement: &mut Placement, links: &mut LeaderLinks, counts: Range) {
    let range = Range::of(placement, &placement.bytes_in);
    let least = (range.upper / LEAST_SHARE).max(1);
    while let Some(exchange) = best_exchange(placement, links, range, counts, least) {
        links.transfer(placement, exchange.partition, exchange.to);
        if let Some(back) = exchange.back {
            links.transfer(placement, back, exchange.from);
        }
    }
}

fn best_exchange(
    placement: &Placement,
    links: &LeaderLinks,
    range: Range,
    counts: Range,
    least: u64,
) -> Option<Exchange> {
    let load = &placement.bytes_in;
    let mut over: Vec<usize> = staying(placement)
        .filter(|it| load[*it] > range.upper)
        .collect();
    over.sort_by_key(|it| (Reverse(load[*it]), *it));
    let mut under: Vec<usize> = staying(placement)
        .filter(|it| load[*it] < range.lower)
        .collect();
    under.sort_by_key(|it| (load[*it], *it));
    let best = |pairs: &mut dyn Iterator<Item = (usize, usize)>| {
        pairs
            .filter(|(from, to)| from != to)
            .filter_map(|(from, to)| exchange(placement, links, from, to, counts, least))
            .max_by_key(|it| (it.gain, Reverse(it.from), Reverse(it.to)))
    };
    for from in over {
        let found = best(&mut staying(placement).map(|to| (from, to)));
        if found.is_some() {
            return found;
        }
    }
    for to in under {
        let found = best(&mut staying(placement).map(|from| (from, to)));
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The best exchange between two brokers that keeps their numbers of leaders in range.
fn exchange(
    placement: &Placement,
    links: &LeaderLinks,
    from: usize,
    to: usize,
    counts: Range,
    least: u64,
) -> Option<Exchange> {
    let difference = placement.bytes_in[from].checked_sub(placement.bytes_in[to])?;
    let gain = |shifted: u64| {
        let is_worth_it = shifted >= least && difference.saturating_sub(shifted) >= least;
        is_worth_it.then(|| u128::from(shifted) * u128::from(difference - shifted))
    };
    let leaders = &placement.leader_counts;
    let may_give = leaders[from] > counts.lower && leaders[to] < counts.upper;
    let one_way = || {
        let (bytes_in, partition) = links.nearest(from, to, difference / 2)?;
        let gain = gain(bytes_in)?;
        Some(Exchange {
            from,
            to,
            partition,
            back: None,
            gain,
        })
    };
    if may_give && let Some(found) = one_way() {
        return Some(found);
    }
    let returns = links.between(to, from).iter().take(TRIED_RETURNS);
    let swap = |(returned, back): &(u64, usize)| {
        let (bytes_in, partition) = links.nearest(from, to, returned + difference / 2)?;
        let gain = gain(bytes_in.checked_sub(*returned)?)?;
        Some(Exchange {
            from,
            to,
            partition,
            back: Some(*back),
            gain,
        })
    };
    returns.filter_map(swap).max_by_key(|it| it.gain)
}
