//! Checks of the properties file.

use ottla_config::{
    BrokerConfig, ConfigError, DefaultValue, Properties, Support, Warning, broker_config,
};

use ottla_context::NodeTls;

use super::finding::TLS;
use super::listeners;
use super::look::Look;

pub(super) fn examine(
    properties: &Properties,
    config: Option<&BrokerConfig>,
    problems: &[ConfigError],
    warnings: &[Warning],
    look: &mut Look,
) {
    for problem in problems {
        let (place, message) = (problem.place(), problem.message());
        let (what, change) = in_two(&message);
        look.refuse("settings", &place, what, change);
    }
    if let Some(config) = config {
        look.facts.node_id = Some(config.node_id);
        let found = NodeTls::examine(config, ottla_sync::time::wall_clock());
        // Each message starts with its setting.
        let place = |message: &str| {
            let key = message.split(['=', ':']).next().unwrap_or_default();
            properties.place(key)
        };
        for error in found.errors {
            let (what, change) = in_two(&error.0);
            look.refuse(TLS, &place(&error.0), what, change);
        }
        for warning in found.warnings {
            let (what, change) = in_two(&warning);
            look.warn(TLS, &place(&warning), what, change);
        }
        for expiring in found.expiring {
            let (what, change) = in_two(&expiring);
            look.note(TLS, "", what, change);
        }
        listeners::examine(properties, config, &found.usable, look);
    }
    for warning in warnings {
        let (what, change) = in_two(&warning.message);
        look.warn("settings", &warning.place, what, change);
    }
    for property in properties.effective() {
        let Some(def) = broker_config(&property.key) else {
            continue;
        };
        let Support::AcceptedWithoutEffect(note) = def.support else {
            continue;
        };
        let value = property.value.trim();
        let is_default = match def.default {
            DefaultValue::Text(text) => text == value,
            DefaultValue::Null | DefaultValue::Required => value.is_empty(),
        };
        if !is_default && def.parse(value).is_ok() {
            let shown = match def.is_sensitive() {
                true => "[hidden]",
                false => value,
            };
            let what = format!("{}={shown} has no effect: {note}", def.name);
            let what = properties.with_variables(&what);
            look.note("settings", &properties.place(def.name), what, "");
        }
    }
}

/// Splits a message into the problem and the remedy.
fn in_two(message: &str) -> (String, &str) {
    match message.rsplit_once("; ") {
        Some((what, change)) => (what.to_owned(), change),
        None => (message.to_owned(), ""),
    }
}
