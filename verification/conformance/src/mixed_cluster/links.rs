//! A broker's network links to other brokers and controllers, which can be disturbed while clients
//! still reach the broker.
//!
//! The links are either proxies in this process, which need no privileges, or a network namespace
//! of the broker. A cut proxy holds back the data of connections, and new connections appear to be
//! established. In a namespace packets are lost, so new connections fail, and TCP retransmits and
//! times out as on a real network.

use std::time::Duration;

use anyhow::Result;
use ottla_testkit::StallingProxy;

use super::namespaces::{Namespace, replicate_apart};
use ottla_peers::{Cluster, Member};

/// Delay of all data on a slow network. A heartbeat takes several round trips.
const LATE: Duration = Duration::from_millis(150);

pub enum Links {
    /// No links to disturb: combined nodes.
    None,
    Proxies {
        /// From other brokers to this one.
        replication: StallingProxy,
        /// From this broker to each controller.
        controllers: Vec<StallingProxy>,
    },
    Namespace(Namespace),
}

impl Links {
    /// Changes the properties of brokers that were not started yet, so that they use the proxies.
    pub fn between(cluster: &mut Cluster) -> Vec<Links> {
        let controllers: Vec<(i32, u16)> = cluster
            .controllers
            .iter()
            .map(|controller| (controller.node_id, controller.port))
            .collect();
        let brokers = cluster.brokers.iter_mut();
        brokers
            .map(|broker| {
                if controllers.is_empty() {
                    Links::None
                } else {
                    Links::proxies(broker, &controllers)
                }
            })
            .collect()
    }

    fn proxies(broker: &mut Member, controllers: &[(i32, u16)]) -> Links {
        // The second of the two adjacent free ports.
        let own = broker.port + 1;
        let mut replication = StallingProxy::bind();
        replication.pass_to(&format!("127.0.0.1:{own}"));
        let to_controllers = controllers.iter().map(|(id, port)| {
            let mut proxy = StallingProxy::bind();
            proxy.pass_to(&format!("127.0.0.1:{port}"));
            (format!("{id}@{}", proxy.bootstrap()), proxy)
        });
        let (voters, to_controllers): (Vec<String>, Vec<StallingProxy>) = to_controllers.unzip();
        let clients = format!("PLAINTEXT://127.0.0.1:{}", broker.port);
        let listeners = format!("{clients},REPLICATION://127.0.0.1:{own}");
        let advertised = format!("{clients},REPLICATION://{}", replication.bootstrap());
        replicate_apart(broker, listeners, advertised, voters.join(","));
        Links::Proxies {
            replication,
            controllers: to_controllers,
        }
    }

    /// Cuts the links from other brokers; controllers still reach it.
    pub fn cut_from_brokers(&mut self) -> Result<()> {
        match self {
            Links::None => Ok(()),
            Links::Proxies { replication, .. } => {
                replication.cut();
                Ok(())
            }
            Links::Namespace(namespace) => namespace.cut_from_brokers(),
        }
    }

    /// Cuts all links in both directions.
    pub fn cut(&mut self) -> Result<()> {
        match self {
            Links::Namespace(namespace) => namespace.cut(),
            proxies => {
                proxies.each_proxy(StallingProxy::cut);
                Ok(())
            }
        }
    }

    pub fn slow(&mut self) -> Result<()> {
        match self {
            Links::Namespace(namespace) => namespace.lose_much(),
            proxies => {
                proxies.each_proxy(|link| link.slow(LATE));
                Ok(())
            }
        }
    }

    /// Restores all links.
    pub fn mend(&mut self) -> Result<()> {
        match self {
            Links::Namespace(namespace) => namespace.mend(),
            proxies => {
                proxies.each_proxy(StallingProxy::mend);
                Ok(())
            }
        }
    }

    fn each_proxy(&self, act: impl Fn(&StallingProxy)) {
        if let Links::Proxies {
            replication,
            controllers,
        } = self
        {
            std::iter::once(replication)
                .chain(controllers)
                .for_each(act);
        }
    }
}
