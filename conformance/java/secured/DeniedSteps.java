import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/**
 * What clients and administrators may not do, for want of a right: every operation of the Java client. Run as
 * {@code DeniedSteps BOOTSTRAP PLACE}.
 */
public final class DeniedSteps {
    private static final String TOPIC = "secured-secured-denied";
    private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
    private static final String ID = "secured-id";
    private static final String GROUP = "secured-denied";
    private final SecuredScript script;

    DeniedSteps(SecuredScript script) {
        this.script = script;
    }

    public static void main(String[] arguments) throws Exception {
        DeniedSteps steps = new DeniedSteps(SecuredScript.of(arguments));
        steps.prepare();
        for (String user : List.of(SetUp.CAROL, SetUp.READER, SetUp.MEMBER)) {
            steps.clients(user);
        }
        steps.administrators();
        steps.visible();
        System.exit(0);
    }

    /** A group with offsets and an id with a transaction, for those who ask after them. */
    private void prepare() {
        Map<String, String> login = script.login(SetUp.ALICE);
        try (Producer<byte[], byte[]> producer = script.producer(script.with(login, "transactional.id", ID));
             Consumer<byte[], byte[]> consumer = script.consumer(script.with(login, "group.id", GROUP))) {
            producer.initTransactions();
            producer.beginTransaction();
            script.send(producer, TOPIC, 10);
            producer.commitTransaction();
            consumer.assign(List.of(PARTITION));
            consumer.commitSync(Map.of(PARTITION, new OffsetAndMetadata(1)));
        }
    }

    private static void denied(String who, String what, Script.Step step) {
        SecuredScript.shownStep("denied: " + who + ", " + what, step);
    }

    private void clients(String user) {
        Map<String, String> login = script.login(user);
        for (String topic : List.of(TOPIC, "secured-nothing")) {
            for (String idempotence : List.of("true", "false")) {
                denied(user, "produce to " + topic + ", idempotence " + idempotence, () -> SecuredScript.lastOf(() -> {
                    try (Producer<byte[], byte[]> producer = script.producer(script.with(login, "enable.idempotence",
                        idempotence))) {
                        script.send(producer, topic, 10);
                        return "sent";
                    }
                }));
            }
        }
        denied(user, "a transaction", () -> {
            try (Producer<byte[], byte[]> producer = script.producer(script.with(login, "transactional.id", ID))) {
                producer.initTransactions();
                return "begun";
            }
        });
        denied(user, "read a partition", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(login)) {
                consumer.assign(List.of(PARTITION));
                consumer.seek(PARTITION, 0);
                return Script.first(consumer).offset();
            }
        });
        denied(user, "the ends of a partition", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(login)) {
                return consumer.endOffsets(List.of(PARTITION)).size();
            }
        });
        denied(user, "partitions of a topic", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(login)) {
                return consumer.partitionsFor(TOPIC).size();
            }
        });
        // The new consumer meets one of carol's two errors first.
        List<String> protocols = user.equals(SetUp.CAROL) ? List.of("classic") : List.of("classic", "consumer");
        for (String protocol : protocols) {
            denied(user, "be a member, " + protocol, () -> {
                try (Consumer<byte[], byte[]> consumer = script.consumer(script.with(login, "group.id",
                    "secured-" + user + "-" + protocol, "group.protocol", protocol, "auto.offset.reset", "earliest"))) {
                    consumer.subscribe(List.of(TOPIC));
                    return Script.first(consumer).offset();
                }
            });
        }
        denied(user, "be a member by an expression", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(script.with(login, "group.id",
                "secured-" + user + "-pattern", "auto.offset.reset", "earliest", "metadata.max.age.ms", "300"))) {
                consumer.subscribe(java.util.regex.Pattern.compile("secured-secured-den.ed"));
                // Who is let in without an error is a member; it is given nothing that it may not see.
                Script.await("a member", () -> {
                    consumer.poll(Duration.ofMillis(100));
                    return !consumer.groupMetadata().memberId().isEmpty();
                });
                consumer.poll(Duration.ofMillis(100));
                return Script.sorted(consumer.assignment());
            }
        });
        denied(user, "commit", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(script.with(login, "group.id", GROUP))) {
                consumer.assign(List.of(PARTITION));
                consumer.commitSync(Map.of(PARTITION, new OffsetAndMetadata(1)));
                return "committed";
            }
        });
        denied(user, "committed", () -> {
            try (Consumer<byte[], byte[]> consumer = script.consumer(script.with(login, "group.id", GROUP))) {
                return Script.texts(consumer.committed(Set.of(PARTITION)));
            }
        });
    }

    /** An operation of the admin client. */
    private interface Call {
        KafkaFuture<?> by(Admin admin) throws Exception;
    }

    private void administrators() {
        Map<String, Call> calls = new LinkedHashMap<>();
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource logger = new ConfigResource(ConfigResource.Type.BROKER_LOGGER, "1");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
        ConfigResource metrics = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "m");
        AclBinding right = SetUp.allowed("x", new ResourcePattern(ResourceType.TOPIC, "x", PatternType.LITERAL),
            AclOperation.READ);
        calls.put("create a topic", it -> it.createTopics(List.of(new NewTopic("secured-more", 1, (short) 1))).all());
        calls.put("create a topic that exists",
            it -> it.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all());
        calls.put("delete a topic", it -> it.deleteTopics(List.of(TOPIC)).all());
        calls.put("delete what is no topic", it -> it.deleteTopics(List.of("secured-nothing")).all());
        calls.put("describe a topic", it -> it.describeTopics(List.of(TOPIC)).allTopicNames());
        calls.put("describe what is no topic", it -> it.describeTopics(List.of("secured-nothing")).allTopicNames());
        calls.put("create partitions",
            it -> it.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(2))).all());
        calls.put("delete records", it -> it.deleteRecords(Map.of(PARTITION, RecordsToDelete.beforeOffset(1))).all());
        calls.put("list offsets", it -> it.listOffsets(Map.of(PARTITION, OffsetSpec.latest())).all());
        calls.put("describe producers", it -> it.describeProducers(List.of(PARTITION)).all());
        for (ConfigResource resource : List.of(topic, broker, logger, group, metrics)) {
            calls.put("describe settings of " + resource.type(), it -> it.describeConfigs(List.of(resource)).all());
            calls.put("alter settings of " + resource.type(), it -> it.incrementalAlterConfigs(Map.of(resource,
                List.of(new AlterConfigOp(new ConfigEntry("a", "b"), AlterConfigOp.OpType.SET)))).all());
        }
        calls.put("list settings", it -> it.listConfigResources().all());
        calls.put("describe the cluster", it -> it.describeCluster(
            new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations());
        calls.put("describe log dirs", it -> it.describeLogDirs(List.of(1)).allDescriptions());
        calls.put("move a replica", it -> it.alterReplicaLogDirs(Map.of(
            new TopicPartitionReplica(TOPIC, 0, 1), "/nowhere")).all());
        calls.put("elect leaders", it -> it.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION)).all());
        calls.put("reassign", it -> it.alterPartitionReassignments(Map.of(PARTITION,
            Optional.of(new NewPartitionReassignment(List.of(1))))).all());
        calls.put("list reassignments", it -> it.listPartitionReassignments().reassignments());
        calls.put("describe groups", it -> it.describeConsumerGroups(List.of(GROUP)).all());
        calls.put("describe classic groups", it -> it.describeClassicGroups(List.of(GROUP)).all());
        calls.put("describe share groups", it -> it.describeShareGroups(List.of(GROUP)).all());
        calls.put("list groups", it -> it.listGroups().all());
        calls.put("offsets of a group", it -> it.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata());
        calls.put("alter offsets of a group", it -> it.alterConsumerGroupOffsets(GROUP,
            Map.of(PARTITION, new OffsetAndMetadata(0))).all());
        calls.put("delete offsets of a group", it -> it.deleteConsumerGroupOffsets(GROUP, Set.of(PARTITION)).all());
        calls.put("delete groups", it -> it.deleteConsumerGroups(List.of(GROUP)).all());
        calls.put("remove members", it -> it.removeMembersFromConsumerGroup(GROUP,
            new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("m")))).all());
        calls.put("describe transactions", it -> it.describeTransactions(List.of(ID)).all());
        calls.put("list transactions", it -> it.listTransactions().all());
        calls.put("abort a transaction", it -> it.abortTransaction(
            new AbortTransactionSpec(PARTITION, 1, (short) 1, 1)).all());
        calls.put("fence producers", it -> it.fenceProducers(List.of(ID)).all());
        calls.put("describe ACLs", it -> it.describeAcls(AclBindingFilter.ANY).values());
        calls.put("create ACLs", it -> it.createAcls(List.of(right)).all());
        calls.put("delete ACLs", it -> it.deleteAcls(List.of(right.toFilter())).all());
        calls.put("describe quotas", it -> it.describeClientQuotas(ClientQuotaFilter.all()).entities());
        calls.put("alter quotas", it -> it.alterClientQuotas(List.of(new ClientQuotaAlteration(
            new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "x")),
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1.0))))).all());
        calls.put("describe credentials", it -> it.describeUserScramCredentials().all());
        calls.put("describe one's own credential",
            it -> it.describeUserScramCredentials(List.of(SetUp.CAROL)).all());
        calls.put("alter credentials", it -> it.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("x",
            new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "x"))).all());
        calls.put("describe features", it -> it.describeFeatures().featureMetadata());
        calls.put("update features", it -> it.updateFeatures(Map.of("group.version",
            new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        calls.put("describe the quorum", it -> it.describeMetadataQuorum().quorumInfo());
        calls.put("add a voter", it -> it.addRaftVoter(7, Uuid.ONE_UUID,
            Set.of(new RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9))).all());
        calls.put("remove a voter", it -> it.removeRaftVoter(7, Uuid.ONE_UUID).all());
        calls.put("unregister a broker", it -> it.unregisterBroker(77).all());
        calls.put("describe tokens of others", it -> it.describeDelegationToken().delegationTokens());
        for (String user : List.of(SetUp.CAROL, SetUp.READER)) {
            try (Admin admin = script.admin(script.login(user))) {
                calls.forEach((name, call) -> denied(user, name, () -> kindOf(Script.get(call.by(admin)))));
            }
        }
    }

    /** What of a result is alike on both brokers. */
    private static Object kindOf(Object result) {
        if (result instanceof Map<?, ?> map) {
            return map.size();
        }
        if (result instanceof Collection<?> values) {
            return values.size();
        }
        return result == null ? "done" : result.getClass().getSimpleName();
    }

    /** What is shown to whom: names, and which operations are said to be allowed. */
    private void visible() {
        for (String user : List.of(SetUp.ALICE, SetUp.READER, SetUp.MEMBER, SetUp.CAROL)) {
            try (Admin admin = script.admin(script.login(user))) {
                SecuredScript.shownStep("seen by " + user + ": topics", () -> Script.get(admin.listTopics().names())
                    .stream().filter(TOPIC::equals).toList());
                SecuredScript.shownStep("seen by " + user + ": operations on a topic", () ->
                    Script.sorted(Script.get(admin.describeTopics(List.of(TOPIC),
                        new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames())
                        .get(TOPIC).authorizedOperations()));
                SecuredScript.shownStep("seen by " + user + ": operations on a group", () ->
                    Script.sorted(Script.get(admin.describeConsumerGroups(List.of(GROUP),
                        new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all())
                        .get(GROUP).authorizedOperations()));
                SecuredScript.shownStep("seen by " + user + ": operations on the cluster", () ->
                    Script.sorted(Script.get(admin.describeCluster(
                        new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations())));
                SecuredScript.shownStep("seen by " + user + ": groups", () ->
                    Script.get(admin.listGroups().all()).stream().map(GroupListing::groupId)
                        .filter(name -> name.startsWith(GROUP)).sorted().toList());
                SecuredScript.shownStep("seen by " + user + ": transactions", () ->
                    Script.get(admin.listTransactions().all()).stream().map(TransactionListing::transactionalId)
                        .filter(name -> name.equals(ID)).toList());
            }
        }
    }
}
