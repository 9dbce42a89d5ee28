//! DescribeClientQuotas (KIP-546): the limits of users, client IDs and addresses.
//!
//! Kafka: `ClientQuotasImage.describe`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::{ClientQuotasImage, QuotaEntity};
use ottla_protocol::messages::describe_client_quotas_request::ComponentData;
use ottla_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use ottla_protocol::messages::{DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_SPECIFIED: i8 = 2;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    if let Err(error) = broker.authorize(context) {
        return DescribeClientQuotasResponse {
            error_code: error.code(),
            error_message: None,
            entries: None,
            ..Default::default()
        };
    }
    match filter(&request.components) {
        Ok(filter) => DescribeClientQuotasResponse {
            error_message: None,
            entries: Some(describe(
                &broker.metadata().client_quotas,
                &filter,
                request.strict,
            )),
            ..Default::default()
        },
        Err((code, message)) => DescribeClientQuotasResponse {
            error_code: code.code(),
            error_message: Some(message.into()),
            entries: None,
            ..Default::default()
        },
    }
}

/// The required value of one part of an entity.
enum Wanted<'a> {
    /// This name; `None` means the default entity.
    Name(Option<&'a ByteString>),
    Any,
}

type Filter<'a> = BTreeMap<&'a ByteString, Wanted<'a>>;

fn filter(components: &[ComponentData]) -> Result<Filter<'_>, (ErrorCode, String)> {
    let invalid = |message: String| Err((ErrorCode::InvalidRequest, message));
    let mut filter = Filter::new();
    for component in components {
        let entity_type = &component.entity_type;
        if entity_type.is_empty() {
            return invalid("Invalid empty entity type.".to_owned());
        }
        if filter.contains_key(entity_type) {
            return invalid(format!(
                "Entity type {entity_type} cannot appear more than once in the filter."
            ));
        }
        if !["ip", "user", "client-id"].contains(&&**entity_type) {
            return Err((
                ErrorCode::UnsupportedVersion,
                format!("Unsupported entity type {entity_type}"),
            ));
        }
        let wanted = match (component.match_type, &component.r#match) {
            (MATCH_EXACT, Some(name)) => Wanted::Name(Some(name)),
            (MATCH_EXACT, None) => {
                return invalid(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned(),
                );
            }
            (MATCH_DEFAULT, None) => Wanted::Name(None),
            (MATCH_SPECIFIED, None) => Wanted::Any,
            (MATCH_DEFAULT | MATCH_SPECIFIED, Some(_)) => {
                let name = match component.match_type {
                    MATCH_DEFAULT => "MATCH_TYPE_DEFAULT",
                    _ => "MATCH_TYPE_SPECIFIED",
                };
                return invalid(format!(
                    "Request specified {name}, but also specified a match string."
                ));
            }
            (other, _) => return invalid(format!("Unknown match type {other}")),
        };
        filter.insert(entity_type, wanted);
    }
    let has = |name: &str| filter.keys().any(|entity_type| ***entity_type == *name);
    if has("ip") && (has("user") || has("client-id")) {
        return invalid(
            "Invalid entity filter component combination. IP filter component should not be used with \
             user or clientId filter component."
                .to_owned(),
        );
    }
    Ok(filter)
}

fn describe(quotas: &ClientQuotasImage, filter: &Filter<'_>, strict: bool) -> Vec<EntryData> {
    let mut entries: Vec<(&QuotaEntity, EntryData)> = Vec::new();
    for (entity, record) in quotas.by_entity() {
        let value = ValueData {
            key: record.key.clone(),
            value: record.value,
            ..Default::default()
        };
        match entries.last_mut() {
            Some((last, entry)) if *last == entity => entry.values.push(value),
            _ if matches(entity, filter, strict) => entries.push((
                entity,
                EntryData {
                    entity: entity
                        .iter()
                        .map(|(entity_type, entity_name)| EntityData {
                            entity_type: entity_type.clone(),
                            entity_name: entity_name.clone(),
                            ..Default::default()
                        })
                        .collect(),
                    values: vec![value],
                    ..Default::default()
                },
            )),
            _ => {}
        }
    }
    entries.into_iter().map(|(_, entry)| entry).collect()
}

fn matches(entity: &QuotaEntity, filter: &Filter<'_>, strict: bool) -> bool {
    let is_wanted = |(entity_type, wanted): (&&ByteString, &Wanted<'_>)| {
        entity.iter().any(|(part, name)| {
            part == *entity_type
                && match wanted {
                    Wanted::Name(wanted) => name.as_ref() == *wanted,
                    Wanted::Any => true,
                }
        })
    };
    (!strict || entity.len() == filter.len()) && filter.iter().all(is_wanted)
}
