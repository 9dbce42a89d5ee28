import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.errors.TransactionalIdNotFoundException;

/**
 * Waits until coordinators have loaded all partitions of their topic. Each partition is asked for a name that nobody uses; a
 * client repeats the request until the partition is loaded. Asking creates the topic if it does not exist.
 */
final class Coordinators {
    private Coordinators() {
    }

    /** Waits for the group coordinators of {@code __consumer_offsets}, which has this many partitions. */
    static void awaitGroups(Admin admin, int partitions) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> all = new HashMap<>();
        oneInEach(partitions).forEach(group -> all.put(group, new ListConsumerGroupOffsetsSpec()));
        admin.listConsumerGroupOffsets(all).all().get();
    }

    /** Waits for the transaction coordinators of {@code __transaction_state}, which has this many partitions. */
    static void awaitTransactions(Admin admin, int partitions) throws Exception {
        Collection<String> ids = oneInEach(partitions);
        DescribeTransactionsResult described = admin.describeTransactions(ids);
        for (String id : ids) {
            try {
                described.description(id).get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof TransactionalIdNotFoundException)) {
                    throw error;
                }
            }
        }
    }

    /** A name in each partition: the one that the absolute value of its hash code determines. */
    private static Collection<String> oneInEach(int partitions) {
        Map<Integer, String> names = new HashMap<>();
        for (int i = 0; names.size() < partitions; i++) {
            String name = "loaded-" + i;
            names.putIfAbsent(Math.abs(name.hashCode()) % partitions, name);
        }
        return names.values();
    }
}
