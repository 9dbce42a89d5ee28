//! Kafka's range assignor: of each topic, every member gets a run of partitions, the first members one
//! more where they do not come out even (`org.apache.kafka.clients.consumer.RangeAssignor`).

use std::collections::BTreeMap;

use super::{Assignment, Subscriber, ordered};

/// The partitions of each member; `counts` says how many each topic has.
pub(super) fn assign(members: &[Subscriber], counts: &BTreeMap<String, usize>) -> Assignment {
    let mut assigned: Assignment = members
        .iter()
        .map(|member| (member.member_id.clone(), Vec::new()))
        .collect();
    let ordered = ordered(members);
    for (topic, count) in counts {
        let interested: Vec<&&Subscriber> = ordered
            .iter()
            .filter(|member| member.topics.contains(topic))
            .collect();
        if interested.is_empty() {
            continue;
        }
        let (each, more) = (count / interested.len(), count % interested.len());
        let mut next = 0;
        for (index, member) in interested.iter().enumerate() {
            let share = each + usize::from(index < more);
            let partitions =
                (next..next + share).map(|partition| (topic.clone(), partition as i32));
            assigned
                .entry(member.member_id.clone())
                .or_default()
                .extend(partitions);
            next += share;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> Subscriber {
        Subscriber {
            member_id: id.into(),
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            ..Subscriber::default()
        }
    }

    fn numbers(assigned: &Assignment, id: &str, topic: &str) -> Vec<i32> {
        assigned[id]
            .iter()
            .filter(|(name, _)| name == topic)
            .map(|(_, number)| *number)
            .collect()
    }

    #[test]
    fn the_first_members_get_one_more() {
        let members = [
            member("b", &["t"]),
            member("a", &["t"]),
            member("c", &["t"]),
        ];
        let assigned = assign(&members, &BTreeMap::from([("t".into(), 7)]));
        assert_eq!(numbers(&assigned, "a", "t"), [0, 1, 2]);
        assert_eq!(numbers(&assigned, "b", "t"), [3, 4]);
        assert_eq!(numbers(&assigned, "c", "t"), [5, 6]);
    }

    #[test]
    fn only_subscribers_get_a_topic() {
        let members = [member("a", &["t", "u"]), member("b", &["u"])];
        let counts = BTreeMap::from([("t".into(), 2), ("u".into(), 2)]);
        let assigned = assign(&members, &counts);
        assert_eq!(numbers(&assigned, "a", "t"), [0, 1]);
        assert_eq!(numbers(&assigned, "a", "u"), [0]);
        assert_eq!(numbers(&assigned, "b", "u"), [1]);
    }

    #[test]
    fn static_members_come_first() {
        let mut last = member("z", &["t"]);
        last.instance_id = Some("one".into());
        let assigned = assign(
            &[member("a", &["t"]), last],
            &BTreeMap::from([("t".into(), 1)]),
        );
        assert_eq!(numbers(&assigned, "z", "t"), [0]);
        assert_eq!(numbers(&assigned, "a", "t"), Vec::<i32>::new());
    }
}
