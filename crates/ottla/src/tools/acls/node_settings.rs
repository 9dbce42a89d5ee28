//! The settings of the nodes that this command asks about.

use ottla_client::admin::{ConfigResourceType, DescribedConfigs, EndpointType};
use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

/// The value of a setting as a node reports it.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Reported {
    NotSet,
    Value(String),
    Hidden,
}

/// The settings of every broker, or of the active controller.
#[derive(Debug, Default)]
pub(super) struct NodeSettings {
    /// By node ID.
    pub(super) reported: Vec<(i32, DescribedConfigs)>,
    /// Why nodes are missing.
    pub(super) notes: Vec<String>,
}

pub(super) async fn read(admin: &Admin, nodes: EndpointType) -> anyhow::Result<NodeSettings> {
    let cluster = admin.describe_cluster(nodes, false).await?;
    let mut ids = match nodes {
        EndpointType::Controller => vec![cluster.controller_id],
        EndpointType::Broker => cluster.brokers.iter().map(|it| it.broker_id).collect(),
    };
    ids.sort_unstable();
    let mut settings = NodeSettings::default();
    for id in ids {
        let kind = ConfigResourceType::Broker;
        match admin.describe_configs(kind, &id.to_string(), false).await {
            Ok(configs) => settings.reported.push((id, configs)),
            Err(error) => settings.notes.push(format!(
                "node {id} does not report its settings: {}",
                reason(&error)
            )),
        }
    }
    Ok(settings)
}

fn reason(error: &ClientError) -> String {
    match error.code() {
        Some(ErrorCode::ClusterAuthorizationFailed) => format!(
            "{}; it takes DescribeConfigs on the cluster",
            error.broker_message()
        ),
        Some(_) => error.broker_message(),
        None => error.to_string(),
    }
}

/// One of the settings of a node.
pub(super) fn reported(configs: &DescribedConfigs, name: &str) -> Reported {
    let found = configs.iter().find(|config| config.name == name);
    match found.map(|config| (&config.value, config.is_sensitive)) {
        None | Some((None, false)) => Reported::NotSet,
        Some((None, true)) => Reported::Hidden,
        Some((Some(value), _)) => Reported::Value(value.to_string()),
    }
}
