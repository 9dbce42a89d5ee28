//! What a listener asks of OAuth tokens, and where the keys of their issuer are.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::secret::Secret;

/// How a listener checks tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenValidator {
    /// By their signatures.
    Signed { keys: KeySource, rules: TokenRules },
    /// Not at all: whoever makes a token is believed.
    Unsecured(UnsecuredRules),
}

/// `sasl.oauthbearer.jwks.endpoint.*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySource {
    /// `http:`, `https:` or `file:`.
    pub url: String,
    pub refresh: Duration,
    pub retry_backoff: Duration,
    pub retry_backoff_max: Duration,
    /// `ssl.*` of the JAAS entry: how the server at an `https:` URL is recognised.
    pub ssl: BTreeMap<String, Secret>,
}

/// What a signed token has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// `sasl.oauthbearer.expected.audience`: one of them has to be in the token.
    pub audiences: Vec<String>,
    /// `sasl.oauthbearer.expected.issuer`.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.scope.claim.name`.
    pub scope_claim: String,
    /// `sasl.oauthbearer.sub.claim.name`: who it is.
    pub sub_claim: String,
    /// `sasl.oauthbearer.clock.skew.seconds`.
    pub clock_skew_seconds: u32,
}

/// What a token without a signature has to say: the options of the JAAS entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsecuredRules {
    /// `unsecuredValidatorPrincipalClaimName`.
    pub principal_claim: String,
    /// `unsecuredValidatorScopeClaimName`.
    pub scope_claim: String,
    /// `unsecuredValidatorRequiredScope`, all of which it needs.
    pub required_scopes: Vec<String>,
    /// `unsecuredValidatorAllowableClockSkewMs`.
    pub clock_skew_ms: i64,
}
