//! Listeners: the addresses that a node binds, and the addresses that it advertises.
//!
//! Kafka: `SocketServerConfigs.listenerListToEndPoints`, `AbstractKafkaConfig`,
//! `KafkaConfig.effectiveAdvertised*Listeners`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ottla_types::named_enum;

use super::{ConfigError, Values};
use crate::config_def::{parse_voter, split_list};
use crate::nearest_name::nearest_name;

named_enum! {
    /// The security protocol of a listener. The discriminants are Kafka's IDs, as in registration
    /// records.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(i16)]
    pub enum SecurityProtocol {
        Plaintext = 0 => "PLAINTEXT",
        Ssl = 1 => "SSL",
        SaslPlaintext = 2 => "SASL_PLAINTEXT",
        SaslSsl = 3 => "SASL_SSL",
    }
}

impl SecurityProtocol {
    /// The number in registration records and requests.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether connections are encrypted.
    pub const fn uses_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }

    /// Whether clients have to log in.
    pub const fn uses_sasl(self) -> bool {
        matches!(
            self,
            SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl
        )
    }

    pub fn from_name(name: &str) -> Option<SecurityProtocol> {
        Self::ALL
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Upper case, as Kafka normalises it.
    pub name: String,
    pub protocol: SecurityProtocol,
    /// `None` means all interfaces.
    pub host: Option<String>,
    /// 0 means an arbitrary free port, for tests.
    pub port: u16,
    /// Whether `controller.listener.names` contains it.
    pub is_controller: bool,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().unwrap_or("");
        if host.contains(':') {
            write!(f, "{}://[{host}]:{}", self.name, self.port)
        } else {
            write!(f, "{}://{host}:{}", self.name, self.port)
        }
    }
}

/// The listeners of a node, resolved from all of its settings.
pub(super) struct Resolved {
    pub(super) listeners: Vec<Listener>,
    pub(super) advertised: Vec<Listener>,
    pub(super) advertised_controller: Vec<Listener>,
    pub(super) controller_names: Vec<String>,
    pub(super) inter_broker_name: String,
    pub(super) protocols: BTreeMap<String, SecurityProtocol>,
}

pub(super) fn resolve(values: &Values<'_>) -> Result<Resolved, ConfigError> {
    let controller_names: Vec<String> = values
        .list("controller.listener.names")
        .iter()
        .map(|name| name.to_uppercase())
        .collect();
    let protocols = protocol_map(values, &controller_names)?;
    let parse = |key: &str, items: &[String], distinct_ports: bool| {
        parse_list(
            values,
            key,
            items,
            &protocols,
            &controller_names,
            distinct_ports,
        )
    };
    let listeners = parse("listeners", &values.list("listeners"), true)?;
    let advertised_given = match values.optional_list("advertised.listeners") {
        Some(items) => Some(parse("advertised.listeners", &items, false)?),
        None => None,
    };
    let advertised = advertised_given
        .as_ref()
        .unwrap_or(&listeners)
        .iter()
        .filter(|listener| !listener.is_controller)
        .cloned()
        .collect();
    let advertised_controller = controller_names
        .iter()
        .enumerate()
        .filter_map(|(index, name)| {
            let given = advertised_given
                .iter()
                .flatten()
                .find(|listener| &listener.name == name);
            given.cloned().or_else(|| {
                let bound = listeners.iter().find(|listener| &listener.name == name)?;
                Some(advertise_controller(values, bound, index == 0))
            })
        })
        .collect();
    let inter_broker_name = inter_broker_name(values, &protocols)?;
    Ok(Resolved {
        listeners,
        advertised,
        advertised_controller,
        controller_names,
        inter_broker_name,
        protocols,
    })
}

/// The advertised address of a controller listener that has none configured: the address of this
/// node in `controller.quorum.voters`, or the bound address.
fn advertise_controller(values: &Values<'_>, bound: &Listener, is_default: bool) -> Listener {
    let mut advertised = bound.clone();
    let wildcard = bound.host.is_none() || bound.host.as_deref() == Some("0.0.0.0");
    if !wildcard {
        return advertised;
    }
    advertised.host = None;
    if is_default {
        let node_id: i32 = values.get("node.id");
        let voters = values.list("controller.quorum.voters");
        let this = voters
            .iter()
            .filter_map(|voter| parse_voter(voter))
            .find(|it| it.0 == node_id);
        if let Some((_, host, port)) = this {
            advertised.host = Some(host);
            advertised.port = port;
        }
    }
    advertised
}

fn protocol_map(
    values: &Values<'_>,
    controller_names: &[String],
) -> Result<BTreeMap<String, SecurityProtocol>, ConfigError> {
    let key = "listener.security.protocol.map";
    let text: String = values.get(key);
    let mut protocols = BTreeMap::new();
    for item in split_list(&text) {
        let pair = item.rsplit_once(':').and_then(|(name, protocol)| {
            Some((
                name.trim().to_uppercase(),
                SecurityProtocol::from_name(protocol.trim())?,
            ))
        });
        let Some((name, protocol)) = pair else {
            return Err(values.conflict(
                key,
                &format!(
                    "{key}: {item} is not a pair of a listener name and a protocol; give \
                     NAME:PROTOCOL with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"
                ),
            ));
        };
        protocols.insert(name, protocol);
    }
    if !values.is_given(key) {
        // Without a map, controller listeners use PLAINTEXT, unless any other listener setting uses
        // a secure protocol.
        let is_secure = |name: &str| {
            SecurityProtocol::from_name(name)
                .is_some_and(|protocol| protocol != SecurityProtocol::Plaintext)
        };
        let secure_listener = values
            .list("listeners")
            .iter()
            .any(|listener| is_secure(listener.split(':').next().unwrap_or_default()));
        if !secure_listener && !controller_names.iter().any(|name| is_secure(name)) {
            for name in controller_names {
                protocols
                    .entry(name.clone())
                    .or_insert(SecurityProtocol::Plaintext);
            }
        }
    }
    Ok(protocols)
}

fn parse_list(
    values: &Values<'_>,
    key: &str,
    items: &[String],
    protocols: &BTreeMap<String, SecurityProtocol>,
    controller_names: &[String],
    distinct_ports: bool,
) -> Result<Vec<Listener>, ConfigError> {
    let mut listeners: Vec<Listener> = Vec::new();
    for item in items {
        let Some((name, host, port)) = parse_listener(item) else {
            let port = item.rsplit(':').next().unwrap_or_default();
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let problem = match is_number && port.parse::<u16>().is_err() {
                true => format!("{key}: {item}: {port} is not a port; give 0 to 65535"),
                false => format!("{key}: {item} is not a listener; give NAME://host:port"),
            };
            return Err(values.conflict(key, &problem));
        };
        let Some(&protocol) = protocols.get(&name) else {
            let roles = values.list("process.roles");
            if key == "listeners"
                && roles.iter().any(|role| role == "controller")
                && let Some(misspelt) = misspelt_controller_name(&name, items, controller_names)
            {
                return Err(values.conflict(
                    "controller.listener.names",
                    &no_controller_listener(misspelt, [name.as_str()]),
                ));
            }
            return Err(values.conflict(
                key,
                &format!(
                    "{key}: there is no protocol for listener {name}; add {name}:PLAINTEXT to \
                     listener.security.protocol.map"
                ),
            ));
        };
        if listeners.iter().any(|listener| listener.name == name) {
            return Err(values.conflict(
                key,
                &format!("{key}: listener {name} is listed twice; give each its own name"),
            ));
        }
        let is_controller = controller_names.contains(&name);
        listeners.push(Listener {
            name,
            protocol,
            host,
            port,
            is_controller,
        });
    }
    if distinct_ports && let Some((first, second)) = port_conflict(&listeners) {
        return Err(values.conflict(
            key,
            &format!(
                "{key}: {first} and {second} share a port; give each its own, unless one is an \
                 IPv4 address and the other an IPv6 address"
            ),
        ));
    }
    Ok(listeners)
}

/// The name in `controller.listener.names` that is not a listener and resembles this one, which has
/// no protocol: a controller listener needs none.
fn misspelt_controller_name<'a>(
    listener: &str,
    items: &[String],
    controller_names: &'a [String],
) -> Option<&'a String> {
    let listed = items.iter().filter_map(|item| parse_listener(item));
    let listed: Vec<String> = listed.map(|(name, _, _)| name).collect();
    let mut names = controller_names.iter();
    names.find(|name| !listed.contains(name) && nearest_name(name, [listener]).is_some())
}

/// The message for a name in `controller.listener.names` that `listeners` does not have; `others` are
/// its listeners that are not for controllers.
pub(super) fn no_controller_listener<'a>(
    name: &str,
    others: impl IntoIterator<Item = &'a str>,
) -> String {
    let change = match nearest_name(name, others) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("add {name}://host:port to listeners"),
    };
    format!("controller.listener.names has {name}, but listeners does not; {change}")
}

/// Parses `NAME://host:port`. Converts the name to upper case; an empty host becomes `None`.
pub fn parse_listener(text: &str) -> Option<(String, Option<String>, u16)> {
    let (name, address) = text.split_once("://")?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-%._:".contains(&byte);
    if !host.bytes().all(is_host_byte) {
        return None;
    }
    let host = (!host.is_empty()).then(|| host.to_owned());
    Some((name.to_uppercase(), host, port.parse().ok()?))
}

/// Finds two listeners with the same port. Only one IPv4 and one IPv6 address can share a port.
fn port_conflict(listeners: &[Listener]) -> Option<(&Listener, &Listener)> {
    for (index, first) in listeners.iter().enumerate() {
        for second in &listeners[index + 1..] {
            if first.port != second.port || first.port == 0 {
                continue;
            }
            let ip = |listener: &Listener| listener.host.as_deref()?.parse::<IpAddr>().ok();
            match (ip(first), ip(second)) {
                (Some(first), Some(second)) if first.is_ipv4() != second.is_ipv4() => {}
                _ => return Some((first, second)),
            }
        }
    }
    None
}

fn inter_broker_name(
    values: &Values<'_>,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> Result<String, ConfigError> {
    let protocol: String = values.get("security.inter.broker.protocol");
    let Some(name) = values.optional_text("inter.broker.listener.name") else {
        return Ok(protocol);
    };
    if values.is_given("security.inter.broker.protocol") {
        return Err(values.conflict(
            "inter.broker.listener.name",
            "inter.broker.listener.name and security.inter.broker.protocol are both given; \
             remove one of them",
        ));
    }
    let name = name.to_uppercase();
    if !protocols.contains_key(&name) {
        return Err(values.conflict(
            "inter.broker.listener.name",
            &format!(
                "inter.broker.listener.name={name}: listener.security.protocol.map does not have \
                 it; add {name}:PLAINTEXT there"
            ),
        ));
    }
    Ok(name)
}
