//! A share group (KIP-932). Each record must be settled by a member that acquired it, or be
//! delivered up to the limit. A settled record must not be delivered again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_client::{
    AcknowledgeType, AcknowledgementMode, Admin, ShareConsumer, ShareConsumerConfig,
};
use ottla_sync::simulation::{Host, Random, now, stream};
use ottla_testkit::client_histories::workload::{Scene, TOPICS};

use crate::clients::on;

pub(crate) const SOURCE: &str = TOPICS[1];
const GROUP: &str = "sharers";
const MEMBERS: usize = 2;
/// `group.share.delivery.count.limit`.
pub(crate) const DELIVERIES: i16 = 5;
/// How long the group may take without faults to settle everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A partition and an offset in it.
pub(crate) type RecordPosition = (i32, i64);

/// The records that the members have received.
#[derive(Default)]
struct Known {
    deliveries: BTreeMap<RecordPosition, i16>,
    /// Records that were accepted or rejected, with a response, and the count of that delivery.
    settled: BTreeMap<RecordPosition, i16>,
    /// Records that were accepted or rejected, without a response.
    unanswered: BTreeSet<RecordPosition>,
    finding: Option<String>,
}

pub(crate) struct Sharers {
    scene: Arc<Scene>,
    hosts: Vec<Host>,
    known: Rc<RefCell<Known>>,
    is_over: Rc<Cell<bool>>,
    random: Random,
    pub kills: u64,
}

impl Sharers {
    pub fn start(scene: &Arc<Scene>) -> Sharers {
        let mut sharers = Sharers {
            scene: scene.clone(),
            hosts: Vec::new(),
            known: Rc::default(),
            is_over: Rc::default(),
            random: stream("sharers"),
            kills: 0,
        };
        configure_group(scene, GROUP);
        sharers.hosts = (0..MEMBERS).map(|member| sharers.member(member)).collect();
        sharers
    }

    fn member(&self, member: usize) -> Host {
        let (scene, is_over) = (self.scene.clone(), self.is_over.clone());
        let known = self.known.clone();
        let host = Host::new(&format!("sharer-{member}"));
        let mut random = stream(&format!("sharer-{member}-{}", self.kills));
        on(&host, move || async move {
            while !is_over.get() {
                // After any error, a new instance joins the group.
                if let Err(error) = take_part(&scene, member, &known, &mut random, &is_over).await {
                    tracing::info!(member, "{error:#}");
                }
                ottla_sync::time::sleep(Duration::from_millis(200)).await;
            }
        });
        host
    }

    /// Kills a member at random times; another process replaces it.
    pub fn disturb(&mut self) {
        if self.random.one_in(2) {
            let member = self.random.index(MEMBERS);
            self.hosts[member].kill();
            self.kills += 1;
            self.hosts[member] = self.member(member);
        }
    }

    /// Waits until everything in the source is settled. Returns the number of settled records.
    pub fn settle(self, expected: &BTreeSet<RecordPosition>) -> Result<u64, String> {
        let deadline = now() + PATIENCE;
        loop {
            let known = self.known.borrow();
            if let Some(finding) = &known.finding {
                return Err(finding.clone());
            }
            let is_open = |place: &&RecordPosition| {
                let deliveries = known.deliveries.get(*place).copied().unwrap_or_default();
                let is_done =
                    known.settled.contains_key(*place) || known.unanswered.contains(*place);
                !is_done && deliveries < DELIVERIES
            };
            let open: Vec<&RecordPosition> = expected.iter().filter(is_open).collect();
            if open.is_empty() {
                self.is_over.set(true);
                return Ok(known.settled.len() as u64);
            }
            if now() > deadline {
                return Err(format!(
                    "shared records: after {PATIENCE:?}, {} of {} are open, the first in partition and offset {:?}",
                    open.len(),
                    expected.len(),
                    open[0]
                ));
            }
            drop(known);
            ottla_sync::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Makes a group read only committed records, from the beginning.
pub(crate) fn configure_group(scene: &Arc<Scene>, group: &'static str) {
    let scene = scene.clone();
    let host = Host::new(&format!("{group}-admin"));
    let configured = on(&host, move || async move {
        while configure(&scene, group).await.is_err() {
            ottla_sync::time::sleep(Duration::from_millis(100)).await;
        }
    });
    configured.join().expect("it ends");
}

async fn configure(scene: &Scene, group: &str) -> Result<()> {
    let set = |key: &str, value: &str| (key.to_owned(), ConfigOperation::Set(value.to_owned()));
    let settings = BTreeMap::from([
        set("share.auto.offset.reset", "earliest"),
        set("share.isolation.level", "read_committed"),
    ]);
    Admin::new(scene.client().await?)
        .alter_configs(ConfigResourceType::Group, group, &settings, false)
        .await?;
    Ok(())
}

async fn take_part(
    scene: &Scene,
    member: usize,
    known: &RefCell<Known>,
    random: &mut Random,
    is_over: &Cell<bool>,
) -> Result<()> {
    let config = ShareConsumerConfig {
        group_id: GROUP.to_owned(),
        acknowledgement_mode: AcknowledgementMode::Explicit,
        ..ShareConsumerConfig::default()
    };
    let mut consumer = ShareConsumer::new(scene.client().await?, config)?;
    consumer.subscribe(&[SOURCE.to_owned()]);
    while !is_over.get() {
        // The response must not contain records that were settled before the poll.
        let settled = known.borrow().settled.clone();
        let records = consumer.poll(Duration::from_millis(300)).await?;
        let mut done: BTreeMap<i32, BTreeMap<RecordPosition, i16>> = BTreeMap::new();
        for record in &records {
            let place = (record.record.partition, record.record.offset);
            known
                .borrow_mut()
                .on_delivered(place, record.delivery_count, &settled);
            let kind = match random.below(10) {
                0 => AcknowledgeType::Release,
                1 => AcknowledgeType::Reject,
                _ => AcknowledgeType::Accept,
            };
            tracing::info!(
                member,
                ?place,
                count = record.delivery_count,
                ?kind,
                "is given"
            );
            if kind != AcknowledgeType::Release {
                let done = done.entry(place.0).or_default();
                done.insert(place, record.delivery_count);
            }
            consumer.acknowledge(record, kind)?;
        }
        let asked = done.values().flat_map(BTreeMap::keys).copied();
        known.borrow_mut().unanswered.extend(asked);
        for ((_, partition), answer) in consumer.commit().await? {
            if let Err(error) = &answer {
                tracing::info!(member, partition, "acknowledging: {error:#}");
            }
            if answer.is_ok() {
                let places = done.remove(&partition).unwrap_or_default();
                known.borrow_mut().settled.extend(places);
            }
        }
    }
    Ok(consumer.close().await?)
}

impl Known {
    fn on_delivered(
        &mut self,
        place: RecordPosition,
        count: i16,
        settled: &BTreeMap<RecordPosition, i16>,
    ) {
        self.unanswered.remove(&place);
        let deliveries = self.deliveries.entry(place).or_default();
        *deliveries = count.max(*deliveries);
        if count > DELIVERIES {
            let sentence = format!("shared records: {place:?} was delivered {count} times");
            self.finding.get_or_insert(sentence);
        }
        // A response can wait in the member while it commits, until its locks are over and another
        // member has settled the records. Its delivery is the earlier one, and so is its count.
        if settled.get(&place).is_some_and(|last| count >= *last) {
            let sentence = format!("shared records: {place:?} was delivered after it was settled");
            self.finding.get_or_insert(sentence);
        }
    }
}
