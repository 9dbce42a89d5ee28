use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use super::*;

const NOW_MS: i64 = 1_000_000_000;
const NOW: i64 = NOW_MS / 1000;

/// A key of an issuer.
struct Issuer {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Issuer {
    fn new(id: &'static str, algorithm: Algorithm) -> Issuer {
        let random = SystemRandom::new();
        let ecdsa = |kind| EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let key = match algorithm {
            Algorithm::ES256 => {
                EncodingKey::from_ec_der(ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING).as_ref())
            }
            Algorithm::ES384 => {
                EncodingKey::from_ec_der(ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING).as_ref())
            }
            Algorithm::EdDSA => {
                let key = Ed25519KeyPair::generate_pkcs8v1(&random).unwrap();
                EncodingKey::from_ed_der(key.as_ref())
            }
            _ => {
                let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
                let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
                // The key follows the header of PKCS#8, which always has the same length.
                EncodingKey::from_rsa_der(&der.as_ref()[26..])
            }
        };
        Issuer { id, algorithm, key }
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        serde_json::to_value(jwk).unwrap()
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.to_owned());
        encode(&header, claims, &self.key).unwrap()
    }
}

/// A key set with a key on P-521, and a token that it has signed.
fn with_es512(kid: &str, alg: Option<&str>) -> (Value, String) {
    let random = SystemRandom::new();
    let kind = &ECDSA_P521_SHA512_FIXED_SIGNING;
    let der = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(kind, der.as_ref()).unwrap();
    let point = &pair.public_key().as_ref()[1..];
    let (x, y) = point.split_at(point.len() / 2);
    let encoded = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let mut jwk = json!({
        "kty": "EC", "crv": "P-521", "use": "sig", "kid": kid, "x": encoded(x), "y": encoded(y),
    });
    if let Some(alg) = alg {
        jwk["alg"] = json!(alg);
    }
    let header = json!({ "alg": "ES512", "kid": kid }).to_string();
    let claims = claims().to_string();
    let message = format!(
        "{}.{}",
        encoded(header.as_bytes()),
        encoded(claims.as_bytes())
    );
    let signature = pair.sign(&random, message.as_bytes()).unwrap();
    let token = format!("{message}.{}", encoded(signature.as_ref()));
    (json!({ "keys": [jwk] }), token)
}

#[test]
fn es512_is_checked_too() {
    for alg in [None, Some("ES512")] {
        let (keys, token) = with_es512("one", alg);
        let keys = KeySet::parse(&keys.to_string()).unwrap();
        let valid = validate(&token, &keys, &rules(), NOW_MS);
        assert_eq!(valid.unwrap().subject, "alice");
        let (_, foreign) = with_es512("one", alg);
        let forged = validate(&foreign, &keys, &rules(), NOW_MS);
        assert_eq!(forged, Err(TokenError::Signature));
        let (_, unknown) = with_es512("two", alg);
        let unknown = validate(&unknown, &keys, &rules(), NOW_MS);
        assert_eq!(unknown, Err(TokenError::UnknownKey(Some("two".to_owned()))));
    }
    // A key for something else is none.
    let (keys, _) = with_es512("one", Some("ECDH-ES"));
    assert!(KeySet::parse(&keys.to_string()).is_err());
}

#[test]
fn a_client_reads_its_own_token() {
    let issuer = Issuer::new("one", Algorithm::ES256);
    let own = |claims: &Value| read_own(&issuer.sign(claims), "sub", "scope");
    let expected = ValidToken {
        subject: "alice".to_owned(),
        expires_at_ms: (NOW + 600) * 1000,
    };
    assert_eq!(own(&claims()), Ok(expected));
    for (name, value) in [
        ("exp", Value::Null),
        ("sub", json!(" ")),
        ("iat", json!("yesterday")),
        ("scope", json!(["a", "a"])),
    ] {
        let mut claims = claims();
        claims[name] = value;
        assert_eq!(own(&claims), Err(TokenError::Claim(name.to_owned())));
    }
    assert!(matches!(
        read_own("a.b", "sub", "scope"),
        Err(TokenError::Format(_))
    ));
}

fn keys(of: &[&Issuer]) -> KeySet {
    let keys: Vec<Value> = of.iter().map(|issuer| issuer.jwk()).collect();
    KeySet::parse(&json!({ "keys": keys }).to_string()).unwrap()
}

fn rules() -> TokenRules {
    TokenRules {
        audiences: vec!["kafka".to_owned()],
        issuer: Some("https://issuer".to_owned()),
        scope_claim: "scope".to_owned(),
        sub_claim: "sub".to_owned(),
        clock_skew_seconds: 30,
    }
}

fn claims() -> Value {
    json!({
        "sub": "alice", "iss": "https://issuer", "aud": ["other", "kafka"], "scope": "read",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600,
    })
}

#[test]
fn every_algorithm_is_checked_with_its_key() {
    for algorithm in [
        Algorithm::RS256,
        Algorithm::RS384,
        Algorithm::RS512,
        Algorithm::PS256,
        Algorithm::PS384,
        Algorithm::PS512,
        Algorithm::ES256,
        Algorithm::ES384,
        Algorithm::EdDSA,
    ] {
        let issuer = Issuer::new("one", algorithm);
        let other = Issuer::new("one", algorithm);
        let token = issuer.sign(&claims());
        let valid = validate(&token, &keys(&[&issuer]), &rules(), NOW_MS);
        let expected = ValidToken {
            subject: "alice".to_owned(),
            expires_at_ms: (NOW + 600) * 1000,
        };
        assert_eq!(valid, Ok(expected), "{algorithm:?}");
        // A signature by another key with the same ID, and a modified token.
        let forged = validate(&token, &keys(&[&other]), &rules(), NOW_MS);
        assert_eq!(forged, Err(TokenError::Signature), "{algorithm:?}");
        let claims = claims().to_string().replace("alice", "admin");
        let parts: Vec<&str> = token.split('.').collect();
        let changed = BASE64_URL_SAFE_NO_PAD.encode(claims);
        let changed = format!("{}.{changed}.{}", parts[0], parts[2]);
        let changed = validate(&changed, &keys(&[&issuer]), &rules(), NOW_MS);
        assert_eq!(changed, Err(TokenError::Signature), "{algorithm:?}");
    }
}

#[test]
fn a_key_is_found_by_its_id_and_a_missing_one_is_named() {
    let (one, two) = (
        Issuer::new("one", Algorithm::ES256),
        Issuer::new("two", Algorithm::ES256),
    );
    let both = keys(&[&one, &two]);
    assert!(both.has("two") && !both.has("three"));
    let check = |token: &str, keys: &KeySet| validate(token, keys, &rules(), NOW_MS);
    assert!(check(&two.sign(&claims()), &both).is_ok());
    assert_eq!(
        check(&two.sign(&claims()), &keys(&[&one])),
        Err(TokenError::UnknownKey(Some("two".to_owned())))
    );
    // Without a key ID, each key is tried.
    let anonymous = encode(&Header::new(Algorithm::ES256), &claims(), &two.key).unwrap();
    assert!(check(&anonymous, &both).is_ok());
    // Critical extensions are not supported.
    let mut critical = Header::new(Algorithm::ES256);
    critical.crit = Some(vec!["x".to_owned()]);
    let critical = encode(&critical, &claims(), &one.key).unwrap();
    assert!(matches!(
        check(&critical, &both),
        Err(TokenError::Format(_))
    ));
    // A key of another type does not match.
    let rsa = Issuer::new("two", Algorithm::RS256);
    assert_eq!(
        check(&two.sign(&claims()), &keys(&[&rsa])),
        Err(TokenError::UnknownKey(Some("two".to_owned())))
    );
}

#[test]
fn neither_unsigned_tokens_nor_shared_secrets_are_believed() {
    let issuer = Issuer::new("one", Algorithm::ES256);
    let public = issuer.jwk().to_string();
    let known = keys(&[&issuer]);
    let secret = EncodingKey::from_secret(public.as_bytes());
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("one".to_owned());
    let confused = encode(&header, &claims(), &secret).unwrap();
    let refused = validate(&confused, &known, &rules(), NOW_MS);
    assert_eq!(refused, Err(TokenError::Algorithm("HS256".to_owned())));
    let unsigned = unsigned(&claims());
    let refused = validate(&unsigned, &known, &rules(), NOW_MS);
    assert_eq!(refused, Err(TokenError::Algorithm("none".to_owned())));
    for token in ["", ".", "..", "a.b.c", "a.b.c.d", "e30.e30.e30"] {
        let refused = validate(token, &known, &rules(), NOW_MS).unwrap_err();
        assert!(
            matches!(refused, TokenError::Format(_)),
            "{token}: {refused}"
        );
        assert_eq!(refused.answer(), "{\"status\":\"invalid_token\"}");
    }
    let shared = json!({ "keys": [{ "kty": "oct", "k": "AAAA", "kid": "one" }] });
    assert!(KeySet::parse(&shared.to_string()).is_err());
}

#[test]
fn unusable_keys_are_skipped() {
    let issuer = Issuer::new("one", Algorithm::ES256);
    let encryption = {
        let mut jwk = Issuer::new("enc", Algorithm::RS256).jwk();
        jwk["use"] = json!("enc");
        jwk
    };
    let unknown = json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "odd" });
    let strange = json!({ "kid": 7 });
    let set = json!({ "keys": [encryption, unknown, strange, issuer.jwk()] });
    let set = KeySet::parse(&set.to_string()).unwrap();
    assert!(set.has("one") && !set.has("enc"));
    for text in ["", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]}"] {
        assert!(KeySet::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_claims_of_a_token_are_checked_against_the_rules() {
    let issuer = Issuer::new("one", Algorithm::ES256);
    let known = keys(&[&issuer]);
    let check = |changes: Value, rules: &TokenRules| {
        let mut claims = claims();
        let object = claims.as_object_mut().unwrap();
        for (name, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => object.remove(name),
                value => object.insert(name.clone(), value.clone()),
            };
        }
        validate(&issuer.sign(&claims), &known, rules, NOW_MS)
    };
    let claim = |name: &str| TokenError::Claim(name.to_owned());
    let rules = rules();
    let error = |changes| check(changes, &rules).unwrap_err();
    assert_eq!(error(json!({ "exp": NOW - 30 })), TokenError::Expired(30));
    assert!(check(json!({ "exp": NOW - 29 }), &rules).is_ok());
    assert_eq!(
        error(json!({ "nbf": NOW + 31 })),
        TokenError::NotYetValid(31)
    );
    assert!(check(json!({ "nbf": NOW + 30 }), &rules).is_ok());
    for name in ["exp", "iat", "sub"] {
        assert_eq!(error(json!({ name: null })), claim(name));
        assert_eq!(error(json!({ name: [] })), claim(name));
    }
    assert_eq!(error(json!({ "sub": " " })), claim("sub"));
    assert!(check(json!({ "aud": "kafka" }), &rules).is_ok());
    for audience in [json!("other"), json!([]), json!(null)] {
        let error = error(json!({ "aud": audience }));
        assert!(matches!(error, TokenError::Audience { .. }), "{error}");
    }
    let error_text = error(json!({ "iss": "https://other" })).to_string();
    assert_eq!(
        error_text,
        "it is of the issuer https://other, not of https://issuer"
    );
    // An issuer may take these texts from its clients.
    for forged in [json!({ "iss": "a\nb" }), json!({ "aud": ["a\nb"] })] {
        let text = error(forged).to_string();
        assert!(text.contains(r"a\nb") && !text.contains('\n'), "{text}");
    }
    for scope in [json!(""), json!(["a", " "]), json!(["a", "a "]), json!([1])] {
        assert_eq!(error(json!({ "scope": scope })), claim("scope"));
    }
    for scope in [json!(null), json!(["a", "b"]), json!("a b")] {
        assert!(check(json!({ "scope": scope }), &rules).is_ok());
    }

    // Without an expected audience, no token with an audience is accepted; a token without one is.
    let open = TokenRules {
        audiences: Vec::new(),
        issuer: None,
        sub_claim: "azp".to_owned(),
        ..rules.clone()
    };
    let refused = check(json!({ "azp": "bob" }), &open).unwrap_err();
    assert!(matches!(refused, TokenError::Audience { .. }), "{refused}");
    let valid = check(json!({ "azp": "bob", "aud": null, "iss": null }), &open).unwrap();
    assert_eq!(valid.subject, "bob");
}

fn unsigned(claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", part(&json!({ "alg": "none" })), part(claims))
}

#[test]
fn an_unsigned_token_is_believed_where_that_is_asked_for() {
    let rules = UnsecuredRules {
        principal_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
        required_scopes: Vec::new(),
        clock_skew_ms: 0,
    };
    let good = json!({ "sub": "alice", "iat": NOW - 1, "exp": NOW + 1, "scope": ["read"] });
    let valid = validate_unsecured(&unsigned(&good), &rules, NOW_MS).unwrap();
    assert_eq!(
        (&*valid.subject, valid.expires_at_ms),
        ("alice", NOW_MS + 1000)
    );
    for claims in [
        json!({ "sub": "alice" }),
        json!({ "exp": NOW + 1 }),
        json!({ "sub": "alice", "exp": NOW }),
        json!({ "sub": "alice", "exp": NOW + 9, "iat": NOW + 5 }),
        json!({ "sub": "alice", "exp": NOW + 1, "iat": "today" }),
    ] {
        assert!(validate_unsecured(&unsigned(&claims), &rules, NOW_MS).is_err());
    }
    let demanding = UnsecuredRules {
        required_scopes: vec!["read".to_owned(), "write".to_owned()],
        ..rules.clone()
    };
    let refused = validate_unsecured(&unsigned(&good), &demanding, NOW_MS).unwrap_err();
    assert_eq!(
        refused.answer(),
        "{\"status\":\"insufficient_scope\", \"scope\":\"[read, write]\"}"
    );
    let signed = Issuer::new("one", Algorithm::ES256).sign(&good);
    let refused = validate_unsecured(&signed, &rules, NOW_MS);
    assert_eq!(refused, Err(TokenError::Algorithm("ES256".to_owned())));
}

proptest::proptest! {
    #[test]
    fn any_text_is_answered(token in "[A-Za-z0-9_.-]{0,80}", now_ms in 0i64..2_000_000_000_000) {
        let rules_of_unsigned = UnsecuredRules {
            principal_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            required_scopes: Vec::new(),
            clock_skew_ms: i64::MAX,
        };
        proptest::prop_assert!(validate(&token, &KeySet::default(), &rules(), now_ms).is_err());
        proptest::prop_assert!(validate_unsecured(&token, &rules_of_unsigned, now_ms).is_err());
    }
}

#[test]
fn an_id_token_is_for_its_login_and_its_client() {
    let issuer = Issuer::new("one", Algorithm::ES256);
    let keys = json!({ "keys": [issuer.jwk()] }).to_string();
    let keys = KeySet::parse(&keys).unwrap();
    let check = |changes: Value, nonce: Option<&str>| {
        let mut claims = claims();
        claims["aud"] = json!("kafka");
        claims["nonce"] = json!("n-1");
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        validate_id_token(&issuer.sign(&claims), &keys, &rules(), nonce, NOW_MS)
    };
    let valid = check(json!({}), Some("n-1")).unwrap();
    assert_eq!(valid.subject, "alice");
    assert!(check(json!({ "azp": "kafka" }), Some("n-1")).is_ok());
    // One that was refreshed need not have the nonce of the login.
    assert!(check(json!({ "nonce": null }), None).is_ok());
    for nonce in [json!("n-2"), json!(null), json!(1), json!("")] {
        let refused = check(json!({ "nonce": nonce }), Some("n-1"));
        assert_eq!(refused, Err(TokenError::Nonce));
    }
    let refused = check(json!({ "azp": "other" }), Some("n-1")).unwrap_err();
    assert_eq!(refused.to_string(), "it was issued to other, not to kafka");
    for changes in [
        json!({ "azp": 7 }),
        json!({ "azp": ["kafka"] }),
        json!({ "aud": ["kafka", "other"] }),
        json!({ "aud": ["kafka", 7], "azp": null }),
    ] {
        let refused = check(changes, Some("n-1")).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "it was issued to no audience, not to kafka"
        );
    }
    assert!(check(json!({ "aud": ["kafka", "kafka"] }), Some("n-1")).is_ok());
    let for_both = json!({ "aud": ["other", "kafka"], "azp": "kafka" });
    assert!(check(for_both, Some("n-1")).is_ok());
    let refused = check(json!({ "aud": "other" }), Some("n-1")).unwrap_err();
    assert!(matches!(refused, TokenError::Audience { .. }), "{refused}");
    let unsigned = issuer.sign(&claims());
    let unsigned = format!("{}.", unsigned.rsplit_once('.').unwrap().0);
    let refused = validate_id_token(&unsigned, &keys, &rules(), None, NOW_MS);
    assert_eq!(refused, Err(TokenError::Signature));
}
