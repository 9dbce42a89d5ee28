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
    let examined = BrokerConfig::examine(&properties);
    for problem in &examined.problems {
        assert!(!problem.message().is_empty());
    }
    assert!(examined.config.is_some() || !examined.problems.is_empty());
});
