//! The Helm chart: its values and templates match, and, if `helm` is available, its rendered output
//! is valid and a node starts with the rendered configuration.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use ottla_ports::lease_ports;
use ottla_workspace::process::{OwnedChild, output_of};
use ottla_workspace::workspace;

use super::tallied::Run;
use crate::binary::Binary;
use crate::contents::VERSION;

const PATIENCE: Duration = Duration::from_secs(30);
const CLUSTER: &str = "Cq0ZTqVSQ3aPPuXhHRDbLA";

pub fn check(run: &mut Run, binary: &Binary) {
    let chart = workspace::root().join("packaging/helm/ottla");
    run.check("the chart's values and templates fit", || fits(&chart));
    if !run.has(
        "helm",
        "linting and rendering the chart, and a node with its configuration",
    ) {
        return;
    }
    run.check("helm finds nothing in the chart", || {
        let mut lint = Command::new("helm");
        lint.args(["lint", "--strict", "--set"])
            .arg(format!("clusterId={CLUSTER}"))
            .arg(&chart);
        output_of(&mut lint)?;
        Ok(String::new())
    });
    run.check(
        "the chart without a cluster ID says how to make one",
        || {
            let refused = match rendered(&chart, &[]) {
                Ok(_) => bail!("it renders"),
                Err(refused) => format!("{refused:#}"),
            };
            ensure!(refused.contains("ottla storage random-uuid"), "{refused}");
            Ok(String::new())
        },
    );
    let id = format!("clusterId={CLUSTER}");
    run.check("the chart renders", || {
        let plain = rendered(&chart, &[&id])?;
        let tls = [
            "tls.enabled=true",
            "tls.secretName=certificates",
            "tls.clientAuth=required",
        ];
        let secured = rendered(&chart, &[&id, tls[0], tls[1], tls[2]])?;
        let properties = properties(&secured)?;
        ensure!(
            properties.contains("CLIENTS:SSL") && properties.contains("ssl.client.auth=required"),
            "{properties}"
        );
        let kinds: Vec<&str> = plain.iter().filter_map(|it| it["kind"].as_str()).collect();
        ensure!(kinds.contains(&"StatefulSet"), "{kinds:?}");
        Ok(kinds.join(", "))
    });
    run.check("numbers of a values file stay as they are", || {
        let values = tempfile::NamedTempFile::new()?;
        let lines = [
            "log.retention.bytes=1073741824",
            "log.cleaner.min.cleanable.ratio=0.25",
        ];
        let settings: String = lines
            .iter()
            .map(|line| format!("  {}\n", line.replace('=', ": ")))
            .collect();
        fs::write(values.path(), format!("settings:\n{settings}"))?;
        let mut helm = template(&chart, &[&id]);
        helm.arg("--values").arg(values.path());
        let properties = properties(&objects(&mut helm)?)?;
        for line in lines {
            ensure!(properties.lines().any(|it| it == line), "{properties}");
        }
        Ok(String::new())
    });
    let folder = run.folder.join("chart");
    run.check("a node starts with the configuration of the chart", || {
        let one = rendered(&chart, &[&id, "replicas=1"])?;
        starts(&properties(&one)?, binary, &folder)
    });
}

fn yaml(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

/// Every value that a template references exists, and every existing value is referenced.
fn fits(chart: &Path) -> Result<String> {
    let about = yaml(&chart.join("Chart.yaml"))?;
    ensure!(
        about["appVersion"] == VERSION,
        "Chart.yaml is for {}, this is {VERSION}",
        about["appVersion"]
    );
    let mut exist = BTreeSet::new();
    let values = yaml(&chart.join("values.yaml"))?;
    paths("", &values, &mut exist);
    let mut named = BTreeSet::new();
    for template in fs::read_dir(chart.join("templates"))? {
        let text = fs::read_to_string(template?.path())?;
        for rest in text.split(".Values.").skip(1) {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '.');
            named.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
    for name in &named {
        let is_there = exist.iter().any(|it| it == name);
        ensure!(
            is_there,
            "a template names .Values.{name}, which values.yaml does not have"
        );
    }
    // A reference to a parent references its children.
    for value in &exist {
        let is_named = named.iter().any(|name| {
            value == name
                || value.starts_with(&format!("{name}."))
                || name.starts_with(&format!("{value}."))
        });
        ensure!(is_named, "no template names the value {value}");
    }
    Ok(format!("{} values", named.len()))
}

/// The paths of a value and of its children, as templates write them.
fn paths(above: &str, value: &Value, found: &mut BTreeSet<String>) {
    let Value::Object(parts) = value else {
        return;
    };
    for (name, part) in parts {
        let path = match above {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        paths(&path, part, found);
        found.insert(path);
    }
}

/// The objects that Helm renders from the chart.
fn rendered(chart: &Path, values: &[&str]) -> Result<Vec<Value>> {
    objects(&mut template(chart, values))
}

/// The command that renders the chart.
fn template(chart: &Path, values: &[&str]) -> Command {
    let mut helm = Command::new("helm");
    helm.args(["template", "checked"]).arg(chart);
    for value in values {
        helm.args(["--set", value]);
    }
    helm
}

fn objects(helm: &mut Command) -> Result<Vec<Value>> {
    let printed = output_of(helm)?;
    let documents = printed.split("\n---").filter(|text| text.contains("kind:"));
    documents
        .map(|text| {
            serde_saphyr::from_str(text.trim_start_matches("---")).with_context(|| text.to_owned())
        })
        .collect()
}

fn properties(objects: &[Value]) -> Result<String> {
    let map = objects
        .iter()
        .find(|it| it["kind"] == "ConfigMap")
        .context("no ConfigMap")?;
    let text = map["data"]["server.properties"]
        .as_str()
        .context("no server.properties")?;
    Ok(text.to_owned())
}

/// Runs a container's start command on this machine.
fn starts(properties: &str, binary: &Binary, folder: &Path) -> Result<String> {
    let [clients, controllers, nodes, http] = lease_ports()?;
    let data = folder.join("data");
    let mut text = properties
        .replace(
            "0@checked-0.checked-nodes.default.svc:9093",
            &format!("0@127.0.0.1:{controllers}"),
        )
        .replace("0.0.0.0:9404", &format!("127.0.0.1:{http}"))
        .replace("/var/lib/kafka/data/logs", &data.display().to_string());
    for (port, free) in [(9092, clients), (9093, controllers), (9094, nodes)] {
        text = text.replace(&format!("://:{port}"), &format!("://127.0.0.1:{free}"));
    }
    let mounted = folder.join("mounted");
    fs::create_dir_all(&mounted)?;
    fs::write(mounted.join("server.properties"), &text)?;
    let log: PathBuf = folder.join("output");
    let output = File::create(&log)?;
    let mut node = OwnedChild::start(
        Command::new(&binary.path)
            .arg("container-run")
            .arg("--mounted-configs-dir")
            .arg(&mounted)
            .arg("--final-configs-dir")
            .arg(folder.join("config"))
            .env("CLUSTER_ID", CLUSTER)
            .env("KAFKA_NODE_ID", "0")
            .env(
                "KAFKA_ADVERTISED_LISTENERS",
                format!("CLIENTS://127.0.0.1:{clients},NODES://127.0.0.1:{nodes}"),
            )
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output)),
    )?;
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    let began = Instant::now();
    // The requests of the chart's probes.
    while !(answers(http, "/readyz") && answers(http, "/healthz")) {
        if let Some(status) = node.try_wait()? {
            bail!("the node ended with {status}:\n{}\nwith\n{text}", printed());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "not ready after {PATIENCE:?}:\n{}",
            printed()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = node.stop(PATIENCE)?;
    ensure!(
        status.success(),
        "the node ended with {status}:\n{}",
        printed()
    );
    ensure!(
        !printed().contains("is not a setting"),
        "the node does not know a setting:\n{}",
        printed()
    );
    Ok("ready, and a clean stop".to_owned())
}

/// Whether a GET of this path returns 200.
fn answers(port: u16, path: &str) -> bool {
    let asked = || -> std::io::Result<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", port))?;
        connection.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(
            connection,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}
