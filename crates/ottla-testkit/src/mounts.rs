//! Small file systems for tests of full and failing disks.
//!
//! A test that mounts something runs again as a process in a mount namespace of its own, which the kernel
//! takes down with the process: nothing is left mounted, whatever happens. Without root, a user namespace
//! gives the right to mount.

use std::path::Path;
use std::process::Command;

/// Set in the process that may mount.
const INSIDE: &str = "OTTLA_TEST_MOUNTS";

/// Runs the body of the test called `test`, of this test binary, where it may mount file systems.
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

/// Whether this process runs where it may mount file systems.
pub fn may_mount() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The command that runs this program where it may mount file systems, to which the caller adds the arguments.
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

/// Mounts an empty file system of so many MiB on a directory, which is created.
pub fn mount_small(path: &Path, mebibytes: u32) {
    std::fs::create_dir_all(path).expect("a directory to mount on");
    mount(path, &format!("size={mebibytes}m"));
}

/// Hides what is mounted on a directory behind an empty file system that cannot be written to: files that
/// are open go on working, and everything else fails, as when a disk has been taken away.
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

/// Has a file refuse to be written to, even by root.
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
