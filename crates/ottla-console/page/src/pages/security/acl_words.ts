/** ACLs in words. */
import type { Acl } from "../../wire";

/** The operations that each kind of resource knows (Kafka's AclEntry). */
export const OPERATIONS: Record<string, readonly string[]> = {
  topic: ["read", "write", "create", "describe", "delete", "alter", "describe_configs", "alter_configs", "all"],
  group: ["read", "describe", "delete", "describe_configs", "alter_configs", "all"],
  cluster: ["create", "cluster_action", "describe_configs", "alter_configs", "idempotent_write", "alter", "describe", "all"],
  transactional_id: ["describe", "write", "two_phase_commit", "all"],
  delegation_token: ["describe", "all"],
  user: ["create_tokens", "describe_tokens", "all"],
};

/** The only resource of the kind cluster. */
export const CLUSTER = "kafka-cluster";

export const sentence = (acl: Acl): string => `${acl.principal} ${acl.permission === "allow" ? "may" : "may not"} ${acl.operation} ${acl.resource_type} ${acl.pattern_type === "prefixed" ? `${acl.resource_name}*` : acl.resource_name} from ${acl.host === "*" ? "every host" : acl.host}`;

/** Why a text is not the principal of an ACL; null if it is one, or is still begun. */
export const principalProblem = (principal: string): string | null => (/^[^:]+:.+/.test(principal) || principal === "User:" ? null : "a type and a name, as in User:alice; User:* is everyone");
