use std::collections::BTreeMap;

use ottla_sasl::{ClientCredentials, ClientLogin, KerberosRules};

use super::*;

/// The user alice has the password "hush" with each mechanism.
struct Cluster;

const NOW: Moment = Moment {
    now_ms: 1_000,
    time_of_day_ms: 1_000_000,
};

impl SaslCredentials for Cluster {
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        (username == "alice").then(|| mechanism.credential("hush", vec![1; 16], 4096))
    }

    fn scram_decoy(&self, mechanism: ScramMechanism, username: &str) -> ScramCredential {
        mechanism.decoy(b"secret", username, None)
    }

    fn delegation_token(
        &self,
        mechanism: ScramMechanism,
        token_id: &str,
        _: Moment,
    ) -> Option<TokenCredential> {
        (token_id == "token").then(|| TokenCredential {
            credential: mechanism.credential("hmac", vec![2; 16], 4096),
            owner: Principal::user("owner"),
            expires_at_ms: NOW.time_of_day_ms + 500,
        })
    }

    fn token_decoy(&self, mechanism: ScramMechanism, token_id: &str) -> ScramCredential {
        ottla_sasl::token_decoy("secret", token_id, mechanism)
    }

    fn oauth(
        &self,
        _: &EnabledMechanism,
        token: &Secret,
        _: Moment,
    ) -> Result<OAuthIdentity, String> {
        match token.expose() {
            "good" => Ok(OAuthIdentity {
                name: "alice".to_owned(),
                expires_at_ms: NOW.time_of_day_ms + 700,
            }),
            "expired" => Ok(OAuthIdentity {
                name: "alice".to_owned(),
                expires_at_ms: NOW.time_of_day_ms - 1,
            }),
            _ => Err("{\"status\":\"invalid_token\"}".to_owned()),
        }
    }

    fn nonce(&self) -> String {
        "def".to_owned()
    }
}

fn listener(max_reauth_ms: Option<u64>) -> Arc<SaslListener> {
    let enabled = |mechanism| EnabledMechanism {
        mechanism,
        max_reauth_ms,
        users: BTreeMap::from([("alice".to_owned(), Secret::new("hush"))]),
        tokens: None,
        kerberos: None,
    };
    let mechanisms = Mechanism::ALL.into_iter();
    Arc::new(SaslListener {
        mechanisms: mechanisms
            .filter(|mechanism| *mechanism != Mechanism::Gssapi)
            .map(enabled)
            .collect(),
    })
}

fn password(username: &str, password: &str) -> ClientCredentials {
    ClientCredentials::password(username, password)
}

fn oauth(token: &str) -> ClientCredentials {
    ClientCredentials::Token {
        token: Secret::new(token),
        extensions: BTreeMap::new(),
    }
}

fn delegation_token(id: &str, hmac: &str) -> ClientCredentials {
    ClientCredentials::Password {
        username: id.to_owned(),
        password: Secret::new(hmac),
        is_token: true,
    }
}

/// Performs a login with a handshake and tokens in these versions.
fn log_in_with(
    authenticator: &mut SaslAuthenticator,
    mechanism: Mechanism,
    credentials: &ClientCredentials,
    handshake: i16,
    version: Option<i16>,
) -> Outcome {
    let outcome = authenticator.on_handshake(handshake, mechanism.name());
    assert!(matches!(outcome, Outcome::Continue(_)), "{outcome:?}");
    assert_eq!(authenticator.expects_token(), handshake == 0);
    let mut login = ClientLogin::new(mechanism, credentials, "abc".to_owned()).unwrap();
    let mut message = login.first_message();
    loop {
        let outcome = authenticator.on_token(version, &message, &Cluster, NOW);
        let said = match &outcome {
            Outcome::Continue(Reply::Authenticate(response)) => response.auth_bytes.to_vec(),
            Outcome::Continue(Reply::Token(token)) => token.clone(),
            _ => return outcome,
        };
        message = login.on_message(&said).unwrap().unwrap_or_default();
    }
}

fn log_in(mechanism: Mechanism, credentials: &ClientCredentials) -> Outcome {
    let mut authenticator = SaslAuthenticator::new(listener(None));
    log_in_with(&mut authenticator, mechanism, credentials, 1, Some(2))
}

const PASSWORD_MECHANISMS: [Mechanism; 3] = [
    Mechanism::Plain,
    Mechanism::Scram(ScramMechanism::Sha256),
    Mechanism::Scram(ScramMechanism::Sha512),
];

fn session(outcome: &Outcome) -> &Session {
    match outcome {
        Outcome::Authenticated(_, session) => session,
        other => panic!("{other:?}"),
    }
}

/// The error code and message that the client receives.
fn refusal(outcome: &Outcome) -> (ErrorCode, String) {
    match outcome {
        Outcome::Failed {
            reply: Some(Reply::Authenticate(response)),
            message,
        } => {
            assert_eq!(response.error_message.as_deref(), Some(message.as_str()));
            (ErrorCode::from_code(response.error_code), message.clone())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_right_password_authenticates() {
    for mechanism in PASSWORD_MECHANISMS {
        let outcome = log_in(mechanism, &password("alice", "hush"));
        let session = session(&outcome);
        assert_eq!(session.principal.as_str(), "User:alice");
        assert_eq!(session.mechanism, mechanism);
        assert_eq!(session.expires_at_ms, None);
        assert!(session.may_reauthenticate);
    }
    let outcome = log_in(Mechanism::OAuthBearer, &oauth("good"));
    assert_eq!(session(&outcome).principal.as_str(), "User:alice");
    assert_eq!(session(&outcome).expires_at_ms, Some(1_700));
}

#[test]
fn a_wrong_password_and_an_unknown_user_get_the_same_answer() {
    for mechanism in PASSWORD_MECHANISMS {
        let wrong = refusal(&log_in(mechanism, &password("alice", "other")));
        let unknown = refusal(&log_in(mechanism, &password("nobody", "hush")));
        assert_eq!(wrong, unknown);
        assert_eq!(wrong.0, ErrorCode::SaslAuthenticationFailed);
        let text = match mechanism {
            Mechanism::Plain => "Authentication failed: Invalid username or password".to_owned(),
            scram => format!(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism {scram}"
            ),
        };
        assert_eq!(wrong.1, text);
    }
}

#[test]
fn an_unknown_user_fails_after_as_many_messages() {
    let rounds = |username: &str| {
        let mut authenticator = SaslAuthenticator::new(listener(None));
        authenticator.on_handshake(1, "SCRAM-SHA-256");
        let first = format!("n,,n={username},r=abc");
        let challenged = authenticator.on_token(Some(2), first.as_bytes(), &Cluster, NOW);
        assert!(matches!(challenged, Outcome::Continue(_)), "{challenged:?}");
    };
    rounds("alice");
    rounds("nobody");
}

#[test]
fn a_delegation_token_is_its_owner_until_it_expires() {
    let scram = Mechanism::Scram(ScramMechanism::Sha256);
    let outcome = log_in(scram, &delegation_token("token", "hmac"));
    let session = session(&outcome);
    assert_eq!(session.principal.as_str(), "User:owner");
    assert!(session.principal.is_token_authenticated());
    assert_eq!(session.expires_at_ms, Some(1_500));
    for (id, hmac) in [("token", "other"), ("none", "hmac"), ("alice", "hush")] {
        let refused = refusal(&log_in(scram, &delegation_token(id, hmac)));
        assert_eq!(refused.0, ErrorCode::SaslAuthenticationFailed);
    }
    let as_a_user = log_in(scram, &password("token", "hmac"));
    assert!(matches!(as_a_user, Outcome::Failed { .. }));
}

#[test]
fn an_oauth_token_that_is_not_believed_is_said_so_twice() {
    let (code, text) = refusal(&log_in(Mechanism::OAuthBearer, &oauth("bad")));
    assert_eq!(code, ErrorCode::SaslAuthenticationFailed);
    assert_eq!(text, "{\"status\":\"invalid_token\"}");
    let outcome = log_in(Mechanism::OAuthBearer, &oauth("expired"));
    assert_eq!(session(&outcome).expires_at_ms, Some(1_000));
    let mut authenticator = SaslAuthenticator::new(listener(None));
    authenticator.on_handshake(1, "OAUTHBEARER");
    let other = b"n,a=bob,\x01auth=Bearer good\x01\x01";
    let outcome = authenticator.on_token(Some(2), other, &Cluster, NOW);
    assert!(refusal(&outcome).1.contains("authorization id (bob)"));
}

#[test]
fn sessions_last_as_long_as_the_shorter_of_both_limits() {
    let lifetime = |mechanism, credentials: &ClientCredentials, max_reauth_ms| {
        let mut authenticator = SaslAuthenticator::new(listener(max_reauth_ms));
        let outcome = log_in_with(&mut authenticator, mechanism, credentials, 1, Some(1));
        let Outcome::Authenticated(Reply::Authenticate(response), session) = outcome else {
            panic!("{outcome:?}");
        };
        let from_now = session.expires_at_ms.map(|at| (at - NOW.now_ms) as i64);
        assert_eq!(response.session_lifetime_ms, from_now.unwrap_or(0));
        from_now
    };
    let alice = password("alice", "hush");
    assert_eq!(lifetime(Mechanism::Plain, &alice, None), None);
    assert_eq!(lifetime(Mechanism::Plain, &alice, Some(600)), Some(600));
    let good = oauth("good");
    assert_eq!(lifetime(Mechanism::OAuthBearer, &good, None), Some(700));
    assert_eq!(
        lifetime(Mechanism::OAuthBearer, &good, Some(600)),
        Some(600)
    );
    assert_eq!(
        lifetime(Mechanism::OAuthBearer, &good, Some(900)),
        Some(700)
    );
}

#[test]
fn tokens_without_headers_follow_the_handshake_of_version_0() {
    for mechanism in PASSWORD_MECHANISMS {
        let mut authenticator = SaslAuthenticator::new(listener(Some(600)));
        let alice = password("alice", "hush");
        let outcome = log_in_with(&mut authenticator, mechanism, &alice, 0, None);
        assert!(!session(&outcome).may_reauthenticate);
        let mut authenticator = SaslAuthenticator::new(listener(None));
        let wrong = password("alice", "other");
        let outcome = log_in_with(&mut authenticator, mechanism, &wrong, 0, None);
        match mechanism {
            Mechanism::Plain => assert!(matches!(outcome, Outcome::Failed { reply: None, .. })),
            _ => assert!(matches!(outcome, Outcome::Closed(_))),
        }
    }
}

#[test]
fn a_refusal_of_a_disabled_mechanism_lists_the_enabled_ones() {
    let mut authenticator = SaslAuthenticator::new(listener(None));
    let outcome = authenticator.on_handshake(1, "GSSAPI");
    let Outcome::Failed {
        reply: Some(Reply::Handshake(response)),
        message,
    } = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(message, "Unsupported SASL mechanism GSSAPI");
    assert_eq!(
        ErrorCode::from_code(response.error_code),
        ErrorCode::UnsupportedSaslMechanism
    );
    let names: Vec<&str> = response.mechanisms.iter().map(|it| &**it).collect();
    assert_eq!(
        names,
        ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    );
}

/// The valid order of messages, and the outcome of an invalid one.
#[test]
fn messages_have_an_order() {
    let begin = || SaslAuthenticator::new(listener(None));
    let closed = |outcome: Outcome, says: &str| match outcome {
        Outcome::Closed(reason) => assert!(reason.contains(says), "{reason}"),
        other => panic!("{other:?}"),
    };
    closed(
        begin().on_other(ApiKey::Metadata),
        "wrong security protocol",
    );
    closed(
        begin().on_token(Some(2), b"\0alice\0hush", &Cluster, NOW),
        "Unexpected Kafka request of type SASL_AUTHENTICATE during SASL handshake.",
    );
    let mut versions_twice = begin();
    assert!(versions_twice.may_ask_versions());
    versions_twice.on_versions_answered(false);
    assert!(
        versions_twice.may_ask_versions(),
        "an unknown version may be followed by a known one"
    );
    versions_twice.on_versions_answered(true);
    assert!(!versions_twice.may_ask_versions());
    closed(
        versions_twice.on_other(ApiKey::Metadata),
        "type METADATA during SASL handshake",
    );

    let mut in_exchange = begin();
    in_exchange.on_handshake(1, "PLAIN");
    assert!(!in_exchange.may_ask_versions());
    match in_exchange.on_other(ApiKey::Metadata) {
        Outcome::Misplaced { message } => assert_eq!(
            message,
            "Unexpected Kafka request of type METADATA during SASL authentication."
        ),
        other => panic!("{other:?}"),
    }
    closed(
        in_exchange.on_token(Some(2), b"\0alice\0hush", &Cluster, NOW),
        "SASL_AUTHENTICATE",
    );

    // Malformed messages get neither a response nor a delay.
    let mut of_no_version = begin();
    of_no_version.on_handshake(1, "PLAIN");
    closed(
        of_no_version.on_unsupported_version(ApiKey::SaslAuthenticate, 9),
        "SaslAuthenticate and version 9",
    );
    closed(
        begin().on_unsupported_version(ApiKey::SaslHandshake, 9),
        "wrong security protocol",
    );

    let mut handshake_twice = begin();
    handshake_twice.on_handshake(1, "PLAIN");
    match handshake_twice.on_handshake(1, "PLAIN") {
        Outcome::Misplaced { message } => assert_eq!(
            message,
            "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication."
        ),
        other => panic!("{other:?}"),
    }
    let too_long = begin().on_invalid_frame();
    assert!(matches!(too_long, Outcome::Failed { reply: None, .. }));
}

#[test]
fn a_session_begins_anew_with_the_same_mechanism_and_principal() {
    let plain = Mechanism::Plain;
    let first = log_in(plain, &password("alice", "hush"));
    let again = || SaslAuthenticator::again(listener(Some(600)), session(&first).clone());
    let alice = password("alice", "hush");
    let outcome = log_in_with(&mut again(), plain, &alice, 1, Some(2));
    assert_eq!(session(&outcome).expires_at_ms, Some(1_600));

    let mut other = again();
    let outcome = other.on_handshake(1, "SCRAM-SHA-256");
    assert!(matches!(outcome, Outcome::Continue(_)));
    match other.on_token(Some(2), b"n,,n=alice,r=abc", &Cluster, NOW) {
        Outcome::Failed { message, .. } => assert_eq!(
            message,
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of \
             mechanism 'PLAIN'"
        ),
        other => panic!("{other:?}"),
    }

    // Neither a response nor a delay.
    assert_eq!(
        again().on_handshake(1, "ROT13"),
        Outcome::Closed("Unsupported SASL mechanism ROT13".to_owned())
    );

    let bob = Session {
        principal: Principal::user("bob"),
        ..session(&first).clone()
    };
    let mut changed = SaslAuthenticator::again(listener(None), bob);
    let outcome = log_in_with(&mut changed, plain, &alice, 1, Some(2));
    assert_eq!(
        refusal(&outcome).1,
        "Cannot change principals during re-authentication from User.bob: User.alice"
    );

    let scram = Mechanism::Scram(ScramMechanism::Sha256);
    let first = log_in(scram, &alice);
    let mut wrong = SaslAuthenticator::again(listener(None), session(&first).clone());
    let outcome = log_in_with(&mut wrong, scram, &password("alice", "x"), 1, Some(2));
    assert_eq!(
        refusal(&outcome).1,
        "Authentication failed during re-authentication due to invalid credentials with SASL mechanism \
         SCRAM-SHA-256"
    );
}

/// A listener with Kerberos, after a handshake for it.
fn kerberos(handshake: i16, max_reauth_ms: Option<u64>) -> SaslAuthenticator {
    let service = KerberosService {
        principal: Some("kafka/broker@REALM".to_owned()),
        keytab: None,
        rules: KerberosRules::parse(["DEFAULT"]).unwrap(),
    };
    let enabled = EnabledMechanism {
        mechanism: Mechanism::Gssapi,
        max_reauth_ms,
        users: BTreeMap::new(),
        tokens: None,
        kerberos: Some(Arc::new(service)),
    };
    let mechanisms = vec![enabled];
    let mut authenticator = SaslAuthenticator::new(Arc::new(SaslListener { mechanisms }));
    let outcome = authenticator.on_handshake(handshake, "GSSAPI");
    assert!(matches!(outcome, Outcome::Continue(_)), "{outcome:?}");
    authenticator
}

/// Passes a message on to the library, which answers this.
fn ask(
    authenticator: &mut SaslAuthenticator,
    version: Option<i16>,
    answer: KerberosAnswer,
) -> Outcome {
    let outcome = authenticator.on_token(version, b"token", &Cluster, NOW);
    let Outcome::Kerberos { service, message } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(service.principal.as_deref(), Some("kafka/broker@REALM"));
    assert_eq!(message, b"token");
    authenticator.on_kerberos(answer, NOW)
}

#[test]
fn a_ticket_is_checked_by_the_library() {
    let done = || KerberosAnswer::Done {
        user: "alice".to_owned(),
    };
    for (handshake, version) in [(0, None), (1, Some(2))] {
        let mut authenticator = kerberos(handshake, Some(9));
        let challenge = KerberosAnswer::Challenge(vec![1, 2]);
        match ask(&mut authenticator, version, challenge) {
            Outcome::Continue(Reply::Token(token)) => assert_eq!(token, [1, 2]),
            Outcome::Continue(Reply::Authenticate(response)) => {
                assert_eq!(response.auth_bytes.to_vec(), [1, 2]);
            }
            other => panic!("{other:?}"),
        }
        let outcome = ask(&mut authenticator, version, done());
        // Without headers, the client waits for nothing more.
        let is_silent = matches!(outcome, Outcome::Authenticated(Reply::Nothing, _));
        assert_eq!(is_silent, handshake == 0, "{outcome:?}");
        let session = session(&outcome);
        assert_eq!(session.principal.as_str(), "User:alice");
        // Only connections.max.reauth.ms limits it.
        assert_eq!(session.expires_at_ms, Some(NOW.now_ms + 9));
    }
    let outcome = ask(&mut kerberos(1, None), Some(2), done());
    assert_eq!(session(&outcome).expires_at_ms, None);
}

#[test]
fn a_refused_ticket_gets_no_reason_and_a_transient_failure_closes_the_connection() {
    let outcome = ask(&mut kerberos(1, None), Some(2), KerberosAnswer::Refused);
    assert_eq!(
        refusal(&outcome),
        (
            ErrorCode::SaslAuthenticationFailed,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
                .to_owned()
        )
    );
    let outcome = ask(&mut kerberos(0, None), None, KerberosAnswer::Refused);
    assert!(matches!(outcome, Outcome::Closed(_)), "{outcome:?}");
    let passing = KerberosAnswer::TryAgain("a replay".to_owned());
    let outcome = ask(&mut kerberos(1, None), Some(2), passing);
    assert_eq!(outcome, Outcome::Closed("a replay".to_owned()));
}

#[test]
fn a_principal_without_a_user_is_logged_in_and_may_ask_nothing() {
    let closed = |outcome: Outcome| match outcome {
        Outcome::Closed(reason) => assert!(reason.contains("Kerberos principal"), "{reason}"),
        other => panic!("{other:?}"),
    };
    let begun = |handshake, version| {
        let mut authenticator = kerberos(handshake, None);
        let outcome = ask(&mut authenticator, version, KerberosAnswer::Nameless);
        (authenticator, outcome)
    };
    let (mut authenticator, outcome) = begun(1, Some(2));
    let Outcome::Continue(Reply::Authenticate(response)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(response.error_code, ErrorCode::None.code());
    assert!(!authenticator.expects_token() && !authenticator.may_ask_versions());
    closed(authenticator.on_other(ApiKey::Metadata));
    closed(begun(1, Some(2)).0.on_handshake(1, "GSSAPI"));
    closed(begun(1, Some(2)).0.on_token(Some(2), b"", &Cluster, NOW));
    closed(
        begun(1, Some(2))
            .0
            .on_unsupported_version(ApiKey::Fetch, 99),
    );
    let (mut authenticator, outcome) = begun(0, None);
    assert_eq!(outcome, Outcome::Continue(Reply::Nothing));
    assert!(!authenticator.expects_token());
    closed(authenticator.on_other(ApiKey::Metadata));

    // A session that is renewed ends at once.
    let listener = Arc::clone(&kerberos(1, None).listener);
    let previous = Session {
        principal: Principal::user("alice"),
        mechanism: Mechanism::Gssapi,
        expires_at_ms: None,
        may_reauthenticate: true,
    };
    let mut authenticator = SaslAuthenticator::again(listener, previous);
    authenticator.on_handshake(1, "GSSAPI");
    closed(ask(&mut authenticator, Some(2), KerberosAnswer::Nameless));
}

proptest::proptest! {
    #[test]
    fn any_tokens_lead_to_an_outcome(
        tokens in proptest::collection::vec(proptest::collection::vec(0u8.., 0..60), 1..4),
        mechanism in 0usize..4,
        handshake in 0i16..2,
    ) {
        let mut authenticator = SaslAuthenticator::new(listener(None));
        authenticator.on_handshake(handshake, Mechanism::ALL[mechanism].name());
        for token in tokens {
            let outcome = authenticator.on_token(Some(handshake), &token, &Cluster, NOW);
            assert!(!matches!(outcome, Outcome::Authenticated(..)));
        }
    }
}
