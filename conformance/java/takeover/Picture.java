import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

/** Everything about a cluster that an administrator can ask for and that must be the same in other hands. */
final class Picture {
    private final Admin admin;
    private final Map<String, Object> picture = new TreeMap<>();

    Picture(Admin admin) {
        this.admin = admin;
    }

    Object taken() {
        cluster();
        Set<String> names = Workload.get(admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
        Map<String, TopicDescription> topics = Workload.get(admin.describeTopics(names).allTopicNames());
        List<TopicPartition> partitions = new ArrayList<>();
        topics.forEach((name, topic) -> {
            picture.put("topic " + name, topic.topicId() + (topic.isInternal() ? " internal" : ""));
            topic.partitions().forEach(partition -> {
                partitions.add(new TopicPartition(name, partition.partition()));
                Node leader = partition.leader();
                picture.put("partition " + name + "-" + partition.partition(), "leader "
                    + (leader == null ? "none" : leader.id()) + ", replicas " + ids(partition.replicas())
                    + ", isr " + ids(partition.isr()));
            });
        });
        configs(names);
        groups();
        offsets(partitions);
        producers(partitions);
        directories();
        // What only some brokers serve is in the picture only of those.
        served(this::transactions);
        served(this::shareGroups);
        if (Login.isNeeded()) {
            Secured.picture(admin, picture);
        }
        return picture;
    }

    private void cluster() {
        DescribeClusterResult cluster = admin.describeCluster();
        picture.put("cluster id", Workload.get(cluster.clusterId()));
        picture.put("brokers", Workload.get(cluster.nodes()).stream().map(Node::toString).sorted().toList().toString());
        Workload.get(admin.describeFeatures().featureMetadata()).finalizedFeatures().forEach((name, levels) ->
            picture.put("feature " + name, String.valueOf(levels.maxVersionLevel())));
        QuorumInfo quorum = Workload.get(admin.describeMetadataQuorum().quorumInfo());
        picture.put("quorum", "leader " + quorum.leaderId() + ", voters " + quorum.voters().stream()
            .map(voter -> voter.replicaId() + "/" + voter.replicaDirectoryId()).toList());
    }

    private void configs(Set<String> topics) {
        List<ConfigResource> resources = new ArrayList<>();
        topics.forEach(name -> resources.add(new ConfigResource(ConfigResource.Type.TOPIC, name)));
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, "1"));
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        Workload.get(admin.describeConfigs(resources).all()).forEach((resource, config) ->
            config.entries().forEach(entry -> {
                boolean isSet = switch (entry.source()) {
                    case DYNAMIC_TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG -> true;
                    default -> false;
                };
                // A topic also lists the settings of its broker, which are recorded with the broker.
                if (isSet && (resource.type() == ConfigResource.Type.BROKER
                    || entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)) {
                    picture.put("setting " + resource.type() + " " + resource.name() + " " + entry.name() + " "
                        + entry.source(), String.valueOf(entry.value()));
                }
                if (resource.name().startsWith("defaults")) {
                    picture.put("effective " + resource.name() + " " + entry.name(),
                        entry.value() + " " + entry.source());
                }
            }));
    }

    private void groups() {
        for (GroupListing group : Workload.get(admin.listGroups().all())) {
            String name = group.groupId();
            boolean hasOffsets = !name.startsWith("share") && committed(name);
            // One whose offsets were only in transactions that were aborted has none, and is forgotten some time.
            if (hasOffsets || !name.startsWith("moved-by-")) {
                picture.put("group " + name, group.type().map(Object::toString).orElse("?") + ", "
                    + group.protocol() + ", " + group.groupState().map(Object::toString).orElse("?"));
            }
        }
    }

    /** Whether the group has any. */
    private boolean committed(String group) {
        boolean[] hasAny = {false};
        Workload.get(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).forEach((partition, offset) -> {
            if (offset != null) {
                hasAny[0] = true;
                picture.put("offset " + group + " " + partition, offset.offset() + " "
                    + offset.leaderEpoch().map(Object::toString).orElse("-") + " " + offset.metadata());
            }
        });
        return hasAny[0];
    }

    private void offsets(List<TopicPartition> partitions) {
        Map<String, OffsetSpec> kinds = Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "latest-by-time", OffsetSpec.maxTimestamp());
        kinds.forEach((name, spec) -> {
            Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
            partitions.forEach(partition -> wanted.put(partition, spec));
            Workload.get(admin.listOffsets(wanted).all()).forEach((partition, found) ->
                picture.put(name + " " + partition, found.offset() + " at " + found.timestamp()));
        });
    }

    private void producers(List<TopicPartition> partitions) {
        List<TopicPartition> wanted = partitions.stream().filter(partition ->
            !partition.topic().startsWith("__") && !partition.topic().startsWith("many-")).toList();
        Workload.get(admin.describeProducers(wanted).all()).forEach((partition, states) ->
            states.activeProducers().forEach(state -> picture.put(
                "producer " + partition + " " + state.producerId(), "epoch " + state.producerEpoch() + ", sequence "
                    + state.lastSequence() + ", coordinator epoch " + state.coordinatorEpoch().orElse(-1)
                    + ", transaction from " + state.currentTransactionStartOffset().orElse(-1)
                    + ", at " + state.lastTimestamp())));
    }

    private void directories() {
        Workload.get(admin.describeLogDirs(List.of(1)).allDescriptions()).get(1).forEach((path, directory) ->
            directory.replicaInfos().forEach((partition, replica) ->
                picture.put("directory " + partition + (replica.isFuture() ? " future" : ""), path)));
    }

    private static void served(Runnable part) {
        try {
            part.run();
        } catch (RuntimeException error) {
            Throwable root = Workload.rootOf(error);
            if (!(root instanceof org.apache.kafka.common.errors.UnsupportedVersionException)) {
                throw error;
            }
        }
    }

    private void transactions() {
        List<String> ids = Workload.get(admin.listTransactions().all()).stream()
            .map(TransactionListing::transactionalId).toList();
        Workload.get(admin.describeTransactions(ids).all()).forEach((id, transaction) ->
            picture.put("transaction " + id, transaction.state() + ", producer " + transaction.producerId() + " epoch "
                + transaction.producerEpoch() + ", began " + transaction.transactionStartTimeMs().orElse(-1) + ", "
                + transaction.topicPartitions().stream().map(Object::toString).sorted().toList()));
    }

    private void shareGroups() {
        List<String> groups = picture.keySet().stream().filter(name -> name.startsWith("group share"))
            .map(name -> name.substring("group ".length())).toList();
        for (String group : groups) {
            Workload.get(admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(group)).forEach((partition, offset) ->
                    // How far it lags is a question of what others write.
                    picture.put("share offset " + group + " " + partition,
                        offset == null ? "none" : "from " + offset.startOffset() + " on"));
        }
    }

    private static List<Integer> ids(Collection<Node> nodes) {
        return nodes.stream().map(Node::id).toList();
    }
}
