//! Validation of OAuth tokens: JSON Web Tokens signed with the keys of an issuer (RFC 7519, RFC
//! 7517), or unsigned ones if that is configured explicitly.
//!
//! Keys and time are arguments. Symmetric keys in a key set are ignored, because anyone who can
//! read the set could sign tokens with them.
//!
//! Kafka: `BrokerJwtValidator`, `OAuthBearerUnsecuredValidatorCallbackHandler`, `OAuthBearerUnsecuredJws`.

use aws_lc_rs::signature::{ECDSA_P521_SHA512_FIXED, UnparsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::oauth_rules::{TokenRules, UnsecuredRules};

/// The maximum number of keys that are tried for one token.
const MOST_TRIED_KEYS: usize = 16;

/// The maximum number of characters of a token in a message.
const LONGEST_SHOWN: usize = 64;

/// The validated claims of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValidToken {
    pub subject: String,
    /// Wall-clock time in milliseconds.
    pub expires_at_ms: i64,
}

/// Why a token is rejected. For the log; the client receives no more than from Kafka.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    #[error("it is not a JSON Web Token: {0}")]
    Format(String),
    #[error("it is signed with {0}, which is not accepted")]
    Algorithm(String),
    /// With the key ID in the token, if it has one.
    #[error("no key of the issuer fits it (kid {})", .0.as_deref().map_or("not given".to_owned(), shown))]
    UnknownKey(Option<String>),
    #[error("its signature is wrong")]
    Signature,
    #[error("it has no claim {0} of the right type")]
    Claim(String),
    #[error("it expired {0} s ago")]
    Expired(i64),
    #[error("it is valid in {0} s from now")]
    NotYetValid(i64),
    #[error("it is for {found}, not for {expected}")]
    Audience { found: String, expected: String },
    #[error("it is of the issuer {found}, not of {expected}")]
    Issuer { found: String, expected: String },
    /// With the missing scopes.
    #[error("it has not all of the scopes [{}]", .0.join(", "))]
    Scope(Vec<String>),
    #[error("it was not issued for this login: its nonce is another one")]
    Nonce,
    #[error("it was issued to {found}, not to {expected}")]
    AuthorizedParty { found: String, expected: String },
}

impl TokenError {
    /// The JSON that the client receives.
    pub fn answer(&self) -> String {
        match self {
            TokenError::Scope(scopes) => format!(
                "{{\"status\":\"insufficient_scope\", \"scope\":\"[{}]\"}}",
                scopes.join(", ")
            ),
            _ => "{\"status\":\"invalid_token\"}".to_owned(),
        }
    }
}

/// The public keys of an issuer.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    /// The only algorithm of the key, if the set specifies one.
    algorithm: Option<Algorithm>,
    key: PublicKey,
}

#[derive(Clone, Debug)]
enum PublicKey {
    Known(DecodingKey),
    /// The point of a key on the curve P-521, uncompressed.
    P521(Vec<u8>),
}

/// The signature algorithm of a token. The library supports all except ES512.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Known(jsonwebtoken::Algorithm),
    Es512,
}

impl Algorithm {
    /// `None` for a name that is no public key algorithm.
    fn from_name(name: &str) -> Option<Algorithm> {
        if name == "ES512" {
            return Some(Algorithm::Es512);
        }
        let known: jsonwebtoken::Algorithm = name.parse().ok()?;
        (known.family() != AlgorithmFamily::Hmac).then_some(Algorithm::Known(known))
    }
}

impl PublicKey {
    fn is_for(&self, algorithm: Algorithm) -> bool {
        match (self, algorithm) {
            (PublicKey::Known(key), Algorithm::Known(known)) => key.family() == known.family(),
            (PublicKey::P521(_), Algorithm::Es512) => true,
            _ => false,
        }
    }

    /// `signature` in base64.
    fn has_signed(&self, message: &str, signature: &str, algorithm: Algorithm) -> bool {
        match (self, algorithm) {
            (PublicKey::Known(key), Algorithm::Known(known)) => {
                let verified =
                    jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, known);
                matches!(verified, Ok(true))
            }
            (PublicKey::P521(point), Algorithm::Es512) => {
                let key = UnparsedPublicKey::new(&ECDSA_P521_SHA512_FIXED, point);
                let signature = BASE64_URL_SAFE_NO_PAD.decode(signature);
                signature.is_ok_and(|it| key.verify(message.as_bytes(), &it).is_ok())
            }
            _ => false,
        }
    }

    fn of(jwk: &Jwk) -> Option<PublicKey> {
        let AlgorithmParameters::EllipticCurve(curve) = &jwk.algorithm else {
            return DecodingKey::from_jwk(jwk).ok().map(PublicKey::Known);
        };
        if curve.curve != EllipticCurve::P521 {
            return DecodingKey::from_jwk(jwk).ok().map(PublicKey::Known);
        }
        let mut point = vec![UNCOMPRESSED];
        for coordinate in [&curve.x, &curve.y] {
            let bytes = BASE64_URL_SAFE_NO_PAD.decode(coordinate).ok()?;
            let zeros = P521_COORDINATE.checked_sub(bytes.len())?;
            point.extend(std::iter::repeat_n(0, zeros));
            point.extend(bytes);
        }
        Some(PublicKey::P521(point))
    }
}

/// The first byte of a point that is followed by both coordinates (SEC 1, 2.3.3).
const UNCOMPRESSED: u8 = 4;
/// Bytes of one.
const P521_COORDINATE: usize = 66;

impl KeySet {
    /// Parses a JSON Web Key Set. Ignores keys for purposes other than signatures, and keys of
    /// unknown types.
    pub fn parse(text: &str) -> Result<KeySet, String> {
        let set: Value = serde_json::from_str(text)
            .map_err(|error| format!("it is not a JSON Web Key Set: {error}"))?;
        let set = set.get("keys").and_then(Value::as_array);
        let set = set.ok_or("it is not a JSON Web Key Set: there is no array `keys`")?;
        let keys: Vec<Key> = set.iter().filter_map(Key::of).collect();
        match keys.is_empty() {
            true => Err("it has no public key for signatures of RSA, EC or Ed25519".to_owned()),
            false => Ok(KeySet { keys }),
        }
    }

    pub fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    fn fitting(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &Key> {
        self.keys
            .iter()
            .filter(move |key| key.key.is_for(algorithm))
            .filter(move |key| key.algorithm.is_none_or(|only| only == algorithm))
            .filter(move |key| id.is_none() || key.id.as_deref() == id)
            .take(MOST_TRIED_KEYS)
    }
}

impl Key {
    fn of(value: &Value) -> Option<Key> {
        let jwk = Jwk::deserialize(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        if !is_for_signatures || matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            return None;
        }
        let algorithm = match value.get("alg").and_then(Value::as_str) {
            None => None,
            Some(name) => Some(Algorithm::from_name(name)?),
        };
        Some(Key {
            id: common.key_id.clone(),
            algorithm,
            key: PublicKey::of(&jwk)?,
        })
    }
}

/// Validates a signed token with the keys of its issuer.
pub fn validate(
    token: &str,
    keys: &KeySet,
    rules: &TokenRules,
    now_ms: i64,
) -> Result<ValidToken, TokenError> {
    let header = header(token)?;
    let name = header.get("alg").and_then(Value::as_str);
    let name = name.ok_or_else(|| TokenError::Format("its header has no alg".to_owned()))?;
    let algorithm = Algorithm::from_name(name).ok_or_else(|| TokenError::Algorithm(shown(name)))?;
    let id = match header.get("kid") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id.as_str()),
        Some(_) => return Err(TokenError::Format("its kid is not a string".to_owned())),
    };
    if header.contains_key("crit") {
        // RFC 7515, 4.1.11: a recipient that does not support an extension must reject the token.
        let text = "its header has critical extensions".to_owned();
        return Err(TokenError::Format(text));
    }
    let (message, signature) = token.rsplit_once('.').unwrap_or_default();
    let mut result = Err(TokenError::UnknownKey(id.map(str::to_owned)));
    for key in keys.fitting(id, algorithm) {
        if key.key.has_signed(message, signature, algorithm) {
            result = Ok(());
            break;
        }
        result = Err(TokenError::Signature);
    }
    result?;
    let claims = claims(token)?;
    check_claims(&claims, rules, now_ms)
}

/// Validates an ID token, which identifies the user to the client (OpenID Connect Core 1.0,
/// 3.1.3.7). The only audience of `rules` is the client. `nonce` is the nonce of the login; a
/// refreshed token has none.
pub fn validate_id_token(
    token: &str,
    keys: &KeySet,
    rules: &TokenRules,
    nonce: Option<&str>,
    now_ms: i64,
) -> Result<ValidToken, TokenError> {
    let valid = validate(token, keys, rules, now_ms)?;
    let claims = claims(token)?;
    let found = claims.get("nonce").and_then(Value::as_str);
    if nonce.is_some_and(|expected| found != Some(expected)) {
        return Err(TokenError::Nonce);
    }
    // A token with several audiences names the client that it was issued to.
    let is_own = |it: &str| rules.audiences.iter().any(|own| own == it);
    let is_for_others = match claims.get("aud") {
        Some(Value::Array(all)) => !all.iter().all(|it| it.as_str().is_some_and(is_own)),
        _ => false,
    };
    match claims.get("azp") {
        None | Some(Value::Null) if !is_for_others => Ok(valid),
        Some(Value::String(found)) if is_own(found.as_str()) => Ok(valid),
        found => Err(TokenError::AuthorizedParty {
            found: found
                .and_then(Value::as_str)
                .map_or("no audience".to_owned(), shown),
            expected: named(&rules.audiences),
        }),
    }
}

/// Validates the claims of a token whose signature was verified.
fn check_claims(
    claims: &Map<String, Value>,
    rules: &TokenRules,
    now_ms: i64,
) -> Result<ValidToken, TokenError> {
    let skew_ms = i64::from(rules.clock_skew_seconds) * 1000;
    let expires_at_ms = time(claims, "exp")?;
    time(claims, "iat")?;
    if now_ms.saturating_sub(skew_ms) >= expires_at_ms {
        let seconds = now_ms.saturating_sub(expires_at_ms) / 1000;
        return Err(TokenError::Expired(seconds));
    }
    if claims.contains_key("nbf") {
        let not_before_ms = time(claims, "nbf")?;
        if now_ms.saturating_add(skew_ms) < not_before_ms {
            let seconds = not_before_ms.saturating_sub(now_ms) / 1000;
            return Err(TokenError::NotYetValid(seconds));
        }
    }
    check_audience(claims, rules)?;
    if let Some(expected) = &rules.issuer {
        let found = claims.get("iss").and_then(Value::as_str);
        if found != Some(expected.as_str()) {
            return Err(TokenError::Issuer {
                found: shown(found.unwrap_or("none")),
                expected: expected.clone(),
            });
        }
    }
    check_scopes(claims, &rules.scope_claim)?;
    Ok(ValidToken {
        subject: text(claims, &rules.sub_claim)?,
        expires_at_ms,
    })
}

/// A token with an audience is accepted only if one of its audiences is expected. Without
/// `sasl.oauthbearer.expected.audience`, none is.
fn check_audience(claims: &Map<String, Value>, rules: &TokenRules) -> Result<(), TokenError> {
    let found: Vec<&str> = match claims.get("aud") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(TokenError::Claim("aud".to_owned())),
    };
    let expected = &rules.audiences;
    let is_expected = match found.is_empty() {
        true => expected.is_empty(),
        false => found
            .iter()
            .any(|it| expected.iter().any(|name| name == it)),
    };
    match is_expected {
        true => Ok(()),
        false => Err(TokenError::Audience {
            found: named(&found.into_iter().map(shown).collect::<Vec<_>>()),
            expected: named(expected),
        }),
    }
}

fn named(names: &[impl AsRef<str>]) -> String {
    match names.is_empty() {
        true => "no audience".to_owned(),
        false => names
            .iter()
            .map(AsRef::as_ref)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// As in Kafka: a string is a single scope, and scopes must be neither empty nor repeated.
fn check_scopes(claims: &Map<String, Value>, name: &str) -> Result<(), TokenError> {
    let wrong = || TokenError::Claim(name.to_owned());
    let scopes: Vec<&str> = match claims.get(name) {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all
            .iter()
            .map(|scope| scope.as_str().ok_or_else(wrong))
            .collect::<Result<_, _>>()?,
        _ => Vec::new(),
    };
    let is_repeated = |(index, scope): (usize, &&str)| {
        scopes[..index]
            .iter()
            .any(|other| other.trim() == scope.trim())
    };
    let is_wrong = scopes.iter().any(|scope| scope.trim().is_empty())
        || scopes.iter().enumerate().any(is_repeated);
    if is_wrong { Err(wrong()) } else { Ok(()) }
}

/// Validates a token without a signature. Any client can create one.
pub fn validate_unsecured(
    token: &str,
    rules: &UnsecuredRules,
    now_ms: i64,
) -> Result<ValidToken, TokenError> {
    match algorithm_name(token) {
        Some(name) if name == "none" && token.ends_with('.') => {}
        Some(name) => return Err(TokenError::Algorithm(name)),
        None => {
            let text = "its header cannot be read".to_owned();
            return Err(TokenError::Format(text));
        }
    }
    let claims = claims(token)?;
    let subject = text(&claims, &rules.principal_claim)?;
    let expires_at_ms = time(&claims, "exp")?;
    if claims.contains_key("iat") {
        let issued_at_ms = time(&claims, "iat")?;
        if issued_at_ms > now_ms.saturating_add(rules.clock_skew_ms) {
            return Err(TokenError::NotYetValid((issued_at_ms - now_ms) / 1000));
        }
        if expires_at_ms <= issued_at_ms {
            return Err(TokenError::Claim("exp".to_owned()));
        }
    }
    if now_ms.saturating_sub(rules.clock_skew_ms) >= expires_at_ms {
        let seconds = now_ms.saturating_sub(expires_at_ms) / 1000;
        return Err(TokenError::Expired(seconds));
    }
    let scopes: Vec<&str> = match claims.get(&rules.scope_claim) {
        Some(Value::String(one)) => vec![one.trim()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has_scope = |scope: &String| scopes.contains(&scope.as_str());
    match rules.required_scopes.iter().all(has_scope) {
        true => Ok(ValidToken {
            subject,
            expires_at_ms,
        }),
        false => Err(TokenError::Scope(rules.required_scopes.clone())),
    }
}

/// The header of a token that has three parts.
fn header(token: &str) -> Result<Map<String, Value>, TokenError> {
    let mut parts = token.split('.');
    let header = parts.next().and_then(object);
    let header = header.filter(|_| parts.count() == 2);
    header.ok_or_else(|| TokenError::Format("its header cannot be read".to_owned()))
}

/// The `alg` of a token, whether supported or not.
fn algorithm_name(token: &str) -> Option<String> {
    let header = header(token).ok()?;
    Some(shown(header.get("alg")?.as_str()?))
}

/// Reads the claims of a client's own token that the client needs before it logs in; the broker
/// checks the rest.
///
/// Kafka: `ClientJwtValidator`.
pub fn read_own(token: &str, sub_claim: &str, scope_claim: &str) -> Result<ValidToken, TokenError> {
    header(token)?;
    let claims = claims(token)?;
    check_scopes(&claims, scope_claim)?;
    if claims.contains_key("iat") {
        time(&claims, "iat")?;
    }
    Ok(ValidToken {
        subject: text(&claims, sub_claim)?,
        expires_at_ms: time(&claims, "exp")?,
    })
}

/// Shortens and escapes untrusted text for the log.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(LONGEST_SHOWN).collect();
    start.escape_debug().to_string()
}

fn claims(token: &str) -> Result<Map<String, Value>, TokenError> {
    let payload = token.split('.').nth(1).and_then(object);
    payload.ok_or_else(|| TokenError::Format("its claims cannot be read".to_owned()))
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn text(claims: &Map<String, Value>, name: &str) -> Result<String, TokenError> {
    // As Java's `String.trim`: a name with a no-break space is another name.
    let trimmed = |text: &'_ str| text.trim_matches(|it| it <= ' ').to_owned();
    let text = claims.get(name).and_then(Value::as_str).map(trimmed);
    let text = text.filter(|text| !text.is_empty());
    let wrong = || TokenError::Claim(name.to_owned());
    text.ok_or_else(wrong)
}

/// A time claim in milliseconds. Tokens contain seconds, possibly with a fraction.
fn time(claims: &Map<String, Value>, name: &str) -> Result<i64, TokenError> {
    let seconds = claims.get(name).and_then(Value::as_f64);
    let seconds = seconds.filter(|seconds| (0.0..1e15).contains(seconds));
    let wrong = || TokenError::Claim(name.to_owned());
    Ok((seconds.ok_or_else(wrong)? * 1000.0) as i64)
}

#[cfg(test)]
mod tests;
