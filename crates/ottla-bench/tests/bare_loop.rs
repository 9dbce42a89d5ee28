//! The bare loop answers every frame, reports its usage, and leaves no files.

use std::process::Command;

#[test]
fn every_frame_is_appended_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new(env!("CARGO_BIN_EXE_ottla-load"))
        .args(["bare-loop", "--json", "--machine-cpu", "--connections", "2"])
        .args(["--batch-bytes", "10000", "--bytes", "50000000"])
        .arg("--dir")
        .arg(dir.path())
        .output()
        .expect("ottla-load runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let exact = &report["exact"];
    assert_eq!(exact["frame_bytes"], 10_000);
    assert_eq!(exact["frames"], 5000);
    assert_eq!(exact["bytes"], 50_000_000);
    // As many whole records of 110 bytes as fit.
    let batches = &report["batches"];
    let batch_bytes = batches["frame_bytes"].as_u64().expect("a number");
    assert!((9_891..=10_000).contains(&batch_bytes), "{batch_bytes}");
    let frames = batches["frames"].as_u64().expect("a number");
    assert!((5000..=5060).contains(&frames), "{frames}");
    assert_eq!(batches["bytes"], frames * batch_bytes);
    for report in [exact, batches] {
        let number = |value: &serde_json::Value| value.as_f64().expect("a number");
        let cpu = number(&report["server"]["cpu_seconds"]);
        assert!(cpu > 0.0 && cpu < 60.0, "{cpu} s");
        let of_machine = number(&report["rest_of_machine_cpu_seconds_per_gb"]);
        assert!(of_machine >= 0.0, "{of_machine}");
    }
    let left = std::fs::read_dir(dir.path())
        .expect("the directory")
        .count();
    assert_eq!(left, 0);
}
