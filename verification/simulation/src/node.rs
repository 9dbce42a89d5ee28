//! A node of the cluster: a machine, its disk, and the broker or controller that runs on it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use ottla_broker::Broker;
use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::MetadataVersion;
use ottla_raft::ElectionState;
use ottla_storage::format::{FormatOptions, InitialQuorum, format};
use ottla_sync::fs::{Disk, Faults, PowerLoss};
use ottla_sync::simulation::{Host, HostClock, stream};
use ottla_sync::task::Handle;
use ottla_sync::{thread, watch};
use ottla_types::{BrokerId, LeaderEpoch};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";
const QUORUM_STATE: &str = "/data/__cluster_metadata-0/quorum-state";

/// The effects of its disk on a node, until the node is started on a working disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DiskTrouble {
    None,
    /// No space or no file handles are left: the node must keep running, but need not start.
    Short,
    /// The node may also stop by itself.
    Failing,
}

/// One node, which may be stopped, killed and started again on its disk.
pub(crate) struct Node {
    pub name: String,
    pub disk: Disk,
    pub is_broker: bool,
    /// Read once, because a run starts its nodes many times.
    config: BrokerConfig,
    clock: HostClock,
    /// The faults of its disk.
    trouble: Rc<Cell<DiskTrouble>>,
    /// Whether anything was wrong with it since the last start began.
    was_troubled: Rc<Cell<bool>>,
    /// How often it was started.
    starts: u64,
    /// The context of each broker that has started, which all its parts hold.
    contexts: Rc<RefCell<Vec<Weak<dyn Any>>>>,
    running: Option<Running>,
}

struct Running {
    host: Host,
    stop: watch::Sender<bool>,
    main: thread::JoinHandle<()>,
    /// There once it has started.
    broker: Rc<RefCell<Weak<Broker>>>,
}

impl Node {
    /// A node whose disk is empty.
    pub fn new(name: &str, is_broker: bool, settings: &[(&str, &str)]) -> Node {
        let mut random = stream(name);
        Node {
            disk: Disk::new(random.u64(), name),
            name: name.to_owned(),
            is_broker,
            config: config(settings),
            clock: HostClock {
                // Clocks of real machines differ by less.
                drift_ppm: random.below(2_000) as i64 - 1_000,
                ..HostClock::default()
            },
            trouble: Rc::new(Cell::new(DiskTrouble::None)),
            was_troubled: Rc::new(Cell::new(false)),
            starts: 0,
            contexts: Rc::default(),
            running: None,
        }
    }

    fn host(&self) -> Host {
        Host::new(&self.name)
            .with_disk(&self.disk)
            .with_clock(self.clock)
    }

    /// As `ottla storage format` does it, by a process that ends.
    pub fn format(&self) {
        let config = self.config.clone();
        let host = self.host();
        let formatting = host.spawn("format", move || {
            let options = FormatOptions {
                cluster_id: CLUSTER_ID.to_owned(),
                quorum: InitialQuorum::Static,
                metadata_version: MetadataVersion::LATEST_PRODUCTION,
                feature_levels: Default::default(),
                scram_records: Vec::new(),
                ignore_formatted: false,
            };
            format(&config, &options).expect("an empty disk is formatted");
        });
        formatting.join().expect("it ends");
        host.kill();
    }

    /// Runs the node like the server, until a stop request or a failure.
    pub fn start(&mut self) {
        self.starts += 1;
        let config = self.config.clone();
        let host = self.host();
        let stop = watch::Sender::new(false);
        let mut stopping = stop.subscribe();
        let broker = Rc::new(RefCell::new(Weak::new()));
        let (started, contexts) = (broker.clone(), self.contexts.clone());
        let (trouble, was_troubled) = (self.trouble.clone(), self.was_troubled.clone());
        was_troubled.set(trouble.get() != DiskTrouble::None);
        let main = host.spawn("main", move || {
            Handle::current().block_on(async move {
                let running = match Broker::start(config).await {
                    // The disk may work again by now.
                    Err(error) if was_troubled.get() => {
                        return tracing::info!("does not start on such a disk: {error:#}");
                    }
                    running => running.expect("the broker starts"),
                };
                *started.borrow_mut() = Arc::downgrade(running.broker());
                let context = Arc::downgrade(&running.broker().context);
                contexts.borrow_mut().push(context);
                let stop_requested =
                    async { drop(stopping.wait_for(|is_stopping| *is_stopping).await) };
                ottla_sync::select! {
                    () = stop_requested => {}
                    () = running.broker().stopping() => {}
                }
                let broker = running.broker().clone();
                running.stop().await;
                if trouble.get() != DiskTrouble::Failing {
                    assert_eq!(broker.failure(), None);
                }
            });
        });
        self.running = Some(Running {
            host,
            stop,
            main,
            broker,
        });
    }

    /// Fills its disk, or makes calls fail.
    pub fn spoil_disk(&self, trouble: DiskTrouble, faults: Faults) {
        self.trouble.set(trouble);
        self.was_troubled.set(true);
        self.disk.set_faults("/data", faults);
    }

    /// Limits how many files it may have open.
    pub fn limit_handles(&self, handles: u32) {
        self.trouble.set(DiskTrouble::Short);
        self.was_troubled.set(true);
        self.disk.set_max_handles(handles);
    }

    /// Replaces a process that has met a failing disk, or has not started, by one on a disk that works.
    pub fn mend_disk(&mut self) {
        self.disk.set_faults("/data", Faults::default());
        self.disk.set_max_handles(u32::MAX);
        let was_failing = self.trouble.replace(DiskTrouble::None) == DiskTrouble::Failing;
        if was_failing || self.has_ended() {
            self.kill();
        }
    }

    /// Whether its process has ended by itself: it has not started, or a failing disk has stopped it.
    pub fn has_ended(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.main.is_finished())
    }

    /// Whether it may still fail to start because of a disk that works again.
    pub fn may_not_start(&self) -> bool {
        self.was_troubled.get() && self.broker().is_none()
    }

    /// Whether it keeps the metadata log as a voter: the other nodes learn it when they can.
    pub fn holds_metadata_vote(&self) -> bool {
        self.config.process_roles.controller
    }

    pub fn id(&self) -> BrokerId {
        BrokerId(self.config.node_id)
    }

    /// Its present or last process: its name and how often it was started.
    pub fn process(&self) -> (String, u64) {
        (self.name.clone(), self.starts)
    }

    /// The epoch of the metadata quorum that it knows, if it is a controller that has started.
    pub fn quorum_epoch(&self) -> Option<LeaderEpoch> {
        let broker = self.broker()?;
        Some(broker.controller()?.status().epoch)
    }

    /// The epoch that it leads as the active controller.
    pub fn led_epoch(&self) -> Option<LeaderEpoch> {
        let broker = self.broker()?;
        let status = broker.controller()?.status();
        status.is_active.then_some(status.epoch)
    }

    /// The epoch that the node leads or has led, according to its disk.
    pub fn noted_leadership(&self) -> Option<LeaderEpoch> {
        let text = self.disk.content(QUORUM_STATE.as_ref())?;
        let election = ElectionState::from_json(&String::from_utf8_lossy(&text)).ok()?;
        (election.leader == Some(self.id())).then_some(election.epoch)
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The broker, if the node is running and has started.
    pub fn broker(&self) -> Option<Arc<Broker>> {
        self.running.as_ref()?.broker.borrow().upgrade()
    }

    /// The number of its brokers of which a part is in memory. When the node does not run, only parts
    /// that hold each other are.
    pub fn brokers_in_memory(&self) -> u64 {
        let contexts = self.contexts.borrow();
        let kept = contexts.iter().filter(|it| it.strong_count() > 0);
        kept.count() as u64
    }

    /// Kills it as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.host.kill();
        }
    }

    /// Cuts the power of its machine: connections stay half open, and data that was not flushed may
    /// be lost.
    pub fn lose_power(&mut self, kind: PowerLoss) {
        if let Some(running) = self.running.take() {
            running.host.lose_power();
        }
        self.disk.lose_power(kind);
    }

    /// Stops it in order, and waits for it.
    pub fn stop(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        running.stop.send_replace(true);
        running.main.join().expect("it stops");
        running.host.kill();
    }
}

fn config(settings: &[(&str, &str)]) -> BrokerConfig {
    let mut properties = Properties::new("the simulation");
    for (key, value) in settings {
        properties.set(key, value);
    }
    let (config, warnings) = BrokerConfig::from_properties(&properties).expect("good settings");
    assert!(warnings.is_empty(), "{warnings:?}");
    config
}
