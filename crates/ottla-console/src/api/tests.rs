//! `openapi.yaml` has the routes of the API: each path and method, and no other.

use std::collections::{BTreeMap, BTreeSet};

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use ottla_client::{ClientConfig, SecurityProtocol};

use super::*;
use crate::audit::AuditNote;
use crate::config::ConsoleConfig;

const METHODS: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// The methods of each path of the document. It is written with two spaces before a path, and four
/// before a method.
fn documented() -> BTreeMap<&'static str, BTreeSet<String>> {
    let text = include_str!("../../openapi.yaml");
    let (_, paths) = text.split_once("\npaths:\n").unwrap();
    let (paths, _) = paths.split_once("\ncomponents:\n").unwrap();
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut path = "";
    for line in paths.lines() {
        let Some(key) = line.trim_start().split(':').next() else {
            continue;
        };
        match line.len() - line.trim_start().len() {
            2 if key.starts_with('/') => {
                path = key;
                assert!(
                    found.insert(path, BTreeSet::new()).is_none(),
                    "{path} twice"
                );
            }
            4 if METHODS
                .iter()
                .any(|it| it.as_str().eq_ignore_ascii_case(key)) =>
            {
                let methods = found.get_mut(path).unwrap();
                assert!(methods.insert(key.to_uppercase()), "{key} {path} twice");
            }
            _ => {}
        }
    }
    found
}

#[tokio::test]
async fn the_document_and_the_routes_agree() {
    let documented = documented();
    assert!(documented["/api/topics"].contains("POST"), "{documented:?}");
    let routed: BTreeSet<&str> = routes().0.into_iter().map(|(path, _)| path).collect();
    let named: BTreeSet<&str> = documented.keys().copied().collect();
    assert_eq!(routed, named);

    // No user is logged in, so no handler goes further than its method.
    let mut config = ConsoleConfig::new(ClientConfig::new("127.0.0.1:1").unwrap());
    config.login = true;
    config.client.security.protocol = SecurityProtocol::SaslPlaintext;
    let address = "127.0.0.1:9080".parse().unwrap();
    let console = Arc::new(Console::new(config, address));
    let router: Router = router().with_state(console);
    let router = TowerToHyperService::new(router);
    for (path, methods) in documented {
        // A number fits everywhere.
        let parts = path.split('/').map(|it| match it.starts_with('{') {
            true => "1",
            false => it,
        });
        let uri = parts.collect::<Vec<_>>().join("/");
        for method in METHODS {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.parse().unwrap();
            request.extensions_mut().insert(AuditNote::default());
            let status = router.call(request).await.unwrap().status();
            assert_ne!(status, StatusCode::NOT_FOUND, "{method} {path}");
            assert_eq!(
                status != StatusCode::METHOD_NOT_ALLOWED,
                methods.contains(method.as_str()),
                "{method} {path}: {status}"
            );
        }
    }
}
