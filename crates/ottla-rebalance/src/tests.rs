//! The goals and invariants, on small clusters by hand and on arbitrary ones; and the time for a
//! large one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proptest::prelude::*;

use crate::{Broker, Image, LogDir, Options, Partition, Plan, PlanError, Replica, Unmet, plan};

const GB: u64 = 1_000_000_000;

fn broker(id: i32, rack: Option<&str>) -> Broker {
    Broker {
        id,
        rack: rack.map(str::to_owned),
        is_alive: true,
        log_dirs: vec![LogDir {
            total_bytes: Some(1000 * GB),
            used_bytes: 0,
            accepts_replicas: true,
        }],
    }
}

fn partition(number: i32, replicas: &[i32], size_bytes: u64, bytes_in: u64) -> Partition {
    let replica = |broker: &i32| Replica {
        broker: *broker,
        log_dir: Some(0),
        is_in_sync: true,
    };
    Partition {
        topic: "t".to_owned(),
        number,
        replicas: replicas.iter().map(replica).collect(),
        leader: replicas.first().copied(),
        size_bytes,
        bytes_in,
        is_movable: true,
    }
}

/// Brokers without racks from 1 on, and partitions of 1 GB.
fn image(brokers: i32, partitions: &[&[i32]]) -> Image {
    let partitions = partitions.iter().zip(0..);
    Image {
        brokers: (1..=brokers).map(|id| broker(id, None)).collect(),
        partitions: partitions
            .map(|(it, number)| partition(number, it, GB, 1000))
            .collect(),
    }
}

fn exact() -> Options {
    Options {
        tolerance_percent: 0,
        ..Options::default()
    }
}

/// The image after a plan, with used bytes as they are then.
fn applied(image: &Image, plan: &Plan) -> Image {
    let mut after = image.clone();
    for change in &plan.changes {
        let partition = &mut after.partitions[change.partition];
        let dir_of = |broker: i32| {
            let before = image.partitions[change.partition].replicas.iter();
            let before = before.clone().find(|replica| replica.broker == broker);
            before.map_or(Some(0), |replica| replica.log_dir)
        };
        let replica = |broker: &i32| Replica {
            broker: *broker,
            log_dir: dir_of(*broker),
            is_in_sync: true,
        };
        partition.replicas = change.replicas.iter().map(replica).collect();
        partition.leader = change.replicas.first().copied();
        for (brokers, adds) in [(&change.added, true), (&change.removed, false)] {
            for id in brokers {
                let broker = after.brokers.iter_mut().find(|it| it.id == *id);
                for dir in &mut broker.expect("a broker").log_dirs {
                    dir.used_bytes = match adds {
                        true => dir.used_bytes + partition.size_bytes,
                        false => dir.used_bytes.saturating_sub(partition.size_bytes),
                    };
                }
            }
        }
    }
    after
}

fn counts(image: &Image) -> BTreeMap<i32, (u64, u64)> {
    let mut counts: BTreeMap<i32, (u64, u64)> =
        image.brokers.iter().map(|it| (it.id, (0, 0))).collect();
    for partition in &image.partitions {
        for replica in &partition.replicas {
            counts.entry(replica.broker).or_default().0 += 1;
        }
        if let Some(leader) = partition.leader {
            counts.entry(leader).or_default().1 += 1;
        }
    }
    counts
}

#[test]
fn a_balanced_cluster_stays_as_it_is() {
    let balanced = image(3, &[&[1, 2], &[2, 3], &[3, 1]]);
    let plan = plan(&balanced, &exact()).expect("a plan");
    assert_eq!((plan.changes, plan.unmet), (vec![], vec![]));
}

#[test]
fn the_fewest_moves_bring_every_broker_to_the_average() {
    let on_one = image(3, &[&[1], &[1], &[1], &[1], &[1], &[1]]);
    let plan = plan(&on_one, &exact()).expect("a plan");
    assert_eq!((plan.moves(), plan.cost.bytes()), (4, 4 * GB));
    let after = counts(&applied(&on_one, &plan));
    assert_eq!(
        after,
        BTreeMap::from([(1, (2, 2)), (2, (2, 2)), (3, (2, 2))])
    );
    // 4 GB leave broker 1, which is more than the others receive.
    assert_eq!(plan.cost.seconds_at(GB / 2), 8);
    let (before, after) = plan.brokers[0];
    assert_eq!((before.replicas, after.replicas), (6, 2));
    assert_eq!((before.bytes, after.bytes), (6 * GB, 2 * GB));
}

#[test]
fn leaders_are_spread_without_moving_a_replica() {
    let one_leads = image(3, &[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    let plan = plan(&one_leads, &exact()).expect("a plan");
    assert_eq!((plan.moves(), plan.changes.len()), (0, 2));
    assert!(
        counts(&applied(&one_leads, &plan))
            .values()
            .all(|it| *it == (3, 1))
    );
}

#[test]
fn a_leader_is_passed_on_where_no_replica_is_shared() {
    // Broker 1 has one leader too many, and shares no partition with broker 3.
    let chain = image(3, &[&[1, 2], &[1, 2], &[2, 3], &[3, 2]]);
    let mut chain = chain;
    chain.partitions[3].leader = Some(2);
    chain.partitions[3].replicas.swap(0, 1);
    chain.partitions.push(partition(4, &[1], GB, 1000));
    chain.partitions.push(partition(5, &[3], GB, 1000));
    // Leaders: 1 has 3, 2 has 2, 3 has 1.
    let options = exact();
    let plan = plan(&chain, &options).expect("a plan");
    let after = counts(&applied(&chain, &plan));
    assert!(
        after.values().all(|(_, leaders)| *leaders == 2),
        "{after:?}"
    );
}

#[test]
fn the_preferred_leaders_are_elected() {
    let mut moved = image(2, &[&[1, 2], &[2, 1]]);
    moved.partitions[1].leader = Some(1);
    let plan = plan(&moved, &exact()).expect("a plan");
    assert_eq!(plan.changes.len(), 1);
    assert_eq!(plan.changes[0].replicas, [2, 1]);
    assert!(plan.changes[0].changes_leader && plan.changes[0].added.is_empty());
    assert_eq!(
        (plan.brokers[0].0.leaders, plan.brokers[0].1.leaders),
        (2, 1)
    );
}

#[test]
fn bytes_in_are_evened_out_by_an_exchange_of_leaders() {
    let mut hot = image(2, &[&[1, 2], &[1, 2], &[2, 1], &[2, 1]]);
    for (partition, bytes_in) in hot.partitions.iter_mut().zip([900, 800, 100, 200]) {
        partition.bytes_in = bytes_in;
    }
    let plan = plan(&hot, &exact()).expect("a plan");
    assert_eq!(plan.moves(), 0);
    let (one, two) = (plan.brokers[0].1, plan.brokers[1].1);
    assert_eq!((one.leaders, two.leaders), (2, 2));
    assert_eq!((one.bytes_in, two.bytes_in), (1000, 1000));
}

#[test]
fn only_added_brokers_receive() {
    let mut grown = image(
        4,
        &[
            &[1, 2],
            &[2, 3],
            &[3, 1],
            &[1, 2],
            &[2, 3],
            &[1, 3],
            &[1, 2],
            &[1, 2],
        ],
    );
    // Without broker 4, broker 3 would receive as well.
    let options = Options {
        added: BTreeSet::from([4]),
        ..exact()
    };
    let added = plan(&grown, &options).expect("a plan");
    assert!(
        added
            .changes
            .iter()
            .flat_map(|it| &it.added)
            .all(|it| *it == 4)
    );
    let after = counts(&applied(&grown, &added));
    assert_eq!(after[&4].0, 4);
    assert!(after[&4].1 >= 2, "{after:?}");
    grown.brokers[3].is_alive = false;
    assert_eq!(plan(&grown, &options), Err(PlanError::AddedNotRunning(4)));
}

#[test]
fn an_emptied_broker_loses_all_and_nothing_else_moves() {
    let shrunk = image(4, &[&[1, 2], &[2, 3], &[3, 4], &[4, 1], &[1, 2], &[1, 2]]);
    let options = Options {
        emptied: BTreeSet::from([2]),
        ..Options::default()
    };
    let plan = plan(&shrunk, &options).expect("a plan");
    assert_eq!(plan.moves(), 4);
    for change in &plan.changes {
        assert_eq!(change.removed, [2]);
    }
    let after = counts(&applied(&shrunk, &plan));
    assert_eq!(after[&2], (0, 0));
    // Partition 1 was led by broker 2, and passes to its other replica.
    let change = plan
        .changes
        .iter()
        .find(|it| it.partition == 1)
        .expect("moved");
    assert_eq!(change.replicas[0], 3);
}

#[test]
fn a_broker_that_cannot_be_emptied_has_a_reason() {
    let empty = |image: &Image, ids: &[i32]| {
        let options = Options {
            emptied: ids.iter().copied().collect(),
            ..Options::default()
        };
        plan(image, &options).expect_err("no plan").to_string()
    };
    let pair = image(2, &[&[1, 2]]);
    assert_eq!(
        empty(&pair, &[2]),
        "broker 2 cannot be emptied: no other broker may take t-0 (1000000000 bytes): every broker left has a \
         replica of it; add a broker"
    );
    assert!(empty(&pair, &[1, 2]).starts_with("no broker that runs would be left"));
    assert!(
        empty(&pair, &[7])
            .starts_with("broker 7 is not part of the cluster; give one of brokers 1, 2")
    );
    let mut full = image(3, &[&[1, 2]]);
    full.brokers[2].log_dirs[0].used_bytes = 800 * GB;
    assert!(empty(&full, &[2]).contains("racks and disks forbid it; add brokers or disks"));
    full.partitions[0].is_movable = false;
    assert!(empty(&full, &[2]).contains("the topic of t-0 is excluded"));
    full.partitions[0].leader = None;
    assert!(empty(&full, &[2]).contains("t-0 has no leader"));
}

#[test]
fn racks_come_before_balance() {
    let mut racks = image(4, &[&[1, 2], &[1, 2], &[3, 4], &[3, 4]]);
    for (broker, rack) in racks.brokers.iter_mut().zip(["a", "a", "b", "b"]) {
        broker.rack = Some(rack.to_owned());
    }
    let plan = plan(&racks, &exact()).expect("a plan");
    assert_eq!(plan.unmet, []);
    let rack_of = |id: i32| racks.brokers[id as usize - 1].rack.clone();
    for partition in &applied(&racks, &plan).partitions {
        let racks: BTreeSet<_> = partition
            .replicas
            .iter()
            .map(|it| rack_of(it.broker))
            .collect();
        assert_eq!(racks.len(), 2);
    }
    assert_eq!(plan.moves(), 4);
    let ignored = Options {
        ignores_racks: true,
        ..exact()
    };
    assert_eq!(crate::plan(&racks, &ignored).expect("a plan").moves(), 0);
}

#[test]
fn a_full_disk_is_relieved_and_none_is_filled() {
    let mut full = image(3, &[&[1], &[1], &[2], &[2], &[3], &[3]]);
    for partition in &mut full.partitions {
        partition.bytes_in = 0;
    }
    for (broker, used) in full.brokers.iter_mut().zip([9, 7, 2]) {
        broker.log_dirs[0].total_bytes = Some(10 * GB);
        broker.log_dirs[0].used_bytes = used * GB;
    }
    let options = Options::default();
    let moved = plan(&full, &options).expect("a plan");
    // One gigabyte less brings broker 1 to 80 %. Broker 2 could take it, and broker 3 has more room.
    assert_eq!((moved.moves(), moved.unmet.len()), (1, 0));
    assert_eq!(moved.brokers[0].1.disk_percent, Some(80));
    for broker in &mut full.brokers {
        broker.log_dirs[0].used_bytes = 9 * GB;
    }
    let stuck = plan(&full, &options).expect("a plan");
    assert_eq!(stuck.moves(), 0);
    let unmet = |broker| Unmet::Disk {
        broker,
        percent: 90,
    };
    assert_eq!(stuck.unmet, [unmet(1), unmet(2), unmet(3)]);
}

/// Few brokers in few racks, some dead, with small disks; and partitions anywhere.
fn images() -> impl Strategy<Value = Image> {
    let brokers = proptest::collection::vec((0..4_usize, 0..8_u32, 40..200_u64, 0..40_u64), 2..8);
    brokers.prop_flat_map(|brokers| {
        let count = brokers.len();
        let brokers: Vec<Broker> = brokers
            .into_iter()
            .zip(1..)
            .map(|((rack, dies, total, used), id)| {
                let mut it = broker(id, Some(["a", "b", "c", "d"][rack]));
                it.is_alive = dies > 0 || id == 1;
                it.log_dirs[0].total_bytes = Some(total);
                it.log_dirs[0].used_bytes = used;
                it
            })
            .collect();
        let replicas = Just((1..=count as i32).collect::<Vec<i32>>()).prop_shuffle();
        let one = (replicas, 1..=count.min(4), 0..5_u64, 0..1000_u64, 0..10_u32);
        proptest::collection::vec(one, 0..40).prop_map(move |partitions| {
            let mut brokers = brokers.clone();
            let partitions = partitions.into_iter().zip(0..).map(
                |((replicas, factor, size, bytes_in, is_excluded), number)| {
                    let replicas = &replicas[..factor];
                    let mut it = partition(number, replicas, size, bytes_in);
                    for replica in &mut it.replicas {
                        let broker = &mut brokers[replica.broker as usize - 1];
                        broker.log_dirs[0].used_bytes += size;
                        replica.is_in_sync = broker.is_alive;
                    }
                    it.is_movable = is_excluded > 0;
                    let in_sync = it.replicas.iter().find(|replica| replica.is_in_sync);
                    it.leader = in_sync.map(|replica| replica.broker);
                    it
                },
            );
            let partitions = partitions.collect();
            Image {
                brokers,
                partitions,
            }
        })
    })
}

fn options() -> impl Strategy<Value = Options> {
    let ids = || proptest::collection::btree_set(1..8_i32, 0..3);
    (ids(), ids(), 0..30_u32).prop_map(|(added, emptied, tolerance_percent)| Options {
        added,
        emptied,
        tolerance_percent,
        ..Options::default()
    })
}

fn rack_excess(image: &Image, options: &Options, partition: &Partition) -> usize {
    let stays = |it: &&Broker| it.is_alive && !options.emptied.contains(&it.id);
    let racks: BTreeSet<_> = image
        .brokers
        .iter()
        .filter(stays)
        .map(|it| &it.rack)
        .collect();
    let share = partition.replicas.len().div_ceil(racks.len().max(1));
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for replica in &partition.replicas {
        let rack = &image.brokers[replica.broker as usize - 1].rack;
        *counts.entry(rack).or_default() += 1;
    }
    counts
        .values()
        .map(|count| count.saturating_sub(share))
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_keeps_the_invariants(image in images(), options in options()) {
        let Ok(plan) = plan(&image, &options) else { return Ok(()) };
        let after = applied(&image, &plan);
        let limit = |broker: &Broker| broker.log_dirs[0].total_bytes.unwrap() * 80 / 100;
        let mut arrived: BTreeMap<i32, u64> = BTreeMap::new();
        for change in &plan.changes {
            let (before, after) = (&image.partitions[change.partition], &after.partitions[change.partition]);
            prop_assert!(before.is_movable);
            let unique: BTreeSet<_> = change.replicas.iter().collect();
            prop_assert_eq!(unique.len(), before.replicas.len());
            prop_assert_eq!(change.added.len(), change.removed.len());
            prop_assert!(rack_excess(&image, &options, after) <= rack_excess(&image, &options, before));
            let leader = &image.brokers[change.replicas[0] as usize - 1];
            prop_assert!(leader.is_alive);
            for id in &change.added {
                prop_assert!(image.brokers[*id as usize - 1].is_alive);
                prop_assert!(!options.emptied.contains(id));
                *arrived.entry(*id).or_default() += before.size_bytes;
            }
            if !options.emptied.is_empty() && options.added.is_empty() {
                prop_assert!(change.removed.iter().all(|id| options.emptied.contains(id)));
                prop_assert!(!change.removed.is_empty());
            }
            if !options.added.is_empty() && change.removed.iter().all(|id| !options.emptied.contains(id)) {
                prop_assert!(change.added.iter().all(|id| options.added.contains(id)));
            }
        }
        // Even before anything is deleted. Replicas without bytes fit a full disk.
        for (broker, bytes) in &arrived {
            let broker = &image.brokers[*broker as usize - 1];
            let used = broker.log_dirs[0].used_bytes;
            prop_assert!(*bytes == 0 || used + bytes <= limit(broker));
        }
        for id in &options.emptied {
            prop_assert_eq!(counts(&after)[id], (0, 0));
        }
        for (broker, (_, load)) in image.brokers.iter().zip(&plan.brokers) {
            let (replicas, leaders) = counts(&after)[&broker.id];
            prop_assert_eq!((load.replicas, load.leaders), (replicas, leaders));
            let stays = broker.is_alive && !options.emptied.contains(&broker.id);
            let is_over = after.brokers[broker.id as usize - 1].log_dirs[0].used_bytes > limit(broker);
            let is_said = plan.unmet.iter().any(|it| matches!(it, Unmet::Disk { broker: id, .. } if *id == broker.id));
            prop_assert_eq!(stays && is_over, is_said);
        }
    }

    /// Where all goals are reached, there is nothing left to do.
    #[test]
    fn a_second_plan_is_empty(image in images(), tolerance_percent in 0..30_u32) {
        let options = Options { tolerance_percent, ..Options::default() };
        let first = plan(&image, &options).expect("nothing to empty");
        if first.unmet.is_empty() {
            let second = plan(&applied(&image, &first), &options).expect("a plan");
            prop_assert_eq!(second.changes, vec![]);
        }
    }

    /// Without racks and full disks, the number of moves is the least possible.
    #[test]
    fn no_plan_needs_fewer_moves(image in images(), tolerance in 0..30_u64) {
        let mut image = image;
        for (broker, at) in image.brokers.iter_mut().zip(0..) {
            (broker.is_alive, broker.rack) = (true, Some(format!("{at}")));
            broker.log_dirs.clear();
        }
        for partition in &mut image.partitions {
            partition.is_movable = true;
            partition.leader = Some(partition.replicas[0].broker);
        }
        let before = counts(&image);
        let options = Options { tolerance_percent: tolerance as u32, ..Options::default() };
        let plan = plan(&image, &options).expect("nothing to empty");
        let (total, brokers) = (before.values().map(|it| it.0).sum::<u64>(), before.len() as u64);
        let lower = total * (100 - tolerance) / (100 * brokers);
        let upper = (total * (100 + tolerance)).div_ceil(100 * brokers);
        let surplus: u64 = before.values().map(|it| it.0.saturating_sub(upper)).sum();
        let lack: u64 = before.values().map(|it| lower.saturating_sub(it.0)).sum();
        let is_reached = !plan.unmet.iter().any(|it| matches!(it, Unmet::Replicas { .. }));
        prop_assert!(is_reached, "{:?}", plan.unmet);
        prop_assert_eq!(plan.moves() as u64, surplus.max(lack));
    }
}

/// 100,000 partitions with three replicas on 100 brokers in 5 racks, placed by a generator with a
/// bias: some brokers have many times as much as others.
fn large() -> Image {
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let brokers: Vec<Broker> = (0..100)
        .map(|id| broker(id, Some(["a", "b", "c", "d", "e"][id as usize % 5])))
        .collect();
    let mut partitions = Vec::new();
    for number in 0..100_000 {
        let mut replicas: Vec<i32> = Vec::new();
        while replicas.len() < 3 {
            let id = random(100).min(random(100)) as i32;
            if !replicas.contains(&id) {
                replicas.push(id);
            }
        }
        let bytes_in = 1_000_000 / (1 + random(1000));
        let mut it = partition(number % 100, &replicas, random(GB / 100), bytes_in);
        it.topic = format!("topic-{}", number / 100);
        partitions.push(it);
    }
    Image {
        brokers,
        partitions,
    }
}

#[test]
fn a_hundred_thousand_partitions_take_seconds() {
    let image = large();
    let started = Instant::now();
    let balanced = plan(&image, &Options::default()).expect("a plan");
    let taken = started.elapsed();
    println!(
        "balance: {taken:?}, {} moves, {} changes",
        balanced.moves(),
        balanced.changes.len()
    );
    assert_eq!(balanced.unmet, []);
    let options = Options {
        emptied: BTreeSet::from([3, 50]),
        ..Options::default()
    };
    let started = Instant::now();
    let emptied = plan(&image, &options).expect("a plan");
    println!(
        "empty two: {:?}, {} moves",
        started.elapsed(),
        emptied.moves()
    );
    let again = Instant::now();
    let second = plan(&applied(&image, &balanced), &Options::default()).expect("a plan");
    println!("balanced already: {:?}", again.elapsed());
    assert_eq!(second.changes, vec![]);
    assert!(taken.as_secs() < 60, "{taken:?}");
}
