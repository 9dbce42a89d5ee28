//! The bare loop answers every frame, reports its usage, and leaves no files.

use std::process::Command;

#[test]
fn every_frame_is_appended_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_ottla-load"))
        .args(["bare-loop", "--json", "--connections", "2"])
        .args(["--batch-bytes", "10000", "--bytes", "50000000"])
        .arg("--dir")
        .arg(dir.path())
        .output()
        .expect("ottla-load runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["frames"], 5000);
    assert_eq!(report["bytes"], 50_000_000);
    let cpu = report["server"]["cpu_seconds"].as_f64().expect("a number");
    assert!(cpu > 0.0 && cpu < 60.0, "{cpu} s");
    let left = std::fs::read_dir(dir.path())
        .expect("the directory")
        .count();
    assert_eq!(left, 0);
}
