//! Small file systems for tests of full and failing disks.
//!
//! A test that mounts something re-executes itself in its own mount namespace, which the kernel
//! removes with the process, so no mount is left behind. Without root, a user namespace grants the
//! permission to mount.

use std::path::Path;
use std::process::Command;

/// Set in the process that may mount.
const INSIDE: &str = "OTTLA_TEST_MOUNTS";

/// Runs the body of the test named `test`, of this test binary, in a process that may mount file
/// systems.
pub fn with_mounts(test: &str, body: impl FnOnce()) {
    if may_mount() {
        return body();
    }
    let output = this_program_with_mounts()
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .output()
        .expect("unshare, of util-linux, can be started");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether this process may mount file systems.
pub fn may_mount() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A command that runs this program in a namespace where it may mount file systems. The caller adds
/// the arguments.
pub fn this_program_with_mounts() -> Command {
    let own = std::env::current_exe().expect("the program has a file");
    let namespace = match rustix::process::geteuid().is_root() {
        true => "--mount",
        false => "--map-root-user",
    };
    let mut command = Command::new("unshare");
    command
        .args([namespace, "--mount"])
        .arg(own)
        .env(INSIDE, "1");
    command
}

/// Creates a directory and mounts an empty file system of this size on it.
pub fn mount_small(path: &Path, mebibytes: u32) {
    std::fs::create_dir_all(path).expect("a directory to mount on");
    mount(path, &format!("size={mebibytes}m"));
}

/// Mounts an empty read-only file system over a mount point. Open files keep working and everything
/// else fails, as if the disk had been removed.
pub fn take_away(path: &Path) {
    mount(path, "ro,size=1m");
}

/// Undoes [`take_away`].
pub fn give_back(path: &Path) {
    unmount(path);
}

/// Undoes [`mount_small`], for a directory that is to be deleted.
pub fn unmount(path: &Path) {
    run(Command::new("umount").arg(path));
}

/// Makes a file read-only, also for root, with a bind mount.
pub fn make_read_only(file: &Path) {
    run(Command::new("mount").arg("--bind").args([file, file]));
    run(Command::new("mount")
        .args(["-o", "remount,bind,ro"])
        .arg(file));
}

fn mount(path: &Path, options: &str) {
    run(Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(path));
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .expect("mount, of util-linux, can be started");
    assert!(status.success(), "{command:?} failed");
}
