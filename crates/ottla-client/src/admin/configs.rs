//! Describing and changing settings.

use std::collections::BTreeMap;

use ottla_protocol::messages::describe_configs_request::{
    DescribeConfigsRequest, DescribeConfigsResource,
};
use ottla_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::list_config_resources_request::ListConfigResourcesRequest;

use super::{Admin, text};
use crate::error::ClientError;

/// The types of resources with settings. The numbers are Kafka's.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::ConfigResourceType;
///
/// for setting in admin.describe_configs(ConfigResourceType::Broker, "1", false).await? {
///     println!("{}={:?}", setting.name, setting.value);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i8)]
pub enum ConfigResourceType {
    Topic = 2,
    Broker = 4,
    BrokerLogger = 8,
    ClientMetrics = 16,
    Group = 32,
}

/// The operation on a setting. The numbers are Kafka's (KIP-339).
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use std::collections::BTreeMap;
/// use ottla_client::admin::{ConfigOperation, ConfigResourceType};
///
/// let changes = BTreeMap::from([
///     ("retention.ms".to_owned(), ConfigOperation::Set("86400000".to_owned())),
///     ("segment.bytes".to_owned(), ConfigOperation::Delete),
///     ("cleanup.policy".to_owned(), ConfigOperation::Append("compact".to_owned())),
/// ]);
/// admin.alter_configs(ConfigResourceType::Topic, "orders", &changes, false).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigOperation {
    Set(String),
    Delete,
    /// Appends to a list.
    Append(String),
    /// Removes from a list.
    Subtract(String),
}

impl ConfigOperation {
    fn code(&self) -> i8 {
        match self {
            ConfigOperation::Set(_) => 0,
            ConfigOperation::Delete => 1,
            ConfigOperation::Append(_) => 2,
            ConfigOperation::Subtract(_) => 3,
        }
    }

    fn value(&self) -> Option<&str> {
        match self {
            ConfigOperation::Set(value)
            | ConfigOperation::Append(value)
            | ConfigOperation::Subtract(value) => Some(value),
            ConfigOperation::Delete => None,
        }
    }
}

/// The settings of one resource.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// use ottla_client::admin::{ConfigResourceType, DescribedConfigs};
///
/// let settings: DescribedConfigs =
///     admin.describe_configs(ConfigResourceType::Topic, "orders", false).await?;
/// let retention = settings.iter().find(|setting| setting.name == "retention.ms");
/// println!("{:?}", retention.and_then(|setting| setting.value.as_deref()));
/// # Ok(())
/// # }
/// ```
pub type DescribedConfigs = Vec<DescribeConfigsResourceResult>;

impl Admin {
    /// The settings of one resource. Settings of a broker are requested from that broker, because
    /// only that broker knows its properties file.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::ConfigResourceType;
    ///
    /// for setting in admin.describe_configs(ConfigResourceType::Topic, "orders", true).await? {
    ///     let sources = setting.synonyms.len();
    ///     println!("{}={:?}, from {sources} sources", setting.name, setting.value);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_configs(
        &self,
        kind: ConfigResourceType,
        name: &str,
        include_synonyms: bool,
    ) -> Result<DescribedConfigs, ClientError> {
        self.describe_one(kind, name, include_synonyms, false).await
    }

    /// As [`Admin::describe_configs`], with the synonyms and the documentation of each setting, if
    /// the cluster has it (KIP-569).
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::ConfigResourceType;
    ///
    /// let kind = ConfigResourceType::Broker;
    /// for setting in admin.describe_configs_with_documentation(kind, "1").await? {
    ///     println!("{}: {}", setting.name, setting.documentation.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_configs_with_documentation(
        &self,
        kind: ConfigResourceType,
        name: &str,
    ) -> Result<DescribedConfigs, ClientError> {
        self.describe_one(kind, name, true, true).await
    }

    async fn describe_one(
        &self,
        kind: ConfigResourceType,
        name: &str,
        include_synonyms: bool,
        include_documentation: bool,
    ) -> Result<DescribedConfigs, ClientError> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: kind as i8,
                resource_name: text(name),
                configuration_keys: None,
                ..Default::default()
            }],
            include_synonyms,
            include_documentation,
            ..Default::default()
        };
        let response = self
            .client
            .retrying("DescribeConfigs", async || {
                self.configs_node(kind, name).await?.send(&request).await
            })
            .await?;
        let Some(result) = response.results.into_iter().next() else {
            return Ok(Vec::new());
        };
        let what = format!("describing the settings of {}", in_words(kind, name));
        ClientError::check(what, result.error_code, result.error_message.as_ref())?;
        Ok(result.configs)
    }

    /// These settings of several topics, in one request. Topics whose settings the cluster does not
    /// return, because they are gone or denied, are missing.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let topics = admin.list_topics(false).await?;
    /// for (topic, settings) in admin.describe_topic_configs(&topics, &["cleanup.policy"]).await? {
    ///     for setting in settings {
    ///         println!("{topic}: {:?}", setting.value);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_topic_configs(
        &self,
        topics: &[String],
        keys: &[&str],
    ) -> Result<BTreeMap<String, DescribedConfigs>, ClientError> {
        let resource = |name: &String| DescribeConfigsResource {
            resource_type: ConfigResourceType::Topic as i8,
            resource_name: text(name),
            configuration_keys: Some(keys.iter().map(|key| text(key)).collect()),
            ..Default::default()
        };
        let request = DescribeConfigsRequest {
            resources: topics.iter().map(resource).collect(),
            ..Default::default()
        };
        let response = self.ask(&request).await?;
        let found = response.results.into_iter().filter(|it| it.error_code == 0);
        Ok(found
            .map(|it| (it.resource_name.to_string(), it.configs))
            .collect())
    }

    /// Changes settings of one resource, all or none.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    /// use ottla_client::admin::{ConfigOperation, ConfigResourceType};
    ///
    /// let one_day = ConfigOperation::Set("86400000".to_owned());
    /// let changes = BTreeMap::from([("retention.ms".to_owned(), one_day)]);
    /// let validate_only = false;
    /// admin.alter_configs(ConfigResourceType::Topic, "orders", &changes, validate_only).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn alter_configs(
        &self,
        kind: ConfigResourceType,
        name: &str,
        operations: &BTreeMap<String, ConfigOperation>,
        validate_only: bool,
    ) -> Result<(), ClientError> {
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: kind as i8,
                resource_name: text(name),
                configs: operations
                    .iter()
                    .map(|(key, operation)| AlterableConfig {
                        name: text(key),
                        config_operation: operation.code(),
                        value: operation.value().map(text),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }],
            validate_only,
            ..Default::default()
        };
        let response = self
            .client
            .retrying("IncrementalAlterConfigs", async || {
                self.configs_node(kind, name).await?.send(&request).await
            })
            .await?;
        let Some(result) = response.responses.first() else {
            return Ok(());
        };
        let what = format!("changing the settings of {}", in_words(kind, name));
        ClientError::check(what, result.error_code, result.error_message.as_ref())
    }

    /// The resources of a type that have settings.
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::admin::ConfigResourceType;
    ///
    /// for name in admin.list_config_resources(ConfigResourceType::ClientMetrics).await? {
    ///     println!("metrics subscription {name}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list_config_resources(
        &self,
        kind: ConfigResourceType,
    ) -> Result<Vec<String>, ClientError> {
        let response = self
            .client
            .send(|version| {
                let mut request = ListConfigResourcesRequest::default();
                // In version 0 there is only one type, client metrics (KIP-1142).
                if version >= 1 {
                    request.resource_types = vec![kind as i8];
                }
                request
            })
            .await?;
        ClientError::check_code("listing resources", response.error_code)?;
        let names = response.config_resources.into_iter();
        Ok(names
            .map(|resource| resource.resource_name.to_string())
            .collect())
    }

    async fn configs_node(
        &self,
        kind: ConfigResourceType,
        name: &str,
    ) -> Result<std::sync::Arc<crate::Connection>, ClientError> {
        let of_a_broker = matches!(
            kind,
            ConfigResourceType::Broker | ConfigResourceType::BrokerLogger
        );
        match name.parse() {
            // A controller changes the settings of every broker.
            Ok(id) if of_a_broker && !self.is_of_controllers => self.client.node(id).await,
            _ => self.client.any_node().await,
        }
    }
}

/// A resource in a message. The settings that all brokers share have an empty name.
fn in_words(kind: ConfigResourceType, name: &str) -> String {
    match kind {
        ConfigResourceType::Broker if name.is_empty() => "all brokers".to_owned(),
        ConfigResourceType::Broker => format!("broker {name}"),
        ConfigResourceType::BrokerLogger => format!("the loggers of broker {name}"),
        ConfigResourceType::Topic => format!("topic {name}"),
        ConfigResourceType::Group => format!("group {name}"),
        ConfigResourceType::ClientMetrics => format!("metrics subscription {name}"),
    }
}
