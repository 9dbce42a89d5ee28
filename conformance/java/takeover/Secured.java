import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.token.delegation.DelegationToken;

/**
 * The users, rights, quotas and tokens of a secured broker, and what is seen of them in whatever hands: the workload logs in
 * as {@code worker}, which may do everything by ACLs; {@code guest} may describe some topics.
 */
final class Secured {
    private static final String WORKER = "worker";
    private static final String GUEST = "guest";
    private static DelegationToken token;

    private Secured() {
    }

    /** Makes them, by a listener where nobody logs in. */
    static Object prepare(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String user : List.of(WORKER, GUEST)) {
                for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
                    Workload.get(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user,
                        new ScramCredentialInfo(mechanism, 8192), user + "-secret"))).all());
                }
            }
            List<AclBinding> rights = new ArrayList<>();
            for (ResourceType type : List.of(ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)) {
                rights.add(right(WORKER, type, "*", PatternType.LITERAL, AclOperation.ALL, AclPermissionType.ALLOW));
            }
            rights.add(right(WORKER, ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, AclOperation.ALL,
                AclPermissionType.ALLOW));
            rights.add(right(GUEST, ResourceType.TOPIC, "codec-", PatternType.PREFIXED, AclOperation.DESCRIBE,
                AclPermissionType.ALLOW));
            rights.add(right(GUEST, ResourceType.TOPIC, "codec-gzip", PatternType.LITERAL, AclOperation.ALL,
                AclPermissionType.DENY));
            Workload.get(admin.createAcls(rights).all());
            Workload.get(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, GUEST)), List.of(
                    new ClientQuotaAlteration.Op("producer_byte_rate", 4096.0),
                    new ClientQuotaAlteration.Op("request_percentage", 12.5))))).all());
        }
        // The broker may take over later what the controller has answered.
        for (long deadline = System.nanoTime() + 60_000_000_000L;;) {
            try (Admin worker = Admin.create(Login.as(WORKER, WORKER + "-secret", ""));
                 Admin guest = Admin.create(Login.as(GUEST, GUEST + "-secret", ""))) {
                Workload.get(worker.describeAcls(AclBindingFilter.ANY).values());
                token = Workload.get(guest.createDelegationToken().delegationToken());
                return "prepared";
            } catch (RuntimeException error) {
                Throwable root = Workload.rootOf(error);
                boolean isEarly = root instanceof AuthenticationException || root instanceof AuthorizationException;
                if (!isEarly || System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(200);
            }
        }
    }

    private static AclBinding right(String user, ResourceType type, String name, PatternType pattern,
        AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(type, name, pattern),
            new AccessControlEntry("User:" + user, "*", operation, permission));
    }

    /** What an administrator sees of all this, and who gets in to see what. */
    static void picture(Admin admin, Map<String, Object> picture) {
        for (AclBinding right : Workload.get(admin.describeAcls(AclBindingFilter.ANY).values())) {
            picture.put("right " + right, "is there");
        }
        Workload.get(admin.describeUserScramCredentials().all()).forEach((user, credentials) ->
            picture.put("credentials of " + user,
                credentials.credentialInfos().stream().map(String::valueOf).sorted().toList().toString()));
        Workload.get(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).forEach((entity, quotas) ->
            picture.put("quotas of " + entity, new TreeMap<>(quotas).toString()));
        picture.put("login with a wrong password", seen(Login.as(WORKER, "wrong", "")));
        picture.put("login of nobody", seen(Login.as("nobody", "nobody-secret", "")));
        picture.put("login of a guest", seen(Login.as(GUEST, GUEST + "-secret", "")));
        picture.put("login with a token", seen(Login.as(token.tokenInfo().tokenId(), token.hmacAsBase64String(),
            " tokenauth=\"true\"")));
    }

    /** The topics that whoever logs in so may see, or why there are none. */
    private static String seen(Map<String, Object> login) {
        try (Admin admin = Admin.create(login)) {
            return new TreeSet<>(Workload.get(admin.listTopics().names())).toString();
        } catch (RuntimeException error) {
            Throwable root = Workload.rootOf(error);
            return root.getClass().getSimpleName() + ": " + root.getMessage();
        }
    }
}
