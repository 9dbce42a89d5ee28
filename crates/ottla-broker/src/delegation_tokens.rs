//! Checks for requests about delegation tokens (KIP-48).
//!
//! Kafka: `KafkaApis.allowTokenRequests`, `ControllerApis.allowTokenRequests`.

use bytestring::ByteString;
use ottla_config::SecurityProtocol;
use ottla_net::RequestContext;
use ottla_security::Principal;

/// Kafka's value for a missing timestamp.
pub(crate) const NO_TIME: i64 = -1;

/// Whether a client may send such requests: it must be authenticated, and not by a token. For a
/// forwarded request, only the principal is known.
pub(crate) fn may_ask_about_tokens(context: &RequestContext) -> bool {
    if context.principal().is_token_authenticated() {
        return false;
    }
    let is_anonymous = *context.principal() == Principal::anonymous();
    context.is_forwarded
        || match context.listener().protocol {
            SecurityProtocol::Plaintext => false,
            SecurityProtocol::Ssl => !is_anonymous,
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => true,
        }
}

/// The type and the name of a principal.
pub(crate) fn parts(principal: &str) -> (ByteString, ByteString) {
    let (principal_type, name) = principal.split_once(':').unwrap_or(("", principal));
    (principal_type.into(), name.into())
}
