use super::*;
use crate::secret::Secret;

const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SERVER_FIRST: &[u8] = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                              s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                              p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn client(username: &str, nonce: &str) -> ScramClient {
    let password = Secret::new("pencil");
    ScramClient::new(
        ScramMechanism::Sha256,
        username,
        password,
        false,
        nonce.to_owned(),
    )
}

/// The credential in the example of RFC 7677, section 3.
fn credential() -> ScramCredential {
    let salt = message::base64("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    ScramMechanism::Sha256.credential("pencil", salt, 4096)
}

#[test]
fn the_client_matches_the_example_of_the_rfc() {
    let begin = || {
        let mut login = client("user", CLIENT_NONCE);
        assert_eq!(login.first_message(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!(
            login.on_message(SERVER_FIRST).unwrap().unwrap(),
            CLIENT_FINAL
        );
        login
    };
    assert_eq!(begin().on_message(SERVER_FINAL), Ok(None));
    let bad = b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert!(begin().on_message(bad).is_err());
    let error = begin().on_message(b"e=invalid-proof").unwrap_err();
    assert!(error.contains("invalid-proof"));
    assert!(begin().on_message(b"").is_err());
}

#[test]
fn a_broker_that_is_not_believable_gets_no_proof() {
    for answer in [
        "r=other,s=AAAA,i=4096",
        "r=abcd,s=AAAA,i=1",
        "r=abcd,s=!,i=4096",
        "x",
        "r=abc,s=AAAA,i=4096",
    ] {
        let mut login = client("a=b,c", "abc");
        assert_eq!(login.first_message(), b"n,,n=a=3Db=2Cc,r=abc");
        assert!(login.on_message(answer.as_bytes()).is_err(), "{answer}");
    }
}

#[test]
fn the_broker_matches_the_example_of_the_rfc() {
    let mut server = ScramServer::new(ScramMechanism::Sha256);
    let first = server.on_client_first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    assert_eq!(
        first,
        Ok(ClientFirst {
            username: "user".into(),
            is_token: false
        })
    );
    let challenge = server.challenge(credential(), true, SERVER_NONCE).unwrap();
    assert_eq!(challenge, SERVER_FIRST);
    assert_eq!(server.on_client_final(CLIENT_FINAL).unwrap(), SERVER_FINAL);
    assert_eq!(
        server.on_client_final(CLIENT_FINAL),
        Err(ScramError::OutOfTurn)
    );
}

fn log_in(
    mechanism: ScramMechanism,
    mut login: ScramClient,
    credential: ScramCredential,
    is_known: bool,
) -> Result<(), ScramError> {
    let mut server = ScramServer::new(mechanism);
    server.on_client_first(&login.first_message())?;
    let challenge = server.challenge(credential, is_known, "def")?;
    let last = login.on_message(&challenge).unwrap().unwrap();
    let answer = server.on_client_final(&last)?;
    assert_eq!(login.on_message(&answer), Ok(None));
    Ok(())
}

#[test]
fn both_sides_agree_with_any_name_and_password() {
    for mechanism in ScramMechanism::ALL {
        for (name, password) in [("alice", "x"), ("a,=b", "p,=w"), ("u", "pässwörd")] {
            let login = |password| {
                ScramClient::new(mechanism, name, Secret::new(password), true, "abc".into())
            };
            let credential = mechanism.credential(password, vec![7; 16], 4096);
            assert_eq!(
                log_in(mechanism, login(password), credential.clone(), true),
                Ok(())
            );
            assert_eq!(
                log_in(mechanism, login("other"), credential, true),
                Err(ScramError::Proof)
            );
        }
    }
}

#[test]
fn an_unknown_user_gets_the_same_challenge_and_is_refused() {
    let mechanism = ScramMechanism::Sha256;
    let model = mechanism.credential("pencil", vec![1; 12], 8192);
    let decoy = mechanism.decoy(b"secret", "nobody", Some(&model));
    assert_eq!(
        decoy,
        mechanism.decoy(b"secret", "nobody", Some(&model)),
        "a salt that changes gives it away"
    );
    assert_ne!(decoy.salt, mechanism.decoy(b"secret", "other", None).salt);
    assert_eq!((decoy.salt.len(), decoy.iterations), (12, 8192));
    assert_eq!(decoy.keys.stored_key.len(), mechanism.key_bytes());
    let refused = log_in(mechanism, client("nobody", "abc"), decoy, false);
    assert_eq!(refused, Err(ScramError::Proof));
    let even_with_its_password = log_in(mechanism, client("nobody", "abc"), credential(), false);
    assert_eq!(even_with_its_password, Err(ScramError::UnknownUser));
}

#[test]
fn first_messages_are_read_by_kafkas_grammar() {
    let read = |message: &str| {
        ScramServer::new(ScramMechanism::Sha256).on_client_first(message.as_bytes())
    };
    let named = |username: &str, is_token| {
        Ok(ClientFirst {
            username: username.to_owned(),
            is_token,
        })
    };
    for (message, outcome) in [
        ("n,,n=a,r=b", named("a", false)),
        ("n,a=a,n=a,r=b", named("a", false)),
        ("n,,m=x,n=a,r=b", named("a", false)),
        ("n,,n=a=3Db=2Cc,r=b,tokenauth=true", named("a=b,c", true)),
        ("n,,n=a,r=b,x=y,tokenauth=TRUE", named("a", true)),
        ("n,,n=a,r=b,tokenauth=false", named("a", false)),
        ("n,a=b,n=a,r=b", Err(ScramError::OtherAuthorizationId)),
        ("y,,n=a,r=b", Err(ScramError::FirstMessage)),
        ("p=tls-unique,,n=a,r=b", Err(ScramError::FirstMessage)),
        ("n,,n=,r=b", Err(ScramError::FirstMessage)),
        ("n,,n=a,r=", Err(ScramError::FirstMessage)),
        ("n,,n=a=b,r=b", Err(ScramError::FirstMessage)),
        ("n,,n=a,r=b,", Err(ScramError::FirstMessage)),
        ("n,,n=a,r=b,1=x", Err(ScramError::FirstMessage)),
        ("n,,n=\u{e4},r=b", Err(ScramError::FirstMessage)),
        ("n,n=a,r=b", Err(ScramError::FirstMessage)),
        ("", Err(ScramError::FirstMessage)),
    ] {
        assert_eq!(read(message), outcome, "{message}");
    }
}

#[test]
fn a_final_message_that_is_not_this_exchanges_is_refused() {
    for (message, error) in [
        ("c=biws,r=abcdef", ScramError::FinalMessage),
        ("c=!,r=abcdef,p=AAAA", ScramError::FinalMessage),
        ("c=biws,r=abcdef,p=!", ScramError::FinalMessage),
        ("c=biws,r=abc,p=AAAA", ScramError::Nonce),
        ("c=biws,r=abcdef,p=AAAA", ScramError::Proof),
        ("c=biws,r=abcdef,p=", ScramError::Proof),
        ("", ScramError::FinalMessage),
    ] {
        let mut server = ScramServer::new(ScramMechanism::Sha256);
        server.on_client_first(b"n,,n=user,r=abc").unwrap();
        server.challenge(credential(), true, "def").unwrap();
        assert_eq!(
            server.on_client_final(message.as_bytes()),
            Err(error),
            "{message}"
        );
    }
}

#[test]
fn nothing_shows_a_key() {
    let mut server = ScramServer::new(ScramMechanism::Sha256);
    server.on_client_first(b"n,,n=user,r=abc").unwrap();
    server.challenge(credential(), true, "def").unwrap();
    let shown = format!("{server:?} {:?}", client("a", "b"));
    assert!(
        !shown.contains("stored_key") && !shown.contains("pencil"),
        "{shown}"
    );
}
