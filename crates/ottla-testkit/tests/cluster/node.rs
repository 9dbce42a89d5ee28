//! A node of the cluster: a host, its disk and the broker or controller on it.

use ottla_broker::Broker;
use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::MetadataVersion;
use ottla_storage::format::{FormatOptions, InitialQuorum, format};
use ottla_sync::fs::Disk;
use ottla_sync::simulation::{Host, stream};
use ottla_sync::task::Handle;
use ottla_sync::{thread, watch};

const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAQ";

/// One node, which may be stopped, killed and started again on its disk.
pub struct Node {
    name: String,
    settings: Vec<(String, String)>,
    disk: Disk,
    running: Option<Running>,
}

struct Running {
    host: Host,
    stop: watch::Sender<bool>,
    main: thread::JoinHandle<()>,
}

impl Node {
    /// Broker `id` of `count` nodes that are controllers too.
    pub fn combined(id: i32, count: i32) -> Node {
        let voters: Vec<String> = (1..=count)
            .map(|id| format!("{id}@broker-{id}:9093"))
            .collect();
        let name = format!("broker-{id}");
        let replication = count.min(3).to_string();
        let min_isr = (count.min(3) - count.min(3) / 2).to_string();
        let settings = [
            ("process.roles", "broker,controller"),
            ("node.id", &id.to_string()),
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("advertised.listeners", &format!("PLAINTEXT://{name}:9092")),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", &voters.join(",")),
            ("log.dirs", "/data"),
            ("offsets.topic.num.partitions", "1"),
            ("offsets.topic.replication.factor", &replication),
            ("transaction.state.log.num.partitions", "1"),
            ("transaction.state.log.replication.factor", &replication),
            ("transaction.state.log.min.isr", &min_isr),
            ("min.insync.replicas", &min_isr),
            ("auto.create.topics.enable", "false"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Node {
            disk: Disk::new(stream(&name).u64(), &name),
            name,
            settings: settings.into(),
            running: None,
        }
    }

    fn config(&self) -> BrokerConfig {
        let mut properties = Properties::new("the test");
        for (key, value) in &self.settings {
            properties.set(key, value);
        }
        let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
        config
    }

    /// As `ottla storage format` does it, on a host of its own that ends.
    pub fn format(&self) {
        let config = self.config();
        let host = Host::new(&self.name).with_disk(&self.disk);
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

    /// Starts the broker as the server does it: until it is told to stop, or cannot go on.
    pub fn start(&mut self) {
        let config = self.config();
        let host = Host::new(&self.name).with_disk(&self.disk);
        let stop = watch::Sender::new(false);
        let mut stopping = stop.subscribe();
        let main = host.spawn("main", move || {
            Handle::current().block_on(async move {
                let running = Broker::start(config).await.expect("the broker starts");
                let told = async { drop(stopping.wait_for(|told| *told).await) };
                ottla_sync::select! {
                    () = told => {}
                    () = running.broker().stopping() => {}
                }
                let broker = running.broker().clone();
                running.stop().await;
                assert_eq!(broker.failure(), None);
            });
        });
        self.running = Some(Running { host, stop, main });
    }

    /// Kills it as SIGKILL does, and starts it again on what its disk holds.
    pub fn kill_and_start(&mut self) {
        self.running.take().expect("it runs").host.kill();
        self.start();
    }

    /// Stops the broker in order, and waits for it.
    pub fn stop(&mut self) {
        let running = self.running.take().expect("it runs");
        running.stop.send_replace(true);
        running.main.join().expect("it stops");
        running.host.kill();
    }
}
