//! Finds every error in a properties file, not only the first.
//!
//! A start fails with the first problem. A preflight needs all of them, and the configuration
//! nevertheless, to examine its directories too.

use std::collections::BTreeSet;

use super::{BrokerConfig, ConfigError, Values, Warning, unknown_keys, validate};
use crate::config_def::{ConfigDef, DefaultValue};
use crate::properties::{Properties, Property};
use crate::tables::{broker_config_of_key, broker_configs};

/// The result of examining a properties file.
#[derive(Clone, PartialEq, Debug)]
pub struct Examined {
    /// The configuration without the rejected lines; `None` if no configuration can be built
    /// without them.
    pub config: Option<BrokerConfig>,
    /// The reasons why a node cannot start with it, in the order of the file. Empty if it can.
    pub problems: Vec<ConfigError>,
    pub warnings: Vec<Warning>,
}

impl BrokerConfig {
    /// Builds the configuration of a node. Returns the first problem if there is one.
    pub fn from_properties(
        properties: &Properties,
    ) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
        let Examined {
            config,
            problems,
            warnings,
        } = BrokerConfig::examine(properties);
        match (problems.into_iter().next(), config) {
            (Some(problem), _) => Err(problem),
            (None, Some(config)) => Ok((config, warnings)),
            (None, None) => unreachable!("a configuration without problems can be built"),
        }
    }

    pub(super) fn build(values: &Values<'_>) -> Result<BrokerConfig, ConfigError> {
        let config = BrokerConfig::build_unchecked(values)?;
        match validate::problems(&config, values).into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(config),
        }
    }

    /// Builds the configuration of a node, and finds all of its problems. No message contains what
    /// has replaced a variable.
    pub fn examine(properties: &Properties) -> Examined {
        let mut examined = BrokerConfig::examine_values(properties);
        let shown = |text: &str| properties.with_variables(text);
        for problem in &mut examined.problems {
            problem.map_texts(shown);
        }
        for warning in &mut examined.warnings {
            warning.message = shown(&warning.message);
        }
        examined
    }

    fn examine_values(properties: &Properties) -> Examined {
        let mut examined = Examined {
            config: None,
            problems: Vec::new(),
            warnings: Vec::new(),
        };
        let mut left_out = BTreeSet::new();
        for property in properties.effective() {
            let place = || properties.place(&property.key);
            match broker_config_of_key(&property.key) {
                Some(def) => {
                    if let Some(item) = def.repeated_item(&property.value) {
                        let key = &property.key;
                        let message =
                            format!("{key}: {item} is listed more than once; it counts once");
                        let place = place();
                        examined.warnings.push(Warning { place, message });
                    }
                    if let Err(problem) = check(def, property, place) {
                        left_out.insert(property.key.as_str());
                        examined.problems.push(problem);
                    }
                }
                None => {
                    if let Some(message) = unknown_keys::warning(&property.key) {
                        let place = place();
                        examined.warnings.push(Warning { place, message });
                    }
                }
            }
        }
        let values = Values::without(properties, &left_out);
        if let Some(problem) = zookeeper_mode(properties, &values) {
            examined.problems.push(problem);
            return examined;
        }
        let missing = broker_configs().filter(|def| {
            def.default == DefaultValue::Required && properties.get(def.name).is_none()
        });
        let missing: Vec<ConfigError> = missing
            .map(|def| {
                let example = missing_example(def.name);
                values.conflict(
                    def.name,
                    &format!("{} is missing; give {example}", def.name),
                )
            })
            .collect();
        let can_build = missing.is_empty()
            && broker_configs()
                .filter(|def| def.default == DefaultValue::Required)
                .all(|def| !left_out.contains(def.name));
        examined.problems.extend(missing);
        if !can_build {
            return examined;
        }
        match BrokerConfig::build_unchecked(&values) {
            Ok(config) => {
                let problems = validate::problems(&config, &values);
                examined.problems.extend(problems);
                validate::warnings(&config, &values, &mut examined.warnings);
                examined.config = Some(config);
            }
            Err(problem) => examined.problems.push(problem),
        }
        examined
    }
}

fn check(
    def: &ConfigDef,
    property: &Property,
    place: impl Fn() -> String,
) -> Result<(), ConfigError> {
    def.parse(&property.value)
        .map_err(|error| ConfigError::Value {
            place: place(),
            error: error.into(),
        })?;
    match def.refusal(&property.value) {
        None => Ok(()),
        Some(reason) => Err(ConfigError::Refused {
            place: place(),
            key: property.key.clone(),
            value: property.value.trim().to_owned(),
            reason: reason.to_owned(),
        }),
    }
}

/// Detects a node of a cluster that uses ZooKeeper, or is migrating from it.
fn zookeeper_mode(properties: &Properties, values: &Values<'_>) -> Option<ConfigError> {
    let migrates = properties
        .get("zookeeper.metadata.migration.enable")
        .is_some_and(|property| property.value.trim().eq_ignore_ascii_case("true"));
    if migrates {
        return Some(values.conflict(
            "zookeeper.metadata.migration.enable",
            "zookeeper.metadata.migration.enable=true: the cluster is being moved from ZooKeeper to KRaft; \
             finish that with Kafka 3.9 and remove the line",
        ));
    }
    let is_zookeeper_node =
        properties.get("zookeeper.connect").is_some() && properties.get("process.roles").is_none();
    is_zookeeper_node.then(|| {
        values.conflict(
            "zookeeper.connect",
            "zookeeper.connect: the cluster of this node is kept by ZooKeeper, which neither Kafka 4 nor \
             Ottla can read; move it to KRaft with Kafka 3.9 first",
        )
    })
}

fn missing_example(name: &str) -> &'static str {
    match name {
        "process.roles" => "process.roles=broker,controller for a node that is both",
        "controller.listener.names" => {
            "controller.listener.names=CONTROLLER and a listener of that name"
        }
        "node.id" => "node.id=1, a number that no other node of the cluster has",
        _ => "a value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> (Vec<String>, Option<BrokerConfig>) {
        let properties = Properties::parse(text, "server.properties").expect("readable");
        let examined = BrokerConfig::examine(&properties);
        let problems = examined.problems.iter().map(ToString::to_string).collect();
        (problems, examined.config)
    }

    const NODE: &str = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
                        listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
                        controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/data\n";

    #[test]
    fn all_errors_are_found_and_the_directories_are_still_known() {
        let text = format!(
            "{NODE}num.partitions=none\nauthorizer.class.name=org.example.Authorizer\n\
             listener.name.plaintext.principal.builder.class=org.example.Principals\n\
             log.roll.ms=0\nqueued.max.request.bytes=1\n"
        );
        let (found, config) = problems(&text);
        let places: Vec<&str> = found
            .iter()
            .map(|problem| problem.split(": ").next().unwrap_or_default())
            .collect();
        assert_eq!(
            places,
            [
                "server.properties line 7",
                "server.properties line 8",
                "server.properties line 9",
                "server.properties line 10",
                "server.properties line 11",
            ],
            "{found:#?}"
        );
        assert_eq!(config.expect("the rest is good").log_dirs, ["/data"]);
    }

    #[test]
    fn messages_show_variables_and_not_what_has_replaced_them() {
        let text = format!("{NODE}num.partitions=s3cret\nsuper.users=x-s3cret\n");
        let mut properties = Properties::parse(&text, "server.properties").expect("readable");
        properties.hide("${file:/s:password}", "s3cret\n");
        let examined = BrokerConfig::examine(&properties);
        assert_eq!(examined.problems.len(), 2, "{:#?}", examined.problems);
        for problem in &examined.problems {
            let shown = problem.to_string();
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("${file:/s:password}"), "{shown}");
        }
    }

    #[test]
    fn a_good_file_has_no_problems() {
        let (found, config) = problems(NODE);
        assert_eq!(found, Vec::<String>::new());
        assert!(config.is_some());
    }

    #[test]
    fn every_listener_that_is_not_served_is_found() {
        let text = NODE.replace(
            "PLAINTEXT://localhost:9092",
            "SSL://localhost:9092,SASL_SSL://localhost:9094",
        );
        let text = format!(
            "{text}inter.broker.listener.name=SSL\nlistener.security.protocol.map=\
             SSL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT\n"
        );
        let (found, config) = problems(&text);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].contains("listener SASL_SSL has sasl.enabled.mechanisms=GSSAPI"),
            "{found:#?}"
        );
        let config = config.expect("the rest is good");
        assert_eq!(
            config.listener_protocol("SSL"),
            Some(crate::SecurityProtocol::Ssl)
        );
    }

    #[test]
    fn a_node_of_a_zookeeper_cluster_gets_an_error_that_says_so() {
        let (found, config) = problems("broker.id=1\nzookeeper.connect=localhost:2181\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].contains("move it to KRaft with Kafka 3.9"),
            "{found:#?}"
        );
        assert!(config.is_none());
        let (found, _) = problems(&format!("{NODE}zookeeper.metadata.migration.enable=true\n"));
        assert!(found[0].contains("is being moved"), "{found:#?}");
    }

    #[test]
    fn missing_settings_are_named_with_an_example() {
        let (found, config) = problems("log.dirs=/data\n");
        assert!(config.is_none());
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(
            found
                .iter()
                .any(|problem| problem.contains("give node.id=1"))
        );
    }
}
