//! A broker without logs, against a controller that answers as each test defines.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::{BrokerHeartbeatResponse, BrokerRegistrationResponse};
use ottla_types::{BrokerId, Uuid};

use super::*;
use crate::controller::channel::{ActiveController, ControllerChannel};
use crate::quorum_handle::QuorumHandle;
use ottla_testkit::peer::{ReceivedRequest, broker_only_config, peer};
use ottla_testkit::said::Said;

const SERVED: &[(ApiKey, i16)] = &[
    (ApiKey::BrokerRegistration, 4),
    (ApiKey::BrokerHeartbeat, 2),
];

/// A broker that registers with the controller on the port; 0 means that there is none.
fn join(port: u16, settings: &[(&str, &str)]) -> (Heartbeats, Arc<AtomicI64>) {
    let config = broker_only_config(settings);
    let who_leads = move || match port {
        0 => Err("no node leads".to_owned()),
        _ => Ok(ActiveController {
            id: BrokerId(101),
            host: ByteString::from_static("127.0.0.1"),
            port,
        }),
    };
    let channel = ControllerChannel::new(
        &config,
        &ottla_net::PeerSecurity::default(),
        Box::new(who_leads),
    );
    let registration = BrokerRegistrationRequest {
        broker_id: 4,
        cluster_id: ByteString::from_static("T3R0bGFQcm9jZXNzVGVzdA"),
        ..Default::default()
    };
    let context = Arc::new(NodeContext::new(config));
    let epoch = Arc::<AtomicI64>::default();
    let channel = Some(Arc::new(channel));
    let controller = ControllerHandle::new(QuorumHandle::without_quorum(), channel, BrokerId(4));
    let heartbeats = Heartbeats::start(&context, controller, registration, Arc::clone(&epoch));
    (heartbeats, epoch)
}

fn register(asked: &ReceivedRequest, answer: Result<i64, ErrorCode>) -> Bytes {
    asked.answer(&BrokerRegistrationResponse {
        error_code: answer.err().unwrap_or(ErrorCode::None).code(),
        broker_epoch: answer.unwrap_or(-1),
        ..Default::default()
    })
}

#[tokio::test]
async fn a_broker_registers_is_unfenced_reports_directories_and_leaves() {
    let seen = Arc::<Mutex<Vec<BrokerHeartbeatRequest>>>::default();
    let log = Arc::clone(&seen);
    let react = move |asked: ReceivedRequest| {
        if asked.api == ApiKey::BrokerRegistration {
            return Some(vec![register(&asked, Ok(7))]);
        }
        let request: BrokerHeartbeatRequest = asked.request();
        let answer = asked.answer(&BrokerHeartbeatResponse {
            is_caught_up: true,
            is_fenced: request.want_fence,
            should_shut_down: request.want_shut_down,
            ..Default::default()
        });
        log.lock().push(request);
        Some(vec![answer])
    };
    let (heartbeats, epoch) = join(peer(SERVED, react).await, &[]);
    heartbeats.unfence().await.unwrap();
    assert_eq!(epoch.load(Ordering::Relaxed), 7);
    let directory = Uuid::from_u128(77);
    heartbeats.on_directories_changed(|| (vec![directory], Vec::new()));
    while !seen
        .lock()
        .iter()
        .any(|it| it.offline_log_dirs == [directory])
    {
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
    heartbeats.leave().await;
    let seen = seen.lock();
    assert!(
        seen.iter()
            .all(|it| (it.broker_id, it.broker_epoch) == (4, 7))
    );
    let (first, last) = (&seen[0], &seen[seen.len() - 1]);
    assert_eq!((first.want_fence, first.want_shut_down), (false, false));
    assert_eq!((last.want_fence, last.want_shut_down), (false, true));
}

#[tokio::test]
async fn the_last_report_of_directories_has_their_latest_state() {
    let (events, mut reports) = mpsc::unbounded_channel();
    let (_phase, phase) = watch::channel(Phase::Unfenced);
    let heartbeats = Heartbeats {
        events,
        phase,
        reporting: Mutex::default(),
        task: ottla_sync::task::spawn(async {}).abort_handle(),
    };
    let cordoned = Mutex::new(vec![Uuid::from_u128(77)]);
    let (has_read, read) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            heartbeats.on_directories_changed(|| {
                let outdated = cordoned.lock().clone();
                has_read.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                (Vec::new(), outdated)
            });
        });
        read.recv().unwrap();
        cordoned.lock().clear();
        heartbeats.on_directories_changed(|| (Vec::new(), cordoned.lock().clone()));
    });
    let mut last = None;
    while let Ok(report) = reports.try_recv() {
        last = Some(report);
    }
    let latest = Event::DirectoriesChanged {
        failed: Vec::new(),
        cordoned: Vec::new(),
    };
    assert_eq!(last, Some(latest));
}

/// Happens when the broker was unregistered, or when another process has registered with its id.
#[tokio::test]
async fn a_broker_with_a_stale_epoch_registers_again() {
    let said = Said::listen();
    let seen = Arc::<Mutex<Vec<BrokerHeartbeatRequest>>>::default();
    let log = Arc::clone(&seen);
    let mut newest = 6;
    let react = move |asked: ReceivedRequest| {
        if asked.api == ApiKey::BrokerRegistration {
            newest += 1;
            return Some(vec![register(&asked, Ok(newest))]);
        }
        let request: BrokerHeartbeatRequest = asked.request();
        let mut heard = log.lock();
        // The epoch is stale once the broker is unfenced.
        let is_stale = request.broker_epoch == 7 && !heard.is_empty();
        let error = match is_stale {
            true => ErrorCode::StaleBrokerEpoch,
            false => ErrorCode::None,
        };
        let answer = asked.answer(&BrokerHeartbeatResponse {
            error_code: error.code(),
            is_caught_up: true,
            is_fenced: request.want_fence,
            ..Default::default()
        });
        heard.push(request);
        Some(vec![answer])
    };
    let (heartbeats, epoch) = join(peer(SERVED, react).await, &[]);
    heartbeats.unfence().await.unwrap();
    assert_eq!(epoch.load(Ordering::Relaxed), 7);
    let has_come_back = |seen: &[BrokerHeartbeatRequest]| {
        let last = seen.last();
        last.is_some_and(|it| it.broker_epoch == 8 && !it.want_fence)
    };
    while !has_come_back(&seen.lock()) {
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(epoch.load(Ordering::Relaxed), 8);
    let sentence = "the controller no longer knows broker 4 with epoch 7: it was unregistered, or another process registered \
                    with its node.id; registering again";
    assert!(said.text().contains(sentence), "{}", said.text());
}

#[tokio::test]
async fn a_refused_registration_is_explained_in_one_sentence() {
    for (error, settings, sentence) in [
        (
            ErrorCode::InconsistentClusterId,
            &[][..],
            "belong to cluster T3R0bGFQcm9jZXNzVGVzdA, and the controllers to another one; give",
        ),
        (
            ErrorCode::DuplicateBrokerRegistration,
            &[("initial.broker.registration.timeout.ms", "3000")][..],
            "node.id=4 is in use: another broker with this ID is registered and stayed alive for \
             initial.broker.registration.timeout.ms=3000; stop it",
        ),
        (
            ErrorCode::UnsupportedVersion,
            &[][..],
            "a feature level that this release does not support",
        ),
    ] {
        let react = move |asked: ReceivedRequest| Some(vec![register(&asked, Err(error))]);
        let (heartbeats, _) = join(peer(SERVED, react).await, settings);
        let refused = heartbeats.unfence().await.unwrap_err();
        assert!(refused.contains(sentence), "{refused}");
        assert_eq!(heartbeats.failed().await, refused);
    }
}

#[tokio::test]
async fn the_error_names_unreachable_controllers_and_the_cause() {
    let settings = [("initial.broker.registration.timeout.ms", "3000")];
    let (heartbeats, _) = join(0, &settings);
    let refused = heartbeats.unfence().await.unwrap_err();
    let sentence = "node 4 cannot register within initial.broker.registration.timeout.ms=3000: no \
                    node leads; start the controllers";
    assert!(refused.starts_with(sentence), "{refused}");
    let [port] = ottla_testkit::lease_ports().unwrap();
    let (heartbeats, _) = join(port, &settings);
    let refused = heartbeats.unfence().await.unwrap_err();
    let reason = format!("controller 101 at 127.0.0.1:{port}: cannot connect");
    assert!(refused.contains(&reason), "{refused}");
}
