//! Checks of a node: disk space and latency, free ports, resolvable host names, and certificates.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{TcpListener, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, Listener, Properties, RemoteLogMetadataConfig, settings_below};
use ottla_storage::log_dirs::Holder;
use ottla_storage::preflight::{Finding, Preflight, Severity, TLS};
use rustix::fs::{StatVfs, statfs, statvfs};

use super::check::{Check, Level, bytes_text};

const LITTLE_SPACE: u64 = 1_000_000_000;
/// Fraction of free space, and of free inodes.
const LITTLE_SHARE: f64 = 0.1;
const HARDLY_ANY_SHARE: f64 = 0.03;
/// File systems that are unsuitable for a broker's data: network and in-memory ones.
#[rustfmt::skip]
const UNSUITABLE: &[(u64, &str)] = &[
    (0x6969, "NFS: locks and fsync over a network are not reliable"),
    (0xff53_4d42, "CIFS: locks and fsync over a network are not reliable"),
    (0xfe53_4d42, "SMB: locks and fsync over a network are not reliable"),
    (0x0102_1994, "tmpfs: its data is lost when the machine restarts"),
    (0x794c_7630, "overlayfs: its data is lost with the container; mount a volume"),
];
/// Number of writes with which a disk's latency is measured.
const PROBES: usize = 9;
const SLOW_SYNC: Duration = Duration::from_millis(20);

pub(super) fn look(properties: &Properties, preflight: &Preflight) -> Result<Vec<Check>, String> {
    let (config, _) =
        BrokerConfig::from_properties(properties).map_err(|error| error.to_string())?;
    let mut dirs: Vec<&str> = config.log_dirs.iter().map(String::as_str).collect();
    if !dirs.contains(&&*config.metadata_log_dir) {
        dirs.push(&config.metadata_log_dir);
    }
    let mut checks = Vec::new();
    for dir in dirs {
        checks.extend(disk(Path::new(dir)));
    }
    let is_running = dirs_in_use(&config);
    checks.extend(config.listeners.iter().map(|it| port(it, is_running)));
    let advertised = config.advertised_listeners.iter();
    checks.extend(advertised.filter_map(name));
    let refusals: Vec<&Finding> = preflight
        .refusals()
        .filter(|finding| !is_told(finding, &checks))
        .collect();
    checks.extend(refusals.into_iter().map(start));
    checks.extend(preflight.findings.iter().filter_map(certificate));
    checks.extend(metadata_topic(&config));
    Ok(checks)
}

/// Whether a refusal is that the node runs, or is about a disk with which something is wrong.
fn is_told(finding: &Finding, checks: &[Check]) -> bool {
    let disk = disk_subject(Path::new(&finding.place));
    let is_of_disk = |check: &Check| check.level == Level::Problem && check.subject == disk;
    finding.change.as_deref() == Some(Holder::WAY_OUT) || checks.iter().any(is_of_disk)
}

/// What the start would refuse.
fn start(refusal: &Finding) -> Check {
    let Finding {
        place,
        what,
        change,
        ..
    } = refusal;
    let what = match place.is_empty() {
        true => what.clone(),
        false => format!("{place}: {what}"),
    };
    let remedy = change.clone();
    Check {
        remedy,
        ..Check::problem("start", what, "")
    }
}

/// A certificate with which the node starts, and which is not valid or soon will not be.
fn certificate(finding: &Finding) -> Option<Check> {
    if finding.subject != TLS {
        return None;
    }
    let check = match finding.severity {
        // The start tells it.
        Severity::Refuses => return None,
        Severity::Warns => Check::problem("certificate", &finding.what, ""),
        Severity::Notes => Check::warning("certificate", &finding.what, ""),
    };
    Some(Check {
        remedy: finding.change.clone(),
        ..check
    })
}

/// The replicas of `__remote_log_metadata`, which a broker that is alone cannot have. The file does not
/// say how many brokers there are, so a node that is its own only controller is taken for one.
fn metadata_topic(config: &BrokerConfig) -> Option<Check> {
    let controllers = config.controller_quorum_voters.len();
    let controllers = controllers.max(config.controller_quorum_bootstrap_servers.len());
    let is_alone = config.is_combined() && controllers <= 1;
    if !config.remote_log_storage_system_enable || !is_alone {
        return None;
    }
    let prefix = config.setting("remote.log.metadata.manager.impl.prefix");
    let prefix = prefix.unwrap_or("rlmm.config.").trim();
    let given = config.static_settings().iter();
    let given = given.map(|(key, value)| (key.as_str(), value.as_str()));
    let settings = RemoteLogMetadataConfig::resolve(&settings_below(given, prefix)).ok()?;
    let subject = "tiered storage";
    let replicas = settings.replication_factor;
    Some(match replicas {
        ..=1 => Check::good(subject, "__remote_log_metadata needs one broker"),
        _ => Check::warning(
            subject,
            format!("__remote_log_metadata needs {replicas} brokers; with fewer, a broker stops"),
            format!(
                "if this broker is alone, set {prefix}remote.log.metadata.topic.replication.factor=1 and \
                 {prefix}remote.log.metadata.topic.min.isr=1"
            ),
        ),
    })
}

/// The ports of a running node are in use by the node itself.
fn dirs_in_use(config: &BrokerConfig) -> bool {
    let mut dirs = config.log_dirs.iter();
    dirs.any(|dir| {
        matches!(
            ottla_storage::log_dirs::holder_of(Path::new(dir)),
            Ok(Some(_))
        )
    })
}

fn disk_subject(dir: &Path) -> String {
    format!("disk of {}", dir.display())
}

fn disk(dir: &Path) -> Vec<Check> {
    let subject = disk_subject(dir);
    let nearest = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let mut checks = Vec::new();
    match statvfs(nearest) {
        Ok(found) => checks.push(space(&subject, &found)),
        Err(error) => {
            let remedy = "mount it, or set other log.dirs";
            return vec![Check::problem(
                subject,
                format!("cannot be read: {error}"),
                remedy,
            )];
        }
    }
    if let Ok(found) = statfs(nearest) {
        checks.extend(unsuitable(found.f_type as u64).map(|why| {
            Check::warning(&subject, why, "set log.dirs to a directory on a local disk")
        }));
    }
    if nearest == dir {
        checks.push(match sync_time(dir) {
            Ok(time) => sync_check(&subject, time),
            Err(error) => Check::problem(
                &subject,
                format!("cannot be written: {error}"),
                format!(
                    "chown -R USER {}, or run as the user that owns it",
                    dir.display()
                ),
            ),
        });
    }
    checks
}

/// Why a file system of this type is not suitable for logs.
fn unsuitable(f_type: u64) -> Option<&'static str> {
    // On some architectures the kernel's type is signed, and its upper half is set.
    let kind = f_type & 0xffff_ffff;
    let found = UNSUITABLE.iter().find(|(magic, _)| *magic == kind);
    found.map(|(_, why)| *why)
}

fn space(subject: &str, found: &StatVfs) -> Check {
    let share = |free: u64, all: u64| match all {
        0 => 1.0,
        _ => free as f64 / all as f64,
    };
    let free = found.f_bavail * found.f_frsize;
    space_check(
        subject,
        free,
        share(found.f_bavail, found.f_blocks),
        share(found.f_favail, found.f_files),
    )
}

fn space_check(subject: &str, free: u64, share: f64, inodes: f64) -> Check {
    let what = format!("{} free ({:.0} %)", bytes_text(free), share * 100.0);
    let remedy = "lower retention (log.retention.bytes, log.retention.hours), delete topics, or add a disk to log.dirs";
    if inodes < HARDLY_ANY_SHARE {
        let what = format!("{:.0} % of its inodes are free", inodes * 100.0);
        return Check::problem(
            subject,
            what,
            "larger segments (log.segment.bytes) need fewer files",
        );
    }
    if share < HARDLY_ANY_SHARE || free < LITTLE_SPACE {
        Check::problem(subject, what, remedy)
    } else if share < LITTLE_SHARE {
        Check::warning(subject, what, remedy)
    } else {
        Check::good(subject, what)
    }
}

/// The median time to write and sync a page.
fn sync_time(dir: &Path) -> io::Result<Duration> {
    let path = dir.join(format!(".ottla-doctor-{}", std::process::id()));
    let probe = || -> io::Result<Duration> {
        let mut file = File::create(&path)?;
        let mut times = Vec::new();
        for _ in 0..PROBES {
            let began = Instant::now();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[PROBES / 2])
    };
    let time = probe();
    // The file may not have been created.
    let _ = fs::remove_file(&path);
    time
}

fn sync_check(subject: &str, time: Duration) -> Check {
    let what = format!(
        "writes and syncs a page in {:.1} ms",
        time.as_secs_f64() * 1e3
    );
    match time <= SLOW_SYNC {
        true => Check::good(subject, what),
        false => Check::warning(
            subject,
            format!("{what}: the metadata log waits for each sync"),
            "use a disk with a write cache that survives a power cut, and no other load",
        ),
    }
}

fn port(listener: &Listener, is_running: bool) -> Check {
    let subject = format!("listener {}", listener.name);
    let host = listener.host.as_deref().unwrap_or("0.0.0.0");
    let address = format!("{host}:{}", listener.port);
    match TcpListener::bind((host, listener.port)) {
        Ok(_) => Check::good(subject, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_running => {
            Check::good(subject, format!("{address} is in use by the running node"))
        }
        Err(error) => {
            let remedy = format!(
                "`ss -ltnp 'sport = :{}'` shows the process that uses it",
                listener.port
            );
            Check::problem(
                subject,
                format!("cannot listen on {address}: {error}"),
                remedy,
            )
        }
    }
}

/// The advertised host name, which clients must be able to resolve.
fn name(listener: &Listener) -> Option<Check> {
    let host = listener.host.as_deref()?;
    let subject = format!("advertised listener {}", listener.name);
    Some(match (host, listener.port).to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<String> = addresses.map(|it| it.ip().to_string()).collect();
            Check::good(subject, format!("{host} is {}", addresses.join(", ")))
        }
        Err(error) => Check::problem(
            subject,
            format!("{host} cannot be resolved: {error}; clients connect to this name"),
            "set advertised.listeners to a name or an address that clients can reach",
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(host: &str, port: u16) -> Listener {
        Listener {
            name: "PLAINTEXT".into(),
            protocol: ottla_config::SecurityProtocol::Plaintext,
            host: Some(host.into()),
            port,
            is_controller: false,
        }
    }

    #[test]
    fn network_and_memory_file_systems_are_unsuitable() {
        // The magic numbers of linux/magic.h: CIFS, SMB2, ext4.
        assert!(unsuitable(0xff53_4d42).is_some_and(|why| why.starts_with("CIFS")));
        assert!(unsuitable(0xfe53_4d42).is_some_and(|why| why.starts_with("SMB")));
        assert!(unsuitable(0xffff_ffff_fe53_4d42).is_some());
        assert_eq!(unsuitable(0xef53), None);
    }

    #[test]
    fn a_filling_disk_is_reported_before_it_is_full() {
        let level = |free, share, inodes| space_check("disk", free, share, inodes).level;
        assert_eq!(level(50_000_000_000, 0.5, 0.9), Level::Good);
        assert_eq!(level(50_000_000_000, 0.08, 0.9), Level::Warning);
        assert_eq!(level(50_000_000_000, 0.02, 0.9), Level::Problem);
        assert_eq!(level(500_000_000, 0.5, 0.9), Level::Problem);
        assert_eq!(level(50_000_000_000, 0.5, 0.01), Level::Problem);
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        sync_time(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(sync_time(&dir.path().join("missing")).is_err());
        assert_eq!(
            sync_check("d", Duration::from_millis(90)).level,
            Level::Warning
        );
    }

    #[test]
    fn a_port_in_use_is_a_problem_unless_the_node_itself_uses_it() {
        let [number] = ottla_testkit::lease_ports().unwrap();
        let taken = TcpListener::bind(("127.0.0.1", number)).unwrap();
        let listener = listener("127.0.0.1", number);
        assert_eq!(port(&listener, false).level, Level::Problem);
        assert_eq!(port(&listener, true).level, Level::Good);
        drop(taken);
        assert_eq!(port(&listener, false).level, Level::Good);
    }

    #[test]
    fn a_single_broker_cannot_have_three_replicas_of_the_metadata_topic() {
        let checked = |more: &[(&str, &str)]| {
            let mut properties = crate::server::properties_without_a_file();
            let class = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";
            properties.set("remote.log.storage.manager.class.name", class);
            for (key, value) in more {
                properties.set(key, value);
            }
            let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
            metadata_topic(&config).map(|check| (check.level, check.remedy))
        };
        let tiered = ("remote.log.storage.system.enable", "true");
        let one = "rlmm.config.remote.log.metadata.topic.replication.factor";
        assert_eq!(checked(&[]), None);
        let (level, remedy) = checked(&[tiered]).unwrap();
        assert_eq!(level, Level::Warning);
        assert!(remedy.unwrap().contains(&format!("{one}=1")));
        assert_eq!(checked(&[tiered, (one, "1")]), Some((Level::Good, None)));
    }

    #[test]
    fn what_the_start_refuses_is_a_problem() {
        let refusal = |place: &str, change: &str| Finding {
            severity: Severity::Refuses,
            subject: "start",
            place: place.to_owned(),
            what: "rsm.config.dir: is missing".to_owned(),
            change: Some(change.to_owned()),
            accept: None,
        };
        let check = start(&refusal("s.properties line 3", "give a directory"));
        assert_eq!(check.level, Level::Problem);
        assert_eq!(
            check.what,
            "s.properties line 3: rsm.config.dir: is missing"
        );
        assert_eq!(check.remedy.as_deref(), Some("give a directory"));
    }

    #[test]
    fn certificates_that_expire_are_reported_with_their_own_advice() {
        let checked = |severity, subject| {
            let finding = Finding {
                severity,
                subject,
                place: String::new(),
                what: "listener SSL: the certificate of CN=a expires in 3 days".to_owned(),
                change: Some("replace its file".to_owned()),
                accept: None,
            };
            certificate(&finding)
        };
        let level = |severity, subject| checked(severity, subject).map(|check| check.level);
        let advice = checked(Severity::Notes, TLS).and_then(|check| check.remedy);
        assert_eq!(advice.as_deref(), Some("replace its file"));
        assert_eq!(level(Severity::Notes, TLS), Some(Level::Warning));
        assert_eq!(level(Severity::Warns, TLS), Some(Level::Problem));
        assert_eq!(level(Severity::Refuses, TLS), None);
        assert_eq!(level(Severity::Notes, "settings"), None);
    }

    #[test]
    fn a_refusal_that_another_check_tells_is_not_repeated() {
        let refusal = |place: &str, change: &str| Finding {
            severity: Severity::Refuses,
            subject: "directories",
            place: place.to_owned(),
            what: "cannot be read and written".to_owned(),
            change: Some(change.to_owned()),
            accept: None,
        };
        let checks = [Check::problem(
            disk_subject(Path::new("/d")),
            "cannot be written",
            "mount it",
        )];
        assert!(is_told(&refusal("/d", "mount it"), &checks));
        assert!(!is_told(&refusal("/e", "mount it"), &checks));
        assert!(!is_told(&refusal("", "give the directory"), &checks));
        // A node that runs may be looked at.
        assert!(is_told(&refusal("/e", Holder::WAY_OUT), &checks));
    }

    #[test]
    fn an_unresolvable_name_is_a_problem() {
        assert_eq!(name(&listener("127.0.0.1", 1)).unwrap().level, Level::Good);
        let unknown = name(&listener("no-such-host.invalid", 1)).unwrap();
        assert_eq!(unknown.level, Level::Problem);
    }
}
