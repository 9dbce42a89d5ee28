import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * How long a transaction of one record in one partition takes from begin to commit: `TransactionTimes BOOTSTRAP TOPIC
 * COUNT` prints the percentiles of as many in a row in microseconds, `p50 p99`.
 */
public final class TransactionTimes {
    private static final int WARM_UP = 500;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "transactional.id", topic,
            "linger.ms", "0");
        long[] times = new long[count];
        byte[] value = new byte[100];
        try (Producer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int number = -WARM_UP; number < count; number++) {
                long began = System.nanoTime();
                producer.beginTransaction();
                // Kafka's producer looks whether records are under way before it takes the next request of the transaction,
                // and not as one step: a commit right behind a send may overtake it, once in some ten thousand times.
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                producer.commitTransaction();
                if (number >= 0) {
                    times[number] = System.nanoTime() - began;
                }
            }
        }
        Arrays.sort(times);
        System.out.println(times[count / 2] / 1000 + " " + times[count * 99 / 100] / 1000);
    }
}
