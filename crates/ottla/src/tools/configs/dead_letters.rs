//! A warning about a dead-letter queue of a share group (KIP-1191) that no broker would use.
//!
//! The controller does not know the prefix that brokers want of its name, so it accepts any, as in
//! Kafka.

use std::collections::BTreeMap;

use ottla_client::Admin;
use ottla_client::admin::{ConfigOperation, ConfigResourceType, EndpointType};

use super::entity_type::EntityType;

const TOPIC: &str = "errors.deadletterqueue.topic.name";
const PREFIX: &str = "errors.deadletterqueue.topic.name.prefix";

/// The queue that a change of a group's settings names.
pub(super) fn queue(
    kind: EntityType,
    operations: &BTreeMap<String, ConfigOperation>,
) -> Option<String> {
    match operations.get(TOPIC) {
        Some(ConfigOperation::Set(name)) if kind == EntityType::Groups => Some(name.clone()),
        _ => None,
    }
}

/// Warns if the name lacks the prefix. Says nothing if the prefix cannot be read.
pub(super) async fn check(admin: &Admin, queue: &str) {
    if let Some(prefix) = prefix(admin).await
        && let Some(warning) = warning(queue, &prefix)
    {
        eprintln!("WARN {warning}");
    }
}

/// The prefix at one of the brokers; they have the same one.
async fn prefix(admin: &Admin) -> Option<String> {
    let cluster = admin.describe_cluster(EndpointType::Broker, false).await;
    let broker = cluster.ok()?.brokers.first()?.broker_id.to_string();
    let configs = admin.describe_configs(ConfigResourceType::Broker, &broker, false);
    let configs = configs.await.ok()?;
    let found = configs.into_iter().find(|config| &*config.name == PREFIX)?;
    Some(found.value?.to_string())
}

fn warning(queue: &str, prefix: &str) -> Option<String> {
    let queue = queue.trim();
    let fits = queue.is_empty() || queue.starts_with(prefix);
    (!fits).then(|| {
        format!(
            "{TOPIC}={queue} does not begin with {prefix} ({PREFIX} of the brokers), so no record is \
             written there; give {prefix}{queue}, or change the prefix"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_a_queue_without_the_prefix() {
        let warned = warning("jobs.dlq", "dlq.").unwrap();
        assert!(warned.contains("give dlq.jobs.dlq"), "{warned}");
        for (queue, prefix) in [("dlq.jobs", "dlq."), ("jobs", ""), ("", "dlq.")] {
            assert_eq!(warning(queue, prefix), None);
        }
        let set = ConfigOperation::Set("jobs.dlq".to_owned());
        let operations = BTreeMap::from([(TOPIC.to_owned(), set)]);
        let named = |kind| queue(kind, &operations);
        assert_eq!(named(EntityType::Groups).as_deref(), Some("jobs.dlq"));
        assert_eq!(named(EntityType::Topics), None);
    }
}
