//! Flags shared by the console consumers: output format and client settings.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use clap::Args;

use super::formatter::Formatter;
use crate::tools::{key_values, load_client_properties_if_given, load_properties_if_given};

#[derive(Args, Debug)]
pub(in crate::tools) struct PrintingArgs {
    /// How records are printed: the name of one of Kafka's formatters.
    #[arg(long, value_name = "CLASS")]
    formatter: Option<String>,
    /// A property of the formatter, see above; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    formatter_property: Vec<String>,
    /// Deprecated: write --formatter-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "formatter_property"
    )]
    property: Vec<String>,
    /// Properties file for the formatter.
    #[arg(long, value_name = "FILE")]
    formatter_config: Option<String>,
    /// How keys are printed: the name of one of Kafka's deserializers.
    #[arg(long, value_name = "CLASS")]
    key_deserializer: Option<String>,
    /// How values are printed: the name of one of Kafka's deserializers.
    #[arg(long, value_name = "CLASS")]
    value_deserializer: Option<String>,
    /// Print a line when the tool has ended, for Kafka's system tests.
    #[arg(long, hide = true)]
    pub(in crate::tools) enable_systest_events: bool,
}

impl PrintingArgs {
    pub(in crate::tools) fn warn_of_deprecated(&self) {
        warn_of_deprecated(
            !self.property.is_empty(),
            "--property",
            "--formatter-property",
        );
    }

    /// Merges the formatter's file, its dedicated flags, and its command-line properties; later
    /// ones win.
    fn properties(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut properties = load_properties_if_given(self.formatter_config.as_ref())?;
        for (key, class) in [
            ("key.deserializer", &self.key_deserializer),
            ("value.deserializer", &self.value_deserializer),
        ] {
            if let Some(class) = class {
                properties.insert(key.to_owned(), class.clone());
            }
        }
        properties.extend(key_values(&self.property));
        properties.extend(key_values(&self.formatter_property));
        Ok(properties)
    }

    pub(in crate::tools) fn formatter(&self) -> anyhow::Result<Formatter> {
        Formatter::new(self.formatter.as_deref(), &self.properties()?)
    }
}

#[derive(Args, Debug)]
pub(in crate::tools) struct SettingsArgs {
    /// A consumer setting; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    command_property: Vec<String>,
    /// Deprecated: write --command-property.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        hide = true,
        conflicts_with = "command_property"
    )]
    consumer_property: Vec<String>,
    /// Properties file with settings of the consumer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
}

impl SettingsArgs {
    pub(in crate::tools) fn warn_of_deprecated(
        &self,
        (old_flag, old_file): (&str, Option<&String>),
    ) {
        warn_of_deprecated(
            !self.consumer_property.is_empty(),
            "--consumer-property",
            "--command-property",
        );
        warn_of_deprecated(old_file.is_some(), old_flag, "--command-config");
    }

    /// The settings, and the group ID, which must agree wherever it is given. `old_file` is the
    /// deprecated flag of this tool and its value.
    pub(in crate::tools) fn settings(
        &self,
        group: Option<&String>,
        (old_flag, old_file): (&str, Option<&String>),
    ) -> anyhow::Result<(BTreeMap<String, String>, Option<String>)> {
        let file = self.command_config.as_ref().or(old_file);
        let mut settings = load_client_properties_if_given(file)?;
        let mut given = key_values(&self.consumer_property);
        given.extend(key_values(&self.command_property));
        let groups = [
            group.cloned(),
            settings.get("group.id").cloned(),
            given.get("group.id").cloned(),
        ];
        let groups: BTreeSet<String> = groups.into_iter().flatten().collect();
        if groups.len() > 1 {
            let groups: Vec<String> = groups.iter().map(|group| format!("'{group}'")).collect();
            bail!(
                "The group ids provided in different places (directly using '--group', via \
                 '--consumer-property', or via '{old_flag}') do not match. Detected group ids: {}",
                groups.join(", ")
            );
        }
        settings.extend(given);
        Ok((settings, groups.into_iter().next()))
    }
}

/// Prints the same warning as Kafka's tools.
fn warn_of_deprecated(is_used: bool, old: &str, new: &str) {
    if is_used {
        println!(
            "Option {old} is deprecated and will be removed in a future version. Use {new} instead."
        );
    }
}
