//! The rules of a listener for OAuth tokens, and the location of the issuer's keys.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::secret::Secret;

/// How a listener validates tokens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenValidator {
    /// By their signature.
    Signed { keys: KeySource, rules: TokenRules },
    /// Without a signature: any client can create a valid token.
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
    /// `ssl.*` of the JAAS entry: how the server of an `https:` URL is authenticated.
    pub ssl: BTreeMap<String, Secret>,
}

/// The required claims of a signed token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRules {
    /// `sasl.oauthbearer.expected.audience`: the token must contain one of them.
    pub audiences: Vec<String>,
    /// `sasl.oauthbearer.expected.issuer`.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.scope.claim.name`.
    pub scope_claim: String,
    /// `sasl.oauthbearer.sub.claim.name`: the claim with the name of the principal.
    pub sub_claim: String,
    /// `sasl.oauthbearer.clock.skew.seconds`.
    pub clock_skew_seconds: u32,
}

/// The required claims of an unsigned token: the options of the JAAS entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsecuredRules {
    /// `unsecuredValidatorPrincipalClaimName`.
    pub principal_claim: String,
    /// `unsecuredValidatorScopeClaimName`.
    pub scope_claim: String,
    /// `unsecuredValidatorRequiredScope`: the token must contain all of them.
    pub required_scopes: Vec<String>,
    /// `unsecuredValidatorAllowableClockSkewMs`.
    pub clock_skew_ms: i64,
}

/// The path in a URL with `file:`; `None` for another scheme. As in Kafka, which takes the raw path of a
/// `java.net.URL`, the name of a host before the path is skipped, and `%20` is not decoded.
pub fn path_of_file_url(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("file:")?;
    match rest.strip_prefix("//") {
        Some(host_and_path) => {
            let path = host_and_path.find('/').unwrap_or(host_and_path.len());
            Some(&host_and_path[path..])
        }
        None => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_url_begins_after_its_host() {
        for (url, path) in [
            ("file:///etc/keys.json", Some("/etc/keys.json")),
            ("file:/etc/keys.json", Some("/etc/keys.json")),
            ("file://localhost/etc/keys.json", Some("/etc/keys.json")),
            ("file://host/a//b%20c", Some("/a//b%20c")),
            ("file://host", Some("")),
            ("https://issuer/keys", None),
        ] {
            assert_eq!(path_of_file_url(url), path, "{url}");
        }
    }
}
