//! A topic under load, as its clients have to know it.

use ottla_types::Uuid;

/// A topic and where its partitions are led.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub id: Uuid,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Debug)]
pub struct Partition {
    pub index: i32,
    /// `host:port` of the leader.
    pub leader: String,
}

impl Topic {
    /// The partitions that the brokers lead, broker by broker, for connections to be spread over.
    pub fn by_leader(&self) -> Vec<(String, Vec<i32>)> {
        let mut leaders: Vec<(String, Vec<i32>)> = Vec::new();
        for partition in &self.partitions {
            match leaders
                .iter_mut()
                .find(|(leader, _)| *leader == partition.leader)
            {
                Some((_, led)) => led.push(partition.index),
                None => leaders.push((partition.leader.clone(), vec![partition.index])),
            }
        }
        leaders
    }
}
