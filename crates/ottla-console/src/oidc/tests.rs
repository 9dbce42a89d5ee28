//! Logins at a provider that behaves, and at one that does not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_client::{ClientConfig, SuppliedToken};
use ottla_sasl::Secret;
use ottla_testkit::identity_provider::{CLIENT_ID, CLIENT_SECRET, Conduct, IdentityProvider};
use serde_json::json;

use super::*;
use crate::budget::Budget;
use crate::sampling::Sampling;
use crate::visit::Visit;

const REDIRECT: &str = "https://console.example/login";

fn oidc(provider: &IdentityProvider) -> Oidc {
    let settings = [("client.secret", CLIENT_SECRET)];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Oidc::new(OidcConfig::new(provider.url(), CLIENT_ID, &settings.into()).unwrap())
}

/// A login until the console has tokens.
async fn tokens_of(
    oidc: &Oidc,
    provider: &IdentityProvider,
    flow: &Flow,
) -> Result<Tokens, Failure> {
    let metadata = oidc.provider.metadata().await?;
    let address = oidc.provider.login_address(&metadata, flow, REDIRECT);
    let back = provider.log_in(&address, "alice");
    assert_eq!((&*back.redirect_uri, &back.state), (REDIRECT, &flow.state));
    let exchanged = oidc
        .provider
        .exchange(&metadata, &back.code, flow, REDIRECT);
    exchanged.await
}

async fn user_of(oidc: &Oidc, provider: &IdentityProvider) -> Result<String, Failure> {
    let flow = oidc.flows.begin(Instant::now());
    let tokens = tokens_of(oidc, provider, &flow).await?;
    let id = tokens.id.expect("an ID token");
    let person = oidc.provider.identify(&id, Some(&flow.nonce)).await;
    person.map(|it| it.user)
}

#[tokio::test]
async fn a_code_is_changed_for_tokens_once_and_by_whoever_has_asked_for_it() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    assert_eq!(user_of(&oidc, &provider).await.unwrap(), "alice");
    let metadata = oidc.provider.metadata().await.unwrap();
    let (flow, other) = (
        oidc.flows.begin(Instant::now()),
        oidc.flows.begin(Instant::now()),
    );
    let address = oidc.provider.login_address(&metadata, &flow, REDIRECT);
    // A stolen code is useless without the verifier of its login.
    let stolen = provider.log_in(&address, "alice").code;
    let exchange = |code: String, flow: Flow, redirect: &'static str| {
        let (oidc, metadata) = (&oidc, &metadata);
        async move {
            let provider = &oidc.provider;
            provider.exchange(metadata, &code, &flow, redirect).await
        }
    };
    let refused = exchange(stolen, other, REDIRECT).await.unwrap_err();
    assert!(matches!(refused, Failure::Refused(_)), "{refused:?}");
    let code = provider.log_in(&address, "alice").code;
    let again = oidc.flows.find(flow.cookie(), &flow.state, Instant::now());
    exchange(code.clone(), flow, REDIRECT).await.unwrap();
    let refused = exchange(code, again.unwrap(), REDIRECT).await.unwrap_err();
    assert!(refused.reason().contains("invalid_grant"), "{refused:?}");
    // The document and the keys were requested once.
    let requests = provider.requests();
    let count = |path: &str| requests.iter().filter(|it| *it == path).count();
    assert_eq!(count("/.well-known/openid-configuration"), 1);
    assert_eq!(count("/keys"), 1);
}

#[tokio::test]
async fn an_id_token_that_is_not_for_this_login_is_refused() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    for (claims, says) in [
        (json!({ "nonce": "of another login" }), "nonce"),
        (json!({ "nonce": null }), "nonce"),
        (json!({ "aud": "another client" }), "another client"),
        (json!({ "aud": null }), "no audience"),
        (json!({ "azp": "another client" }), "another client"),
        (json!({ "iss": "https://evil.example" }), "evil.example"),
        (json!({ "exp": 1 }), "expired"),
        (json!({ "nbf": 99_999_999_999_u64 }), "valid in"),
        (json!({ "sub": 7 }), "no claim sub"),
    ] {
        provider.change(|it| it.id_claims = claims);
        let refused = user_of(&oidc, &provider).await.unwrap_err();
        let is_final = matches!(refused, Failure::Refused(_));
        assert!(is_final && refused.reason().contains(says), "{refused:?}");
    }
    // Clocks differ a little.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    provider.change(|it| it.id_claims = json!({ "exp": now - 10, "nbf": now + 10 }));
    assert_eq!(user_of(&oidc, &provider).await.unwrap(), "alice");
}

#[tokio::test]
async fn a_new_key_is_asked_for_whatever_its_id() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    assert_eq!(user_of(&oidc, &provider).await.unwrap(), "alice");
    let count = || {
        provider
            .requests()
            .iter()
            .filter(|it| *it == "/keys")
            .count()
    };
    for (key_id, says) in [("first", "signature"), ("second", "kid second")] {
        provider.replace_key(key_id);
        // Not more often than every few seconds.
        let before = count();
        let refused = user_of(&oidc, &provider).await.unwrap_err();
        assert!(refused.reason().contains(says), "{refused:?}");
        assert_eq!(count(), before);
        oidc.provider.age_keys().await;
        assert_eq!(user_of(&oidc, &provider).await.unwrap(), "alice");
        assert_eq!(count(), before + 1);
    }
}

#[tokio::test]
async fn a_client_that_the_provider_does_not_know_gets_nothing() {
    let provider = IdentityProvider::start();
    let settings = BTreeMap::from([("client.secret".to_owned(), "guessed".to_owned())]);
    let oidc = Oidc::new(OidcConfig::new(provider.url(), CLIENT_ID, &settings).unwrap());
    let refused = user_of(&oidc, &provider).await.unwrap_err();
    let reason = refused.reason();
    assert!(
        reason.contains("invalid_client") && !reason.contains("guessed"),
        "{reason}"
    );
}

#[tokio::test]
async fn responses_of_a_hostile_provider_are_bounded() {
    let provider = IdentityProvider::start();
    let changes: [fn(&mut Conduct); 6] = [
        |it| it.only_answer = Some((200, "x".repeat(2 << 20))),
        |it| it.only_answer = Some((500, String::new())),
        |it| it.only_answer = Some((200, "{".repeat(100_000))),
        |it| it.document = json!({ "issuer": "https://evil.example" }),
        |it| it.document = json!({ "authorization_endpoint": "javascript:alert(1)" }),
        |it| it.answer = json!({ "access_token": "a".repeat(100_000) }),
    ];
    for change in changes {
        provider.change(|it| {
            (it.only_answer, it.document, it.answer) = (None, json!({}), json!({}));
            change(it);
        });
        // It has no cached state of the provider yet.
        let refused = user_of(&oidc(&provider), &provider).await.unwrap_err();
        let reason = refused.reason();
        assert!(matches!(refused, Failure::Unusable(_)), "{reason}");
        assert!(
            reason.contains(provider.url()) && reason.len() < 1000,
            "{reason}"
        );
    }
    // A failed request is not repeated at once.
    let oidc = oidc(&provider);
    provider.change(|it| it.only_answer = Some((500, String::new())));
    let before = provider.requests().len();
    for _ in 0..5 {
        oidc.provider.metadata().await.unwrap_err();
    }
    assert_eq!(provider.requests().len(), before + 1);
}

/// A session whose login has these tokens, and the task that keeps them.
fn session(
    oidc: &Oidc,
    tokens: Tokens,
    lasts: Duration,
) -> (Arc<Visit>, tokio::task::JoinHandle<()>) {
    let config = ClientConfig::new("127.0.0.1:1").unwrap();
    let (budget, sampling) = (Budget::default(), Sampling::new(None));
    let visit = Arc::new(Visit::new(Some("alice".into()), config, budget, sampling));
    let login = Login {
        subject: "alice".into(),
        token: SuppliedToken::new(tokens.access),
        refresh: tokens.refresh,
        lasts,
    };
    let task = tokio::spawn(keep(oidc.provider.clone(), visit.clone(), login));
    (visit, task)
}

const SOON: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_session_ends_with_its_token_and_a_logout_revokes_it() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    let flow = oidc.flows.begin(Instant::now());
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    let refresh = tokens.refresh.clone().unwrap();
    // The token is replaced, and the session continues.
    let (visit, task) = session(&oidc, tokens, SOON);
    let began = Instant::now();
    let count = |path: &str| provider.requests().iter().filter(|it| *it == path).count();
    while count("/token") < 2 {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(SOON / 5).await;
    }
    assert!(!visit.has_ended());
    visit.end();
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert_eq!(count("/revoke"), 1);
    let refused = oidc.provider.refresh(&refresh).await.unwrap_err();
    assert!(matches!(refused, Failure::Refused(_)), "{refused:?}");

    // The provider ends the user's session.
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    provider.change(|it| it.refuses_refreshing = true);
    let (visit, task) = session(&oidc, tokens, SOON);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(visit.has_ended());

    // There is nothing to refresh with.
    provider.change(|it| it.answer = json!({ "refresh_token": null }));
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    assert!(tokens.refresh.is_none());
    let (visit, task) = session(&oidc, tokens, SOON);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(visit.has_ended());
}

#[tokio::test]
async fn a_person_with_a_new_name_stays_the_same_person() {
    let provider = IdentityProvider::start();
    let settings = [
        ("client.secret", CLIENT_SECRET),
        ("user.claim", "preferred_username"),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = OidcConfig::new(provider.url(), CLIENT_ID, &settings.into());
    let oidc = Oidc::new(config.unwrap());
    provider.change(|it| it.id_claims = json!({ "preferred_username": "alice" }));
    let flow = oidc.flows.begin(Instant::now());
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    let id = tokens.id.clone().unwrap();
    let person = oidc.provider.identify(&id, Some(&flow.nonce)).await;
    let person = person.unwrap();
    assert_eq!((&*person.user, &*person.subject), ("alice", "alice"));
    provider.change(|it| it.id_claims = json!({ "preferred_username": "alice.smith" }));
    let (visit, task) = session(&oidc, tokens, SOON);
    let began = Instant::now();
    let refreshed = || {
        provider
            .requests()
            .iter()
            .filter(|it| *it == "/token")
            .count()
            >= 2
    };
    while !refreshed() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(SOON / 5).await;
    }
    tokio::time::sleep(SOON).await;
    assert!(!visit.has_ended());
    visit.end();
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();

    // Another user gets the name.
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    provider.change(|it| {
        it.id_claims = json!({ "sub": "mallory", "preferred_username": "alice.smith" });
    });
    let (visit, task) = session(&oidc, tokens, SOON);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(visit.has_ended());
}

#[tokio::test]
async fn a_logout_names_the_session_that_ends() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    let address = oidc.provider.logout_address(&Secret::new("a.b.c")).await;
    let address = address.unwrap();
    assert!(address.contains("/logout?"), "{address}");
    assert!(address.contains("client_id="), "{address}");
    assert!(address.contains("id_token_hint=a.b.c"), "{address}");
    let long = Secret::new("a".repeat(60_000));
    let address = oidc.provider.logout_address(&long).await.unwrap();
    assert!(!address.contains("id_token_hint"), "{address}");
}

#[tokio::test]
async fn tokens_of_somebody_else_end_the_session() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    let flow = oidc.flows.begin(Instant::now());
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    provider.change(|it| it.id_claims = json!({ "sub": "mallory" }));
    let (visit, task) = session(&oidc, tokens, SOON);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(visit.has_ended());
    // Their refresh token is revoked as well.
    assert_eq!(provider.refresh_tokens(), 0);
}

#[tokio::test]
async fn a_session_ends_if_the_provider_is_away_until_its_token_expires() {
    let provider = IdentityProvider::start();
    let oidc = oidc(&provider);
    let flow = oidc.flows.begin(Instant::now());
    let tokens = tokens_of(&oidc, &provider, &flow).await.unwrap();
    provider.change(|it| it.only_answer = Some((503, String::new())));
    let refresh = tokens.refresh.clone().unwrap();
    let refused = oidc.provider.refresh(&refresh).await.unwrap_err();
    assert!(matches!(refused, Failure::Unusable(_)), "{refused:?}");
    // Another attempt would come too late.
    let (visit, task) = session(&oidc, tokens, SOON);
    tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(visit.has_ended());
}
