//! A decision about an operation that a person asks about, with all that explains it.
//!
//! Some requests are authorised by another operation as well: such a decision says so. What would
//! change a denial are flags of `ottla acls`.

use crate::acl::Acl;
use crate::acl_flags::{flags_to_allow, flags_to_remove};
use crate::names::{CLUSTER_NAME, Operation, ResourceType};
use crate::standard_authorizer::{Action, Client, Explanation, StandardAuthorizer};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    pub action: Action<'a>,
    /// `None` if the cluster authorises nothing.
    pub explanation: Option<Explanation>,
    /// ACLs that would match the client at another address.
    pub other_hosts: Vec<Acl>,
    /// The flags of `ottla acls` that together would allow it.
    pub remedies: Vec<String>,
    /// The setting, request or rule that matters beside the decision.
    pub remark: Option<&'static str>,
}

impl<'a> Decision<'a> {
    /// Of a cluster that authorises nothing.
    pub fn without_authorizer(action: Action<'a>) -> Decision<'a> {
        Decision {
            action,
            explanation: None,
            other_hosts: Vec::new(),
            remedies: Vec::new(),
            remark: None,
        }
    }

    pub fn is_allowed(&self) -> bool {
        let explanation = self.explanation.as_ref();
        explanation.is_none_or(|explanation| explanation.rule.is_allowed())
    }

    /// The ACLs that match besides the one that decides.
    pub fn also_matching(&self) -> impl Iterator<Item = &Acl> {
        self.explanation.iter().flat_map(Explanation::others)
    }
}

impl StandardAuthorizer {
    /// As [`StandardAuthorizer::explain`], as requests with this operation are authorised.
    pub fn decide<'a>(&self, client: Client<'_>, action: Action<'a>) -> Decision<'a> {
        let mut explanation = self.explain(client, action);
        let mut remark = None;
        match (action.operation, action.resource_type) {
            // `CreateTopics` asks for Create on the cluster first.
            (Operation::Create, ResourceType::Topic) if !explanation.rule.is_allowed() => {
                let on_cluster = Action {
                    resource_type: ResourceType::Cluster,
                    name: CLUSTER_NAME,
                    ..action
                };
                let on_cluster = self.explain(client, on_cluster);
                if on_cluster.rule.is_allowed() {
                    remark =
                        Some("a principal that may Create on the cluster may create every topic");
                    explanation = on_cluster;
                }
            }
            (Operation::IdempotentWrite, _) if !explanation.rule.is_allowed() => {
                let (write, topic) = (Operation::Write, ResourceType::Topic);
                if self.is_allowed_by_resource_type(client, write, topic) {
                    remark = Some("not needed since Kafka 2.8: it may Write to a topic");
                }
            }
            _ => {}
        }
        let denying = explanation.matching.iter().filter(|acl| !acl.is_allow());
        let mut remedies = Vec::new();
        if !explanation.rule.is_allowed() {
            remedies.extend(denying.map(flags_to_remove));
            if !explanation.matching.iter().any(Acl::is_allow) {
                remedies.push(flags_to_allow(client, action));
            }
        }
        Decision {
            action,
            other_hosts: self.other_host_acls(client, action),
            explanation: Some(explanation),
            remedies,
            remark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Pattern;
    use crate::names::{PatternType, PermissionType, WILDCARD};

    const CLIENT: Client<'_> = Client {
        principal: "User:a",
        host: WILDCARD,
    };

    fn authorizer(acls: &[(ResourceType, &str, Operation, PermissionType)]) -> StandardAuthorizer {
        let mut authorizer = StandardAuthorizer::default();
        for (resource_type, name, operation, permission_type) in acls {
            authorizer.acls.insert(Acl {
                pattern: Pattern {
                    resource_type: *resource_type,
                    name: (*name).into(),
                    pattern_type: PatternType::Literal,
                },
                principal: "User:a".into(),
                host: WILDCARD.into(),
                operation: *operation,
                permission_type: *permission_type,
            });
        }
        authorizer
    }

    fn on_topic(operation: Operation) -> Action<'static> {
        Action {
            operation,
            resource_type: ResourceType::Topic,
            name: "t",
        }
    }

    #[test]
    fn a_denial_names_the_acls_that_would_allow_it() {
        use PermissionType::{Allow, Deny};
        let topic = ResourceType::Topic;
        let authorizer = authorizer(&[
            (topic, "t", Operation::Read, Deny),
            (topic, "t", Operation::All, Allow),
        ]);
        let denied = authorizer.decide(CLIENT, on_topic(Operation::Read));
        assert!(!denied.is_allowed());
        assert_eq!(denied.also_matching().count(), 1);
        assert_eq!(
            denied.remedies,
            ["--remove --deny-principal User:a --operation Read --topic t"]
        );
        let allowed = authorizer.decide(CLIENT, on_topic(Operation::Write));
        assert!(allowed.is_allowed() && allowed.remedies.is_empty());
        let other = Action {
            name: "other",
            ..on_topic(Operation::Read)
        };
        assert_eq!(
            authorizer.decide(CLIENT, other).remedies,
            ["--add --allow-principal User:a --operation Read --topic other"]
        );
    }

    #[test]
    fn other_operations_that_count_are_remarked() {
        use PermissionType::Allow;
        let cluster = ResourceType::Cluster;
        let creating = authorizer(&[(cluster, CLUSTER_NAME, Operation::Create, Allow)]);
        let decision = creating.decide(CLIENT, on_topic(Operation::Create));
        assert!(decision.is_allowed() && decision.remark.is_some());
        let writing = authorizer(&[(ResourceType::Topic, "t", Operation::Write, Allow)]);
        let idempotent = Action {
            operation: Operation::IdempotentWrite,
            resource_type: cluster,
            name: CLUSTER_NAME,
        };
        let decision = writing.decide(CLIENT, idempotent);
        assert!(!decision.is_allowed() && decision.remark.is_some());
        assert!(Decision::without_authorizer(idempotent).is_allowed());
    }
}
