//! The registration of a controller that is alone in its quorum, with a publisher that hangs.

use ottla_config::single_node_properties;
use ottla_controller::{ControllerContext, Decision};
use ottla_protocol::metadata_records::{MetadataRecord, UnregisterControllerRecord};
use ottla_storage::format::{format_standalone, read_identity};
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_sync::fs::Disk;
use ottla_sync::simulation::{Config, Host, run};
use ottla_sync::task::Handle;
use ottla_sync::{Mutex, task, thread, time};
use ottla_types::Offset;

use super::*;
use crate::controller::requests::Facts;
use crate::controller_thread::Publish;
use crate::membership::quorum_member;

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = time::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(time::now() < deadline, "{what}: never");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_registration_that_is_published_with_its_removal_is_made_again() {
    run(Config::new(1), || {
        let host = Host::new("node").with_disk(&Disk::new(1, "disk"));
        let main = host.spawn("main", register_behind_a_publisher_that_hangs);
        main.join().expect("it registers again");
    })
    .unwrap();
}

fn register_behind_a_publisher_that_hangs() {
    let properties = single_node_properties("/data", "127.0.0.1:9092", "127.0.0.1:9093");
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    format_standalone(&config).expect("formats");
    let identity = read_identity(&config).expect("reads").expect("is there");
    let context = Arc::new(NodeContext::new(config.clone()));
    let own_id = BrokerId(config.node_id);
    let disk = Arc::new(Mutex::new(()));
    let begun = Arc::<AtomicU64>::default();
    let publish: Publish = {
        let (context, disk, begun) = (Arc::clone(&context), Arc::clone(&disk), Arc::clone(&begun));
        Box::new(move |delta| {
            begun.fetch_add(1, Ordering::AcqRel);
            drop(disk.lock());
            context.set_metadata(delta.after.clone());
        })
    };
    let quorum = quorum_member::start(&context, &config, &identity, publish).expect("starts");
    let handle = Handle::current();
    handle.block_on(quorum.caught_up()).expect("leads");
    assert!(handle.block_on(quorum.begin_publishing(Offset(-1))));
    let is_committed = || {
        let image = handle.block_on(quorum.caught_up()).expect("runs");
        image.cluster.controller(own_id).is_some()
    };
    let is_published = || context.metadata().cluster.controller(own_id).is_some();

    let controller = ControllerHandle::new(quorum.clone(), None, own_id);
    let unregister = || {
        let controller = controller.clone();
        let removal = MetadataRecord::UnregisterController(UnregisterControllerRecord {
            controller_id: own_id.value(),
            ..Default::default()
        });
        let decide =
            move |_: &mut ControllerContext<'_>, _: &Facts<'_>| Decision::new(vec![removal], ());
        task::spawn(async move { controller.decide(decide).await })
    };

    // Everything after the change with which the publisher hangs is published as one.
    let hanging = disk.lock();
    let before = begun.load(Ordering::Acquire);
    let first = unregister();
    until("it is publishing", || {
        begun.load(Ordering::Acquire) > before
    });
    let registering = {
        let (context, controller) = (Arc::clone(&context), controller.clone());
        let (asked_once, _) = oneshot::channel();
        task::spawn(async move {
            register_controller(&context, &controller, &config, asked_once).await;
        })
    };
    until("it is registered", is_committed);
    let second = unregister();
    until("it is unregistered", || !is_committed());
    assert!(!is_published());
    drop(hanging);
    for unregistering in [first, second] {
        let unregistered = handle.block_on(unregistering).expect("ends");
        unregistered.expect("is committed");
    }
    until("it is registered again", is_published);

    context.begin_stop();
    handle.block_on(registering).expect("ends");
    handle.block_on(controller.stop(Duration::from_secs(5)));
}
