//! A `server.properties`: read by Java's rules, and examined as a node's configuration. Whatever is wrong with it has a
//! message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_config::{BrokerConfig, Properties};

fuzz_target!(|input: &[u8]| {
    let Ok(properties) = Properties::parse_bytes(input, "server.properties") else { return };
    for property in properties.effective() {
        assert_eq!(properties.value(&property.key), Some(property.value.as_str()));
    }
    // This looks at all settings, four hundred of them, whatever the input is, and the format deserves more attempts.
    if !input.len().is_multiple_of(16) {
        return;
    }
    let examined = BrokerConfig::examine(&properties);
    for problem in &examined.problems {
        assert!(!problem.message().is_empty());
    }
    assert!(examined.config.is_some() || !examined.problems.is_empty());
});
