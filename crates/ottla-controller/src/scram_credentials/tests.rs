use bytes::Bytes;

use super::*;
use crate::test_support::Cluster;

fn upsertion(name: &'static str, mechanism: i8, iterations: i32) -> ScramCredentialUpsertion {
    ScramCredentialUpsertion {
        name: name.into(),
        mechanism,
        iterations,
        salt: Bytes::from_static(b"salt"),
        // The salted password in the example of RFC 7677: password "pencil", 4096 iterations.
        salted_password: Bytes::from_static(&[
            0xc4, 0xa4, 0x95, 0x10, 0x32, 0x3a, 0xb4, 0xf9, 0x52, 0xca, 0xc1, 0xfa, 0x99, 0x44,
            0x19, 0x39, 0xe7, 0x8e, 0xa7, 0x4d, 0x6b, 0xe8, 0x1d, 0xdf, 0x70, 0x96, 0xe8, 0x75,
            0x13, 0xdc, 0x61, 0x5d,
        ]),
        ..Default::default()
    }
}

fn deletion(name: &'static str, mechanism: i8) -> ScramCredentialDeletion {
    ScramCredentialDeletion {
        name: name.into(),
        mechanism,
        ..Default::default()
    }
}

fn decide(
    cluster: &mut Cluster,
    deletions: Vec<ScramCredentialDeletion>,
    upsertions: Vec<ScramCredentialUpsertion>,
) -> Decision<AlterUserScramCredentialsResponse> {
    let request = AlterUserScramCredentialsRequest {
        deletions,
        upsertions,
        ..Default::default()
    };
    alter_user_scram_credentials(&cluster.context(), &request)
}

fn outcomes(decision: &Decision<AlterUserScramCredentialsResponse>) -> Vec<(&str, ErrorCode)> {
    let results = decision.response.results.iter();
    results
        .map(|result| (&*result.user, ErrorCode::from_code(result.error_code)))
        .collect()
}

#[test]
fn a_credential_is_created_and_deleted() {
    let mut cluster = Cluster::single_node();
    let made = decide(
        &mut cluster,
        vec![],
        vec![upsertion("a", 1, 4096), upsertion("b", 2, 16384)],
    );
    assert_eq!(
        outcomes(&made),
        [("a", ErrorCode::None), ("b", ErrorCode::None)]
    );
    let MetadataRecord::UserScramCredential(credential) = &made.records[0] else {
        panic!("{:?}", made.records);
    };
    // Computed from the example of RFC 7677 with another implementation.
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    assert_eq!(
        hex(&credential.stored_key),
        "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6"
    );
    assert_eq!(
        hex(&credential.server_key),
        "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
    );
    cluster.apply(&made.records);
    let deleted = decide(&mut cluster, vec![deletion("a", 1)], vec![]);
    assert_eq!(outcomes(&deleted), [("a", ErrorCode::None)]);
    cluster.apply(&deleted.records);
    assert_eq!(cluster.image.kept.scram.iter().count(), 1);
}

#[test]
fn invalid_changes_are_refused_with_a_reason() {
    let mut cluster = Cluster::single_node();
    let decision = decide(
        &mut cluster,
        vec![deletion("nobody", 1), deletion("both", 3)],
        vec![
            upsertion("twice", 1, 4096),
            upsertion("twice", 2, 4096),
            upsertion("few", 1, 4095),
            upsertion("many", 1, 16385),
            upsertion("other", 0, 4096),
            upsertion("", 1, 4096),
        ],
    );
    assert_eq!(decision.records, []);
    assert_eq!(
        outcomes(&decision),
        [
            ("", ErrorCode::UnacceptableCredential),
            ("both", ErrorCode::UnsupportedSaslMechanism),
            ("few", ErrorCode::UnacceptableCredential),
            ("many", ErrorCode::UnacceptableCredential),
            ("nobody", ErrorCode::ResourceNotFound),
            ("other", ErrorCode::UnsupportedSaslMechanism),
            ("twice", ErrorCode::DuplicateResource),
        ]
    );
}
