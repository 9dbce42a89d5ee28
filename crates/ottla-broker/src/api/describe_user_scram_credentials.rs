//! DescribeUserScramCredentials (KIP-554): the users with SCRAM credentials, without the
//! credentials themselves.
//!
//! Kafka: `ScramImage.describe`.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use ottla_protocol::messages::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use ottla_types::ErrorCode;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    if let Err(error) = broker.authorize(context) {
        // As in Kafka, the results do not contain the users' names.
        let refused = DescribeUserScramCredentialsResult::of_error(error);
        let asked = request.users.map_or(0, |users| users.len());
        return DescribeUserScramCredentialsResponse {
            error_code: error.code(),
            error_message: None,
            results: vec![refused; asked],
            ..Default::default()
        };
    }
    let image = broker.metadata();
    let mut known: BTreeMap<_, Vec<CredentialInfo>> = BTreeMap::new();
    for credential in image.kept.scram.iter() {
        known
            .entry(&credential.name)
            .or_default()
            .push(CredentialInfo {
                mechanism: credential.mechanism,
                iterations: credential.iterations,
                ..Default::default()
            });
    }
    // Each user once, and how often the request names it.
    let mut users: BTreeMap<_, usize> = BTreeMap::new();
    match request.users.as_deref() {
        None | Some([]) => users.extend(known.keys().map(|&user| (user, 1))),
        Some(asked) => {
            for user in asked {
                *users.entry(&user.name).or_default() += 1;
            }
        }
    }
    let results = users.into_iter().map(|(user, times)| {
        let (error, message, credential_infos) = match known.remove(user) {
            _ if times > 1 => (
                ErrorCode::DuplicateResource,
                Some("Cannot describe SCRAM credentials for the same user twice in a single request: "),
                Vec::new(),
            ),
            Some(credentials) => (ErrorCode::None, None, credentials),
            None => (
                ErrorCode::ResourceNotFound,
                Some("Attempt to describe a user credential that does not exist: "),
                Vec::new(),
            ),
        };
        DescribeUserScramCredentialsResult {
            user: user.clone(),
            error_code: error.code(),
            error_message: message.map(|message| format!("{message}{user}").into()),
            credential_infos,
            ..Default::default()
        }
    });
    DescribeUserScramCredentialsResponse {
        error_message: None,
        results: results.collect(),
        ..Default::default()
    }
}
