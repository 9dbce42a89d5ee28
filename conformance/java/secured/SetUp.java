// What the scripts on secured listeners find: users with credentials for SCRAM, topics, rights and quotas. Run once on each
// broker, by a super user, as `SetUp BOOTSTRAP CLIENT…`; each client has a topic and users of its own besides those of all.

import java.util.*;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

public final class SetUp {
    /** May do everything with what begins with `secured-`; logs in with a password or with a certificate. */
    static final String ALICE = "alice";
    /** May do nothing. */
    static final String CAROL = "carol";
    /** May read topics, and join no group. */
    static final String READER = "reader";
    /** May join groups, and read no topic. */
    static final String MEMBER = "member";
    private static final List<String> OF_ALL = List.of(ALICE, CAROL, READER, MEMBER);
    /** Users of each client: one who loses its rights, one who loses its password, one with quotas. */
    private static final List<String> OF_EACH = List.of("revoked", "removed", "slow");
    /** Bytes a second, for whoever is called slow. */
    private static final double SLOW = 2_000;

    public static void main(String[] arguments) throws Exception {
        List<String> clients = List.of(arguments).subList(1, arguments.length);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            List<String> users = new ArrayList<>(OF_ALL);
            clients.forEach(client -> OF_EACH.forEach(user -> users.add(client + "-" + user)));
            // A request changes a user once.
            for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
                admin.alterUserScramCredentials(users.stream().<UserScramCredentialAlteration>map(user ->
                    new UserScramCredentialUpsertion(user, new ScramCredentialInfo(mechanism, 4096), password(user)))
                    .toList()).all().get();
            }
            admin.createTopics(clients.stream().map(client ->
                new NewTopic("secured-" + client, 1, (short) 1)).toList()).all().get();
            admin.createAcls(rights(clients)).all().get();
            List<ClientQuotaAlteration> quotas = new ArrayList<>();
            for (String client : clients) {
                quotas.add(new ClientQuotaAlteration(
                    new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, client + "-slow")), List.of(
                        new ClientQuotaAlteration.Op("producer_byte_rate", SLOW),
                        new ClientQuotaAlteration.Op("consumer_byte_rate", SLOW),
                        new ClientQuotaAlteration.Op("controller_mutation_rate", 1.0))));
            }
            admin.alterClientQuotas(quotas).all().get();
            // Clients of other languages wait for that only for a while.
            Coordinators.awaitGroups(admin, 50);
            Script.settle(admin);
        }
        System.exit(0);
    }

    /** Users log in with this. */
    static String password(String user) {
        return user + "-secret";
    }

    private static List<AclBinding> rights(List<String> clients) {
        ResourcePattern topics = new ResourcePattern(ResourceType.TOPIC, "secured-", PatternType.PREFIXED);
        ResourcePattern groups = new ResourcePattern(ResourceType.GROUP, "secured-", PatternType.PREFIXED);
        ResourcePattern ids = new ResourcePattern(ResourceType.TRANSACTIONAL_ID, "secured-", PatternType.PREFIXED);
        List<AclBinding> rights = new ArrayList<>();
        Stream.of(topics, groups, ids).forEach(what -> rights.add(allowed(ALICE, what, AclOperation.ALL)));
        rights.add(allowed(READER, topics, AclOperation.READ));
        rights.add(allowed(MEMBER, groups, AclOperation.READ));
        for (String client : clients) {
            for (String user : List.of("removed", "slow")) {
                Stream.of(topics, groups).forEach(what ->
                    rights.add(allowed(client + "-" + user, what, AclOperation.ALL)));
            }
        }
        return rights;
    }

    static AclBinding allowed(String user, ResourcePattern what, AclOperation operation) {
        return new AclBinding(what,
            new AccessControlEntry("User:" + user, "*", operation, AclPermissionType.ALLOW));
    }
}
