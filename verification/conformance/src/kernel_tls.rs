//! `cargo xtask kernel-tls`: TLS for which the kernel encrypts (`ottla.ssl.kernel.enable`), in a
//! virtual machine with Debian's kernel, because many kernels that run tests and builds have none.
//!
//! The machine has no disk and no network: its first process is `kernel_tls/init.sh`, which runs the
//! tests of `ottla-net` that need such a kernel, and then starts a broker with one TLS listener,
//! without and with the setting in turn. Ottla's tools produce and consume over TLS. The suite prints
//! the CPU time of the broker for both, and checks that the kernel encrypted if and only if it was
//! told to.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ottla_peers::reference;
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::{toolchain, workspace};

const INIT: &str = include_str!("kernel_tls/init.sh");
const RECORD_BYTES: u64 = 1000;
/// The kernel's modules that TLS and its ciphers may load, below `kernel/`.
const MODULES: [&str; 4] = ["net/tls", "crypto", "arch/x86/crypto", "lib/crypto"];
/// The maximum time until the first process runs. An emulated machine takes ten seconds.
const LONGEST_BOOT: Duration = Duration::from_secs(120);
/// Ticks of the CPU times in `/proc`, per second.
const TICKS: f64 = 100.0;

#[derive(clap::Args)]
pub struct Options {
    /// How much a run produces and consumes.
    #[arg(long, default_value_t = 1024)]
    megabytes: u64,
    /// How many runs without and with kernel TLS, in turn.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// The Debian package of the kernel.
    #[arg(long, default_value = "linux-image-cloud-amd64")]
    kernel: String,
    /// A folder with another kernel, unpacked from its packages. Linux 6.14 can replace keys.
    #[arg(long, conflicts_with = "kernel")]
    unpacked_kernel: Option<PathBuf>,
    /// Memory of the virtual machine, in MiB. Records and programs are in it.
    #[arg(long, default_value_t = 5120)]
    memory: u64,
    /// Emulate the processor instead of using /dev/kvm. The CPU times then say nothing about other
    /// machines.
    #[arg(long)]
    emulate: bool,
    /// The maximum duration in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
}

pub fn run(options: &Options) -> Result<()> {
    toolchain::require(&toolchain::QEMU)?;
    for program in ["busybox", "cpio", "depmod", "apt-get", "dpkg-deb"] {
        ensure!(
            process::is_on_path(program),
            "`{program}` is missing; install it with: sudo {}",
            toolchain::install_command(&[&toolchain::QEMU])
        );
    }
    let dir = reference::run_dir("kernel-tls");
    workspace::make_empty(&dir)?;
    let dir = dir.canonicalize()?;
    let kernel = match &options.unpacked_kernel {
        Some(unpacked) => Kernel::unpacked(unpacked)?,
        None => Kernel::fetch(&options.kernel, &dir)?,
    };
    let files = GuestFiles {
        root: dir.join("root"),
    };
    files.write(&kernel, options)?;
    let console = boot(&kernel, &files.packed(&dir)?, options, &dir)?;
    report(&console, options)
}

/// An unpacked kernel of Debian.
struct Kernel {
    image: PathBuf,
    version: String,
    /// Its `/lib/modules/VERSION`.
    modules: PathBuf,
}

impl Kernel {
    fn fetch(package: &str, dir: &Path) -> Result<Kernel> {
        // The package without a version only depends on the latest one.
        let printed = process::output_of(Command::new("apt-cache").args(["depends", package]))?;
        let depended = printed.lines().find_map(|line| {
            let name = line.trim().strip_prefix("Depends:")?.trim();
            name.starts_with("linux-image-").then_some(name)
        });
        let package = depended.unwrap_or(package);
        println!("kernel: {package}");
        process::output_of(
            Command::new("apt-get")
                .args(["download", "-qq", package])
                .current_dir(dir),
        )?;
        let archive = only_entry(dir, |name| name.ends_with(".deb"))?;
        let unpacked = dir.join("kernel");
        process::output_of(
            Command::new("dpkg-deb")
                .arg("-x")
                .args([&archive, &unpacked]),
        )?;
        Kernel::unpacked(&unpacked)
    }

    fn unpacked(dir: &Path) -> Result<Kernel> {
        // Debian has moved both.
        let modules = ["lib/modules", "usr/lib/modules"].map(|it| dir.join(it));
        let modules = modules.iter().find(|modules| modules.is_dir());
        let modules = modules.with_context(|| format!("{} has no modules", dir.display()))?;
        let modules = only_entry(modules, |_| true)?;
        let version = modules.file_name().unwrap_or_default();
        let version = version.to_string_lossy().into_owned();
        let images = [
            modules.join("vmlinuz"),
            dir.join("boot").join(format!("vmlinuz-{version}")),
        ];
        let image = images.into_iter().find(|image| image.is_file());
        Ok(Kernel {
            image: image.with_context(|| format!("{} has no kernel", dir.display()))?,
            version,
            modules,
        })
    }
}

fn only_entry(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if is_wanted(&entry.file_name().to_string_lossy()) {
            return Ok(entry.path());
        }
    }
    bail!("a file is missing in {}", dir.display())
}

/// The files of the virtual machine.
struct GuestFiles {
    root: PathBuf,
}

impl GuestFiles {
    fn write(&self, kernel: &Kernel, options: &Options) -> Result<()> {
        for dir in ["bin", "proc", "sys", "dev", "ottla"] {
            fs::create_dir_all(self.root.join(dir))?;
        }
        self.add_modules(kernel)?;
        let busybox = process::output_of(Command::new("sh").args(["-c", "command -v busybox"]))?;
        self.add_program(Path::new(busybox.trim()), "busybox")?;
        self.add_program(&workspace::release_binary("ottla", "ottla")?, "ottla")?;
        self.add_program(&tests_of_net()?, "net-tests")?;
        let init = self.root.join("init");
        fs::write(&init, INIT)?;
        make_executable(&init)?;
        let settings = format!(
            "PAIRS={}\nRECORDS={}\nRECORD_BYTES={RECORD_BYTES}\n",
            options.pairs,
            options.megabytes * 1_000_000 / RECORD_BYTES,
        );
        fs::write(self.root.join("settings"), settings)?;
        Ok(())
    }

    fn add_modules(&self, kernel: &Kernel) -> Result<()> {
        let target = self.root.join("lib/modules").join(&kernel.version);
        fs::create_dir_all(&target)?;
        for entry in fs::read_dir(&kernel.modules)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), target.join(entry.file_name()))?;
            }
        }
        for folder in MODULES {
            let from = kernel.modules.join("kernel").join(folder);
            let to = target.join("kernel").join(folder);
            if from.is_dir() {
                fs::create_dir_all(&to)?;
                process::output_of(Command::new("cp").arg("-r").arg(from.join(".")).arg(&to))?;
            }
        }
        // BusyBox may not be able to.
        let decompress = ["-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"];
        process::output_of(Command::new("find").arg(&target).args(decompress))?;
        process::output_of(
            Command::new("depmod")
                .arg("-b")
                .arg(&self.root)
                .arg(&kernel.version),
        )?;
        Ok(())
    }

    /// Adds a program as `/bin/NAME`, with the shared libraries that it loads.
    fn add_program(&self, program: &Path, name: &str) -> Result<()> {
        fs::copy(program, self.root.join("bin").join(name))
            .with_context(|| format!("cannot copy {}", program.display()))?;
        // It fails for a static program.
        let printed = process::run_captured(Command::new("ldd").arg(program))?;
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let libraries: BTreeSet<&str> = printed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
            .collect();
        for library in libraries {
            let target = self.root.join(library.trim_start_matches('/'));
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::copy(library, target)?;
        }
        Ok(())
    }

    /// All files in one archive, which the kernel unpacks into memory.
    fn packed(&self, dir: &Path) -> Result<PathBuf> {
        let archive = dir.join("initrd");
        let pack = "find . | cpio --quiet -o -H newc > \"$0\"";
        process::output_of(
            Command::new("sh")
                .args(["-c", pack])
                .arg(&archive)
                .current_dir(&self.root),
        )?;
        Ok(archive)
    }
}

fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// The test program of `ottla-net`, built first.
fn tests_of_net() -> Result<PathBuf> {
    let printed = process::output_of(workspace::cargo().args([
        "test",
        "--quiet",
        "--no-run",
        "--package",
        "ottla-net",
        "--lib",
        "--message-format=json",
    ]))?;
    for line in printed.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let is_test = message["target"]["name"] == "ottla_net"
            && message["profile"]["test"] == serde_json::Value::Bool(true);
        if let (true, Some(path)) = (is_test, message["executable"].as_str()) {
            return Ok(PathBuf::from(path));
        }
    }
    bail!("cargo has built no test program of ottla-net")
}

/// Runs the machine until it powers off. Returns what it printed.
fn boot(kernel: &Kernel, initrd: &Path, options: &Options, dir: &Path) -> Result<String> {
    let mut command = Command::new("qemu-system-x86_64");
    match options.emulate {
        true => command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]),
        // Below another hypervisor, the capabilities that this register lists cannot be set.
        false => command.args(["-accel", "kvm", "-cpu", "host,-arch-capabilities"]),
    };
    command
        .args(["-smp", "2", "-nographic", "-no-reboot", "-nic", "none"])
        .args(["-m", &options.memory.to_string()])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", "console=ttyS0 quiet panic=-1"]);
    let console = dir.join("console.log");
    let output = File::create(&console)?;
    command.stderr(output.try_clone()?).stdout(output);
    println!("{}", process::shown(&command));
    let mut machine = OwnedChild::start(&mut command)?;
    // Everything before the version of the kernel is the firmware's output.
    let printed = || -> Result<Option<String>> {
        let printed = String::from_utf8_lossy(&fs::read(&console)?).replace('\r', "");
        let begin = printed.find("kernel ");
        Ok(begin.map(|begin| printed[begin..].to_owned()))
    };
    let mut ended = machine.wait(LONGEST_BOOT)?;
    ensure!(
        printed()?.is_some(),
        "the kernel has not started after {LONGEST_BOOT:?} ({}); if this machine's /dev/kvm cannot run an unchanged \
         kernel, give --emulate",
        console.display()
    );
    let patience = Duration::from_secs(60 * options.minutes);
    if ended.is_none() {
        ended = machine.wait(patience)?;
    }
    let printed = printed()?.unwrap_or_default();
    println!("{printed}");
    ensure!(
        ended.is_some(),
        "the machine was still running after {patience:?}; --minutes allows more"
    );
    ensure!(
        printed.lines().any(|line| line.trim() == "GUEST done"),
        "the run in the machine failed; its output is in {}",
        console.display()
    );
    Ok(printed)
}

/// One broker, to which all records were produced, and which has sent them to a consumer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    is_in_kernel: bool,
    /// CPU seconds of the broker.
    produce: f64,
    consume: f64,
    /// The most connections for which the kernel encrypted at once, and all.
    most_at_once: u64,
    opened: u64,
}

impl Run {
    /// From a line of the machine; `None` for other lines.
    fn parse(line: &str) -> Option<Run> {
        let values = line.trim().strip_prefix("RESULT ")?;
        let value = |name: &str| {
            let mut pairs = values.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let seconds = |name| Some(value(name)?.parse::<f64>().ok()? / TICKS);
        Some(Run {
            is_in_kernel: value("kernel")? == "true",
            produce: seconds("produce")?,
            consume: seconds("consume")?,
            most_at_once: value("most_at_once")?.parse().ok()?,
            opened: value("opened")?.parse().ok()?,
        })
    }
}

fn report(console: &str, options: &Options) -> Result<()> {
    let runs: Vec<Run> = console.lines().filter_map(Run::parse).collect();
    let (kernel, user): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.is_in_kernel);
    let pairs = options.pairs as usize;
    ensure!(
        kernel.len() == pairs && user.len() == pairs,
        "the machine has reported {} runs with kernel TLS and {} without, instead of {pairs} each",
        kernel.len(),
        user.len()
    );
    let gigabytes = options.megabytes as f64 / 1000.0;
    println!("CPU seconds of the broker per GB, in the order of the runs:");
    println!("| | user space | kernel | ratio |\n| --- | --- | --- | --- |");
    let produce = |run: &Run| run.produce / gigabytes;
    let consume = |run: &Run| run.consume / gigabytes;
    println!("{}", row("produce", &user, &kernel, produce));
    println!("{}", row("consume", &user, &kernel, consume));
    if options.emulate {
        println!("The processor was emulated: these times say nothing about other machines.");
    }
    for run in &kernel {
        ensure!(
            run.most_at_once > 0 && run.opened > 0,
            "TlsCurrTxSw in /proc/net/tls_stat did not grow with ottla.ssl.kernel.enable=true: {run:?}"
        );
    }
    for run in &user {
        ensure!(
            run.opened == 0,
            "the kernel has encrypted without ottla.ssl.kernel.enable: {run:?}"
        );
    }
    println!("TlsCurrTxSw grew to {}.", kernel[0].most_at_once);
    Ok(())
}

fn row(name: &str, user: &[Run], kernel: &[Run], of: impl Fn(&Run) -> f64) -> String {
    let shown = |values: Vec<f64>| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
        values.join(", ")
    };
    let ratios = user.iter().zip(kernel);
    let ratios = ratios.map(|(user, kernel)| of(kernel) / of(user)).collect();
    let [user, kernel] = [user, kernel].map(|runs| shown(runs.iter().map(&of).collect()));
    format!("| {name} | {user} | {kernel} | {} |", shown(ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_read_from_the_console() {
        let line = "RESULT kernel=true produce=120 consume=34 most_at_once=5 opened=9";
        let run = Run {
            is_in_kernel: true,
            produce: 1.2,
            consume: 0.34,
            most_at_once: 5,
            opened: 9,
        };
        assert_eq!(Run::parse(line), Some(run));
        assert_eq!(Run::parse("RESULT kernel=true produce="), None);
        assert_eq!(Run::parse("GUEST done"), None);
    }

    #[test]
    fn a_run_with_kernel_tls_that_the_kernel_knows_nothing_of_is_an_error() {
        let options = Options {
            megabytes: 1000,
            pairs: 1,
            kernel: String::new(),
            unpacked_kernel: None,
            memory: 0,
            emulate: false,
            minutes: 1,
        };
        let console = |user: u32, kernel: u32| {
            format!(
                "RESULT kernel=false produce=1 consume=1 most_at_once=0 opened={user}\n\
                 RESULT kernel=true produce=1 consume=1 most_at_once={kernel} opened={kernel}\n"
            )
        };
        report(&console(0, 3), &options).unwrap();
        report(&console(0, 0), &options).unwrap_err();
        report(&console(3, 3), &options).unwrap_err();
        report("", &options).unwrap_err();
    }
}
