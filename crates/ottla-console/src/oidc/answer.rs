//! The provider's responses: its discovery document, and the responses of its token endpoint.

use std::time::Duration;

use ottla_sasl::Secret;
use ottla_sasl::oauth_token::read_own;
use serde::Deserialize;
use serde_json::Value;

use super::config::check_url;

/// Of one token.
const MOST_TOKEN_BYTES: usize = 64 << 10;
/// The minimum and maximum time for which an access token counts as valid, and the default if the response has no time.
/// Only the replacement depends on these times; brokers check the token themselves.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const UNKNOWN: Duration = Duration::from_secs(5 * 60);

/// The discovery document (OpenID Connect Discovery 1.0, 3).
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) end_session_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    /// Whether every answer names the provider (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

impl Metadata {
    /// The document of this issuer.
    pub(super) fn parse(body: &str, issuer: &str) -> Result<Metadata, String> {
        let metadata: Metadata = serde_json::from_str(body).map_err(|error| {
            let error = shown(&error.to_string());
            format!("its discovery document cannot be read: {error}")
        })?;
        if metadata.issuer != issuer {
            return Err(format!(
                "its discovery document is of the issuer {}; give the issuer exactly so, if that is the right one",
                shown(&metadata.issuer)
            ));
        }
        let always = [
            ("authorization_endpoint", &metadata.authorization_endpoint),
            ("token_endpoint", &metadata.token_endpoint),
            ("jwks_uri", &metadata.jwks_uri),
        ];
        let perhaps = [
            ("revocation_endpoint", &metadata.revocation_endpoint),
            ("end_session_endpoint", &metadata.end_session_endpoint),
        ];
        let perhaps = perhaps
            .into_iter()
            .filter_map(|(name, url)| Some((name, url.as_ref()?)));
        for (name, url) in always.into_iter().chain(perhaps) {
            let is_downgrade = issuer.starts_with("https:") && !url.starts_with("https:");
            let checked = match is_downgrade {
                true => Err("the issuer has https, so it must have https too"),
                false => check_url(url),
            };
            checked.map_err(|reason| {
                format!("its discovery document has {name}={}: {reason}", shown(url))
            })?;
        }
        let methods = &metadata.code_challenge_methods_supported;
        if methods
            .as_ref()
            .is_some_and(|all| !all.iter().any(|it| it == "S256"))
        {
            return Err("it does not support PKCE with S256, which logins require".into());
        }
        Ok(metadata)
    }

    /// Whether the client's secret is sent in the body of a request, and not in a header.
    pub(super) fn takes_secret_in_body(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_deref();
        let has = |name: &str| methods.unwrap_or_default().iter().any(|it| it == name);
        has("client_secret_post") && !has("client_secret_basic")
    }
}

/// The tokens from the token endpoint for a code or a refresh token.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) access: Secret,
    pub(crate) id: Option<Secret>,
    pub(crate) refresh: Option<Secret>,
    /// How long the access token is valid.
    pub(crate) lasts: Duration,
}

impl Tokens {
    pub(super) fn parse(body: &str, now_ms: i64) -> Result<Tokens, String> {
        let answer: Value = serde_json::from_str(body)
            .map_err(|_| "its tokens cannot be read: no JSON".to_owned())?;
        let kind = answer
            .get("token_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if !kind.eq_ignore_ascii_case("Bearer") {
            return Err(format!(
                "its token is of the type {}, not Bearer",
                shown(kind)
            ));
        }
        let token = |name: &str| match answer.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if is_token(text) => Ok(Some(Secret::new(text.as_str()))),
            Some(_) => Err(format!("its {name} is no token of at most 64 KiB")),
        };
        let access = token("access_token")?.ok_or("it gives no access token")?;
        let lasts = match answer.get("expires_in").and_then(Value::as_f64) {
            Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(UNKNOWN),
            None => read_own(access.expose(), "sub", "scope").map_or(UNKNOWN, |it| {
                let left_ms = it.expires_at_ms.saturating_sub(now_ms);
                Duration::from_millis(left_ms.try_into().unwrap_or(0))
            }),
        };
        Ok(Tokens {
            access,
            id: token("id_token")?,
            refresh: token("refresh_token")?,
            lasts: lasts.clamp(SHORTEST, LONGEST),
        })
    }
}

/// Tokens are visible characters. A control character would add to the message of a login with SASL (RFC 7628).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MOST_TOKEN_BYTES
        && text.bytes().all(|it| it.is_ascii_graphic())
}

/// Shortens and escapes text of the provider.
pub(crate) fn shown(text: &str) -> String {
    let start: String = text.chars().take(200).collect();
    start.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://id.example";

    fn document(changes: Value) -> String {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example/authorize",
            "token_endpoint": "https://id.example/token",
            "jwks_uri": "https://id.example/keys",
            "code_challenge_methods_supported": ["plain", "S256"],
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        document.to_string()
    }

    #[test]
    fn a_discovery_document_is_of_its_issuer_and_leads_nowhere_else_than_to_https() {
        let parse = |changes: Value| Metadata::parse(&document(changes), ISSUER);
        assert!(!parse(json!({})).unwrap().takes_secret_in_body());
        let methods = "token_endpoint_auth_methods_supported";
        let of = |all: &[&str]| {
            parse(json!({ (methods): all }))
                .unwrap()
                .takes_secret_in_body()
        };
        assert!(of(&["client_secret_post"]));
        assert!(!of(&["client_secret_post", "client_secret_basic"]));
        for (changes, says) in [
            (
                json!({ "issuer": "https://other.example" }),
                "other.example",
            ),
            (
                json!({ "authorization_endpoint": "javascript:alert(1)" }),
                "authorization_endpoint",
            ),
            (json!({ "token_endpoint": "http://id.example/" }), "https"),
            // What listens on this machine is not the provider's to ask.
            (
                json!({ "jwks_uri": "http://127.0.0.1:8083/" }),
                "the issuer has https",
            ),
            (json!({ "jwks_uri": 1 }), "cannot be read"),
            (
                json!({ "token_endpoint_auth_methods_supported": "x".repeat(100_000) }),
                "cannot be read",
            ),
            (json!({ "end_session_endpoint": "//evil" }), "end_session"),
            (
                json!({ "code_challenge_methods_supported": ["plain"] }),
                "S256",
            ),
        ] {
            let refused = parse(changes).unwrap_err();
            assert!(refused.contains(says) && refused.len() < 1000, "{refused}");
        }
        for body in ["", "[]", "{}", "<html>"] {
            assert!(Metadata::parse(body, ISSUER).is_err());
        }
    }

    fn tokens(changes: Value) -> Result<Tokens, String> {
        let mut answer = json!({ "access_token": "a.b.c", "token_type": "bearer" });
        for (name, value) in changes.as_object().unwrap() {
            answer[name] = value.clone();
        }
        Tokens::parse(&answer.to_string(), 0)
    }

    #[test]
    fn an_answer_with_tokens_is_bounded() {
        let plain = tokens(json!({})).unwrap();
        assert!(plain.id.is_none() && plain.refresh.is_none());
        assert_eq!((plain.access.expose(), plain.lasts), ("a.b.c", UNKNOWN));
        for (seconds, lasts) in [
            (json!(300), Duration::from_secs(300)),
            (json!(0), SHORTEST),
            (json!(1e300), UNKNOWN),
            (json!(-5), UNKNOWN),
            (json!(1e9), LONGEST),
            (json!("300"), UNKNOWN),
        ] {
            assert_eq!(
                tokens(json!({ "expires_in": seconds })).unwrap().lasts,
                lasts
            );
        }
        for changes in [
            json!({ "access_token": null }),
            json!({ "access_token": "" }),
            json!({ "access_token": "a\u{1}auth=b" }),
            json!({ "access_token": "a b" }),
            json!({ "access_token": ["a"] }),
            json!({ "access_token": "a".repeat(MOST_TOKEN_BYTES + 1) }),
            json!({ "refresh_token": "a\n" }),
            json!({ "id_token": 7 }),
            json!({ "token_type": "mac" }),
            json!({ "token_type": null }),
        ] {
            let refused = tokens(changes).unwrap_err();
            assert!(refused.len() < 400, "{refused}");
        }
        assert!(Tokens::parse("<html>", 0).is_err());
    }
}
