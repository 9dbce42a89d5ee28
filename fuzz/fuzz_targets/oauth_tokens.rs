//! OAuth tokens, the key sets that verify them, and the Kerberos principals of tickets: each ends in a name or an error. No
//! token is accepted without a key.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_sasl::oauth_token::{KeySet, read_own, validate, validate_id_token, validate_unsecured};
use ottla_sasl::{KerberosRules, TokenRules, UnsecuredRules};

/// 2033-05-18.
const NOW_MS: i64 = 2_000_000_000_000;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    // A key set, and a token after it.
    let (set, token) = text.split_once('\n').unwrap_or(("", text));
    let keys = KeySet::parse(set).unwrap_or_default();
    let rules = TokenRules {
        audiences: vec!["kafka".to_owned()],
        issuer: Some("issuer".to_owned()),
        scope_claim: "scope".to_owned(),
        sub_claim: "sub".to_owned(),
        clock_skew_seconds: 30,
    };
    let _ = validate(token, &keys, &rules, NOW_MS);
    let _ = validate_id_token(token, &keys, &rules, Some("nonce"), NOW_MS);
    assert!(validate(token, &KeySet::default(), &rules, NOW_MS).is_err());
    let unsecured = UnsecuredRules {
        principal_claim: "sub".to_owned(),
        scope_claim: "scope".to_owned(),
        required_scopes: Vec::new(),
        clock_skew_ms: 0,
    };
    if let Ok(valid) = validate_unsecured(token, &unsecured, NOW_MS) {
        assert!(!valid.subject.is_empty() && valid.expires_at_ms > NOW_MS);
    }
    let _ = read_own(token, "sub", "scope");
    let rules = KerberosRules::parse(["RULE:[2:$1@$0](.*@EXAMPLE.ORG)s/@.*//L", "DEFAULT"]);
    let _ = rules.expect("good rules").short_name(token, "EXAMPLE.ORG");
});
