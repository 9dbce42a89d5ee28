//! The image: read back, unpacked, and started the way Testcontainers starts Kafka's image.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use ottla_ports::lease_ports;
use ottla_workspace::process::{OwnedChild, is_on_path, output_of, run_captured};

use super::tallied::Run;
use crate::archive::read_tar_gz;
use crate::contents::{Item, VERSION};
use crate::image::{SCRIPTS, START, USER, base, layout};

const PATIENCE: Duration = Duration::from_secs(30);
/// The log line that Testcontainers waits for.
const RUNNING: &str = "Transitioning from RECOVERY to RUNNING";
/// The command with which Testcontainers starts a container until it knows the mapped ports.
const WAIT_FOR_SCRIPT: &str =
    "while [ ! -f /tmp/testcontainers_start.sh ]; do sleep 0.1; done; /tmp/testcontainers_start.sh";

pub fn check(run: &mut Run, folder: &Path, archive: &Path) {
    run.check("the file of the image holds the same", || {
        let mut files = 0;
        for entry in tar::Archive::new(fs::File::open(archive)?).entries()? {
            let mut entry = entry?;
            let path = folder.join(entry.path()?);
            if path.is_file() {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                ensure!(bytes == fs::read(&path)?, "{} differs", path.display());
                files += 1;
            }
        }
        // The OCI layout, the index, Docker's manifest, the manifest, the configuration and two
        // layers.
        ensure!(files == 7, "{files} files instead of 7");
        Ok(String::new())
    });
    run.check("the image reads back", || {
        let image = layout::read(folder)?;
        let configuration = &image.configuration["config"];
        ensure!(
            configuration["Cmd"][0] == START,
            "it starts {}",
            configuration["Cmd"]
        );
        ensure!(
            configuration["User"] == "appuser",
            "it runs as {}",
            configuration["User"]
        );
        let sizes = image
            .layers
            .iter()
            .map(|layer| format!("{:.1} MB", layer.len() as f64 / 1e6));
        Ok(format!(
            "layers of {}",
            sizes.collect::<Vec<_>>().join(" and ")
        ))
    });
    let root = run.folder.join("image-root");
    run.check("the image unpacks", || unpack(folder, &root));
    run.check("it starts as Testcontainers starts Kafka's image", || {
        starts(&root)
    });
    if run.has("skopeo", "its look at the image") {
        run.check("skopeo reads the image", || {
            let archive = archive.display();
            for name in [
                format!("oci:{}:{VERSION}", folder.display()),
                format!("oci-archive:{archive}"),
                format!("docker-archive:{archive}"),
            ] {
                let printed = output_of(Command::new("skopeo").args(["inspect", &name]))?;
                ensure!(printed.contains("\"Os\": \"linux\""), "{name}: {printed}");
            }
            Ok(String::new())
        });
    }
    if run.has("umoci", "its unpacking of the image") {
        let bundle = run.folder.join("bundle");
        run.check("umoci unpacks the image", || {
            let name = format!("{}:{VERSION}", folder.display());
            output_of(
                Command::new("umoci")
                    .args(["unpack", "--rootless", "--image", &name])
                    .arg(&bundle),
            )?;
            ensure!(
                bundle.join("rootfs/usr/bin/ottla").exists(),
                "there is no binary"
            );
            Ok(String::new())
        });
    }
}

fn unpack(folder: &Path, root: &Path) -> Result<String> {
    let is_root = rustix::process::geteuid().is_root();
    let mut paths = 0;
    for layer in layout::read(folder)?.layers {
        for (path, (entry, owner)) in read_tar_gz(&layer)? {
            let to = root.join(path.trim_start_matches('/'));
            match &entry.item {
                Item::Directory => fs::create_dir_all(&to)?,
                Item::Link(target) => symlink(target, &to)?,
                Item::File(bytes) => fs::write(&to, bytes)?,
            }
            if !matches!(entry.item, Item::Link(_)) {
                if is_root {
                    chown(&to, Some(owner.user as u32), Some(owner.group as u32))?;
                }
                fs::set_permissions(&to, fs::Permissions::from_mode(entry.mode))?;
            }
            paths += 1;
        }
    }
    let packages = fs::read_to_string(root.join(&base::PACKAGES[1..]))?;
    Ok(format!(
        "{paths} paths, from {} packages",
        packages.lines().count()
    ))
}

/// How a command is run within the image's root.
enum Within {
    /// With the image's root as root directory, in separate namespaces.
    Root(PathBuf),
    /// With this machine's paths, if it does not permit namespaces.
    Paths(PathBuf),
}

impl Within {
    fn of(root: &Path) -> Within {
        let own = Within::Root(root.to_owned());
        let is_allowed = is_on_path("unshare")
            && run_captured(&mut own.command("true")).is_ok_and(|it| it.status.success());
        match is_allowed {
            true => own,
            false => Within::Paths(root.to_owned()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Within::Root(_) => "in a root of its own",
            Within::Paths(_) => {
                "with the paths of this machine, which does not allow a root of its own"
            }
        }
    }

    /// Runs a line in the image's shell.
    fn command(&self, line: &str) -> Command {
        match self {
            Within::Root(root) => {
                let mut command = Command::new("unshare");
                let is_root = rustix::process::geteuid().is_root();
                if !is_root {
                    command.args(["--user", "--map-root-user"]);
                }
                let user = match is_root {
                    true => format!("--userspec={USER}:{USER}"),
                    false => "--userspec=0:0".to_owned(),
                };
                // The mounting shell is this machine's; the shell that runs the line is the
                // image's.
                let enter = "mount --rbind /dev \"$1/dev\" && mount -t proc proc \"$1/proc\" && \
                             exec chroot \"$2\" \"$1\" /bin/sh -c \"$3\"";
                command.args([
                    "--mount",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "sh",
                    "-c",
                    enter,
                    "sh",
                ]);
                command.arg(root).args([user.as_str(), line]);
                command
            }
            Within::Paths(root) => {
                let mut command = Command::new("sh");
                let mut line = line.to_owned();
                for path in ["/tmp/", "/etc/kafka", "/opt/kafka"] {
                    line = line.replace(path, &format!("{}{path}", root.display()));
                }
                command.args(["-c", &line]);
                command
            }
        }
    }
}

/// The Testcontainers command waits for a script, which sets the advertised listeners and runs
/// Kafka's start script. The variables are those of its module for Kafka.
fn starts(root: &Path) -> Result<String> {
    let within = Within::of(root);
    let [clients, brokers, controllers] = lease_ports()?;
    let log = root.with_extension("output");
    let output = fs::File::create(&log)?;
    let mut container = within.command(WAIT_FOR_SCRIPT);
    container
        .envs([
            ("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw"),
            ("KAFKA_PROCESS_ROLES", "broker,controller"),
            ("KAFKA_NODE_ID", "1"),
            ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
            ("KAFKA_INTER_BROKER_LISTENER_NAME", "BROKER"),
            ("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", "9223372036854775807"),
            ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1"),
            ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
            ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
            ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
            ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ])
        .env(
            "KAFKA_CONTROLLER_QUORUM_VOTERS",
            format!("1@127.0.0.1:{controllers}"),
        )
        .env(
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
            "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .env(
            "KAFKA_LISTENERS",
            format!(
                "PLAINTEXT://0.0.0.0:{clients},BROKER://0.0.0.0:{brokers},\
                 CONTROLLER://0.0.0.0:{controllers}"
            ),
        )
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::from(output));
    let (bash, start, data) = match &within {
        Within::Root(_) => (
            "/bin/bash".to_owned(),
            START.to_owned(),
            "/tmp/kafka-logs".to_owned(),
        ),
        Within::Paths(root) => {
            // The image's script contains paths of the image, so what it runs is run directly.
            let at = |path: &str| format!("{}{path}", root.display());
            let config = at("/opt/kafka/config");
            (
                "/bin/bash".to_owned(),
                format!(
                    "{} container-run --final-configs-dir {config} --mounted-configs-dir {}",
                    at("/usr/bin/ottla"),
                    at("/mnt/shared/config")
                ),
                at("/tmp/kafka-logs"),
            )
        }
    };
    container.env("KAFKA_LOG_DIRS", data);
    let mut container = OwnedChild::start(&mut container)?;
    let script = format!(
        "#!{bash}\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:{clients},BROKER://127.0.0.1:{brokers}\n{start}\n"
    );
    // Renamed into place, so that it appears atomically as with a copy into a container.
    let (written, script_path) = (
        root.join("tmp/written"),
        root.join("tmp/testcontainers_start.sh"),
    );
    fs::write(&written, script)?;
    fs::set_permissions(&written, fs::Permissions::from_mode(0o777))?;
    fs::rename(&written, &script_path)?;
    let began = Instant::now();
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    while !printed().contains(RUNNING) {
        if let Some(status) = container.try_wait()? {
            bail!("the container ended with {status}:\n{}", printed());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "no line with `{RUNNING}` after {PATIENCE:?}:\n{}",
            printed()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let topics = |arguments: &str| {
        let line =
            format!("{SCRIPTS}/kafka-topics.sh --bootstrap-server 127.0.0.1:{clients} {arguments}");
        output_of(&mut within.command(&line))
    };
    topics("--create --topic contained").with_context(printed)?;
    let listed = topics("--list")?;
    ensure!(listed.trim() == "contained", "the topics are {listed}");
    Ok(within.name().to_owned())
}
