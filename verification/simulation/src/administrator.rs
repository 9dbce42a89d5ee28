//! Administrators that change settings during the faults, each at one broker, and each time the
//! settings of a new group. The controller answers when the change is committed, so each
//! acknowledged change exists in the end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use ottla_client::Client;
use ottla_client::admin::ConfigResourceType;
use ottla_metadata::{ConfigResource, MetadataImage};
use ottla_protocol::messages::IncrementalAlterConfigsRequest;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_sync::simulation::{Host, now, stream};
use ottla_sync::thread::JoinHandle;
use ottla_sync::time::{sleep, timeout};
use ottla_types::ErrorCode;

use crate::clients::{on, unconnected};
use crate::cluster::Cluster;

const KEY: &str = "share.auto.offset.reset";
/// How long an administrator waits for an answer before the next change.
const ANSWER: Duration = Duration::from_secs(1);
/// How long the nodes may take, without faults, to know every change.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Administrators {
    is_over: Rc<Cell<bool>>,
    working: Vec<JoinHandle<Vec<String>>>,
}

impl Administrators {
    pub fn start(cluster: &Cluster) -> Administrators {
        let is_over = Rc::new(Cell::new(false));
        let brokers = cluster.nodes.iter().filter(|node| node.is_broker);
        let working = brokers.map(|node| {
            let (ended, broker) = (is_over.clone(), node.name.clone());
            let name = format!("administrator-of-{broker}");
            let mut random = stream(&name);
            on(&Host::new(&name), move || async move {
                let address = format!("{broker}:9092");
                let client = unconnected(&address);
                let (mut answered, mut number) = (Vec::new(), 0);
                while !ended.get() {
                    sleep(Duration::from_millis(random.below(2_000))).await;
                    number += 1;
                    let group = format!("of-{broker}-{number}");
                    match timeout(ANSWER, change(&client, &address, &group)).await {
                        Ok(Ok(())) => answered.push(group),
                        Ok(Err(error)) => tracing::debug!(group, "changing: {error:#}"),
                        // The cluster may still make the change.
                        Err(_) => tracing::debug!(group, "changing: no answer"),
                    }
                }
                answered
            })
        });
        Administrators {
            working: working.collect(),
            is_over,
        }
    }

    /// Returns how many changes were answered.
    pub fn settle(self, cluster: &Cluster) -> Result<u64, String> {
        self.is_over.set(true);
        let working = self.working.into_iter();
        let answered: Vec<String> = working
            .flat_map(|working| working.join().expect("it ends"))
            .collect();
        let deadline = now() + PATIENCE;
        loop {
            let image = cluster.newest_metadata();
            let is_missing = |group: &&String| !image.as_ref().is_some_and(|it| has(it, group));
            let Some(missing) = answered.iter().find(is_missing) else {
                return Ok(answered.len() as u64);
            };
            if now() > deadline {
                return Err(format!(
                    "settings: the change of {missing} was answered, and is not there"
                ));
            }
            ottla_sync::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn has(image: &MetadataImage, group: &str) -> bool {
    let resource = ConfigResource::group(group);
    image.configs.value(&resource, KEY).is_some()
}

async fn change(client: &Client, address: &str, group: &str) -> Result<()> {
    let connection = client.connection(address).await?;
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: ConfigResourceType::Group as i8,
            resource_name: group.into(),
            configs: vec![AlterableConfig {
                name: KEY.into(),
                value: Some("earliest".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = connection.send(&request).await?;
    let codes = response
        .responses
        .iter()
        .map(|response| response.error_code);
    let codes: Vec<ErrorCode> = codes.map(ErrorCode::from_code).collect();
    ensure!(codes == [ErrorCode::None], "{codes:?}");
    Ok(())
}
