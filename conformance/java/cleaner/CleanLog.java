import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Has Kafka's own cleaner compact one partition's directory: {@code CleanLog DIR SEGMENT_BYTES NOW...}, once at each
 * of these times, each time all of it. Prints what it took, as the example {@code clean} of
 * ottla-log does.
 */
public class CleanLog {
    /** When the records are from. Producers that have not written for a month are forgotten when a log is loaded. */
    private static final long START_MS = 1_700_000_000_000L;

    /** The clock of the machine, but for the time of day, which stands still. */
    private static Time clock() {
        InvocationHandler handler = (proxy, method, arguments) ->
            method.getName().equals("milliseconds") ? START_MS : method.invoke(Time.SYSTEM, arguments);
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class}, handler);
    }

    public static void main(String[] args) throws Exception {
        File dir = new File(args[0]).getAbsoluteFile();
        Properties settings = new Properties();
        settings.put("cleanup.policy", "compact");
        settings.put("internal.segment.bytes", args[1]);
        settings.put("delete.retention.ms", "60000");
        settings.put("file.delete.delay.ms", "0");
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(settings), 0L, 0L, scheduler, new BrokerTopicStats(),
            clock(), 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(128 * 1024 * 1024), 256 * 1024, 1024 * 1024 + 12, 0.9,
            throttler, Time.SYSTEM, partition -> { });
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long firstDirty = log.logStartOffset();
        for (int at = 2; at < args.length; at++) {
            long uncleanable = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            LogToClean toClean = new LogToClean(log, firstDirty, Math.max(firstDirty, uncleanable), false);
            long started = System.nanoTime();
            long cpuBefore = system.getProcessCpuTime();
            Map.Entry<Long, CleanerStats> cleaned = cleaner.doClean(toClean, Long.parseLong(args[at]));
            long cpu = system.getProcessCpuTime() - cpuBefore;
            System.out.printf("to=%d elapsed_ms=%d cpu_ms=%d read=%d written=%d%n", cleaned.getKey(),
                (System.nanoTime() - started) / 1_000_000, cpu / 1_000_000, cleaned.getValue().bytesRead(),
                cleaned.getValue().bytesWritten());
        }
        log.close();
        scheduler.shutdown();
    }
}
