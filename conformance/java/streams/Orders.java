import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

/**
 * The input of the application, `Orders BOOTSTRAP REPLICAS PARTITIONS SECONDS RATE APPLICATION…`: orders, payments and
 * customers, by customer, with timestamps of their own, so that every run of the application has the same to do. It makes
 * the topics of the input and, for each of these applications, those of the output, and prints `ready` first.
 */
public final class Orders {
    static final long T0 = 1_700_000_000_000L;
    static final int CUSTOMERS = 40;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        short replicas = Short.parseShort(arguments[1]);
        int partitions = Integer.parseInt(arguments[2]);
        int seconds = Integer.parseInt(arguments[3]);
        int rate = Integer.parseInt(arguments[4]);
        List<NewTopic> topics = new ArrayList<>();
        for (String topic : List.of("orders", "payments", "customers")) {
            topics.add(new NewTopic(topic, partitions, replicas));
        }
        for (String application : List.of(arguments).subList(5, arguments.length)) {
            for (String topic : StreamsApp.OUTPUTS) {
                topics.add(new NewTopic(application + "-" + topic, partitions, replicas));
            }
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(topics).all().get();
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", "5",
            "delivery.timeout.ms", String.valueOf(Integer.MAX_VALUE), "request.timeout.ms", "5000",
            "max.block.ms", String.valueOf(Integer.MAX_VALUE), "acks", "all");
        Random random = new Random(7);
        int total = seconds * rate;
        try (Producer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int customer = 0; customer < CUSTOMERS; customer++) {
                // Before the first order, which is not joined with a customer of its own time that comes after it.
                send(producer, "customers", T0 - 1, customer, "region-" + customer % 3);
            }
            producer.flush();
            System.out.println("ready");
            long began = System.nanoTime();
            for (int number = 0; number < total; number++) {
                int customer = random.nextInt(CUSTOMERS);
                send(producer, "orders", T0 + number * 100L, customer, String.valueOf(number));
                if (random.nextInt(3) > 0) {
                    send(producer, "payments", T0 + number * 100L + random.nextInt(4000), customer, "p" + number);
                }
                long aheadMs = number * 1000L / rate - (System.nanoTime() - began) / 1_000_000;
                if (aheadMs > 0) {
                    Thread.sleep(aheadMs);
                }
            }
        }
        System.out.println("written " + total);
        System.exit(0);
    }

    private static void send(Producer<byte[], byte[]> producer, String topic, long timestamp, int customer,
        String value) {
        byte[] key = ("customer-" + customer).getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(topic, null, timestamp, key, value.getBytes(StandardCharsets.UTF_8)),
            (metadata, error) -> {
                if (error != null) {
                    System.err.println("not written: " + error);
                    System.exit(1);
                }
            });
    }
}
