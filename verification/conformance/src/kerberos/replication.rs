//! Brokers and controllers of both makers that log in to each other with Kerberos, and replicate a topic that is written
//! and read meanwhile.
//!
//! Only the principal of the nodes may replicate. Each broker is restarted once, so that leaders move, and logins are made
//! from each maker to each.

use std::path::Path;

use anyhow::{Result, ensure};

use super::realm::{self, AUTHORIZER, MODULE, Realm};
use crate::mixed_cluster::clients::{Access, Clients};
use ottla_peers::{Cluster, Peer, fewest_in_sync, replicas};
use ottla_workspace::process;

const BROKERS: [&str; 3] = ["ottla", "kafka", "ottla"];
const CONTROLLERS: [&str; 3] = ["ottla", "kafka", "ottla"];
const TOPIC: &str = "replicated";
const PARTITIONS: usize = 3;

pub fn replicate(realm: &Realm, dir: &Path) -> Result<()> {
    let dir = dir.join("replication");
    std::fs::create_dir_all(&dir)?;
    let names = |names: [&str; 3]| names.map(str::to_owned);
    let mut cluster = Cluster::plan(
        &names(BROKERS),
        &names(CONTROLLERS),
        &dir,
        &of_every_node(realm),
    )?;
    secure(&mut cluster, realm);
    let outcome = tell(&mut cluster, &dir);
    if !outcome.as_ref().is_ok_and(Vec::is_empty) {
        println!("{}", cluster.complaints());
    }
    let wrong = outcome?;
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

/// What is wrong with the cluster or its topic.
fn tell(cluster: &mut Cluster, dir: &Path) -> Result<Vec<String>> {
    cluster.start()?;
    let (kafka, ottla) = (
        Peer::load("kafka")?.install()?,
        Peer::load("ottla")?.install()?,
    );
    let access = Access::plain(cluster.bootstrap());
    let brokers = cluster.brokers.len();
    let mut create = access.tool(&ottla, "topics");
    create.args(["--create", "--topic", TOPIC]);
    create.args(["--partitions", &PARTITIONS.to_string()]);
    create.args(["--replication-factor", &brokers.to_string()]);
    create.args(["--config", "min.insync.replicas=2"]);
    process::output_of(&mut create)?;
    cluster.wait_until_in_sync(TOPIC, brokers)?;
    let mut clients = Clients::start(&kafka, &access, TOPIC, dir)?;
    for at in 0..brokers {
        let broker = &mut cluster.brokers[at];
        broker.take()?.stop()?;
        broker.start()?;
        cluster.wait_until_in_sync(TOPIC, brokers)?;
        clients.wait_for_more()?;
    }
    let (_, mut wrong) = clients.finish(&kafka, &access, TOPIC)?;
    cluster.wait_until_in_sync(TOPIC, brokers)?;
    for broker in &cluster.brokers {
        if fewest_in_sync(broker.port + 1, TOPIC).is_ok() {
            wrong.push(format!(
                "{} answers whoever has not logged in",
                broker.name()
            ));
        }
    }
    wrong.extend(cluster.stop()?);
    for partition in 0..PARTITIONS {
        let partition = format!("{TOPIC}-{partition}");
        let compared = replicas::compare_each(&cluster.brokers, &partition, brokers)?;
        ensure!(compared.0 > 0, "{partition} is empty");
        wrong.extend(compared.1);
    }
    Ok(wrong)
}

/// Plain clients may do everything, at a listener of their own.
fn of_every_node(realm: &Realm) -> Vec<(&'static str, String)> {
    let entry = format!(
        "{MODULE} required useKeyTab=true storeKey=true keyTab=\"{}\" principal=\"kafka/localhost@{}\";",
        realm.keytab("broker").display(),
        realm::NAME
    );
    let nodes = BROKERS.len().to_string();
    vec![
        (
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT,REPLICATION:SASL_PLAINTEXT".to_owned(),
        ),
        ("sasl.enabled.mechanisms", "GSSAPI".to_owned()),
        ("sasl.mechanism.controller.protocol", "GSSAPI".to_owned()),
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI".to_owned()),
        ("sasl.kerberos.service.name", "kafka".to_owned()),
        (
            "listener.name.controller.gssapi.sasl.jaas.config",
            entry.clone(),
        ),
        ("listener.name.replication.gssapi.sasl.jaas.config", entry),
        ("authorizer.class.name", AUTHORIZER.to_owned()),
        ("super.users", "User:kafka;User:ANONYMOUS".to_owned()),
        ("offsets.topic.replication.factor", nodes),
        ("offsets.topic.num.partitions", "5".to_owned()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
    ]
}

/// Tickets are for a name, so every address has it.
fn secure(cluster: &mut Cluster, realm: &Realm) {
    let voters = cluster.controllers.iter();
    let voters = voters.map(|it| format!("{}@localhost:{}", it.node_id, it.port));
    let voters = (
        "controller.quorum.voters",
        voters.collect::<Vec<_>>().join(","),
    );
    for controller in &mut cluster.controllers {
        let address = format!("CONTROLLER://localhost:{}", controller.port);
        controller.set(&[voters.clone(), ("advertised.listeners", address)]);
        controller.options.environment = realm.environment();
    }
    for broker in &mut cluster.brokers {
        let clients = format!("PLAINTEXT://127.0.0.1:{}", broker.port);
        let others = broker.port + 1;
        broker.set(&[
            voters.clone(),
            (
                "listeners",
                format!("{clients},REPLICATION://127.0.0.1:{others}"),
            ),
            (
                "advertised.listeners",
                format!("{clients},REPLICATION://localhost:{others}"),
            ),
            ("inter.broker.listener.name", "REPLICATION".to_owned()),
        ]);
        broker.options.environment = realm.environment();
    }
}
