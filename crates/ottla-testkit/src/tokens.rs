//! An issuer of OAuth tokens of a test's own: its key, the set in which the key is public, and tokens that it signs.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// Who signs, with a key of its own.
pub struct TokenIssuer {
    key_id: String,
    key: EncodingKey,
}

impl TokenIssuer {
    pub fn new(key_id: &str) -> TokenIssuer {
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::generate_pkcs8(kind, &SystemRandom::new()).expect("a key");
        TokenIssuer {
            key_id: key_id.to_owned(),
            key: EncodingKey::from_ec_der(key.as_ref()),
        }
    }

    /// Writes its JSON Web Key Set; all of it or nothing is seen.
    pub fn write_keys(&self, path: &Path) -> PathBuf {
        let key = Jwk::from_encoding_key(&self.key, Algorithm::ES256).expect("a public key");
        let mut key = serde_json::to_value(key).expect("JSON");
        key["kid"] = json!(self.key_id);
        key["use"] = json!("sig");
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, json!({ "keys": [key] }).to_string()).expect("written");
        std::fs::rename(&unfinished, path).expect("renamed");
        path.to_path_buf()
    }

    /// A token of this subject that is valid from now on for so many seconds, which may be negative. `more` claims are
    /// added.
    pub fn token(&self, subject: &str, seconds: i64, more: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs() as i64;
        let mut claims = json!({ "sub": subject, "iat": now - 600, "exp": now + seconds });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        encode(&header, &claims, &self.key).expect("a token")
    }
}
