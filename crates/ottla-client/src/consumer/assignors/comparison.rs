//! Compares the assignors with Kafka's on random groups.
//!
//! The file is written by `conformance/java/assignors`. `cargo xtask client` writes one with some
//! thousand groups and passes its path in `OTTLA_ASSIGNMENTS`; a few of them are kept here.

use std::collections::{BTreeMap, BTreeSet};

use super::{Assignor, Racks, Subscriber, Topics};
use crate::consumer::Partition;

#[derive(Default)]
struct Group {
    assignor: Option<Assignor>,
    topics: Topics,
    members: Vec<Subscriber>,
    given: BTreeMap<String, BTreeSet<Partition>>,
}

/// A dash is an empty list.
fn list(word: &str) -> Vec<&str> {
    match word {
        "-" => Vec::new(),
        word => word.split(',').collect(),
    }
}

fn partitions(word: &str) -> Vec<Partition> {
    let partition = |word: &str| {
        let (topic, number) = word.rsplit_once('-').expect("topic-partition");
        (topic.to_owned(), number.parse().expect("a number"))
    };
    list(word).into_iter().map(partition).collect()
}

fn optional(word: &str) -> Option<String> {
    Some(word.to_owned()).filter(|word| word != "-")
}

fn read(text: &str) -> Group {
    let mut group = Group::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["group", assignor] => group.assignor = Assignor::from_name(assignor),
            ["topic", name, ref racks @ ..] => {
                let racks = racks.iter().map(|word| {
                    let racks = list(word).into_iter().map(str::to_owned);
                    racks.collect::<Racks>()
                });
                group.topics.insert(name.to_owned(), racks.collect());
            }
            ["member", id, instance, rack, generation, topics, owned] => {
                group.members.push(Subscriber {
                    member_id: id.to_owned(),
                    instance_id: optional(instance),
                    rack: optional(rack),
                    topics: list(topics).into_iter().map(str::to_owned).collect(),
                    owned: partitions(owned),
                    generation: generation.parse().expect("a generation"),
                });
            }
            ["gets", id, given] => {
                let given = partitions(given).into_iter().collect();
                group.given.insert(id.to_owned(), given);
            }
            _ => panic!("{line}: not a line of a group"),
        }
    }
    group
}

#[test]
fn assignments_are_equal_to_assignments_of_kafka() {
    let text = match std::env::var("OTTLA_ASSIGNMENTS") {
        Ok(file) => std::fs::read_to_string(&file).expect("the file that was named"),
        Err(_) => include_str!("groups.txt").to_owned(),
    };
    let mut compared = BTreeMap::new();
    for described in text.split("\n\n").filter(|it| !it.trim().is_empty()) {
        let group = read(described);
        let assignor = group.assignor.expect("an assignor");
        let assigned: BTreeMap<String, BTreeSet<Partition>> = assignor
            .assign(&group.members, &group.topics)
            .into_iter()
            .map(|(member, partitions)| (member, partitions.into_iter().collect()))
            .collect();
        assert_eq!(assigned, group.given, "{described}");
        *compared.entry(assignor.name()).or_insert(0) += 1;
    }
    println!("equal to Kafka's: {compared:?}");
    assert_eq!(compared.len(), 4, "every assignor: {compared:?}");
}
