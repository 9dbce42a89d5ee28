import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.*;

/**
 * A Streams application with exactly_once_v2, `StreamsApp BOOTSTRAP APPLICATION FOLDER REPLICAS PROTOCOL`, in a group of
 * that protocol (`classic` or `streams`), that runs until it is killed: orders joined with payments within ten seconds,
 * orders counted in windows of a minute, orders summed up by customer, and by region, for which they are joined with a
 * table and partitioned anew.
 */
public final class StreamsApp {
    static final List<String> OUTPUTS = List.of("paid", "windows", "totals", "regions");

    public static void main(String[] arguments) {
        String application = arguments[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", application);
        settings.put("state.dir", arguments[2]);
        settings.put("replication.factor", arguments[3]);
        settings.put("group.protocol", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("num.stream.threads", "2");
        settings.put("max.task.idle.ms", "0");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("consumer.auto.offset.reset", "earliest");
        if (arguments[4].equals("classic")) {
            // In a streams group the broker says after how long a member that is silent is put out.
            settings.put("consumer.session.timeout.ms", "6000");
        }
        settings.put("consumer.request.timeout.ms", "5000");
        settings.put("producer.request.timeout.ms", "5000");
        settings.put("producer.delivery.timeout.ms", "20000");
        settings.put("producer.transaction.timeout.ms", "10000");
        KafkaStreams streams = new KafkaStreams(topology(application), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("thread replaced: " + error);
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.start();
    }

    private static Topology topology(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream("orders");
        KStream<String, String> payments = builder.stream("payments");
        KTable<String, String> customers = builder.table("customers");
        // Nothing is ever late: what comes in which order is not the same in two runs.
        Duration grace = Duration.ofDays(1);
        orders.join(payments, (order, payment) -> order + ":" + payment,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(10), grace)).to(application + "-paid");
        orders.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), grace)).count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(String::valueOf).to(application + "-windows");
        orders.groupByKey().aggregate(() -> "0/0", StreamsApp::added).toStream().to(application + "-totals");
        orders.join(customers, (order, region) -> region + " " + order)
            .map((customer, order) -> KeyValue.pair(order.split(" ")[0], order.split(" ")[1]))
            .groupByKey().aggregate(() -> "0/0", StreamsApp::added).toStream().to(application + "-regions");
        return builder.build();
    }

    /** How many there were, and their sum. */
    private static String added(String key, String value, String before) {
        String[] parts = before.split("/");
        return (Long.parseLong(parts[0]) + 1) + "/" + (Long.parseLong(parts[1]) + Long.parseLong(value));
    }
}
