//! Settings of topics, groups and brokers.

use std::collections::BTreeMap;

use axum::Json;
use ottla_client::admin::{ConfigOperation, ConfigResourceType, NewTopic};
use ottla_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::list::Items;
use crate::problem::Problem;

#[derive(Serialize)]
pub(super) struct Setting {
    name: String,
    /// `None` if it is secret or not set.
    value: Option<String>,
    source: &'static str,
    is_default: bool,
    is_read_only: bool,
    is_sensitive: bool,
    #[serde(rename = "type")]
    kind: &'static str,
    documentation: Option<String>,
    synonyms: Vec<Synonym>,
}

#[derive(Serialize)]
struct Synonym {
    name: String,
    value: Option<String>,
    source: &'static str,
}

#[derive(Deserialize)]
pub(super) struct Change {
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// Names that go back to their default.
    #[serde(default)]
    delete: Vec<String>,
    #[serde(default)]
    preview: bool,
}

type Settings = Result<Json<Items<Setting>>, Problem>;

/// The source of settings without a topic: a topic that the cluster only validates has the defaults
/// that a new topic gets.
pub(super) async fn of_new_topics(visitor: Visitor) -> Settings {
    let name = format!("ottla-console-defaults-{:08x}", rand::random::<u32>());
    let topic = NewTopic {
        name,
        ..NewTopic::default()
    };
    let results = visitor.admin.create_topics(&[topic], true).await?;
    let configs = results.into_iter().next().and_then(|it| it.configs);
    let configs = configs.unwrap_or_default().into_iter();
    // Only the description of a topic has types and documentation: that of any topic.
    let names = visitor.view.snapshot().await?;
    let any = names.topics.keys().next();
    let documented = match any {
        Some(any) => described(&visitor, ConfigResourceType::Topic, any)
            .await
            .unwrap_or_default(),
        None => Vec::new(),
    };
    let mut by_name: BTreeMap<String, Setting> = documented
        .into_iter()
        .map(|it| (it.name.clone(), it))
        .collect();
    let items = configs.map(|config| {
        let name = config.name.to_string();
        let known = by_name.remove(&name);
        let source = source_name(config.config_source);
        Setting {
            value: config.value.map(|it| it.to_string()),
            source,
            is_default: source == "default",
            is_read_only: config.read_only,
            is_sensitive: config.is_sensitive,
            kind: known.as_ref().map_or("unknown", |it| it.kind),
            documentation: known.and_then(|it| it.documentation),
            synonyms: Vec::new(),
            name,
        }
    });
    let mut items: Vec<Setting> = items.collect();
    items.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(Items { items }))
}

pub(super) async fn of_topic(visitor: Visitor, Path(topic): Path<String>) -> Settings {
    settings(&visitor, ConfigResourceType::Topic, &topic).await
}

pub(super) async fn change_topic(
    visitor: Visitor,
    Path(topic): Path<String>,
    Body(wanted): Body<Change>,
) -> Settings {
    change(&visitor, ConfigResourceType::Topic, &topic, wanted).await
}

pub(super) async fn of_group(visitor: Visitor, Path(group): Path<String>) -> Settings {
    settings(&visitor, ConfigResourceType::Group, &group).await
}

pub(super) async fn change_group(
    visitor: Visitor,
    Path(group): Path<String>,
    Body(wanted): Body<Change>,
) -> Settings {
    change(&visitor, ConfigResourceType::Group, &group, wanted).await
}

pub(super) async fn of_broker(visitor: Visitor, Path(broker): Path<String>) -> Settings {
    settings(&visitor, ConfigResourceType::Broker, broker_name(&broker)?).await
}

pub(super) async fn change_broker(
    visitor: Visitor,
    Path(broker): Path<String>,
    Body(wanted): Body<Change>,
) -> Settings {
    change(
        &visitor,
        ConfigResourceType::Broker,
        broker_name(&broker)?,
        wanted,
    )
    .await
}

/// The name of the resource: empty for the settings that all brokers share.
fn broker_name(broker: &str) -> Result<&str, Problem> {
    match broker {
        "default" => Ok(""),
        id if id.parse::<i32>().is_ok() => Ok(id),
        other => Err(Problem::not_found(format!(
            "broker {other}: not a broker ID; give a number, or default for the settings that all brokers share"
        ))),
    }
}

async fn settings(visitor: &Visitor, kind: ConfigResourceType, name: &str) -> Settings {
    let items = described(visitor, kind, name).await?;
    Ok(Json(Items { items }))
}

async fn described(
    visitor: &Visitor,
    kind: ConfigResourceType,
    name: &str,
) -> Result<Vec<Setting>, Problem> {
    let admin = &visitor.admin;
    let described = admin
        .describe_configs_with_documentation(kind, name)
        .await?;
    let mut settings: Vec<Setting> = described.iter().map(setting).collect();
    settings.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(settings)
}

async fn change(
    visitor: &Visitor,
    kind: ConfigResourceType,
    name: &str,
    wanted: Change,
) -> Settings {
    let mut operations: BTreeMap<String, ConfigOperation> = BTreeMap::new();
    for name in wanted.delete {
        operations.insert(name, ConfigOperation::Delete);
    }
    for (name, value) in wanted.set {
        if operations.contains_key(&name) {
            return Err(Problem::invalid(
                "set",
                format!("{name} is both set and deleted; give one"),
            ));
        }
        operations.insert(name, ConfigOperation::Set(value));
    }
    if operations.is_empty() {
        return Err(Problem::invalid(
            "set",
            "there is no change; give set or delete",
        ));
    }
    let names: Vec<&str> = operations.keys().map(String::as_str).collect();
    visitor.note.names(names.join(", "));
    if wanted.preview {
        visitor.note.is_preview();
    }
    let admin = &visitor.admin;
    admin
        .alter_configs(kind, name, &operations, wanted.preview)
        .await?;
    if !wanted.preview {
        visitor.view.outdate();
    }
    settings(visitor, kind, name).await
}

fn setting(config: &DescribeConfigsResourceResult) -> Setting {
    let source = source_name(config.config_source);
    Setting {
        name: config.name.to_string(),
        value: config.value.as_ref().map(ToString::to_string),
        source,
        is_default: source == "default",
        is_read_only: config.read_only,
        is_sensitive: config.is_sensitive,
        kind: type_name(config.config_type),
        documentation: config.documentation.as_ref().map(ToString::to_string),
        synonyms: config
            .synonyms
            .iter()
            .map(|it| Synonym {
                name: it.name.to_string(),
                value: it.value.as_ref().map(ToString::to_string),
                source: source_name(it.source),
            })
            .collect(),
    }
}

/// `DescribeConfigsResponse.ConfigSource`.
fn source_name(number: i8) -> &'static str {
    match number {
        1 => "topic",
        2 => "broker",
        3 => "default_broker",
        4 => "static_broker",
        5 => "default",
        6 => "broker_logger",
        7 => "client_metrics",
        8 => "group",
        _ => "unknown",
    }
}

/// `DescribeConfigsResponse.ConfigType`.
fn type_name(number: i8) -> &'static str {
    match number {
        1 => "boolean",
        2 => "string",
        3 => "int",
        4 => "short",
        5 => "long",
        6 => "double",
        7 => "list",
        8 => "class",
        9 => "password",
        _ => "unknown",
    }
}
