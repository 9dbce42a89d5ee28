//! Servers of object stores on loopback. Go and npm bring them.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_ports::lease_ports;
use ottla_workspace::process::{self, LoggedChild};
use ottla_workspace::{toolchain, workspace};

pub(super) const BUCKET: &str = "segments";
/// Until a server listens, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const S3_MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const GCS_MODULE: &str = "github.com/fsouza/fake-gcs-server@v1.56.1";
/// Leaves the discovery services of gRPC out of Google's client, a third of the packages that are
/// compiled for the server, which does not use it.
const GCS_TAG: &str = "disable_grpc_modules";
/// Later releases require Node 22.
const AZURE_PACKAGE: &str = "azurite@3.35.0";
/// The account, and its key in Base64, as the tests of the stores have them.
const AZURE_ACCOUNT: &str = "test:dGVzdHNlY3JldA==";

/// A server that listens. It ends with its owner.
pub struct StoreServer {
    process: LoggedChild,
    port: u16,
}

impl StoreServer {
    /// fake-gcs-server with an empty bucket, and objects as files. It serves the JSON API of GCS; of
    /// the XML API, it has only single uploads with a signed URL, reads and deletions. It checks no
    /// credentials.
    pub fn gcs(dir: &Path) -> Result<StoreServer> {
        let program = go_program(GCS_MODULE, &["-tags", GCS_TAG])?;
        let root = dir.join("objects");
        std::fs::create_dir_all(root.join(BUCKET))?;
        StoreServer::start("fake-gcs-server", dir, |port| {
            let mut command = Command::new(program);
            command
                .args(["-scheme", "http", "-host", "127.0.0.1"])
                .args(["-port", &port.to_string()])
                // Without a port: the tests reach it through another one.
                .args(["-public-host", "127.0.0.1"])
                .args(["-backend", "filesystem", "-filesystem-root"])
                .arg(root);
            command
        })
    }

    /// Azurite with an account, and objects in memory. It checks signatures.
    pub fn azure(dir: &Path) -> Result<StoreServer> {
        let program = npm_package(AZURE_PACKAGE)?.join("node_modules/.bin/azurite-blob");
        StoreServer::start("Azurite", dir, |port| {
            let mut command = Command::new(toolchain::NODE.program);
            command
                .arg(program)
                .args(["--blobHost", "127.0.0.1"])
                .args(["--blobPort", &port.to_string()])
                .args(["--inMemoryPersistence", "--disableTelemetry"])
                .env("AZURITE_ACCOUNTS", AZURE_ACCOUNT);
            command
        })
    }

    fn start(name: &str, dir: &Path, command: impl FnOnce(u16) -> Command) -> Result<StoreServer> {
        std::fs::create_dir_all(dir)?;
        let [port] = lease_ports()?;
        let log = dir.join("server.log");
        let mut process = LoggedChild::start(&mut command(port), name, &log)?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            process.check_running()?;
            ensure!(
                began.elapsed() < PATIENCE,
                "nothing listens on port {port}; {}",
                process.state()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(StoreServer { process, port })
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// versitygw with objects as files. It checks signatures.
pub struct S3Server {
    server: StoreServer,
    root: PathBuf,
}

impl S3Server {
    pub(super) const ID: &str = "test";
    pub(super) const SECRET: &str = "testsecret";

    pub fn start(dir: &Path) -> Result<S3Server> {
        let program = go_program(S3_MODULE, &[])?;
        let root = dir.join("objects");
        std::fs::create_dir_all(root.join(BUCKET))?;
        let server = StoreServer::start("versitygw", dir, |port| {
            let mut command = Command::new(program);
            command
                .args(["--port", &format!("127.0.0.1:{port}")])
                .args(["--access", Self::ID, "--secret", Self::SECRET, "posix"])
                .arg(&root);
            command
        })?;
        Ok(S3Server { server, root })
    }

    pub fn port(&self) -> u16 {
        self.server.port
    }

    pub fn pid(&self) -> u32 {
        self.server.process.id()
    }

    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// The folder with the objects.
    pub fn bucket(&self) -> PathBuf {
        self.root.join(BUCKET)
    }
}

/// A program that Go builds from its module, once, with these options.
fn go_program(module: &str, options: &[&str]) -> Result<PathBuf> {
    toolchain::require(&toolchain::GO)?;
    let (path, _) = module.split_once('@').context("a module has a version")?;
    let (_, name) = path.rsplit_once('/').context("a module has a path")?;
    let programs = workspace::target_dir().join("go-programs");
    let program = programs.join(name);
    if !program.exists() {
        std::fs::create_dir_all(&programs)?;
        process::output_of(
            Command::new(toolchain::GO.program)
                .args(["install", toolchain::go::STRIPPED])
                .args(options)
                .arg(module)
                .env("GOBIN", &programs)
                .current_dir(std::env::temp_dir()),
        )?;
    }
    Ok(program)
}

/// A folder into which npm has installed a package.
fn npm_package(package: &str) -> Result<PathBuf> {
    toolchain::require(&toolchain::NODE)?;
    toolchain::require(&toolchain::NPM)?;
    let folder = workspace::target_dir().join("npm-packages").join(package);
    // npm writes it last. Without it, an installation was interrupted.
    if !folder.join("package-lock.json").exists() {
        workspace::make_empty(&folder)?;
        process::output_of(
            Command::new(toolchain::NPM.program)
                .args(["install", "--no-audit", "--no-fund", "--loglevel=error"])
                .arg("--prefix")
                .arg(&folder)
                .arg(package),
        )?;
    }
    Ok(folder)
}
