use ottla_protocol::ApiKey;

#[test]
fn codes_and_names_are_kafkas() {
    assert_eq!(ApiKey::Produce.code(), 0);
    assert_eq!(ApiKey::from_code(18), Some(ApiKey::ApiVersions));
    assert_eq!(ApiKey::from_code(-1), None);
    assert_eq!(ApiKey::ListConfigResources.name(), "ListConfigResources");
    assert!(ApiKey::ALL.windows(2).all(|pair| pair[0] < pair[1]));
    for key in ApiKey::ALL {
        assert_eq!(ApiKey::from_code(key.code()), Some(*key));
    }
}

#[test]
fn versions_match_the_reference() {
    assert_eq!(ApiKey::Produce.valid_versions(), 3..=13);
    assert_eq!(ApiKey::Produce.lowest_advertised_version(), 0);
    assert_eq!(ApiKey::Fetch.valid_versions(), 4..=18);
    assert!(ApiKey::LeaderAndIsr.valid_versions().is_empty());
    let unstable: Vec<_> = ApiKey::ALL
        .iter()
        .filter(|key| key.latest_version_unstable())
        .collect();
    assert_eq!(unstable, [&ApiKey::InitProducerId]);
    assert_eq!(ApiKey::InitProducerId.stable_versions(), 0..=5);
}

#[test]
fn headers_follow_flexibility_except_for_api_versions() {
    assert_eq!(ApiKey::Produce.request_header_version(8), 1);
    assert_eq!(ApiKey::Produce.request_header_version(9), 2);
    assert_eq!(ApiKey::Produce.response_header_version(9), 1);
    assert_eq!(ApiKey::ApiVersions.request_header_version(99), 2);
    assert_eq!(ApiKey::ApiVersions.response_header_version(4), 0);
}
