//! Against a controller that accepts every change and records it.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{EnvelopeRequest, EnvelopeResponse};
use ottla_protocol::{ApiKey, Message, Reader, decode_request_header};
use ottla_sync::Mutex;
use ottla_types::BrokerId;

use super::*;
use crate::controller::channel::{ActiveController, ControllerChannel};
use ottla_config::Variables;
use ottla_context::NodeContext;
use ottla_testkit::peer::{
    ReceivedRequest, broker_only_config, broker_only_properties, client_context, peer,
};

const VERSION: i16 = 1;
const SERVED: &[(ApiKey, i16)] = &[(ApiKey::Envelope, 0)];
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn change(
    kind: i8,
    of: &'static str,
    key: &'static str,
    value: &'static str,
) -> AlterConfigsResource {
    AlterConfigsResource {
        resource_type: kind,
        resource_name: ByteString::from_static(of),
        configs: vec![AlterableConfig {
            name: ByteString::from_static(key),
            value: Some(ByteString::from_static(value)),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// Answers with success, and adds the changed names to `seen`.
fn take(asked: &ReceivedRequest, seen: &Mutex<Vec<ByteString>>) -> Bytes {
    let envelope: EnvelopeRequest = asked.request();
    let mut reader = Reader::new(envelope.request_data);
    let (api, header) = decode_request_header(&mut reader).unwrap();
    let request = IncrementalAlterConfigsRequest::decode(&mut reader.clone(), VERSION).unwrap();
    let response = IncrementalAlterConfigsResponse {
        responses: request
            .resources
            .iter()
            .map(|resource| AlterConfigsResourceResponse {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let names = request.resources.into_iter().map(|it| it.resource_name);
    seen.lock().extend(names);
    let inner = ReceivedRequest::of(api, header, reader).answer(&response);
    asked.answer(&EnvelopeResponse {
        response_data: Some(inner.slice(4..)),
        ..Default::default()
    })
}

/// The error codes of the response in order, and the names that the controller has received.
async fn alter(resources: Vec<AlterConfigsResource>) -> (Vec<ErrorCode>, Vec<ByteString>) {
    let seen = Arc::<Mutex<Vec<ByteString>>>::default();
    let log = Arc::clone(&seen);
    let port = peer(SERVED, move |asked| Some(vec![take(&asked, &log)])).await;
    let config = broker_only_config(&[]);
    let who_leads = move || {
        Ok(ActiveController {
            id: BrokerId(101),
            host: ByteString::from_static("127.0.0.1"),
            port,
        })
    };
    let channel = ControllerChannel::new(
        &config,
        &ottla_net::PeerSecurity::default(),
        Box::new(who_leads),
    );
    let node = Node::new(Arc::new(NodeContext::new(config)));
    let context = client_context(ApiKey::IncrementalAlterConfigs, VERSION);
    let request = IncrementalAlterConfigsRequest {
        resources,
        ..Default::default()
    };
    let hand_on = async |request| channel.forward(&context, &request).await;
    let response = incremental_alter_configs(&node, request, hand_on).await;
    let codes = response.unwrap().responses.into_iter();
    let codes = codes.map(|it| ErrorCode::from_code(it.error_code));
    let seen = seen.lock().clone();
    (codes.collect(), seen)
}

#[tokio::test]
async fn invalid_changes_are_refused_and_the_rest_is_forwarded() {
    let (codes, seen) = alter(vec![
        change(BROKER, "4", "log.cleaner.threads", "none"),
        change(TOPIC, "orders", "retention.ms", "1000"),
        // A setting of another broker, which only that broker can validate.
        change(BROKER, "5", "log.cleaner.threads", "2"),
        change(BROKER, "", "log.cleaner.threads", "2"),
    ])
    .await;
    let invalid = ErrorCode::InvalidRequest;
    assert_eq!(codes, [invalid, ErrorCode::None, invalid, ErrorCode::None]);
    assert_eq!(seen, ["orders", ""]);
}

#[tokio::test]
async fn a_request_without_valid_changes_is_not_forwarded() {
    let (codes, seen) = alter(vec![change(BROKER, "4", "log.cleaner.threads", "none")]).await;
    assert_eq!(codes, [ErrorCode::InvalidRequest]);
    assert!(seen.is_empty());
}

#[test]
fn a_new_listener_whose_key_is_missing_is_refused() {
    let next = broker_only_config(&[
        ("listeners", "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:9092"),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:SASL_PLAINTEXT",
        ),
        ("sasl.kerberos.service.name", "kafka"),
        ("listener.name.extra.sasl.enabled.mechanisms", "GSSAPI"),
        (
            "listener.name.extra.gssapi.sasl.jaas.config",
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
             keyTab=\"/nowhere/kafka.keytab\" principal=\"kafka/localhost@X\";",
        ),
    ]);
    let error = check_new_listeners(&broker_only_config(&[]), &next).unwrap_err();
    let expected = "listener EXTRA with SASL GSSAPI: ";
    assert!(error.starts_with(expected), "{error}");
}

/// The message about a key store contains its location.
#[tokio::test]
async fn a_refusal_does_not_show_what_a_variable_stands_for() {
    let mut properties = broker_only_properties(&[
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:9092"),
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:SSL",
        ),
    ]);
    properties.set_variables(Variables::new(|value| {
        Ok(value.replace("${file:/s:password}", "/s3cret"))
    }));
    let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
    let location = "listener.name.extra.ssl.keystore.location";
    let settings = BTreeMap::from(
        [
            ("listeners", "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"),
            (location, "${file:/s:password}"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let (next, warnings) = config.with_dynamic(&BTreeMap::new(), &settings);
    assert_eq!(warnings, []);
    let error = check_new_listeners(&config, &next).unwrap_err();
    assert!(error.contains("s3cret"), "{error}");
    let node = Node::new(Arc::new(NodeContext::new(config)));
    let error = check_listeners(&node, settings).await.unwrap_err();
    assert!(
        error.contains(location) && !error.contains("s3cret"),
        "{error}"
    );
}

/// The mechanisms of an existing listener follow the setting without its prefix.
#[test]
fn an_existing_listener_whose_new_key_is_missing_is_refused() {
    let config = |mechanism| {
        broker_only_config(&[
            ("listeners", "PLAINTEXT://127.0.0.1:0,EXTRA://127.0.0.1:0"),
            ("advertised.listeners", "PLAINTEXT://127.0.0.1:9092"),
            (
                "listener.security.protocol.map",
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:SASL_PLAINTEXT",
            ),
            ("sasl.enabled.mechanisms", mechanism),
            ("sasl.kerberos.service.name", "kafka"),
            (
                "listener.name.extra.plain.sasl.jaas.config",
                "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"a\";",
            ),
            (
                "listener.name.extra.gssapi.sasl.jaas.config",
                "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true \
                 keyTab=\"/nowhere/kafka.keytab\" principal=\"kafka/localhost@X\";",
            ),
        ])
    };
    let (plain, kerberos) = (config("PLAIN"), config("GSSAPI"));
    let error = check_new_listeners(&plain, &kerberos).unwrap_err();
    let expected = "listener EXTRA with SASL GSSAPI: ";
    assert!(error.starts_with(expected), "{error}");
    // Unchanged listeners are not checked again.
    assert_eq!(check_new_listeners(&kerberos, &kerberos), Ok(()));
    assert_eq!(check_new_listeners(&kerberos, &plain), Ok(()));
}

#[test]
fn the_check_includes_list_operations() {
    let changed = |settings: &mut BTreeMap<String, String>, operation, value: &'static str| {
        let change = AlterableConfig {
            name: ByteString::from_static("listeners"),
            config_operation: operation,
            value: Some(ByteString::from_static(value)),
            ..Default::default()
        };
        super::change(settings, &[change]);
        settings.get("listeners").cloned()
    };
    let mut settings = BTreeMap::new();
    let (set, append, subtract) = (0, 2, 3);
    let listeners = changed(&mut settings, append, "B://h:2");
    assert_eq!(listeners.as_deref(), Some("PLAINTEXT://:9092,B://h:2"));
    changed(&mut settings, set, "A://h:1");
    let listeners = changed(&mut settings, append, "B://h:2,A://h:1");
    assert_eq!(listeners.as_deref(), Some("A://h:1,B://h:2"));
    let listeners = changed(&mut settings, subtract, "A://h:1,C://h:3");
    assert_eq!(listeners.as_deref(), Some("B://h:2"));
}
