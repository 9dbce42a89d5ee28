//! Key stores of Java: whatever is in the file, reading it ends, and a key that comes out is no longer than the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_tls::jks;

fuzz_target!(|bytes: &[u8]| {
    let Ok(store) = jks::read(bytes, None) else {
        return;
    };
    for entry in &store.keys {
        if let Ok(key) = entry.key("secret") {
            assert!(key.len() < bytes.len());
        }
    }
});
