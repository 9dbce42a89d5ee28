//! Assertions: JSON Web Tokens that authenticate a client to an issuer (RFC 7523).
//!
//! Kafka: `DefaultAssertionCreator`, `LayeredAssertionJwtTemplate`, `FileAssertionCreator`.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use ottla_sasl::{Assertion, AssertionAlgorithm, AssertionTemplate, Secret};
use ottla_tls::pkcs8_key;
use serde_json::{Map, Value, json};

const KEY_FILE: &str = "sasl.oauthbearer.assertion.private.key.file";
const PASSPHRASE: &str = "sasl.oauthbearer.assertion.private.key.passphrase";
const TEMPLATE_FILE: &str = "sasl.oauthbearer.assertion.template.file";

/// The text of an assertion for a request now. Files are read each time. The error is for people.
pub fn create(assertion: &Assertion, now_ms: i64) -> Result<Secret, String> {
    match assertion {
        Assertion::File(path) => token_file("sasl.oauthbearer.assertion.file", path),
        Assertion::Signed(template) => signed(template, now_ms),
    }
}

/// A file with a token, without the white space around it.
pub fn token_file(key: &str, path: &str) -> Result<Secret, String> {
    let text = read(key, path)?;
    let text = text.trim();
    let parts = text.split('.').count();
    match parts {
        3 => Ok(Secret::new(text)),
        _ => Err(format!(
            "{key}: {path} has no JSON Web Token, which has three parts with dots between them"
        )),
    }
}

fn signed(template: &AssertionTemplate, now_ms: i64) -> Result<Secret, String> {
    let (mut header, mut payload) = (Map::new(), Map::new());
    for (name, value) in &template.claims {
        payload.insert((*name).to_owned(), json!(value));
    }
    if let Some(path) = &template.template_file {
        let text = read(TEMPLATE_FILE, path)?;
        let wrong = |error: &str| format!("{TEMPLATE_FILE}: {path}: {error}");
        let file: Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
        for (name, of_file) in [("header", &mut header), ("payload", &mut payload)] {
            match file.get(name) {
                Some(Value::Object(values)) => of_file.extend(values.clone()),
                None => {}
                Some(_) => return Err(wrong(&format!("`{name}` is no object"))),
            }
        }
    }
    header.insert("alg".to_owned(), json!(template.algorithm.name()));
    header.insert("typ".to_owned(), json!("JWT"));
    let now = now_ms / 1000;
    payload.insert("iat".to_owned(), json!(now));
    payload.insert("exp".to_owned(), json!(now + template.expires_seconds));
    payload.insert("nbf".to_owned(), json!(now - template.not_before_seconds));
    if template.has_id {
        let id = format!("{:032x}", ottla_sync::random::random::<u128>("assertions"));
        payload.insert("jti".to_owned(), json!(id));
    }
    let encoded =
        |part: Map<String, Value>| BASE64_URL_SAFE_NO_PAD.encode(Value::Object(part).to_string());
    let message = format!("{}.{}", encoded(header), encoded(payload));
    let path = &template.key_file;
    let wrong = |error: &str| format!("{KEY_FILE}: {path}: {error}");
    let pem = read(KEY_FILE, path)?;
    let passphrase = template.key_passphrase.as_ref().map(Secret::expose);
    let key = pkcs8_key(&pem, passphrase, PASSPHRASE).map_err(|error| wrong(&error))?;
    let (key, algorithm) = match template.algorithm {
        AssertionAlgorithm::Rs256 => {
            let inner = rsa_key(key.secret_pkcs8_der()).ok_or_else(|| wrong("it is no RSA key"))?;
            (EncodingKey::from_rsa_der(inner), Algorithm::RS256)
        }
        AssertionAlgorithm::Es256 => {
            let key = EncodingKey::from_ec_der(key.secret_pkcs8_der());
            (key, Algorithm::ES256)
        }
    };
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm);
    let signature = signature.map_err(|_| {
        wrong(&format!(
            "the key cannot sign with {}",
            template.algorithm.name()
        ))
    })?;
    Ok(Secret::new(format!("{message}.{signature}")))
}

/// The RSA key inside a PKCS#8 key (RFC 5208, RFC 8017): the library takes it without the wrapping
/// structure.
fn rsa_key(pkcs8: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const INTEGER: u8 = 0x02;
    const OCTETS: u8 = 0x04;
    const RSA: &[u8] = &[
        0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
    ];
    let (content, _) = element(pkcs8, SEQUENCE)?;
    let (_, rest) = element(content, INTEGER)?;
    let (algorithm, rest) = element(rest, SEQUENCE)?;
    let (key, _) = element(rest, OCTETS)?;
    algorithm.starts_with(RSA).then_some(key)
}

/// The content of a DER element with this tag, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

fn read(key: &str, path: &str) -> Result<String, String> {
    let bytes = ottla_sync::fs::read(path)
        .map_err(|error| format!("{key}: {path} cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("{key}: {path} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
        VerificationAlgorithm,
    };

    use super::*;

    fn template(key_file: &Path, algorithm: AssertionAlgorithm) -> AssertionTemplate {
        AssertionTemplate {
            algorithm,
            key_file: key_file.display().to_string(),
            key_passphrase: None,
            template_file: None,
            claims: BTreeMap::from([("iss", "me".to_owned())]),
            expires_seconds: 300,
            not_before_seconds: 60,
            has_id: false,
        }
    }

    fn openssl(arguments: &[&str]) {
        let output = Command::new("openssl").args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn part(token: &Secret, index: usize) -> Value {
        let part = token.expose().split('.').nth(index).unwrap();
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(part).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn an_assertion_is_signed_with_the_key_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let cases: [(_, _, &dyn VerificationAlgorithm); 2] = [
            (
                ["RSA", "rsa_keygen_bits:2048"],
                AssertionAlgorithm::Rs256,
                &RSA_PKCS1_2048_8192_SHA256,
            ),
            (
                ["EC", "ec_paramgen_curve:P-256"],
                AssertionAlgorithm::Es256,
                &ECDSA_P256_SHA256_FIXED,
            ),
        ];
        for (kind, algorithm, verification) in cases {
            let (plain, encrypted, public) = (path("plain"), path("encrypted"), path("public"));
            let [kind, option] = kind;
            openssl(&[
                "genpkey",
                "-algorithm",
                kind,
                "-pkeyopt",
                option,
                "-out",
                &plain,
            ]);
            openssl(&[
                "pkcs8",
                "-topk8",
                "-v2",
                "aes-256-cbc",
                "-passout",
                "pass:hush",
                "-in",
                &plain,
                "-out",
                &encrypted,
            ]);
            openssl(&[
                "pkey", "-in", &plain, "-pubout", "-outform", "DER", "-out", &public,
            ]);
            let public = std::fs::read(public).unwrap();
            let public = UnparsedPublicKey::new(verification, &public);
            for (file, passphrase) in [(&plain, None), (&encrypted, Some("hush"))] {
                let template = AssertionTemplate {
                    key_passphrase: passphrase.map(Secret::new),
                    ..template(Path::new(file), algorithm)
                };
                let token = create(&Assertion::Signed(template), 1_000_000).unwrap();
                assert_eq!(
                    part(&token, 0),
                    json!({ "alg": algorithm.name(), "typ": "JWT" })
                );
                assert_eq!(
                    part(&token, 1),
                    json!({ "iss": "me", "iat": 1000, "exp": 1300, "nbf": 940 })
                );
                let (message, signature) = token.expose().rsplit_once('.').unwrap();
                let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
                let verified = public.verify(message.as_bytes(), &signature);
                assert!(verified.is_ok(), "{algorithm:?}");
            }
            let wrong = AssertionTemplate {
                key_passphrase: Some(Secret::new("loud")),
                ..template(Path::new(&encrypted), algorithm)
            };
            let error = create(&Assertion::Signed(wrong), 0).unwrap_err();
            assert!(
                error.contains(PASSPHRASE) && !error.contains("loud"),
                "{error}"
            );
        }
        let other = template(Path::new(&path("plain")), AssertionAlgorithm::Rs256);
        let error = create(&Assertion::Signed(other), 0).unwrap_err();
        assert!(error.contains("no RSA key"), "{error}");
    }

    #[test]
    fn a_template_adds_to_the_claims_and_the_times_win() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let (key, file) = (path("key"), path("template.json"));
        openssl(&[
            "genpkey",
            "-algorithm",
            "EC",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-out",
            &key,
        ]);
        let text =
            r#"{"header":{"kid":"one","alg":"none"},"payload":{"iss":"file","exp":1,"of":"me"}}"#;
        std::fs::write(&file, text).unwrap();
        let template = AssertionTemplate {
            template_file: Some(file.clone()),
            has_id: true,
            ..template(Path::new(&key), AssertionAlgorithm::Es256)
        };
        let create = || create(&Assertion::Signed(template.clone()), 1_000_000);
        let token = create().unwrap();
        assert_eq!(
            part(&token, 0),
            json!({ "alg": "ES256", "kid": "one", "typ": "JWT" })
        );
        let payload = part(&token, 1);
        assert_eq!(
            (&payload["iss"], &payload["of"]),
            (&json!("file"), &json!("me"))
        );
        assert_eq!(payload["exp"], json!(1300));
        assert_ne!(part(&create().unwrap(), 1)["jti"], payload["jti"]);
        std::fs::write(&file, r#"{"header":1}"#).unwrap();
        let error = create().unwrap_err();
        assert!(error.contains("`header` is no object"), "{error}");
    }
}
