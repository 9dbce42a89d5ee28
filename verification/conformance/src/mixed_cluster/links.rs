//! A broker's network to other brokers and to controllers, which comes to harm while clients go on reaching it.
//!
//! It is either proxies in this process, which everybody may have, or a network namespace of the broker's own. A proxy that
//! is cut holds back what connections carry, and new ones seem to come about; in a namespace packets are lost, so that
//! new connections do not come about, and TCP sends again and gives up as it does on a network.

use std::time::Duration;

use anyhow::Result;
use ottla_testkit::StallingProxy;

use super::namespaces::{Namespace, replicate_apart};
use ottla_peers::{Cluster, Member};

/// How late everything is on a slow network: several round trips make a heartbeat.
const LATE: Duration = Duration::from_millis(150);

pub enum Links {
    /// Nothing that could be harmed: brokers that are controllers as well.
    None,
    Proxies {
        /// From others to this broker.
        replication: StallingProxy,
        /// From this broker to each controller.
        controllers: Vec<StallingProxy>,
    },
    Namespace(Namespace),
}

impl Links {
    /// Changes the properties of brokers that were not started yet.
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
        // The second of the two neighbouring ports that were found free.
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

    /// Other brokers do not reach it; controllers do.
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

    /// It reaches nobody, and nobody reaches it.
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

    /// Everything is as it was.
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
