//! A realm of MIT Kerberos on loopback, with its own KDC, in a folder.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use ottla_testkit::lease_ports;
use ottla_workspace::process::{self, LoggedChild};

pub const MODULE: &str = "com.sun.security.auth.module.Krb5LoginModule";
pub const AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

pub const NAME: &str = "OTTLA.TEST";
/// Until the KDC listens, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The KDC is killed on drop.
pub struct Realm {
    dir: PathBuf,
    _kdc: LoggedChild,
}

impl Realm {
    /// Makes the realm and these principals, with keys for them in the keytabs of these names, and
    /// starts its KDC.
    pub fn start(dir: &Path, principals: &[(&str, &str)]) -> Result<Realm> {
        std::fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        let [port] = lease_ports()?;
        std::fs::write(dir.join("krb5.conf"), client_settings(port))?;
        std::fs::write(dir.join("kdc.conf"), kdc_settings(port, &dir))?;
        let mut make = administer("kdb5_util", &dir);
        process::output_of(make.args(["-r", NAME, "-P", "master", "create", "-s"]))?;
        for (principal, keytab) in principals {
            let keytab = dir.join(keytab).with_extension("keytab");
            for query in [
                format!("addprinc -randkey {principal}"),
                format!("ktadd -k {} {principal}", keytab.display()),
            ] {
                let mut ask = administer("kadmin.local", &dir);
                process::output_of(ask.args(["-r", NAME, "-q", &query]))?;
            }
            // kadmin.local ends well even if it could not do this.
            ensure!(keytab.exists(), "{} was not written", keytab.display());
        }
        let mut kdc = administer("krb5kdc", &dir);
        kdc.args(["-n", "-r", NAME]);
        let mut kdc = LoggedChild::start(&mut kdc, "krb5kdc", &dir.join("kdc.out"))?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            kdc.check_running()?;
            ensure!(
                began.elapsed() < PATIENCE,
                "nothing listens on port {port}; {}",
                kdc.state()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Realm { dir, _kdc: kdc })
    }

    pub fn keytab(&self, name: &str) -> PathBuf {
        self.dir.join(name).with_extension("keytab")
    }

    /// The environment of programs that use this realm, Java's too.
    pub fn environment(&self) -> Vec<(String, String)> {
        let config = self.dir.join("krb5.conf");
        let option = format!("-Djava.security.krb5.conf={}", config.display());
        vec![
            ("KRB5_CONFIG".to_owned(), config.display().to_string()),
            ("JAVA_TOOL_OPTIONS".to_owned(), option),
        ]
    }

    /// Gets tickets as a person would, and returns their file.
    pub fn kinit(&self, principal: &str, keytab: &str) -> Result<PathBuf> {
        let tickets = self.dir.join(format!("{keytab}.tickets"));
        let mut kinit = Command::new("kinit");
        kinit.envs(self.environment());
        kinit.arg("-c").arg(&tickets);
        kinit.arg("-k").arg("-t").arg(self.keytab(keytab));
        process::output_of(kinit.arg(principal)).context("kinit")?;
        Ok(tickets)
    }
}

/// A program of an administrator, which may be in a folder that is not on the path.
fn administer(program: &str, dir: &Path) -> Command {
    let path = Path::new("/usr/sbin").join(program);
    let mut command = match path.exists() {
        true => Command::new(path),
        false => Command::new(program),
    };
    command.env("KRB5_CONFIG", dir.join("krb5.conf"));
    command.env("KRB5_KDC_PROFILE", dir.join("kdc.conf"));
    command
}

fn client_settings(port: u16) -> String {
    format!(
        "[libdefaults]\ndefault_realm = {NAME}\ndns_lookup_kdc = false\ndns_lookup_realm = false\n\
         dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n\
         [realms]\n{NAME} = {{\n  kdc = 127.0.0.1:{port}\n}}\n"
    )
}

fn kdc_settings(port: u16, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "[kdcdefaults]\nkdc_listen = \"\"\nkdc_tcp_listen = 127.0.0.1:{port}\n\
         [realms]\n{NAME} = {{\n  database_name = {dir}/principal\n  key_stash_file = {dir}/stash\n  \
         acl_file = {dir}/acl\n  supported_enctypes = aes256-cts:normal\n}}\n\
         [logging]\nkdc = FILE:{dir}/kdc.log\n"
    )
}
