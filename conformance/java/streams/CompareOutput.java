import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.serialization.*;

/**
 * Compares what two runs of the application have committed, `CompareOutput BOOTSTRAP ORDERS ROUNDS ONE OTHER`: the joined
 * pairs must be the same, each once; of counts and sums the last of each key, and that many orders must have been counted.
 * It compares again as long as either run goes on, and gives up after so many rounds in which neither has written anything.
 */
public final class CompareOutput {
    private static final int MAX_FINDINGS = 20;
    private static final int QUIET_ROUNDS = 5;
    private static final List<String> shown = new ArrayList<>();

    /** What a run has written: all values of each key, in order. */
    private record Output(Map<String, List<String>> byKey) {
        Map<String, String> last() {
            Map<String, String> last = new TreeMap<>();
            byKey.forEach((key, values) -> last.put(key, values.get(values.size() - 1)));
            return last;
        }

        Map<String, List<String>> sorted() {
            Map<String, List<String>> sorted = new TreeMap<>();
            byKey.forEach((key, values) -> sorted.put(key, values.stream().sorted().toList()));
            return sorted;
        }

        int size() {
            return byKey.values().stream().mapToInt(List::size).sum();
        }

        long counted() {
            return last().values().stream().mapToLong(value -> Long.parseLong(value.split("/")[0])).sum();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        String bootstrap = arguments[0];
        long orders = Long.parseLong(arguments[1]);
        int patience = Integer.parseInt(arguments[2]);
        List<String> findings = compare(bootstrap, orders, arguments[3], arguments[4]);
        List<String> seen = List.copyOf(shown);
        // What is missing may come yet, and so may what is there twice.
        for (int quiet = 0; quiet < (findings.isEmpty() ? QUIET_ROUNDS : patience); quiet++) {
            Thread.sleep(500);
            findings = compare(bootstrap, orders, arguments[3], arguments[4]);
            if (!shown.equals(seen)) {
                seen = List.copyOf(shown);
                quiet = 0;
            }
        }
        findings.stream().limit(MAX_FINDINGS).forEach(finding -> System.out.println("wrong: "
            + (finding.length() > 300 ? finding.substring(0, 300) + "…" : finding)));
        shown.forEach(System.out::println);
        System.exit(findings.isEmpty() ? 0 : 1);
    }

    private static List<String> compare(String bootstrap, long orders, String one, String other) {
        List<String> findings = new ArrayList<>();
        shown.clear();
        for (String topic : StreamsApp.OUTPUTS) {
            Output first = read(bootstrap, one + "-" + topic);
            Output second = read(bootstrap, other + "-" + topic);
            boolean isJoin = topic.equals("paid");
            Map<String, ?> left = isJoin ? first.sorted() : first.last();
            Map<String, ?> right = isJoin ? second.sorted() : second.last();
            Set<String> keys = new TreeSet<>(left.keySet());
            keys.addAll(right.keySet());
            for (String key : keys) {
                if (!Objects.equals(left.get(key), right.get(key))) {
                    findings.add(topic + " " + key + ": " + left.get(key) + " and " + right.get(key));
                }
            }
            if (!isJoin) {
                for (Output run : List.of(first, second)) {
                    run.byKey().forEach((key, values) -> findings.addAll(fallen(topic, key, values)));
                    if (run.counted() != orders) {
                        findings.add(topic + " has " + run.counted() + " orders in place of " + orders);
                    }
                }
            }
            shown.add(topic + ": " + keys.size() + " keys, " + first.size() + " and " + second.size() + " records");
        }
        return findings;
    }

    /** Counts of one key only grow: a smaller or an equal one was written twice, or from a state that is lost. */
    private static List<String> fallen(String topic, String key, List<String> values) {
        List<String> findings = new ArrayList<>();
        long before = 0;
        for (String value : values) {
            long count = Long.parseLong(value.split("/")[0]);
            if (count <= before) {
                findings.add(topic + " " + key + ": " + count + " behind " + before);
            }
            before = count;
        }
        return findings;
    }

    private static Output read(String bootstrap, String topic) {
        Map<String, List<String>> byKey = new TreeMap<>();
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (Consumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    byKey.computeIfAbsent(record.key(), key -> new ArrayList<>()).add(record.value());
                }
            }
        }
        return new Output(byKey);
    }
}
