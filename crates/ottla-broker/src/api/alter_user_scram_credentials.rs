//! AlterUserScramCredentials (KIP-554): forwarded to the controller. Kafka:
//! `ControllerApis.handleAlterUserScramCredentials`.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use ottla_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
};

use ottla_net::RequestContext;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    let deleted = request.deletions.iter().map(|deletion| &deletion.name);
    let upserted = request.upsertions.iter().map(|upsertion| &upsertion.name);
    let users: BTreeSet<_> = deleted.chain(upserted).cloned().collect();
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => AlterUserScramCredentialsResponse {
            results: users
                .into_iter()
                .map(|user| AlterUserScramCredentialsResult {
                    user,
                    error_code: error.code(),
                    error_message: denial_message(context, error),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
    }
}
