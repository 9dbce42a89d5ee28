//! The tables of all settings in `docs/settings.md`.
//!
//! A test compares the page with this text, so the two cannot diverge.

use std::fmt::Write;

use crate::config_def::{ConfigDef, DefaultValue, Support};
use crate::tables::{BROKER_CONFIG_AREAS, CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS};

/// Every public setting: its type, default, accepted values, update mode and support.
pub fn settings_markdown() -> String {
    let mut text = String::new();
    for (title, rows) in BROKER_CONFIG_AREAS {
        table(&mut text, &format!("Broker: {title}"), rows, true);
    }
    table(&mut text, "Topics", TOPIC_CONFIGS, false);
    table(&mut text, "Groups", GROUP_CONFIGS, false);
    table(&mut text, "Client metrics", CLIENT_METRICS_CONFIGS, false);
    text
}

fn table(text: &mut String, title: &str, rows: &[ConfigDef], with_update_mode: bool) {
    let _ = write!(text, "## {title}\n\n");
    text.push_str(if with_update_mode {
        "| setting | type | default | values | changes | in Ottla |\n| --- | --- | --- | --- | --- | --- |\n"
    } else {
        "| setting | type | default | values | in Ottla |\n| --- | --- | --- | --- | --- |\n"
    });
    for def in rows.iter().filter(|def| !def.internal) {
        let default = match def.default {
            DefaultValue::Required => "must be given".to_owned(),
            DefaultValue::Null => "–".to_owned(),
            DefaultValue::Text("") => "empty".to_owned(),
            DefaultValue::Text(text) => format!("`{text}`"),
        };
        let support = match def.support {
            Support::Supported => "yes".to_owned(),
            Support::AcceptedWithoutEffect(note) => format!("no effect: {note}"),
            Support::Refused { reason, .. } => format!("refused: {reason}"),
        };
        let (name, values) = (def.name, def.accepted());
        let kind = def.config_type.name().to_lowercase();
        let _ = write!(text, "| `{name}` | {kind} | {default} | {values} |");
        if with_update_mode {
            let _ = write!(text, " {} |", def.update_mode.name());
        }
        let _ = writeln!(text, " {support} |");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::settings_markdown;

    #[test]
    fn every_public_setting_stands_in_the_table_once() {
        let text = settings_markdown();
        for def in crate::broker_configs() {
            let lines = text.matches(&format!("| `{}` |", def.name)).count();
            let topic_too = crate::topic_config(def.name).is_some();
            assert_eq!(
                lines,
                usize::from(!def.internal) + usize::from(topic_too),
                "{}",
                def.name
            );
        }
    }
}
