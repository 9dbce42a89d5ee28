//! `cluster`: Kafka's `kafka-cluster.sh`, and `cluster start`, which it does not have.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use ottla_client::admin::EndpointType;
use ottla_client::{Admin, BrokerNode, ClientError};
use ottla_protocol::messages::describe_cluster_response::DescribeClusterBroker;

use super::admin_client::Bootstrap;
use super::broker_api_versions::print_api_versions;
use super::consumer_groups::table::Table;
use super::{block_on, report_on_stderr};

mod layout;
mod node_process;
mod secured;
mod start;

/// Start a development cluster; print the ID, the nodes and the API versions of a cluster, or
/// unregister a node.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    Start(start::StartArgs),
    #[command(flatten)]
    Kafkas(KafkasCommand),
}

/// The commands of Kafka's tool.
#[derive(Subcommand, Debug)]
enum KafkasCommand {
    /// Print the ID of the cluster.
    ClusterId(ConnectionArgs),
    /// Unregister a broker that will not return.
    Unregister {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The ID of the broker.
        #[arg(long, short = 'i')]
        id: i32,
    },
    /// Unregister a controller that will not return.
    UnregisterController {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The ID of the controller.
        #[arg(long, short = 'i')]
        id: i32,
    },
    /// Print the API versions that each broker or controller supports.
    ApiVersions(ConnectionArgs),
    /// List the brokers, or the controllers.
    ListEndpoints {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Include fenced brokers.
        #[arg(long)]
        include_fenced_brokers: bool,
    },
}

#[derive(Args, Debug)]
struct ConnectionArgs {
    #[command(flatten)]
    bootstrap: Bootstrap,
    /// Properties file with settings of the client.
    #[arg(long, short = 'c', value_name = "FILE")]
    command_config: Option<String>,
    /// Deprecated: write --command-config.
    #[arg(
        long,
        value_name = "FILE",
        hide = true,
        conflicts_with = "command_config"
    )]
    config: Option<String>,
}

impl ConnectionArgs {
    async fn connect(&self) -> anyhow::Result<Admin> {
        if self.config.is_some() {
            println!(
                "Option --config has been deprecated and will be removed in a future version. Use \
                 --command-config instead."
            );
        }
        let config = self.command_config.as_deref().or(self.config.as_deref());
        self.bootstrap.connect(config, "ottla-cluster").await
    }
}

pub fn run(args: ClusterArgs) -> ExitCode {
    match args.command {
        ClusterCommand::Start(args) => start::run(&args),
        ClusterCommand::Kafkas(command) => {
            block_on(async { report_on_stderr(act(&command).await) })
        }
    }
}

async fn act(command: &KafkasCommand) -> anyhow::Result<()> {
    match command {
        KafkasCommand::ClusterId(connection) => {
            let nodes = connection.bootstrap.endpoint_type();
            let admin = connection.connect().await?;
            let cluster = admin.describe_cluster(nodes, false).await?;
            println!("Cluster ID: {}", &*cluster.cluster_id);
        }
        KafkasCommand::Unregister { connection, id } => {
            let admin = connection.connect().await?;
            match admin.unregister_broker(*id).await {
                Ok(()) => println!("Broker {id} is no longer registered."),
                Err(ClientError::Unsupported { .. }) => {
                    println!("The target cluster does not support the broker unregistration API.");
                }
                Err(error) => return Err(error.into()),
            }
        }
        KafkasCommand::UnregisterController { connection, id } => {
            let admin = connection.connect().await?;
            match admin.unregister_controller(*id).await {
                Ok(()) => println!("Controller {id} is no longer registered."),
                Err(ClientError::Unsupported { .. }) => {
                    println!(
                        "The target cluster does not support the controller unregistration API."
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        KafkasCommand::ApiVersions(connection) => {
            let nodes = connection.bootstrap.endpoint_type();
            let admin = connection.connect().await?;
            let mut nodes = admin.describe_cluster(nodes, false).await?.brokers;
            nodes.sort_by_key(|node| node.broker_id);
            for node in nodes {
                let node = BrokerNode {
                    id: node.broker_id,
                    host: node.host.to_string(),
                    port: node.port,
                    rack: node.rack.map(|rack| rack.to_string()),
                };
                print_api_versions(&admin, &node).await;
            }
        }
        KafkasCommand::ListEndpoints {
            connection,
            include_fenced_brokers,
        } => {
            let nodes = connection.bootstrap.endpoint_type();
            if *include_fenced_brokers && nodes == EndpointType::Controller {
                anyhow::bail!(
                    "The option --include-fenced-brokers is only supported with --bootstrap-server option"
                );
            }
            let admin = connection.connect().await?;
            let cluster = admin
                .describe_cluster(nodes, *include_fenced_brokers)
                .await?;
            print_nodes(&cluster.brokers, nodes);
        }
    }
    Ok(())
}

fn print_nodes(nodes: &[DescribeClusterBroker], kind: EndpointType) {
    let racks = nodes.iter().filter_map(|node| node.rack.as_ref());
    let rack_width = racks.map(|rack| rack.len()).max().unwrap_or(10);
    let mut nodes: Vec<&DescribeClusterBroker> = nodes.iter().collect();
    nodes.sort_by_key(|node| node.broker_id);
    let mut table = Table::<&DescribeClusterBroker>::new();
    table.fixed("ID", 10, |it| it.broker_id);
    table.growing("HOST", 0, |it| it.host.clone());
    table.fixed("PORT", 10, |it| it.port);
    table.fixed("RACK", rack_width, |it| {
        it.rack.as_deref().unwrap_or("null").to_owned()
    });
    let name = match kind {
        EndpointType::Broker => {
            table.fixed("STATE", 10, |it| {
                if it.is_fenced { "fenced" } else { "unfenced" }
            });
            "broker"
        }
        EndpointType::Controller => "controller",
    };
    table.fixed("ENDPOINT_TYPE", 15, move |_| name);
    table.pad_last();
    table.print(&nodes);
}
