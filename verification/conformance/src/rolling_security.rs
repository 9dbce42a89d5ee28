//! `cargo xtask rolling-security`: follows `docs/rolling-security.md`. A cluster of brokers and controllers of both makers
//! goes from PLAINTEXT to SASL_SSL with ACLs, by restarts of one node after the other, while producers and consumers run.
//!
//! No acknowledged record may be lost, duplicated or out of order, and the longest time without an
//! acknowledgement is bounded. At the end, every connection needs a login, and every operation
//! needs a granted permission.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use crate::mixed_cluster::clients::{Access, Clients};
use crate::mixed_cluster::secured::{self, NODE, WORKER, WayIn};
use crate::run_dir::RunDir;
use crate::seeded;
use ottla_peers::{Cluster, InstalledPeer, Member, Peer, connect, replicas};
use ottla_workspace::process;

const PARTITIONS: usize = 3;
/// Written through the plain listener, until that goes.
const BEFORE: &str = "before";
/// Written through the secured listener, from when it is there.
const AFTER: &str = "after";
const PATIENCE: Duration = Duration::from_secs(120);
/// A restart of a leader takes longer on a busy machine, and in that time clients find the next
/// leader.
const LONGEST_GAP: Duration = Duration::from_secs(15);
/// Records that a controller may lack when the next one is restarted.
const MOST_LAG: u64 = 2;

#[derive(clap::Args)]
pub struct Options {
    /// The brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,kafka,ottla")]
    brokers: Vec<String>,
    /// The controllers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "ottla,kafka,ottla")]
    controllers: Vec<String>,
    #[command(flatten)]
    run_dir: RunDir,
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.brokers.len() > 2 && options.controllers.len() > 2,
        "--brokers and --controllers need three names or more: one at a time is down"
    );
    let dir = options.run_dir.make("rolling-security")?.canonicalize()?;
    let outcome = Story::begin(options, &dir).and_then(|mut story| {
        let wrong = story.tell();
        if !wrong.as_ref().is_ok_and(Vec::is_empty) {
            println!("{}", story.cluster.complaints());
        }
        wrong
    });
    seeded::conclude(outcome, 0, &dir, options.run_dir.keep)
}

/// How far the cluster has come: the numbers of the steps in the runbook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Step 2: every node has its secured listener beside the plain one.
    Both,
    /// Step 4: nodes use the secured listeners.
    Moved,
    /// Step 5: the plain listeners are gone; ACLs count where there are some.
    Closed,
    /// Step 7: operations without a granted permission are denied.
    Guarded,
}

struct Story {
    cluster: Cluster,
    kafka: InstalledPeer,
    ottla: InstalledPeer,
    dir: PathBuf,
}

impl Story {
    fn begin(options: &Options, dir: &Path) -> Result<Story> {
        let brokers = options.brokers.len();
        let settings = [
            ("offsets.topic.replication.factor", brokers.to_string()),
            ("offsets.topic.num.partitions", "5".to_owned()),
            ("group.initial.rebalance.delay.ms", "0".to_owned()),
        ];
        let mut cluster = Cluster::plan(&options.brokers, &options.controllers, dir, &settings)?;
        for member in cluster.controllers.iter_mut().chain(&mut cluster.brokers) {
            member.options.environment = secured::environment(None, dir);
        }
        cluster.start()?;
        secured::issue_certificates(dir);
        for user in [NODE, WORKER] {
            let login = secured::login_of(user, WayIn::Passwords, dir);
            std::fs::write(dir.join(user).with_extension("properties"), login)?;
        }
        Ok(Story {
            cluster,
            kafka: Peer::load("kafka")?.install()?,
            ottla: Peer::load("ottla")?.install()?,
            dir: dir.to_owned(),
        })
    }

    fn plain(&self) -> Access {
        Access::plain(self.cluster.bootstrap())
    }

    fn secured(&self, user: &str) -> Access {
        let brokers = self.cluster.brokers.iter();
        let addresses = brokers.map(|broker| format!("127.0.0.1:{}", broker.port + 1));
        Access {
            bootstrap: addresses.collect::<Vec<_>>().join(","),
            login: Some(self.dir.join(user).with_extension("properties")),
        }
    }

    fn tell(&mut self) -> Result<Vec<String>> {
        for topic in [BEFORE, AFTER] {
            self.create_topic(topic)?;
        }
        let plain = self.plain();
        let mut before = self.start_clients(&plain, BEFORE)?;

        // Step 1: users, while no listener requires a password yet. Every broker knows them and the
        // rights of step 6 before a client depends on it: each is restarted in between, and a
        // broker accepts connections when it has caught up with the metadata.
        for user in [NODE, WORKER] {
            let mut add = plain.tool(&self.kafka, "kafka.admin.ConfigCommand");
            let credential = format!("SCRAM-SHA-512=[password={user}-secret]");
            add.args(["--alter", "--entity-type", "users", "--entity-name", user]);
            add.args(["--add-config", &credential]);
            process::output_of(&mut add)?;
        }
        self.roll(Stage::Both, &plain)?;
        // Step 3: clients move.
        let worker = self.secured(WORKER);
        let mut after = self.start_clients(&worker, AFTER)?;
        self.roll(Stage::Moved, &plain)?;
        before.wait_for_more()?;
        let mut wrong = self.finish(before, &plain, BEFORE)?;
        let administrator = self.secured(NODE);
        self.roll(Stage::Closed, &administrator)?;
        wrong.extend(self.open_ports());
        // Step 6: rights.
        self.grant(&administrator)?;
        self.roll(Stage::Guarded, &administrator)?;
        after.wait_for_more()?;
        wrong.extend(self.check_denial(&worker, &administrator)?);
        wrong.extend(self.finish(after, &worker, AFTER)?);

        self.wait_until_in_sync(&administrator)?;
        wrong.extend(self.cluster.stop()?);
        let (count, mut bytes) = (self.cluster.brokers.len(), 0);
        for topic in [BEFORE, AFTER] {
            for partition in 0..PARTITIONS {
                let partition = format!("{topic}-{partition}");
                let compared = replicas::compare_each(&self.cluster.brokers, &partition, count)?;
                bytes += compared.0;
                wrong.extend(compared.1);
            }
        }
        println!("{bytes} bytes of log compared");
        Ok(wrong)
    }

    fn create_topic(&self, topic: &str) -> Result<()> {
        let mut create = self.plain().tool(&self.ottla, "topics");
        create.args(["--create", "--topic", topic]);
        create.args(["--partitions", &PARTITIONS.to_string()]);
        let replicas = self.cluster.brokers.len().to_string();
        create.args(["--replication-factor", &replicas]);
        create.args(["--config", "min.insync.replicas=2"]);
        process::output_of(&mut create).map(drop)
    }

    fn start_clients(&self, access: &Access, topic: &str) -> Result<Clients> {
        let dir = self.dir.join(topic);
        std::fs::create_dir_all(&dir)?;
        Clients::start(&self.kafka, access, topic, &dir)
    }

    /// Stops clients, and returns the violations in their results.
    fn finish(&self, clients: Clients, access: &Access, topic: &str) -> Result<Vec<String>> {
        let gap = clients.longest_gap()?;
        let (_, mut wrong) = clients.finish(&self.kafka, access, topic)?;
        println!("{topic}: never more than {gap:.1?} without an acknowledgement");
        if gap > LONGEST_GAP {
            wrong.push(format!("{topic}: {gap:?} without an acknowledgement"));
        }
        Ok(wrong)
    }

    /// Restarts each node with the settings of a stage, controllers first.
    fn roll(&mut self, stage: Stage, access: &Access) -> Result<()> {
        let began = Instant::now();
        let voters: Vec<(i32, u16)> = self
            .cluster
            .controllers
            .iter()
            .map(|it| (it.node_id, it.port))
            .collect();
        for at in 0..voters.len() {
            let settings = of_controller(stage, &self.cluster.controllers[at], &voters, &self.dir);
            let controller = &mut self.cluster.controllers[at];
            let id = controller.node_id;
            restart(stage, controller, &settings)?;
            self.wait_until_caught_up(id, access)?;
        }
        for at in 0..self.cluster.brokers.len() {
            let settings = of_broker(stage, &self.cluster.brokers[at], &voters, &self.dir);
            let broker = &mut self.cluster.brokers[at];
            restart(stage, broker, &settings)?;
            self.wait_until_in_sync(access)?;
        }
        println!("{stage:?}: every node restarted in {:.1?}", began.elapsed());
        Ok(())
    }

    /// Waits until no voter lags behind the leader. The leader knows the position of a voter from
    /// its last fetch, so the voter that was just restarted must have fetched since, or be the
    /// leader.
    fn wait_until_caught_up(&self, restarted: i32, access: &Access) -> Result<()> {
        let voters = self.cluster.controllers.len();
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        process::retried(PATIENCE, "the voters have not caught up", || {
            let mut describe = access.tool(&self.ottla, "metadata-quorum");
            describe.args(["describe", "--replication"]);
            let printed = process::output_of(&mut describe)?;
            let known: Vec<Voter> = printed.lines().filter_map(Voter::parse).collect();
            let has_caught_up = |voter: &Voter| {
                let is_heard_of = voter.node_id != restarted || voter.last_fetch_ms > since;
                voter.is_leader || voter.lag <= MOST_LAG && is_heard_of
            };
            ensure!(
                known.len() == voters && known.iter().all(has_caught_up),
                "controller {restarted} was restarted at {since}:\n{printed}"
            );
            Ok(())
        })
    }

    /// Waits until no partition lacks a replica. Queries every broker, because a broker, such as
    /// the one just restarted, may still have older metadata.
    fn wait_until_in_sync(&self, access: &Access) -> Result<()> {
        let replicas = self.cluster.brokers.len();
        for access in access.each_broker() {
            let what = format!("the replicas are not in sync for {}", access.bootstrap);
            process::retried(PATIENCE, &what, || {
                let mut describe = access.tool(&self.ottla, "topics");
                describe.arg("--describe");
                let printed = process::output_of(&mut describe)?;
                let in_sync = printed.lines().filter_map(|line| {
                    let (_, rest) = line.split_once("Isr: ")?;
                    Some(rest.split_whitespace().next()?.split(',').count())
                });
                let in_sync: Vec<usize> = in_sync.collect();
                // Two topics, and that of the groups' offsets.
                let is_complete = in_sync.len() > 2 * PARTITIONS;
                ensure!(
                    is_complete && in_sync.iter().all(|count| *count == replicas),
                    "{printed}"
                );
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ports that accept clients without TLS: plain listeners that are still open, and secured
    /// listeners that do not refuse.
    fn open_ports(&self) -> Vec<String> {
        let members = || self.cluster.controllers.iter().chain(&self.cluster.brokers);
        let plain = members().filter(|member| connect(member.port).is_ok());
        let mut open: Vec<String> = plain
            .map(|member| format!("port {} still accepts connections", member.port))
            .collect();
        open.extend(secured::not_refusing(
            members().map(|member| member.port + 1),
        ));
        open
    }

    fn grant(&self, administrator: &Access) -> Result<()> {
        let user = format!("User:{WORKER}");
        let mut add = administrator.tool(&self.kafka, "org.apache.kafka.tools.AclCommand");
        add.args([
            "--add",
            "--allow-principal",
            &user,
            "--producer",
            "--consumer",
        ]);
        add.args(["--topic", AFTER, "--group", "*"]);
        process::output_of(&mut add).map(drop)
    }

    /// The worker may use its topic, and not see the other, at every broker.
    fn check_denial(&self, worker: &Access, administrator: &Access) -> Result<Vec<String>> {
        let list = |access: &Access| {
            let mut list = access.tool(&self.ottla, "topics");
            list.arg("--list");
            process::output_of(&mut list)
        };
        let mut wrong = Vec::new();
        let sees = |printed: &str, topic| printed.lines().any(|line| line == topic);
        for worker in worker.each_broker() {
            let printed = list(&worker)?;
            if !sees(&printed, AFTER) || sees(&printed, BEFORE) {
                wrong.push(format!("{WORKER} sees {printed:?} at {}", worker.bootstrap));
            }
        }
        for administrator in administrator.each_broker() {
            let printed = list(&administrator)?;
            if !sees(&printed, BEFORE) || !sees(&printed, AFTER) {
                let address = &administrator.bootstrap;
                wrong.push(format!("{NODE} sees {printed:?} at {address}"));
            }
        }
        Ok(wrong)
    }
}

/// A voter in the output of `metadata-quorum describe --replication`.
#[derive(Debug, PartialEq, Eq)]
struct Voter {
    node_id: i32,
    lag: u64,
    /// When the leader received its last fetch, since the epoch; -1 if it has not fetched.
    last_fetch_ms: i64,
    is_leader: bool,
}

impl Voter {
    /// `None` for lines about other nodes than voters.
    fn parse(line: &str) -> Option<Voter> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [
            node_id,
            _directory,
            _end,
            lag,
            last_fetch_ms,
            _caught_up,
            status,
        ] = fields[..]
        else {
            return None;
        };
        let is_leader = match status {
            "Leader" => true,
            "Follower" => false,
            _ => return None,
        };
        Some(Voter {
            node_id: node_id.parse().ok()?,
            lag: lag.parse().ok()?,
            last_fetch_ms: last_fetch_ms.parse().ok()?,
            is_leader,
        })
    }
}

fn restart(stage: Stage, member: &mut Member, settings: &[(&str, String)]) -> Result<()> {
    let name = member.name();
    let stopped = member.take()?.stop();
    stopped.with_context(|| format!("{name} does not stop"))?;
    member.set(settings);
    if stage >= Stage::Closed {
        member.options.port = Some(member.port + 1);
        member.options.is_port_secured = true;
    }
    member
        .start()
        .with_context(|| format!("{name} at {stage:?}"))
}

/// The listeners of a node at a stage, on `port` and the next port.
fn listeners(stage: Stage, plain: &str, secured: &str, port: u16) -> Vec<(&'static str, String)> {
    let plain = format!("{plain}://127.0.0.1:{port}");
    let secured = format!("{secured}://127.0.0.1:{}", port + 1);
    let listeners = match stage {
        Stage::Both | Stage::Moved => format!("{plain},{secured}"),
        Stage::Closed | Stage::Guarded => secured,
    };
    vec![
        ("listeners", listeners.clone()),
        ("advertised.listeners", listeners),
    ]
}

/// The settings that brokers and controllers share.
fn of_every_node(stage: Stage, voters: &[(i32, u16)], dir: &Path) -> Vec<(&'static str, String)> {
    let further = u16::from(stage >= Stage::Moved);
    let voters = voters
        .iter()
        .map(|(id, port)| format!("{id}@127.0.0.1:{}", port + further));
    let mut settings = vec![
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\
             CONTROLLER_SECURED:SASL_SSL,SECURED:SASL_SSL"
                .to_owned(),
        ),
        (
            "controller.quorum.voters",
            voters.collect::<Vec<_>>().join(","),
        ),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512".to_owned()),
        ("sasl.mechanism.controller.protocol", "PLAIN".to_owned()),
        (
            "sasl.mechanism.inter.broker.protocol",
            "SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.controller_secured.sasl.enabled.mechanisms",
            "PLAIN".to_owned(),
        ),
        (
            "listener.name.controller_secured.plain.sasl.jaas.config",
            secured::plain_entry(),
        ),
        (
            "listener.name.secured.sasl.enabled.mechanisms",
            "SCRAM-SHA-512".to_owned(),
        ),
        (
            "listener.name.secured.scram-sha-512.sasl.jaas.config",
            secured::scram_entry(),
        ),
    ];
    settings.extend(secured::stores(NODE, dir));
    if stage >= Stage::Closed {
        settings.extend([
            ("authorizer.class.name", secured::AUTHORIZER.to_owned()),
            ("super.users", format!("User:{NODE}")),
            (
                "allow.everyone.if.no.acl.found",
                (stage < Stage::Guarded).to_string(),
            ),
        ]);
    }
    settings
}

fn of_controller(
    stage: Stage,
    member: &Member,
    voters: &[(i32, u16)],
    dir: &Path,
) -> Vec<(&'static str, String)> {
    let mut settings = of_every_node(stage, voters, dir);
    settings.extend(listeners(
        stage,
        "CONTROLLER",
        "CONTROLLER_SECURED",
        member.port,
    ));
    let names = match stage {
        Stage::Both => "CONTROLLER,CONTROLLER_SECURED",
        // This node uses the first name.
        Stage::Moved => "CONTROLLER_SECURED,CONTROLLER",
        Stage::Closed | Stage::Guarded => "CONTROLLER_SECURED",
    };
    settings.push(("controller.listener.names", names.to_owned()));
    settings
}

fn of_broker(
    stage: Stage,
    member: &Member,
    voters: &[(i32, u16)],
    dir: &Path,
) -> Vec<(&'static str, String)> {
    let mut settings = of_every_node(stage, voters, dir);
    settings.extend(listeners(stage, "PLAINTEXT", "SECURED", member.port));
    let (controller, inter_broker) = match stage {
        Stage::Both => ("CONTROLLER", "PLAINTEXT"),
        _ => ("CONTROLLER_SECURED", "SECURED"),
    };
    settings.extend([
        ("controller.listener.names", controller.to_owned()),
        ("inter.broker.listener.name", inter_broker.to_owned()),
    ]);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_are_parsed_without_observers_and_titles() {
        let printed = "NodeId\tDirectoryId\tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\tStatus\n\
                       101\tAAAAAAAAAAAAAAAAAAAAAA\t90\t0\t1790000000500\t1790000000500\tLeader\n\
                       102\tAAAAAAAAAAAAAAAAAAAAAA\t88\t2\t1790000000400\t1790000000300\tFollower\n\
                       1\tAAAAAAAAAAAAAAAAAAAAAA\t90\t0\t1790000000450\t1790000000450\tObserver\n";
        let voters: Vec<Voter> = printed.lines().filter_map(Voter::parse).collect();
        assert_eq!(voters.len(), 2);
        assert!(voters[0].is_leader);
        let follower = Voter {
            node_id: 102,
            lag: 2,
            last_fetch_ms: 1_790_000_000_400,
            is_leader: false,
        };
        assert_eq!(voters[1], follower);
    }
}
