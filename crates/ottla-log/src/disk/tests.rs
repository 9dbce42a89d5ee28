use std::path::Path;

use super::trace::{self, Loss};

/// The content of a file after a crash; `None` if it does not exist.
fn after(trace: &trace::Trace, path: &Path, loss: Loss) -> Option<Vec<u8>> {
    trace.image(trace.len(), loss).get(path).cloned()
}

#[test]
fn a_crash_may_lose_unsynced_changes() {
    let dir = tempfile::tempdir().unwrap();
    trace::start(dir.path());
    let path = dir.path().join("a");
    let file = super::create(&path).unwrap();
    super::write_all_at(&file, b"forced", 0).unwrap();
    super::sync_data(&file).unwrap();
    super::open_dir(dir.path()).unwrap().sync().unwrap();
    super::write_all_at(&file, b"more", 6).unwrap();
    let moved = dir.path().join("b");
    super::rename(&path, &moved).unwrap();
    let trace = trace::stop();
    let found = |name: &Path, loss| after(&trace, name, loss);
    assert_eq!(found(&moved, Loss::Nothing).unwrap(), b"forcedmore");
    assert_eq!(found(&path, Loss::Nothing), None);
    assert_eq!(found(&path, Loss::Everything).unwrap(), b"forced");
    assert_eq!(found(&moved, Loss::Everything), None);
    assert_eq!(found(&moved, Loss::Data).unwrap(), b"forced");
    assert_eq!(found(&path, Loss::Names).unwrap(), b"forcedmore");
    assert_eq!(found(&moved, Loss::Zeros).unwrap(), b"forced\0\0\0\0");
    for seed in 0..50 {
        let image = trace.image(trace.len(), Loss::Torn(seed));
        let (_, bytes) = image.first_key_value().unwrap();
        assert!(bytes.starts_with(b"forced") && b"forcedmore".starts_with(bytes));
    }
}

#[test]
fn files_are_changed_through_this_module_only() {
    let forbidden = [
        "fs::write(",
        "fs::rename(",
        "fs::remove_file(",
        "fs::remove_dir",
        "fs::copy(",
        "fs::hard_link(",
        "File::create",
        ".set_len(",
        ".sync_data(",
        ".sync_all(",
        ".write_at(",
        "pwrite",
        "copy_file_range(",
        ".create(",
        ".create_new(",
        ".truncate(true)",
    ];
    let mut found = Vec::new();
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "tests" && name != "disk" {
                dirs.push(path);
            } else if name.ends_with(".rs") && !["tests.rs", "disk.rs"].contains(&name) {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                for (number, line) in code.lines().enumerate() {
                    let line = line.trim();
                    let is_other = forbidden.iter().any(|call| line.contains(call))
                        || (line.contains("write_all_at(") && !line.contains("disk::"));
                    if is_other && !line.starts_with("//") {
                        found.push(format!("{}:{}: {line}", path.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "call crate::disk instead, so that crash tests see it:\n{}",
        found.join("\n")
    );
}
