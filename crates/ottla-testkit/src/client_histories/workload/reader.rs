//! Reads all committed records after the writers have stopped.

use std::time::Duration;

use anyhow::Result;
use ottla_client::{Consumer, ConsumerConfig};

use crate::client_histories::{Operation, Outcome, Step};

use super::scene::{self, Scene};

const PATIENCE: Duration = Duration::from_secs(60);

/// The polls of one reader, and the logs that it could not read to the end because a transaction is
/// still open.
pub async fn read_all(scene: &Scene, process: u32) -> Result<(Vec<Operation>, Vec<String>)> {
    let partitions = Scene::partitions();
    let everything = Consumer::new(scene.client().await?, ConsumerConfig::default());
    let ends = everything.end_offsets(&partitions).await?;
    let mut consumer = scene::consumer(scene).await?;
    let mut steps = Vec::new();
    let deadline = ottla_sync::time::now() + PATIENCE;
    let is_behind = |consumer: &Consumer| {
        let behind = ends
            .iter()
            .filter(|(partition, end)| consumer.position(partition).unwrap_or(0) < **end);
        let behind: Vec<_> = behind
            .map(|(partition, end)| (partition.clone(), *end))
            .collect();
        behind
    };
    while !is_behind(&consumer).is_empty() && ottla_sync::time::now() < deadline {
        let polled = consumer.poll(Duration::from_millis(100)).await?;
        steps.push(Step::Polled {
            at: scene.now(),
            records: polled.iter().map(scene::seen).collect(),
        });
    }
    let faults = is_behind(&consumer).into_iter().map(|((topic, at), end)| {
        let reached = consumer.position(&(topic.clone(), at));
        format!("{topic}-{at} ends at {end}, and a read_committed reader reaches {reached:?}")
    });
    let faults = faults.collect();
    let operation = Operation {
        process,
        steps,
        outcome: Outcome::Committed,
        commit_asked_at: None,
    };
    Ok((vec![operation], faults))
}
