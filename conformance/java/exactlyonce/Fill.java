import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.*;

/**
 * Fills a topic with numbers, `Fill BOOTSTRAP REPLICAS PARTITIONS RATE TOPIC TARGET…`: makes the topic and those that it is
 * copied to, prints `ready`, and writes the numbers from 0 on to each partition until standard input ends. Then it prints
 * how many each partition has, `partition count`. What was not acknowledged is sent again, however long that takes.
 */
public final class Fill {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        short replicas = Short.parseShort(arguments[1]);
        int partitions = Integer.parseInt(arguments[2]);
        int rate = Integer.parseInt(arguments[3]);
        List<String> topics = List.of(arguments).subList(4, arguments.length);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String topic : topics) {
                create(admin, new NewTopic(topic, partitions, replicas));
            }
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", "5",
            "delivery.timeout.ms", String.valueOf(Integer.MAX_VALUE), "request.timeout.ms", "5000",
            "max.block.ms", String.valueOf(Integer.MAX_VALUE), "acks", "all");
        long[] counts = new long[partitions];
        AtomicLong failed = new AtomicLong();
        try (Producer<byte[], byte[]> producer =
                 new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            System.out.println("ready");
            long began = System.nanoTime();
            long sent = 0;
            while (!isOver) {
                for (int partition = 0; partition < partitions; partition++) {
                    byte[] value = Long.toString(counts[partition]++).getBytes();
                    producer.send(new ProducerRecord<>(topics.get(0), partition, null, value), (metadata, error) -> {
                        if (error != null) {
                            System.err.println("not written: " + error);
                            failed.incrementAndGet();
                        }
                    });
                    sent++;
                }
                long aheadMs = sent * 1000 / rate - (System.nanoTime() - began) / 1_000_000;
                if (aheadMs > 0) {
                    Thread.sleep(aheadMs);
                }
            }
            producer.flush();
        }
        for (int partition = 0; partition < partitions; partition++) {
            System.out.println(partition + " " + counts[partition]);
        }
        System.exit(failed.get() == 0 ? 0 : 1);
    }

    private static volatile boolean isOver;

    static {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException error) {
                // A pipe that cannot be read has ended.
            }
            isOver = true;
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static void create(Admin admin, NewTopic topic) throws Exception {
        try {
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw error;
            }
        }
    }
}
