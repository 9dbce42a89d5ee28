//! An administrator that reassigns partitions during the faults, and restores all replicas in the
//! end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ottla_client::Admin;
use ottla_sync::simulation::{Host, Random, stream};
use ottla_sync::thread::JoinHandle;
use ottla_sync::time::sleep;
use ottla_testkit::client_histories::workload::Scene;

use crate::clients::on;

const BROKERS: [i32; 3] = [1, 2, 3];

pub(crate) struct Reassigner {
    is_over: Rc<Cell<bool>>,
    working: JoinHandle<u64>,
}

impl Reassigner {
    pub fn start(scene: &Arc<Scene>) -> Reassigner {
        let is_over = Rc::new(Cell::new(false));
        let (scene, ended) = (scene.clone(), is_over.clone());
        let mut random = stream("reassigner");
        let working = on(&Host::new("reassigner"), move || async move {
            let mut moves = 0;
            while !ended.get() {
                sleep(Duration::from_millis(500 + random.below(3_000))).await;
                let replicas = some_of(&BROKERS, &mut random);
                let partitions = Scene::partitions();
                let partition = partitions[random.index(partitions.len())].clone();
                match reassign(&scene, std::slice::from_ref(&partition), &replicas).await {
                    Ok(()) => {
                        tracing::info!(?partition, ?replicas, "is given other replicas");
                        moves += 1;
                    }
                    Err(error) => tracing::info!(?partition, "reassigning: {error:#}"),
                }
            }
            while let Err(error) = restore(&scene).await {
                tracing::info!("reassigning: {error:#}");
                sleep(Duration::from_millis(200)).await;
            }
            moves
        });
        Reassigner { is_over, working }
    }

    /// Waits until every partition has all replicas again. Returns the number of reassignments.
    pub fn settle(self) -> u64 {
        self.is_over.set(true);
        self.working.join().expect("it ends")
    }
}

/// Two or all of the brokers in random order.
fn some_of(brokers: &[i32], random: &mut Random) -> Vec<i32> {
    let mut rest = brokers.to_vec();
    let count = 2 + random.index(brokers.len() - 1);
    let drawn = (0..count).map(|_| rest.swap_remove(random.index(rest.len())));
    drawn.collect()
}

async fn reassign(scene: &Scene, partitions: &[(String, i32)], replicas: &[i32]) -> Result<()> {
    let admin = Admin::new(scene.client().await?);
    let wanted = partitions.iter().cloned();
    let wanted: BTreeMap<_, _> = wanted.map(|it| (it, Some(replicas.to_vec()))).collect();
    let results = admin.alter_partition_reassignments(&wanted, true).await?;
    for result in results.into_values() {
        result?;
    }
    Ok(())
}

/// Assigns all replicas to every partition, and waits until no reassignment is in progress.
async fn restore(scene: &Scene) -> Result<()> {
    reassign(scene, &Scene::partitions(), &BROKERS).await?;
    let admin = Admin::new(scene.client().await?);
    loop {
        let moving = admin.list_partition_reassignments().await?;
        if moving.is_empty() {
            return Ok(());
        }
        tracing::debug!(?moving, "replicas are on their way");
        sleep(Duration::from_millis(200)).await;
    }
}
