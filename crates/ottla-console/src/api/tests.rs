//! `openapi.yaml` has the routes of the API: each path, method and query parameter, and no other.

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

/// The methods of each path of the document, and the query parameters of each. It is written with two
/// spaces before a path, four before a method, and the place of a parameter after its name.
fn documented() -> BTreeMap<&'static str, BTreeMap<String, BTreeSet<&'static str>>> {
    let text = include_str!("../../openapi.yaml");
    let (_, paths) = text.split_once("\npaths:\n").unwrap();
    let (paths, _) = paths.split_once("\ncomponents:\n").unwrap();
    let mut found: BTreeMap<&str, BTreeMap<String, BTreeSet<&str>>> = BTreeMap::new();
    let (mut path, mut method) = ("", String::new());
    for line in paths.lines() {
        let Some(key) = line.trim_start().split(':').next() else {
            continue;
        };
        match line.len() - line.trim_start().len() {
            2 if key.starts_with('/') => {
                path = key;
                assert!(
                    found.insert(path, BTreeMap::new()).is_none(),
                    "{path} twice"
                );
            }
            4 if METHODS
                .iter()
                .any(|it| it.as_str().eq_ignore_ascii_case(key)) =>
            {
                let methods = found.get_mut(path).unwrap();
                method = key.to_uppercase();
                let is_new = methods.insert(method.clone(), BTreeSet::new()).is_none();
                assert!(is_new, "{key} {path} twice");
            }
            _ => {}
        }
        for part in line.split("{ name: ").skip(1) {
            if let Some((name, rest)) = part.split_once(',')
                && rest.starts_with(" in: query")
            {
                let methods = found.get_mut(path).unwrap();
                methods.get_mut(&method).unwrap().insert(name);
            }
        }
    }
    found
}

#[tokio::test]
async fn the_document_and_the_routes_agree() {
    let documented = documented();
    assert!(
        documented["/api/topics"].contains_key("POST"),
        "{documented:?}"
    );
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
                methods.contains_key(method.as_str()),
                "{method} {path}: {status}"
            );
        }
    }
}

#[test]
fn the_document_and_the_checked_parameters_agree() {
    let documented = documented();
    let of_lists: BTreeSet<&str> = parameters::names::<crate::list::ListQuery>()
        .iter()
        .copied()
        .collect();
    assert!(of_lists.contains("limit"), "{of_lists:?}");
    let mut lists = 0;
    for (path, methods) in &documented {
        for (method, named) in methods {
            let mut named = named.clone();
            if *path == "/api/topics/{topic}/export" {
                // "The same selection as a file".
                named.extend(&documented["/api/topics/{topic}/records"]["GET"]);
            }
            let method: Method = method.parse().unwrap();
            let checked: BTreeSet<&str> = parameters::of(path, &method).into_iter().collect();
            let missing: Vec<_> = named.difference(&checked).collect();
            assert!(missing.is_empty(), "{method} {path}: {missing:?}");
            // Those of lists are documented once, for all of them.
            let more: BTreeSet<&str> = checked.difference(&named).copied().collect();
            assert!(
                more.is_empty() || more == of_lists,
                "{method} {path}: {more:?}"
            );
            lists += usize::from(more == of_lists);
        }
    }
    assert_eq!(lists, 8);
}
