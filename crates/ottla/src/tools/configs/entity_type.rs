//! Entity types of `configs`.

use anyhow::bail;
use ottla_client::admin::ConfigResourceType;
use ottla_config::ConfigSource;
use ottla_types::named_enum;

named_enum! {
    /// An entity type, under Kafka's name for it.
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub(super) enum EntityType {
        Topics => "topics",
        Brokers => "brokers",
        BrokerLoggers => "broker-loggers",
        ClientMetrics => "client-metrics",
        Groups => "groups",
        Users => "users",
        Clients => "clients",
        Ips => "ips",
    }
}

impl EntityType {
    pub(super) fn from_name(name: &str) -> anyhow::Result<EntityType> {
        let Some(found) = EntityType::ALL.into_iter().find(|it| it.name() == name) else {
            bail!(
                "Invalid entity type {name}, the entity type must be one of topics, clients, users, \
                 brokers, ips, client-metrics, groups, broker-loggers with a --bootstrap-server or \
                 --bootstrap-controller argument"
            );
        };
        Ok(found)
    }

    /// The singular, as Kafka's tool forms it: the name without its last letter.
    pub(super) fn singular(self) -> &'static str {
        let name = self.name();
        &name[..name.len() - 1]
    }

    /// Whether the type has quotas instead of settings.
    pub(super) fn has_quotas(self) -> bool {
        matches!(
            self,
            EntityType::Users | EntityType::Clients | EntityType::Ips
        )
    }

    pub(super) fn resource(self) -> ConfigResourceType {
        match self {
            EntityType::Users | EntityType::Clients | EntityType::Ips => {
                unreachable!("quotas are shown and changed by requests of their own")
            }
            EntityType::Topics => ConfigResourceType::Topic,
            EntityType::Brokers => ConfigResourceType::Broker,
            EntityType::BrokerLoggers => ConfigResourceType::BrokerLogger,
            EntityType::ClientMetrics => ConfigResourceType::ClientMetrics,
            EntityType::Groups => ConfigResourceType::Group,
        }
    }

    /// The source of values that were set at run time; `None` if all values are.
    pub(super) fn dynamic_source(self, entity: &str) -> Option<ConfigSource> {
        match self {
            EntityType::Topics => Some(ConfigSource::Topic),
            EntityType::Brokers if entity.is_empty() => Some(ConfigSource::DynamicDefaultBroker),
            EntityType::Brokers => Some(ConfigSource::DynamicBroker),
            EntityType::BrokerLoggers
            | EntityType::Users
            | EntityType::Clients
            | EntityType::Ips => None,
            EntityType::ClientMetrics => Some(ConfigSource::ClientMetrics),
            EntityType::Groups => Some(ConfigSource::Group),
        }
    }
}
