//! `AlterUserScramCredentials`: the SCRAM credentials of users (KIP-554).
//!
//! The request contains the salted password. Only the two keys derived from it are stored, from
//! which it cannot be recovered.
//!
//! In Kafka: `ScramControlManager`, `ScramFormatter`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use ottla_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
};
use ottla_protocol::metadata_records::{
    MetadataRecord, RemoveUserScramCredentialRecord, UserScramCredentialRecord,
};
use ottla_sasl::ScramMechanism;
use ottla_types::ErrorCode;

use crate::decision::{ApiError, ControllerContext, Decision};

const MIN_ITERATIONS: i32 = ScramMechanism::MIN_ITERATIONS as i32;
const MAX_ITERATIONS: i32 = ScramMechanism::MAX_ITERATIONS as i32;

/// A change that has passed the checks so far.
enum Change<'a> {
    Delete(&'a ScramCredentialDeletion),
    Upsert(&'a ScramCredentialUpsertion),
}

pub fn alter_user_scram_credentials(
    context: &ControllerContext<'_>,
    request: &AlterUserScramCredentialsRequest,
) -> Decision<AlterUserScramCredentialsResponse> {
    let deletions = request.deletions.iter().map(Change::Delete);
    let upsertions = request.upsertions.iter().map(Change::Upsert);
    let mut changes: Vec<(&ByteString, Change<'_>)> = Vec::new();
    let mut changed: BTreeSet<&ByteString> = BTreeSet::new();
    let mut errors: BTreeMap<&ByteString, ApiError> = BTreeMap::new();
    for change in deletions.chain(upsertions) {
        let user = change.user();
        if errors.contains_key(user) {
            continue;
        }
        if changed.remove(user) {
            changes.retain(|(other, _)| *other != user);
            errors.insert(
                user,
                ApiError::new(
                    ErrorCode::DuplicateResource,
                    "A user credential cannot be altered twice in the same request",
                ),
            );
            continue;
        }
        match change.validate(context) {
            Ok(()) => {
                changed.insert(user);
                changes.push((user, change));
            }
            Err(error) => drop(errors.insert(user, error)),
        }
    }
    let mut records = Vec::new();
    let mut results = Vec::new();
    for (user, change) in changes {
        match change.record() {
            Some(record) => {
                records.push(record);
                results.push(result(user, &ApiError::NONE));
            }
            // An empty salted password, which Java's cryptography refuses as a key.
            None => drop(errors.insert(user, ApiError::bare(ErrorCode::UnknownServerError))),
        }
    }
    results.extend(errors.iter().map(|(user, error)| result(user, error)));
    let response = AlterUserScramCredentialsResponse {
        results,
        ..Default::default()
    };
    Decision::new(records, response)
}

impl<'a> Change<'a> {
    fn user(&self) -> &'a ByteString {
        match self {
            Change::Delete(deletion) => &deletion.name,
            Change::Upsert(upsertion) => &upsertion.name,
        }
    }

    fn validate(&self, context: &ControllerContext<'_>) -> Result<(), ApiError> {
        if !context.metadata_version().is_scram_supported() {
            return Err(ApiError::new(
                ErrorCode::UnsupportedVersion,
                "The current metadata.version does not support SCRAM",
            ));
        }
        if self.user().is_empty() {
            return Err(unacceptable("Username must not be empty"));
        }
        let mechanism = match self {
            Change::Delete(deletion) => deletion.mechanism,
            Change::Upsert(upsertion) => upsertion.mechanism,
        };
        if ScramMechanism::from_code(mechanism).is_none() {
            return Err(ApiError::new(
                ErrorCode::UnsupportedSaslMechanism,
                "Unknown SCRAM mechanism",
            ));
        }
        match self {
            Change::Delete(deletion) => {
                match context.image.kept.scram.get(mechanism, &deletion.name) {
                    Some(_) => Ok(()),
                    None => Err(ApiError::new(
                        ErrorCode::ResourceNotFound,
                        "Attempt to delete a user credential that does not exist",
                    )),
                }
            }
            Change::Upsert(upsertion) if upsertion.iterations < MIN_ITERATIONS => {
                Err(unacceptable("Too few iterations"))
            }
            Change::Upsert(upsertion) if upsertion.iterations > MAX_ITERATIONS => {
                Err(unacceptable("Too many iterations"))
            }
            Change::Upsert(_) => Ok(()),
        }
    }

    fn record(&self) -> Option<MetadataRecord> {
        match self {
            Change::Delete(deletion) => Some(MetadataRecord::RemoveUserScramCredential(
                RemoveUserScramCredentialRecord {
                    name: deletion.name.clone(),
                    mechanism: deletion.mechanism,
                    ..Default::default()
                },
            )),
            Change::Upsert(upsertion) => {
                if upsertion.salted_password.is_empty() {
                    return None;
                }
                let mechanism = ScramMechanism::from_code(upsertion.mechanism)?;
                let keys = mechanism.keys(&upsertion.salted_password);
                Some(MetadataRecord::UserScramCredential(
                    UserScramCredentialRecord {
                        name: upsertion.name.clone(),
                        mechanism: upsertion.mechanism,
                        salt: upsertion.salt.clone(),
                        stored_key: keys.stored_key.into(),
                        server_key: keys.server_key.into(),
                        iterations: upsertion.iterations,
                        ..Default::default()
                    },
                ))
            }
        }
    }
}

fn unacceptable(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::UnacceptableCredential, message)
}

fn result(user: &ByteString, error: &ApiError) -> AlterUserScramCredentialsResult {
    AlterUserScramCredentialsResult {
        user: user.clone(),
        error_code: error.code.code(),
        error_message: error.wire_message(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
