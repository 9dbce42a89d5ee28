//! `broker-api-versions`: Kafka's `kafka-broker-api-versions.sh`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use ottla_client::{Admin, BrokerNode};
use ottla_protocol::ApiKey;
use ottla_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};

use super::admin_client::Brokers;
use super::{block_on, report_on_stderr};

/// Print the API versions that each broker supports.
#[derive(Args, Debug)]
pub struct BrokerApiVersionsArgs {
    #[command(flatten)]
    brokers: Brokers,
}

pub fn run(args: BrokerApiVersionsArgs) -> ExitCode {
    block_on(async { report_on_stderr(print(&args).await) })
}

async fn print(args: &BrokerApiVersionsArgs) -> anyhow::Result<()> {
    let admin = args
        .brokers
        .connect("ottla-broker-api-versions", None)
        .await?;
    for broker in admin.client().metadata().brokers.values() {
        print_api_versions(&admin, broker).await;
    }
    Ok(())
}

/// An error is printed in place of the versions.
pub(super) async fn print_api_versions(admin: &Admin, of: &BrokerNode) {
    match admin.api_versions(Some(of.id)).await {
        Ok(response) => println!("{} -> {}", node(of), table(&response)),
        Err(error) => println!("{} -> ERROR: {}", node(of), error.broker_message()),
    }
}

/// A node in the format of Java's `Node.toString`.
fn node(broker: &BrokerNode) -> String {
    format!(
        "{}:{} (id: {} rack: {} isFenced: false)",
        broker.host,
        broker.port,
        broker.id,
        broker.rack.as_deref().unwrap_or("null")
    )
}

/// Every API that a broker can have, supported or not, and APIs that only the broker knows.
fn table(response: &ApiVersionsResponse) -> String {
    let mut lines: BTreeMap<i16, String> = ApiKey::ALL
        .iter()
        .filter(|key| key.on_broker() && !key.stable_versions().is_empty())
        .map(|key| {
            let line = format!("{}({}): UNSUPPORTED", key.name(), key.code());
            (key.code(), line)
        })
        .collect();
    for served in &response.api_keys {
        lines.insert(served.api_key, line(served));
    }
    let lines: Vec<String> = lines.into_values().collect();
    format!("(\n\t{}\n)", lines.join(",\n\t"))
}

fn line(served: &ApiVersion) -> String {
    let (low, high) = (served.min_version, served.max_version);
    let range = if low == high {
        low.to_string()
    } else {
        format!("{low} to {high}")
    };
    let Some(key) = ApiKey::from_code(served.api_key) else {
        return format!("UNKNOWN({}): {range}", served.api_key);
    };
    let spoken = key.stable_versions();
    let newest = high.min(*spoken.end());
    let usable = if newest >= low.max(*spoken.start()) {
        format!("usable: {newest}")
    } else {
        "unusable: node too new".to_owned()
    };
    format!("{}({}): {range} [{usable}]", key.name(), key.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_has_a_line() {
        let served = |api_key, min_version, max_version| ApiVersion {
            api_key,
            min_version,
            max_version,
            ..Default::default()
        };
        assert_eq!(line(&served(0, 0, 13)), "Produce(0): 0 to 13 [usable: 13]");
        assert_eq!(
            line(&served(46, 0, 0)),
            "ListPartitionReassignments(46): 0 [usable: 0]"
        );
        assert_eq!(line(&served(9999, 0, 2)), "UNKNOWN(9999): 0 to 2");
        let table = table(&ApiVersionsResponse {
            api_keys: vec![served(0, 0, 13)],
            ..Default::default()
        });
        assert!(
            table.starts_with("(\n\tProduce(0): 0 to 13 [usable: 13],\n\tFetch(1): UNSUPPORTED,")
        );
    }
}
