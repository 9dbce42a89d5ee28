//! Kafka's round-robin assignor: all partitions in order to the members in turn
//! (`org.apache.kafka.clients.consumer.RoundRobinAssignor`).

use std::collections::BTreeMap;

use super::subscriber::{Assignment, Subscriber, ordered};

pub(super) fn assign(members: &[Subscriber], counts: &BTreeMap<String, usize>) -> Assignment {
    let mut assigned: Assignment = members
        .iter()
        .map(|member| (member.member_id.clone(), Vec::new()))
        .collect();
    let ordered = ordered(members);
    let mut turn = 0;
    for (topic, count) in counts {
        if !ordered.iter().any(|member| member.topics.contains(topic)) {
            continue;
        }
        for partition in 0..*count {
            while !ordered[turn % ordered.len()].topics.contains(topic) {
                turn += 1;
            }
            let member = ordered[turn % ordered.len()];
            turn += 1;
            if let Some(partitions) = assigned.get_mut(&member.member_id) {
                partitions.push((topic.clone(), partition as i32));
            }
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(members: &[(&str, &[&str])], counts: &[(&str, usize)]) -> Vec<String> {
        let members: Vec<Subscriber> = members
            .iter()
            .map(|(id, topics)| Subscriber {
                member_id: (*id).into(),
                topics: topics.iter().map(|topic| (*topic).into()).collect(),
                ..Subscriber::default()
            })
            .collect();
        let counts = counts
            .iter()
            .map(|(topic, count)| ((*topic).into(), *count));
        assign(&members, &counts.collect())
            .into_iter()
            .map(|(member, partitions)| {
                let partitions: Vec<String> = partitions
                    .iter()
                    .map(|(topic, partition)| format!("{topic}-{partition}"))
                    .collect();
                format!("{member}: {}", partitions.join(" "))
            })
            .collect()
    }

    /// The two examples in the documentation of Kafka's class.
    #[test]
    fn partitions_are_assigned_in_turn() {
        assert_eq!(
            shown(
                &[("C0", &["t0", "t1"]), ("C1", &["t0", "t1"])],
                &[("t0", 3), ("t1", 3)]
            ),
            ["C0: t0-0 t0-2 t1-1", "C1: t0-1 t1-0 t1-2"]
        );
        let members: [(&str, &[&str]); 3] = [
            ("C0", &["t0"]),
            ("C1", &["t0", "t1"]),
            ("C2", &["t0", "t1", "t2"]),
        ];
        assert_eq!(
            shown(&members, &[("t0", 1), ("t1", 2), ("t2", 3)]),
            ["C0: t0-0", "C1: t1-0", "C2: t1-1 t2-0 t2-1 t2-2"]
        );
    }
}
