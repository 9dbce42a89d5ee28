use bytes::Bytes;
use ottla_protocol::messages::create_delegation_token_request::CreatableRenewers;

use super::*;
use crate::test_support::Cluster;

const NOW: Timestamp = Timestamp(1_000_000);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

fn cluster() -> Cluster {
    let mut cluster = Cluster::single_node().with_setting("delegation.token.secret.key", "secret");
    cluster.client = "User:alice".into();
    cluster
}

fn renewer(principal_type: &'static str, name: &'static str) -> CreatableRenewers {
    CreatableRenewers {
        principal_type: principal_type.into(),
        principal_name: name.into(),
        ..Default::default()
    }
}

/// Creates a token of alice that bob can renew.
fn create(cluster: &mut Cluster) -> CreateDelegationTokenResponse {
    let request = CreateDelegationTokenRequest {
        renewers: vec![renewer("User", "bob")],
        max_lifetime_ms: -1,
        ..Default::default()
    };
    let decision = create_delegation_token(&mut cluster.context(), &request, NOW);
    assert_eq!(decision.response.error_code, 0);
    cluster.apply(&decision.records);
    decision.response
}

fn renew(
    cluster: &mut Cluster,
    client: &'static str,
    hmac: &Bytes,
    renew_period_ms: i64,
    now_ms: i64,
) -> (ErrorCode, i64) {
    cluster.client = client.into();
    let request = RenewDelegationTokenRequest {
        hmac: hmac.clone(),
        renew_period_ms,
        ..Default::default()
    };
    let decision = renew_delegation_token(&cluster.context(), &request, Timestamp(now_ms));
    cluster.apply(&decision.records);
    let response = decision.response;
    let code = ErrorCode::from_code(response.error_code);
    (code, response.expiry_timestamp_ms)
}

fn expire(
    cluster: &mut Cluster,
    client: &'static str,
    hmac: &Bytes,
    period_ms: i64,
    now_ms: i64,
) -> (ErrorCode, i64) {
    cluster.client = client.into();
    let request = ExpireDelegationTokenRequest {
        hmac: hmac.clone(),
        expiry_time_period_ms: period_ms,
        ..Default::default()
    };
    let decision = expire_delegation_token(&cluster.context(), &request, Timestamp(now_ms));
    cluster.apply(&decision.records);
    let response = decision.response;
    let code = ErrorCode::from_code(response.error_code);
    (code, response.expiry_timestamp_ms)
}

fn tokens(cluster: &Cluster) -> usize {
    cluster.image.kept.delegation_tokens.iter().count()
}

#[test]
fn a_token_belongs_to_its_owner_and_its_hmac_is_not_logged() {
    let mut cluster = cluster();
    let created = create(&mut cluster);
    assert_eq!(
        (&*created.principal_type, &*created.principal_name),
        ("User", "alice")
    );
    assert_eq!(&*created.token_requester_principal_name, "alice");
    assert_eq!(created.issue_timestamp_ms, NOW.0);
    assert_eq!(created.expiry_timestamp_ms, NOW.0 + DAY_MS);
    assert_eq!(created.max_timestamp_ms, NOW.0 + 7 * DAY_MS);
    assert_eq!(created.hmac, token_hmac("secret", &created.token_id));
    let record = cluster.image.kept.delegation_tokens.iter().next().unwrap();
    assert_eq!(record.token_id, created.token_id);
    assert_eq!(&*record.owner, "User:alice");
    assert_eq!(&*record.requester, "User:alice");
    assert_eq!(record.renewers, ["User:bob"]);

    let for_carol = CreateDelegationTokenRequest {
        owner_principal_type: Some("User".into()),
        owner_principal_name: Some("carol".into()),
        max_lifetime_ms: 5_000,
        ..Default::default()
    };
    let decision = create_delegation_token(&mut cluster.context(), &for_carol, NOW);
    assert_eq!(&*decision.response.principal_name, "carol");
    assert_eq!(&*decision.response.token_requester_principal_name, "alice");
    assert_eq!(decision.response.expiry_timestamp_ms, NOW.0 + 5_000);
    assert_eq!(decision.response.max_timestamp_ms, NOW.0 + 5_000);
}

#[test]
fn a_token_is_refused_if_tokens_are_unsupported() {
    let request = CreateDelegationTokenRequest {
        renewers: vec![renewer("Group", "g")],
        ..Default::default()
    };
    for (mut cluster, error) in [
        (cluster(), ErrorCode::InvalidPrincipalType),
        (
            Cluster::single_node(),
            ErrorCode::DelegationTokenAuthDisabled,
        ),
        (
            Cluster::single_node().with_setting("delegation.token.secret.key", ""),
            ErrorCode::DelegationTokenAuthDisabled,
        ),
        (
            // 3.6-IV1 does not support delegation tokens.
            cluster().with_feature("metadata.version", 13),
            ErrorCode::UnsupportedVersion,
        ),
    ] {
        let decision = create_delegation_token(&mut cluster.context(), &request, NOW);
        assert_eq!(ErrorCode::from_code(decision.response.error_code), error);
        assert_eq!(decision.records, []);
    }
}

#[test]
fn owner_and_renewers_renew_until_the_latest_time() {
    let mut cluster = cluster();
    let hmac = create(&mut cluster).hmac;
    let (mismatch, expired) = (
        ErrorCode::DelegationTokenOwnerMismatch,
        ErrorCode::DelegationTokenExpired,
    );
    let later = NOW.0 + DAY_MS / 2;
    let renewed = |cluster: &mut _, client, period, now| renew(cluster, client, &hmac, period, now);
    assert_eq!(
        renewed(&mut cluster, "User:carol", -1, later),
        (mismatch, 0)
    );
    let other = Bytes::from_static(b"other");
    let not_found = (ErrorCode::DelegationTokenNotFound, 0);
    assert_eq!(
        renew(&mut cluster, "User:alice", &other, -1, later),
        not_found
    );
    let ok = |expiry| (ErrorCode::None, expiry);
    assert_eq!(
        renewed(&mut cluster, "User:bob", -1, later),
        ok(later + DAY_MS)
    );
    assert_eq!(
        renewed(&mut cluster, "User:alice", 1_000, later),
        ok(later + 1_000)
    );
    assert_eq!(
        renewed(&mut cluster, "User:alice", i64::MAX, later),
        ok(later + DAY_MS)
    );
    for day in 1..7 {
        let now = NOW.0 + day * DAY_MS;
        let expiry = now + DAY_MS;
        assert_eq!(renewed(&mut cluster, "User:bob", -1, now), ok(expiry));
    }
    let end = NOW.0 + 7 * DAY_MS;
    assert_eq!(renewed(&mut cluster, "User:bob", -1, end), ok(end));
    assert_eq!(renewed(&mut cluster, "User:bob", -1, end + 1), (expired, 0));
}

#[test]
fn a_token_expires_at_once_or_later() {
    let mut cluster = cluster();
    let hmac = create(&mut cluster).hmac;
    let mismatch = (ErrorCode::DelegationTokenOwnerMismatch, 0);
    assert_eq!(
        expire(&mut cluster, "User:carol", &hmac, -1, NOW.0),
        mismatch
    );
    let later = (ErrorCode::None, NOW.0 + 10);
    assert_eq!(expire(&mut cluster, "User:bob", &hmac, 10, NOW.0), later);
    let expired = (ErrorCode::DelegationTokenExpired, 0);
    assert_eq!(
        expire(&mut cluster, "User:bob", &hmac, 10, NOW.0 + 11),
        expired
    );
    // It can still be expired at once.
    let ended = (ErrorCode::None, NOW.0 + 11);
    assert_eq!(
        expire(&mut cluster, "User:alice", &hmac, -1, NOW.0 + 11),
        ended
    );
    assert_eq!(tokens(&cluster), 0);
}

#[test]
fn expired_tokens_are_removed_in_batches_of_a_thousand() {
    let mut cluster = cluster();
    for _ in 0..1_100 {
        create(&mut cluster);
    }
    let sweep = |cluster: &mut Cluster, now_ms| {
        let records = remove_expired_tokens(&cluster.context(), Timestamp(now_ms));
        cluster.apply(&records);
        records.len()
    };
    assert_eq!(sweep(&mut cluster, NOW.0 + DAY_MS), 0);
    assert_eq!(sweep(&mut cluster, NOW.0 + DAY_MS + 1), 1_000);
    assert_eq!(sweep(&mut cluster, NOW.0 + DAY_MS + 1), 100);
    assert_eq!(tokens(&cluster), 0);
}
