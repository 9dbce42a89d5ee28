import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, each of which may leave its transaction open over changes of hands, with offsets of a group in it. */
final class Transactions {
    private final String bootstrap;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, Long> numbers = new HashMap<>();
    private final Set<String> open = new HashSet<>();
    private final Random random = new Random(7);

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    /** Sends records within the transaction of an id, begun if none is open, and then ends it or leaves it open. */
    Object perform(JsonNode command) throws Exception {
        String id = Workload.text(command, "id");
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(id, name -> {
            KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(Login.settings(bootstrap,
                "transactional.id", name, "transaction.timeout.ms", "900000", "linger.ms", "5",
                "compression.type", "lz4"), new ByteArraySerializer(), new ByteArraySerializer());
            made.initTransactions();
            return made;
        });
        if (open.add(id)) {
            producer.beginTransaction();
        }
        List<Object> rows = new ArrayList<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < command.get("count").asInt(); i++) {
            ProducerRecord<byte[], byte[]> record = Payload.made(random, Workload.text(command, "topic"),
                i % command.get("partitions").asInt(), id, numbers.merge(id, 1L, Long::sum), 0, 300);
            records.add(record);
            sent.add(producer.send(record));
        }
        producer.flush();
        for (int i = 0; i < sent.size(); i++) {
            RecordMetadata metadata = Workload.get(sent.get(i));
            rows.add(Writer.row(records.get(i), metadata.offset(), records.get(i).timestamp(), ""));
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode row : command.get("offsets")) {
            offsets.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()),
                new OffsetAndMetadata(row.get(2).asLong(), row.get(3).asText()));
        }
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(Workload.text(command, "group")));
        switch (Workload.text(command, "end")) {
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> {
                return rows;
            }
        }
        open.remove(id);
        return rows;
    }
}
