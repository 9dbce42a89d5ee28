import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Copies a topic in transactions, `Copier BOOTSTRAP NAME GROUP FROM TO assigned|subscribed PROTOCOL`, record by record to
 * the partition of the same number, offsets with records, until it is killed. One transaction in ten is aborted. After an
 * error that ends a producer, or that says that it was fenced, it begins with a new one: nothing else is remembered.
 * It does what Kafka's TransactionalMessageCopier does.
 */
public final class Copier {
    private static final int MAX_RECORDS = 200;

    private final String bootstrap;
    private final String name;
    private final String group;
    private final String from;
    private final String to;
    private final boolean subscribes;
    private final String protocol;
    private final Random random = new Random();

    private Copier(String[] arguments) {
        bootstrap = arguments[0];
        name = arguments[1];
        group = arguments[2];
        from = arguments[3];
        to = arguments[4];
        subscribes = arguments[5].equals("subscribed");
        protocol = arguments[6];
    }

    public static void main(String[] arguments) {
        Copier copier = new Copier(arguments);
        while (true) {
            try {
                copier.copy();
            } catch (KafkaException error) {
                System.out.println("begins again: " + error);
            }
        }
    }

    private void copy() {
        Map<String, Object> producing = Map.of("bootstrap.servers", bootstrap, "transactional.id", name,
            "transaction.timeout.ms", "10000", "max.block.ms", "20000", "delivery.timeout.ms", "15000",
            "request.timeout.ms", "5000", "linger.ms", "2");
        Map<String, Object> consuming = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "isolation.level", "read_committed", "enable.auto.commit", "false", "auto.offset.reset", "earliest",
            "max.poll.records", String.valueOf(MAX_RECORDS), "request.timeout.ms", "5000",
            "default.api.timeout.ms", "20000", "group.protocol", protocol));
        if (protocol.equals("classic")) {
            consuming.put("session.timeout.ms", "6000");
        }
        try (Producer<byte[], byte[]> producer =
                 new KafkaProducer<>(producing, new ByteArraySerializer(), new ByteArraySerializer());
             Consumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(consuming, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            if (subscribes) {
                consumer.subscribe(List.of(from));
            } else {
                consumer.assign(consumer.partitionsFor(from).stream()
                    .map(one -> new TopicPartition(from, one.partition())).toList());
            }
            while (true) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    copy(records, producer, consumer);
                }
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records, Producer<byte[], byte[]> producer,
        Consumer<byte[], byte[]> consumer) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                producer.send(new ProducerRecord<>(to, record.partition(), null, record.value()));
                offsets.put(new TopicPartition(from, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            if (random.nextInt(10) == 0) {
                producer.abortTransaction();
                System.out.println("aborted");
                goBack(consumer);
            } else {
                producer.commitTransaction();
                System.out.println("committed " + records.count());
            }
        } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException
            | TimeoutException error) {
            // Whether the transaction was committed is not known after a timeout: a new producer finds out.
            throw error;
        } catch (KafkaException error) {
            System.out.println("aborted: " + error);
            producer.abortTransaction();
            goBack(consumer);
        }
    }

    /** To what is committed, which is where the next transaction begins. */
    private static void goBack(Consumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, position) -> {
            if (position == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, position.offset());
            }
        });
    }
}
