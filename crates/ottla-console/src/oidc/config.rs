//! The address of the identity provider, and the console's registration there.

use std::collections::BTreeMap;

use ottla_sasl::Secret;

use crate::host::{is_loopback, without_port};

const MOST_URL_BYTES: usize = 2048;
const MOST_SKEW_SECONDS: u32 = 600;
const KEYS: &str =
    "client.secret, scope, user.claim, clock.skew.seconds, audience, resource and ssl.*";

/// An identity provider, at which the console is registered as a client with the redirect URI
/// `https://PUBLIC-NAME/login`.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    /// As the provider spells it: its tokens and its discovery document name it.
    pub(super) issuer: String,
    pub(super) client_id: String,
    /// Without it, the console is a public client.
    pub(super) client_secret: Option<Secret>,
    pub(super) scope: String,
    /// The claim of the ID token with the user name.
    pub(super) user_claim: String,
    pub(super) clock_skew_seconds: u32,
    /// `audience` and `resource`, with which a client names the target of the access token at some
    /// providers.
    pub(super) access: Vec<(&'static str, String)>,
    /// `ssl.*`, as for clients of Kafka.
    pub(super) ssl: BTreeMap<String, Secret>,
}

impl OidcConfig {
    /// `settings` come from the client's file. The error is a sentence for people, without a
    /// secret.
    pub fn new(
        issuer: &str,
        client_id: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<OidcConfig, String> {
        let issuer = issuer.trim();
        if issuer.contains('@') {
            // The user and the password are not repeated.
            return Err("the issuer contains credentials; give its URL without them".into());
        }
        check_url(issuer).map_err(|reason| format!("issuer {issuer}: {reason}"))?;
        if issuer.contains('?') {
            return Err(format!("issuer {issuer}: give it without a query"));
        }
        let client_id = client_id.trim();
        if client_id.is_empty() {
            return Err("the client ID is empty; give that of the console at the provider".into());
        }
        let mut config = OidcConfig {
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: None,
            scope: "openid".to_owned(),
            user_claim: "sub".to_owned(),
            clock_skew_seconds: 30,
            access: Vec::new(),
            ssl: BTreeMap::new(),
        };
        for (key, value) in settings {
            let value = value.trim();
            let given = || match value.is_empty() {
                true => Err(format!(
                    "{key}: the value is empty; give one, or leave the key out"
                )),
                false => Ok(value.to_owned()),
            };
            match key.as_str() {
                "client.secret" => config.client_secret = Some(Secret::new(given()?)),
                "scope" => {
                    let scope = given()?;
                    if !scope.split_whitespace().any(|it| it == "openid") {
                        return Err(format!(
                            "scope={value}: openid is missing; without it there is no ID token"
                        ));
                    }
                    config.scope = scope;
                }
                "user.claim" => config.user_claim = given()?,
                "clock.skew.seconds" => {
                    let seconds = value.parse::<u32>().ok();
                    let seconds = seconds.filter(|it| *it <= MOST_SKEW_SECONDS);
                    config.clock_skew_seconds = seconds.ok_or_else(|| {
                        format!("{key}={value}: give a number of seconds, 0 to {MOST_SKEW_SECONDS}")
                    })?;
                }
                "audience" => config.access.push(("audience", given()?)),
                "resource" => config.access.push(("resource", given()?)),
                _ if key.starts_with("ssl.") => {
                    config.ssl.insert(key.clone(), Secret::new(value));
                }
                _ => {
                    return Err(format!(
                        "{key}: not a setting of an identity provider; accepted are {KEYS}"
                    ));
                }
            }
        }
        Ok(config)
    }

    /// What people know the provider by.
    pub(crate) fn host(&self) -> &str {
        host_of(&self.issuer).unwrap_or(&self.issuer)
    }
}

/// Refuses a URL to which secrets and browsers must not be sent.
pub(super) fn check_url(url: &str) -> Result<(), &'static str> {
    if url.len() > MOST_URL_BYTES {
        return Err("the URL is longer than 2048 bytes");
    }
    let is_plain = |it: u8| it.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&it);
    let Some(host) = host_of(url).filter(|_| url.bytes().all(is_plain)) else {
        return Err("not a URL; give https://HOST/… without a fragment and without credentials");
    };
    match url.starts_with("https://") || is_loopback(without_port(host)) {
        true => Ok(()),
        false => Err("give a URL with https; http is for this machine only"),
    }
}

/// The host with its port, of a URL with http or https and without credentials.
fn host_of(url: &str) -> Option<&str> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split(['/', '?']).next()?;
    (!without_port(host).is_empty() && !host.contains('@')).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Result<OidcConfig, String> {
        let settings = settings.iter();
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        OidcConfig::new("https://id.example/realm", "console", &settings.collect())
    }

    #[test]
    fn missing_values_have_defaults() {
        let plain = config(&[]).unwrap();
        assert_eq!((plain.host(), &*plain.scope), ("id.example", "openid"));
        assert_eq!((&*plain.user_claim, plain.clock_skew_seconds), ("sub", 30));
        let full = config(&[
            ("client.secret", "hush"),
            ("scope", "profile openid"),
            ("user.claim", "email"),
            ("clock.skew.seconds", "0"),
            ("resource", "urn:kafka"),
            ("ssl.truststore.location", "/trust.pem"),
        ])
        .unwrap();
        assert_eq!(full.client_secret.as_ref().unwrap().expose(), "hush");
        assert_eq!(full.access, [("resource", "urn:kafka".to_owned())]);
        assert!(full.ssl.contains_key("ssl.truststore.location"));
        assert!(!format!("{full:?}").contains("hush"));
    }

    #[test]
    fn wrong_settings_are_named() {
        for (key, value) in [
            ("client.secrets", "hush"),
            ("client.secret", " "),
            ("scope", "profile"),
            ("clock.skew.seconds", "601"),
            ("clock.skew.seconds", "-1"),
            ("user.claim", ""),
        ] {
            let refused = config(&[(key, value)]).unwrap_err();
            assert!(refused.contains(key), "{refused}");
            assert!(!refused.contains("hush"), "{refused}");
        }
        let refused = OidcConfig::new("https://ann:hush@id.example", "c", &BTreeMap::new());
        assert!(!refused.unwrap_err().contains("hush"));
        let refused = OidcConfig::new("https://id.example", " ", &BTreeMap::new());
        assert!(refused.unwrap_err().contains("client ID"));
    }

    #[test]
    fn secrets_and_browsers_go_to_https_or_stay_on_this_machine() {
        for url in [
            "https://id.example",
            "https://id.example:8443/a?b=c",
            "http://127.0.0.1:9/a",
            "http://localhost",
            "http://[::1]:80/a",
        ] {
            check_url(url).unwrap();
        }
        let long = format!("https://id.example/{}", "a".repeat(MOST_URL_BYTES));
        for url in [
            "",
            "id.example",
            "http://id.example",
            "http://localhost.evil.example",
            "javascript:alert(1)",
            "https://",
            "https://:443/a",
            "https://ann:secret@id.example",
            "https://id.example\\@evil.example",
            "https://id.example/a#b",
            "https://id.example/ä",
            "https://id.example/a b",
            "https://id.example/\r\nX: 1",
            &long,
        ] {
            assert!(check_url(url).is_err(), "{url}");
        }
    }
}
