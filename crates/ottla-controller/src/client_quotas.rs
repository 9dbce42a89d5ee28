//! `AlterClientQuotas`: quotas of users, client ids and IP addresses (KIP-546).
//!
//! The quotas become metadata records, which every node enforces and DescribeClientQuotas returns.
//!
//! In Kafka: `ClientQuotaControlManager`, `QuotaConfig`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bytestring::ByteString;
use ottla_metadata::QuotaEntity;
use ottla_protocol::messages::alter_client_quotas_request::{EntryData, OpData};
use ottla_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, alter_client_quotas_response,
};
use ottla_protocol::metadata_records::{
    ClientQuotaRecord, MetadataRecord, client_quota_record::EntityData,
};
use ottla_types::ErrorCode;

use crate::decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";

/// The valid values of a quota, which must also be greater than 0.
#[derive(Clone, Copy)]
enum Limit {
    Any,
    /// A whole number up to this maximum.
    Whole(f64, &'static str),
}

const LONG: Limit = Limit::Whole(i64::MAX as f64, "a LONG");
const INT: Limit = Limit::Whole(i32::MAX as f64, "an INT");

/// The quotas of users and client ids.
const USER_AND_CLIENT_LIMITS: &[(&str, Limit)] = &[
    ("producer_byte_rate", LONG),
    ("consumer_byte_rate", LONG),
    ("request_percentage", Limit::Any),
    ("controller_mutation_rate", Limit::Any),
];
/// The quotas of IP addresses.
const IP_LIMITS: &[(&str, Limit)] = &[("connection_creation_rate", INT)];

pub fn alter_client_quotas(
    context: &ControllerContext<'_>,
    request: &AlterClientQuotasRequest,
) -> Decision<AlterClientQuotasResponse> {
    let mut records = Vec::new();
    // In the order of the request. Kafka's order is that of a hash map.
    let mut order = Vec::new();
    let mut results: BTreeMap<QuotaEntity, ApiError> = BTreeMap::new();
    for entry in &request.entries {
        let entity = entity_of(entry);
        let outcome = if results.contains_key(&entity) || has_duplicate_key(&entry.ops) {
            Err(invalid(format!(
                "Ignoring duplicate entity {}",
                shown(&entity)
            )))
        } else {
            changes(context, &entity, &entry.ops)
        };
        let error = match outcome {
            Ok(mut changed) => {
                records.append(&mut changed);
                ApiError::NONE
            }
            Err(error) => error,
        };
        if results.insert(entity.clone(), error).is_none() {
            order.push(entity);
        }
    }
    if records.len() > MAX_RECORDS_PER_USER_OPERATION {
        records.clear();
        let message = "Unable to perform excessively large batch operation.";
        for error in results.values_mut() {
            *error = ApiError::new(ErrorCode::PolicyViolation, message);
        }
    }
    if request.validate_only {
        records.clear();
    }
    let entries = order
        .into_iter()
        .map(|entity| result(&entity, &results[&entity]))
        .collect();
    let response = AlterClientQuotasResponse {
        entries,
        ..Default::default()
    };
    Decision::new(records, response)
}

/// The parts of the entity. If a part is given twice, the last one counts.
fn entity_of(entry: &EntryData) -> QuotaEntity {
    let parts: BTreeMap<_, _> = entry
        .entity
        .iter()
        .map(|part| (part.entity_type.clone(), part.entity_name.clone()))
        .collect();
    parts.into_iter().collect()
}

fn has_duplicate_key(ops: &[OpData]) -> bool {
    let mut seen = BTreeSet::new();
    !ops.iter().all(|op| seen.insert(&op.key))
}

/// The records that change the quotas of one entity as requested.
fn changes(
    context: &ControllerContext<'_>,
    entity: &QuotaEntity,
    ops: &[OpData],
) -> Result<Vec<MetadataRecord>, ApiError> {
    let limits = limits_of(entity)?;
    let record = |op: &OpData| ClientQuotaRecord {
        entity: entity
            .iter()
            .map(|(entity_type, entity_name)| EntityData {
                entity_type: entity_type.clone(),
                entity_name: entity_name.clone(),
                ..Default::default()
            })
            .collect(),
        key: op.key.clone(),
        value: if op.remove { 0.0 } else { op.value },
        remove: op.remove,
        ..Default::default()
    };
    let mut records = Vec::new();
    for op in ops {
        let current = context.image.client_quotas.value(entity, &op.key);
        if op.remove {
            if current.is_some() {
                records.push(record(op));
            }
            continue;
        }
        validate(limits, op)?;
        if current.map(f64::to_bits) != Some(op.value.to_bits()) {
            records.push(record(op));
        }
    }
    Ok(records
        .into_iter()
        .map(MetadataRecord::ClientQuota)
        .collect())
}

/// The quotas that are valid for the entity.
fn limits_of(entity: &QuotaEntity) -> Result<&'static [(&'static str, Limit)], ApiError> {
    if entity.is_empty() {
        return Err(invalid("Invalid empty client quota entity"));
    }
    for (entity_type, name) in entity {
        if ![USER, CLIENT_ID, IP].contains(&&**entity_type) {
            return Err(invalid(format!(
                "Unhandled client quota entity type: {entity_type}"
            )));
        }
        if name.as_ref().is_some_and(|name| name.is_empty()) {
            return Err(invalid(format!("Empty {entity_type} not supported")));
        }
    }
    let Some((_, address)) = entity.iter().find(|(entity_type, _)| *entity_type == IP) else {
        return Ok(USER_AND_CLIENT_LIMITS);
    };
    if entity.len() > 1 {
        return Err(invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ));
    }
    match address {
        // Host names are not resolved, because the controller makes no DNS requests.
        Some(address) if address.parse::<IpAddr>().is_err() => Err(invalid(format!(
            "{address} is not a valid IP or resolvable host."
        ))),
        _ => Ok(IP_LIMITS),
    }
}

fn validate(limits: &[(&str, Limit)], op: &OpData) -> Result<(), ApiError> {
    let key = &op.key;
    let Some((_, limit)) = limits.iter().find(|(known, _)| **known == **key) else {
        return Err(invalid(format!("Invalid configuration key {key}")));
    };
    if !op.value.is_finite() {
        return Err(invalid(format!("Quota {key} must be a finite number")));
    }
    if op.value <= 0.0 {
        return Err(invalid(format!("Quota {key} must be greater than 0")));
    }
    match *limit {
        Limit::Whole(max, kind) if op.value > max => Err(invalid(format!(
            "Proposed value for {key} is too large for {kind}."
        ))),
        Limit::Whole(..) if (op.value % 1.0).abs() > 1e-6 => {
            Err(invalid(format!("{key} cannot be a fractional value.")))
        }
        Limit::Whole(..) | Limit::Any => Ok(()),
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message)
}

/// Formatted like Java's `ClientQuotaEntity`.
fn shown(entity: &QuotaEntity) -> String {
    let parts: Vec<String> = entity
        .iter()
        .map(|(entity_type, name)| format!("{entity_type}={}", name.as_deref().unwrap_or("null")))
        .collect();
    format!("ClientQuotaEntity(entries={{{}}})", parts.join(", "))
}

fn result(entity: &QuotaEntity, error: &ApiError) -> alter_client_quotas_response::EntryData {
    let part = |(entity_type, entity_name): &(ByteString, Option<ByteString>)| {
        alter_client_quotas_response::EntityData {
            entity_type: entity_type.clone(),
            entity_name: entity_name.clone(),
            ..Default::default()
        }
    };
    alter_client_quotas_response::EntryData {
        error_code: error.code.code(),
        error_message: error.wire_message(),
        entity: entity.iter().map(part).collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
