//! Reports unreachable brokers to the user of a console client: one line when a connection is lost
//! or cannot be established, an occasional reminder, and one line when it is back. These clients
//! retry for a long time, so the user needs to know, without a line per attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_client::{Client, ClientError, Outage};
use ottla_types::ErrorCode;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Like Kafka's `reconnect.backoff.ms` and `reconnect.backoff.max.ms`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Polling interval for lost connections.
const LOOK: Duration = Duration::from_millis(100);
/// A broker that has not answered for this long is reported while the client still waits for it.
const PROBE: Duration = Duration::from_secs(2);
/// The times of the first reminders; later ones follow at intervals of a minute.
const REMINDERS: [Duration; 3] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Watches the connections of a client until it is dropped.
pub(super) struct ConnectionWatch {
    task: JoinHandle<()>,
    pub(super) refusal: Refusal,
}

impl Drop for ConnectionWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The report of a refused login. The watch and the tool can both meet it; the first of them prints it.
#[derive(Clone, Default)]
pub(super) struct Refusal(Arc<AtomicBool>);

impl Refusal {
    /// Whether the caller has to print it, which is true once.
    pub(super) fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// Whether the broker is there, and refuses the login.
pub(super) fn is_refused_login(error: &ClientError) -> bool {
    let code = error.code();
    matches!(
        code,
        Some(ErrorCode::SaslAuthenticationFailed | ErrorCode::UnsupportedSaslMechanism)
    )
}

/// Connects, however long that takes, and watches the connections afterwards.
pub(super) async fn connect(client: &Client, who: &str) -> Result<ConnectionWatch, ClientError> {
    let watch = watch(client, who);
    // A refused login is the error of this function. A later one is that of the tool, which ends then.
    watch.refusal.claim();
    client.refresh_metadata(Some(&[]), false).await?;
    Ok(watch)
}

/// As [`connect`], for at most this long. `None` if no broker has answered, after that was printed.
pub(super) async fn connect_within(
    client: &Client,
    who: &str,
    limit: Option<Duration>,
) -> Result<Option<ConnectionWatch>, ClientError> {
    let Some(limit) = limit else {
        return connect(client, who).await.map(Some);
    };
    match timeout(limit, connect(client, who)).await {
        Ok(connected) => connected.map(Some),
        Err(_) => {
            eprintln!(
                "No broker answered for {} ms (--timeout-ms); stopping.",
                limit.as_millis()
            );
            Ok(None)
        }
    }
}

/// `who` is the client's name in Kafka's logs: `Producer clientId=console-producer`.
pub(super) fn watch(client: &Client, who: &str) -> ConnectionWatch {
    watch_unsent(client, who, || 0)
}

/// Like [`watch`], for a client with unsent records, which reminders count.
pub(super) fn watch_unsent(
    client: &Client,
    who: &str,
    unsent: impl Fn() -> u64 + Send + Sync + 'static,
) -> ConnectionWatch {
    let (client, mut report) = (client.clone(), Report::new(who));
    let refusal = report.refusal.clone();
    let task = tokio::spawn(async move {
        await_first_connection(&client, &mut report, &unsent).await;
        let mut pause = LOOK;
        loop {
            sleep(pause).await;
            // A connection that was closed because it was idle is reopened without a message.
            for outage in client
                .outages()
                .iter()
                .filter(|it| is_of_interest(&client, it))
            {
                let _ = timeout(PROBE, client.connection(&outage.address)).await;
            }
            let outages = client.outages();
            let outages = outages.into_iter().filter(|it| is_of_interest(&client, it));
            let outages: Vec<_> = outages
                .map(|it| (node_name(&client, &it.address), it))
                .collect();
            pause = match outages.is_empty() {
                true => LOOK,
                false => (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            };
            let is_known = |address: &str| is_in_cluster(&client, address);
            print(report.observe(Instant::now(), &outages, unsent(), is_known));
        }
    });
    ConnectionWatch { task, refusal }
}

/// Until there is a connection, all bootstrap servers count as one broker.
async fn await_first_connection(
    client: &Client,
    report: &mut Report,
    unsent: &(impl Fn() -> u64 + Sync),
) {
    let began = Instant::now();
    let address = client.config().bootstrap_servers.join(", ");
    let mut pause = FIRST_PAUSE;
    loop {
        let reason = match timeout(PROBE, client.any_node()).await {
            Ok(Ok(_)) => break,
            Ok(Err(error)) => error,
            Err(_) => ClientError::Connect {
                address: address.clone(),
                reason: "no answer so far".into(),
            },
        };
        let outage = Outage {
            address: address.clone(),
            since: began,
            reason,
            was_connected: false,
        };
        let outages = [("node -1".to_owned(), outage)];
        print(report.observe(Instant::now(), &outages, unsent(), |_| true));
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    print(report.observe(Instant::now(), &[], 0, |_| true));
}

fn print(lines: Vec<String>) {
    for line in lines {
        eprintln!("{line}");
    }
}

/// A broker that has left the cluster is reported only if there is no other.
fn is_of_interest(client: &Client, outage: &Outage) -> bool {
    is_in_cluster(client, &outage.address) || !client.is_connected()
}

fn is_in_cluster(client: &Client, address: &str) -> bool {
    let metadata = client.metadata();
    metadata.brokers.values().any(|it| it.address() == address)
}

fn node_name(client: &Client, address: &str) -> String {
    let metadata = client.metadata();
    let found = metadata.brokers.values().find(|it| it.address() == address);
    format!("node {}", found.map_or(-1, |it| it.id))
}

/// The reported outages, and when each is reported again.
struct Report {
    who: String,
    refusal: Refusal,
    /// By address.
    said: BTreeMap<String, ReportedOutage>,
}

struct ReportedOutage {
    name: String,
    since: Instant,
    was_connected: bool,
    reminders: usize,
}

impl Report {
    fn new(who: &str) -> Report {
        Report {
            who: who.to_owned(),
            refusal: Refusal::default(),
            said: BTreeMap::new(),
        }
    }

    /// The lines to print now, given the brokers that are unreachable now.
    fn observe(
        &mut self,
        now: Instant,
        outages: &[(String, Outage)],
        unsent: u64,
        is_in_cluster: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let who = &self.who;
        self.said.retain(|address, said| {
            if outages.iter().any(|(_, outage)| outage.address == *address) {
                return true;
            }
            let (name, length) = (&said.name, length_of(now - said.since));
            lines.push(match (is_in_cluster(address), said.was_connected) {
                (false, true) => {
                    format!(
                        "INFO [{who}] {name} ({address}) has left the cluster; continuing without it."
                    )
                }
                (_, true) => {
                    format!("INFO [{who}] Connected to {name} ({address}) again after {length}.")
                }
                (_, false) => {
                    format!("INFO [{who}] Connected to {name} ({address}) after {length}.")
                }
            });
            false
        });
        for (name, outage) in outages {
            let (address, reason) = (&outage.address, &outage.reason);
            let Some(said) = self.said.get_mut(address) else {
                lines.extend(match outage.was_connected {
                    _ if is_refused_login(reason) => self.refusal.claim().then(|| {
                        format!(
                            "ERROR [{who}] Connection to {name} ({address}) failed authentication due to: {}",
                            reason.broker_message()
                        )
                    }),
                    true => Some(format!(
                        "WARN [{who}] Connection to {name} ({address}) lost: {}. Reconnecting.",
                        brief(reason)
                    )),
                    false => Some(format!(
                        "WARN [{who}] Connection to {name} ({address}) could not be established. \
                         Node may not be available. ({reason})"
                    )),
                });
                let said = ReportedOutage {
                    name: name.clone(),
                    since: outage.since,
                    was_connected: outage.was_connected,
                    reminders: 0,
                };
                self.said.insert(address.clone(), said);
                continue;
            };
            let length = now - said.since;
            if length < reminder(said.reminders) {
                continue;
            }
            while length >= reminder(said.reminders) {
                said.reminders += 1;
            }
            let unsent = match unsent {
                0 => String::new(),
                1 => " 1 record is not sent yet.".to_owned(),
                _ => format!(" {unsent} records are not sent yet."),
            };
            lines.push(format!(
                "WARN [{who}] No connection to {name} ({address}) for {}: {}.{unsent}",
                length_of(length),
                brief(reason)
            ));
        }
        lines
    }
}

/// The time from the loss to the reminder with this number.
fn reminder(number: usize) -> Duration {
    match REMINDERS.get(number) {
        Some(after) => *after,
        None => Duration::from_secs(60) * (number + 2 - REMINDERS.len()) as u32,
    }
}

pub(super) fn length_of(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{} ms", length.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

/// The error without the address, which is printed before it.
fn brief(error: &ClientError) -> String {
    match error {
        ClientError::Connect { reason, .. } | ClientError::Closed { reason, .. } => reason.clone(),
        ClientError::TimedOut { what, after, .. } => {
            format!("no answer to {what} within {} ms", after.as_millis())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(since: Instant, was_connected: bool) -> [(String, Outage); 1] {
        let reason = ClientError::Connect {
            address: "h:9092".into(),
            reason: "refused".into(),
        };
        let outage = Outage {
            address: "h:9092".into(),
            since,
            reason,
            was_connected,
        };
        [("node 1".to_owned(), outage)]
    }

    #[test]
    fn a_loss_is_one_line_then_reminders_then_one_line() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let mut report = Report::new("C");
        let lost = out(began, true);
        let mut all = Vec::new();
        for second in 0..=185 {
            for line in report.observe(at(second), &lost, 2, |_| true) {
                all.push((second, line));
            }
        }
        let seconds: Vec<u64> = all.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [0, 10, 30, 60, 120, 180]);
        assert_eq!(
            all[0].1,
            "WARN [C] Connection to node 1 (h:9092) lost: refused. Reconnecting."
        );
        assert_eq!(
            all[2].1,
            "WARN [C] No connection to node 1 (h:9092) for 30 s: refused. 2 records are not sent yet."
        );
        assert!(all[5].1.contains("for 3 min"), "{}", all[5].1);
        assert_eq!(
            report.observe(at(186), &[], 0, |_| true),
            ["INFO [C] Connected to node 1 (h:9092) again after 3 min."]
        );
        assert!(report.observe(at(187), &[], 0, |_| true).is_empty());
    }

    #[test]
    fn a_refused_login_is_printed_once_by_the_watch_or_by_the_tool() {
        let began = Instant::now();
        let mut refused = out(began, false);
        let code = ErrorCode::SaslAuthenticationFailed.code();
        refused[0].1.reason = ClientError::broker("logging in", code, Some("it was refused: no"));
        let mut report = Report::new("C");
        assert_eq!(
            report.observe(began, &refused, 0, |_| true),
            [
                "ERROR [C] Connection to node 1 (h:9092) failed authentication due to: logging in was refused: no"
            ]
        );
        assert!(!report.refusal.claim());

        let mut report = Report::new("C");
        assert!(report.refusal.claim());
        assert!(report.observe(began, &refused, 0, |_| true).is_empty());
    }

    #[test]
    fn removed_and_unreachable_brokers_have_different_messages() {
        let began = Instant::now();
        let mut report = Report::new("C");
        report.observe(began, &out(began, true), 0, |_| true);
        let left = report.observe(began, &[], 0, |_| false);
        assert_eq!(
            left,
            ["INFO [C] node 1 (h:9092) has left the cluster; continuing without it."]
        );
        let never = report.observe(began, &out(began, false), 0, |_| true);
        assert!(never[0].contains("could not be established"), "{never:?}");
        let later = began + Duration::from_secs(4);
        let reached = report.observe(later, &[], 0, |_| false);
        assert_eq!(
            reached,
            ["INFO [C] Connected to node 1 (h:9092) after 4 s."]
        );
    }
}
