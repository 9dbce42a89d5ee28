//! The flags of `ottla acls` that add or remove an ACL, for messages that say how to change a
//! decision.

use crate::acl::{Acl, Pattern};
use crate::names::{PatternType, ResourceType, WILDCARD};
use crate::printable::quoted;
use crate::standard_authorizer::{Action, Client};

/// The flags that add an ACL which allows the action. A client host of `*` allows it from any
/// address.
pub fn flags_to_allow(client: Client<'_>, action: Action<'_>) -> String {
    let principal = quoted(client.principal);
    let host = host_flag("--allow-host", client.host);
    let operation = action.operation.title();
    let resource = resource_flag(action.resource_type, action.name);
    format!("--add --allow-principal {principal}{host} --operation {operation} {resource}")
}

/// The flags that remove an ACL.
pub fn flags_to_remove(acl: &Acl) -> String {
    let kind = if acl.is_allow() { "allow" } else { "deny" };
    let principal = quoted(&acl.principal);
    let host = host_flag(&format!("--{kind}-host"), &acl.host);
    let operation = acl.operation.title();
    let Pattern {
        resource_type,
        name,
        pattern_type,
    } = &acl.pattern;
    let resource = resource_flag(*resource_type, name);
    let prefixed = match pattern_type {
        PatternType::Literal => "",
        _ => " --resource-pattern-type prefixed",
    };
    format!(
        "--remove --{kind}-principal {principal}{host} --operation {operation} {resource}{prefixed}"
    )
}

/// Without the flag, the ACL is that of any host.
fn host_flag(flag: &str, host: &str) -> String {
    match host {
        WILDCARD => String::new(),
        host => format!(" {flag} {}", quoted(host)),
    }
}

fn resource_flag(resource_type: ResourceType, name: &str) -> String {
    let flag = match resource_type {
        ResourceType::Topic => "--topic",
        ResourceType::Group => "--group",
        ResourceType::Cluster => return "--cluster".to_owned(),
        ResourceType::TransactionalId => "--transactional-id",
        ResourceType::DelegationToken => "--delegation-token",
        ResourceType::User => "--user-principal",
        ResourceType::Unknown | ResourceType::Any => return String::new(),
    };
    format!("{flag} {}", quoted(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Operation, PermissionType};

    #[test]
    fn flags_are_one_command_whatever_a_client_is_called() {
        let client = Client {
            principal: "User:ANONYMOUS",
            host: "127.0.0.1",
        };
        let action = Action {
            operation: Operation::DescribeConfigs,
            resource_type: ResourceType::Topic,
            name: "a'; rm\n",
        };
        assert_eq!(
            flags_to_allow(client, action),
            r"--add --allow-principal User:ANONYMOUS --allow-host 127.0.0.1 --operation DescribeConfigs --topic 'a'\''; rm'"
        );
        let from_anywhere = Client {
            host: WILDCARD,
            ..client
        };
        let cluster = Action {
            resource_type: ResourceType::Cluster,
            ..action
        };
        assert_eq!(
            flags_to_allow(from_anywhere, cluster),
            "--add --allow-principal User:ANONYMOUS --operation DescribeConfigs --cluster"
        );
    }

    #[test]
    fn the_acl_to_remove_is_named_exactly() {
        let mut acl = Acl {
            pattern: Pattern {
                resource_type: ResourceType::Group,
                name: "g".into(),
                pattern_type: PatternType::Prefixed,
            },
            principal: "User:*".into(),
            host: "10.0.0.1".into(),
            operation: Operation::All,
            permission_type: PermissionType::Deny,
        };
        assert_eq!(
            flags_to_remove(&acl),
            "--remove --deny-principal 'User:*' --deny-host 10.0.0.1 --operation All --group g \
             --resource-pattern-type prefixed"
        );
        acl.host = WILDCARD.into();
        acl.permission_type = PermissionType::Allow;
        acl.pattern.pattern_type = PatternType::Literal;
        assert_eq!(
            flags_to_remove(&acl),
            "--remove --allow-principal 'User:*' --operation All --group g"
        );
    }
}
