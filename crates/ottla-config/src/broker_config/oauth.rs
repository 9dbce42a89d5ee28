//! How a listener with OAUTHBEARER validates tokens, and how a node gets its own tokens for logins to
//! other nodes.
//!
//! A setting may be given for all listeners, for one
//! (`listener.name.<listener>.sasl.oauthbearer.…`), or for the mechanism of one
//! (`listener.name.<listener>.oauthbearer.sasl.oauthbearer.…`). The last form takes precedence.
//!
//! Kafka: `OAuthBearerValidatorCallbackHandler`, `DefaultJwtValidator`, `ConfigurationUtils`. In
//! Kafka, a listener without a handler accepts unsigned tokens; here that must be configured
//! explicitly.

use std::time::Duration;

use ottla_sasl::jaas::LoginModule;
use ottla_sasl::{KeySource, Secret, TokenRules, TokenSource, TokenValidator, UnsecuredRules};

use super::values::Values;
use crate::config_def::{ConfigValue, split_list};
use crate::tables::broker_config;

const HANDLER_KEY: &str = "sasl.server.callback.handler.class";
const URL_KEY: &str = "sasl.oauthbearer.jwks.endpoint.url";

/// The supported handler classes of Kafka, and their meaning.
const SIGNED_HANDLERS: &[&str] = &[
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
];
const UNSECURED_HANDLER: &str = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.\
                                 OAuthBearerUnsecuredValidatorCallbackHandler";

/// An unusable setting: its key, and a message.
pub(super) type Problem = (String, String);

/// The OAUTHBEARER settings of one listener.
pub(super) struct OAuthSettings<'a> {
    pub values: &'a Values<'a>,
    /// `listener.name.<listener>.`
    pub prefix: &'a str,
    pub module: Option<&'a LoginModule>,
}

impl OAuthSettings<'_> {
    pub fn validator(&self) -> Result<TokenValidator, Problem> {
        let key = format!("{}oauthbearer.{HANDLER_KEY}", self.prefix);
        match self.values.text(&key).map(str::trim) {
            Some(UNSECURED_HANDLER) => Ok(TokenValidator::Unsecured(self.unsecured_rules()?)),
            Some(class) if SIGNED_HANDLERS.contains(&class) => self.signed(),
            Some(other) => Err((
                key.clone(),
                format!(
                    "{key}={other}: it is a Java class, which Ottla cannot load; give {}",
                    SIGNED_HANDLERS[0]
                ),
            )),
            None => Err((
                key.clone(),
                format!(
                    "{key} is missing, and Kafka's default accepts unsigned tokens; give {key}={} and \
                     {URL_KEY}, or {UNSECURED_HANDLER} if clients may claim any name",
                    SIGNED_HANDLERS[0]
                ),
            )),
        }
    }

    fn signed(&self) -> Result<TokenValidator, Problem> {
        let (key, url) = self.text(URL_KEY);
        let url = url.unwrap_or_default();
        if url.is_empty() {
            let message = format!(
                "{key} is missing: tokens are checked with the keys there; give the jwks_uri of the issuer, or \
                 file:///path"
            );
            return Err((key, message));
        }
        let is_known = ["http://", "https://", "file:"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        if !is_known {
            let message = format!("{key}={url}: give a URL with https, http or file");
            return Err((key, message));
        }
        let ms = |key: &str| Duration::from_millis(self.number(key).max(0) as u64);
        let options = self.module.into_iter().flat_map(LoginModule::options);
        let ssl = options.filter(|(name, _)| name.starts_with("ssl."));
        let keys = KeySource {
            url,
            refresh: ms("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_backoff: ms("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            retry_backoff_max: ms("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
            ssl: ssl
                .map(|(name, value)| (name.to_owned(), Secret::new(value)))
                .collect(),
        };
        let (_, audiences) = self.text("sasl.oauthbearer.expected.audience");
        let (_, issuer) = self.text("sasl.oauthbearer.expected.issuer");
        let skew = self.number("sasl.oauthbearer.clock.skew.seconds");
        let rules = TokenRules {
            audiences: split_list(audiences.as_deref().unwrap_or_default()),
            issuer: issuer.filter(|issuer| !issuer.is_empty()),
            scope_claim: self.claim_name("sasl.oauthbearer.scope.claim.name")?,
            sub_claim: self.claim_name("sasl.oauthbearer.sub.claim.name")?,
            clock_skew_seconds: u32::try_from(skew).unwrap_or(0),
        };
        Ok(TokenValidator::Signed { keys, rules })
    }

    /// The source of this node's own tokens. A key in the error is as it was given.
    pub fn source(&self) -> Result<TokenSource, Problem> {
        let lookup = |name: &str| self.text(name).1;
        TokenSource::read(lookup, self.module).map_err(|(name, message)| {
            let (key, _) = match name.as_str() {
                "sasl.jaas.config" => (format!("{}oauthbearer.{name}", self.prefix), None),
                name => self.text(name),
            };
            let message = match message.strip_prefix(&name) {
                Some(rest) => format!("{key}{rest}"),
                None => message,
            };
            (key, message)
        })
    }

    fn unsecured_rules(&self) -> Result<UnsecuredRules, Problem> {
        let option = |name: &str| {
            let value = self.module.and_then(|module| module.option(name));
            value.map(str::trim).filter(|value| !value.is_empty())
        };
        let skew = option("unsecuredValidatorAllowableClockSkewMs");
        let clock_skew_ms = match skew.map(str::parse) {
            None => 0,
            Some(Ok(ms @ 0..)) => ms,
            Some(_) => {
                let key = format!("{}oauthbearer.sasl.jaas.config", self.prefix);
                let message = format!(
                    "{key}: unsecuredValidatorAllowableClockSkewMs is not a number of milliseconds, 0 or more"
                );
                return Err((key, message));
            }
        };
        let required = option("unsecuredValidatorRequiredScope").unwrap_or_default();
        let name = |key, default: &str| option(key).unwrap_or(default).to_owned();
        Ok(UnsecuredRules {
            principal_claim: name("unsecuredValidatorPrincipalClaimName", "sub"),
            scope_claim: name("unsecuredValidatorScopeClaimName", "scope"),
            required_scopes: required.split_whitespace().map(str::to_owned).collect(),
            clock_skew_ms,
        })
    }

    fn claim_name(&self, name: &str) -> Result<String, Problem> {
        let (key, text) = self.text(name);
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Ok(text),
            None => {
                let message = format!("{key} is empty; give the name of a claim, or leave it out");
                Err((key, message))
            }
        }
    }

    /// The key under which a setting is given for the listener, or its name, and the value or the
    /// default.
    fn text(&self, name: &str) -> (String, Option<String>) {
        let keys = [
            format!("{}oauthbearer.{name}", self.prefix),
            format!("{}{name}", self.prefix),
            name.to_owned(),
        ];
        let given = keys.into_iter().find(|key| self.values.is_given(key));
        match given {
            Some(key) => {
                let value = self.values.text(&key).map(|text| text.trim().to_owned());
                (key, value)
            }
            None => {
                let default = broker_config(name).and_then(|def| def.default_value());
                let value = match default {
                    Some(ConfigValue::Text(text)) => Some(text),
                    _ => None,
                };
                (name.to_owned(), value)
            }
        }
    }

    /// The value of a numeric setting. All settings were validated, including those with the prefix
    /// of a listener.
    fn number(&self, name: &str) -> i64 {
        let (_, text) = self.text(name);
        let given = text.and_then(|text| text.parse().ok());
        let default = || match broker_config(name).and_then(|def| def.default_value()) {
            Some(ConfigValue::Integer(number)) => number,
            _ => 0,
        };
        given.unwrap_or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use ottla_sasl::{PeerCredentials, TokenGrant, TokenPlace};

    use super::*;
    use crate::broker_config::BrokerConfig;
    use crate::properties::Properties;

    const NODE: &str = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
                        listeners=OUT://localhost:9092,IN://localhost:9094,CONTROLLER://localhost:9093\n\
                        inter.broker.listener.name=IN\n\
                        listener.security.protocol.map=OUT:SASL_PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
                        controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/data\n\
                        sasl.enabled.mechanisms=OAUTHBEARER\n";
    const HANDLER: &str = "listener.name.out.oauthbearer.sasl.server.callback.handler.class";

    fn examine(settings: &str) -> (Option<TokenValidator>, Vec<String>) {
        let text = format!("{NODE}{settings}");
        let properties = Properties::parse(&text, "server.properties").unwrap();
        let examined = BrokerConfig::examine(&properties);
        let problems = examined.problems.iter().map(ToString::to_string).collect();
        let config = examined.config.unwrap();
        let listener = config.sasl.listener("OUT").unwrap();
        let mechanism = listener.find("OAUTHBEARER");
        let validator = mechanism.and_then(|it| it.tokens.as_deref().cloned());
        (validator, problems)
    }

    #[test]
    fn the_most_particular_setting_counts() {
        let (validator, problems) = examine(&format!(
            "{HANDLER}={}\n\
             sasl.oauthbearer.jwks.endpoint.url=https://issuer/keys\n\
             sasl.oauthbearer.expected.audience=a, b\n\
             sasl.oauthbearer.sub.claim.name=general\n\
             listener.name.out.sasl.oauthbearer.sub.claim.name=of-listener\n\
             listener.name.out.oauthbearer.sasl.oauthbearer.sub.claim.name=azp\n\
             listener.name.out.sasl.oauthbearer.clock.skew.seconds=5\n\
             listener.name.out.oauthbearer.sasl.jaas.config=\
             org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             ssl.truststore.location=\"/trust.pem\" other=\"x\";\n",
            SIGNED_HANDLERS[0]
        ));
        assert_eq!(problems, Vec::<String>::new());
        let Some(TokenValidator::Signed { keys, rules }) = validator else {
            panic!("{validator:?}");
        };
        assert_eq!(keys.url, "https://issuer/keys");
        assert_eq!(keys.refresh, Duration::from_secs(3600));
        assert_eq!(
            keys.ssl.keys().collect::<Vec<_>>(),
            ["ssl.truststore.location"]
        );
        assert_eq!(
            rules,
            TokenRules {
                audiences: vec!["a".to_owned(), "b".to_owned()],
                issuer: None,
                scope_claim: "scope".to_owned(),
                sub_claim: "azp".to_owned(),
                clock_skew_seconds: 5,
            }
        );
    }

    #[test]
    fn unsigned_tokens_have_to_be_asked_for_by_name() {
        let (validator, problems) = examine("");
        assert_eq!(validator, None);
        assert!(
            problems[0].contains("accepts unsigned tokens"),
            "{problems:?}"
        );
        let (validator, problems) = examine(&format!(
            "{HANDLER}={UNSECURED_HANDLER}\n\
             listener.name.out.oauthbearer.sasl.jaas.config=\
             org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             unsecuredValidatorRequiredScope=\"read write\" unsecuredValidatorAllowableClockSkewMs=\"3000\";\n"
        ));
        assert_eq!(problems, Vec::<String>::new());
        let expected = UnsecuredRules {
            principal_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            required_scopes: vec!["read".to_owned(), "write".to_owned()],
            clock_skew_ms: 3000,
        };
        assert_eq!(validator, Some(TokenValidator::Unsecured(expected)));
    }

    #[test]
    fn a_node_gets_tokens_as_its_settings_say() {
        const MODULE: &str = "listener.name.in.oauthbearer.sasl.jaas.config=\
                              org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";
        let examine = |settings: &str| {
            let node = NODE.replace("IN:PLAINTEXT", "IN:SASL_PLAINTEXT");
            let text = format!(
                "{node}{HANDLER}={UNSECURED_HANDLER}\n{}={UNSECURED_HANDLER}\n\
                 sasl.mechanism.inter.broker.protocol=OAUTHBEARER\n{settings}",
                HANDLER.replace(".out.", ".in.")
            );
            let properties = Properties::parse(&text, "server.properties").unwrap();
            let examined = BrokerConfig::examine(&properties);
            let problems: Vec<_> = examined.problems.iter().map(ToString::to_string).collect();
            let peer = examined.config.unwrap().sasl.peer("IN").cloned();
            (peer, problems)
        };
        let (peer, problems) = examine(&format!(
            "{MODULE} clientId=\"node\" clientSecret=\"hush\" ssl.truststore.location=\"/trust.pem\";\n\
             listener.name.in.oauthbearer.sasl.login.callback.handler.class=\
             org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n\
             sasl.oauthbearer.token.endpoint.url=https://other\n\
             listener.name.in.sasl.oauthbearer.token.endpoint.url=https://issuer/token\n\
             sasl.login.connect.timeout.ms=7\n"
        ));
        assert_eq!(problems, Vec::<String>::new());
        let PeerCredentials::Token(source) = &peer.unwrap().credentials else {
            panic!("no token");
        };
        let TokenPlace::Endpoint(endpoint, grant) = &source.place else {
            panic!("{source:?}");
        };
        let TokenGrant::ClientSecret { id, .. } = &**grant else {
            panic!("{grant:?}");
        };
        assert_eq!((&*endpoint.url, &**id), ("https://issuer/token", "node"));
        assert_eq!(endpoint.connect_timeout, Some(Duration::from_millis(7)));
        assert!(endpoint.ssl.contains_key("ssl.truststore.location"));

        let url = "sasl.oauthbearer.token.endpoint.url=https://issuer/token\n";
        for (settings, says) in [
            (
                format!("{MODULE};\n"),
                "sasl.oauthbearer.token.endpoint.url is missing",
            ),
            (
                format!("{MODULE};\n{url}"),
                "client.credentials.client.id is missing",
            ),
            (
                format!(
                    "{MODULE};\nlistener.name.in.{}",
                    url.replace("https", "ftp")
                ),
                "listener.name.in.sasl.oauthbearer.token.endpoint.url=ftp://issuer/token: give a URL",
            ),
            (
                format!(
                    "{MODULE};\n{url}sasl.oauthbearer.jwt.retriever.class=com.example.Retriever\n"
                ),
                "Java class",
            ),
        ] {
            let (peer, problems) = examine(&settings);
            assert!(peer.is_none() || says == "Java class");
            assert!(
                problems.iter().any(|it| it.contains(says)),
                "{says}: {problems:#?}"
            );
        }
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        let signed = format!("{HANDLER}={}\n", SIGNED_HANDLERS[0]);
        for (settings, says) in [
            (signed.clone(), "jwks.endpoint.url is missing"),
            (
                format!("{signed}sasl.oauthbearer.jwks.endpoint.url=ftp://x\n"),
                "=ftp://x: give a URL with https, http or file",
            ),
            (
                format!(
                    "{signed}sasl.oauthbearer.jwks.endpoint.url=file:///k\nsasl.oauthbearer.sub.claim.name=\n"
                ),
                "sub.claim.name is empty",
            ),
            (format!("{HANDLER}=com.example.Handler\n"), "Java class"),
        ] {
            let (_, problems) = examine(&settings);
            assert!(
                problems.iter().any(|it| it.contains(says)),
                "{says}: {problems:#?}"
            );
        }
    }
}
