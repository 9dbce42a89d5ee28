import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartition;

/** Which leader epoch each partition has. A broker that was fenced, even for a moment, leads in later ones. */
final class Leadership {
    private Leadership() {
    }

    /**
     * Waits until every partition has a leader and every coordinator of groups and transactions has loaded its partitions.
     * The epochs are read first: if they are the same later, no coordinator has unloaded anything since this call returned.
     */
    static Object settled(Admin admin) throws Exception {
        Set<String> names = Workload.get(admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
        Map<String, TopicDescription> topics = Workload.get(admin.describeTopics(names).allTopicNames());
        Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
        topics.forEach((name, topic) -> topic.partitions().forEach(partition ->
            ends.put(new TopicPartition(name, partition.partition()), OffsetSpec.latest())));
        Map<String, Integer> epochs = new TreeMap<>();
        // The leader alone knows its end offset, and returns it with its epoch.
        Workload.get(admin.listOffsets(ends).all()).forEach((partition, end) ->
            epochs.put(partition.toString(), end.leaderEpoch().orElse(-1)));
        TopicDescription groups = topics.get("__consumer_offsets");
        if (groups != null) {
            Coordinators.awaitGroups(admin, groups.partitions().size());
        }
        TopicDescription transactions = topics.get("__transaction_state");
        if (transactions != null) {
            Coordinators.awaitTransactions(admin, transactions.partitions().size());
        }
        return epochs;
    }
}
