//! A topic under load and its leaders.

use ottla_types::Uuid;

use super::access::Access;

/// A topic and the leaders of its partitions.
#[derive(Clone, Debug)]
pub struct Topic {
    /// How its leaders are reached.
    pub access: Access,
    pub name: String,
    pub id: Uuid,
    /// Sorted by partition number.
    pub partitions: Vec<Partition>,
}

#[derive(Clone, Debug)]
pub struct Partition {
    pub index: i32,
    /// `host:port` of the leader.
    pub leader: String,
}

impl Topic {
    /// The partitions grouped by leader, to distribute them over connections.
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
