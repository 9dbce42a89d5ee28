import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.*;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.*;

/**
 * The plugin without which Apache Kafka offers no client telemetry (KIP-714): it writes a line for every value that
 * clients push into the file that `pushed.metrics.file` names, as `client id, tab, metric, tab, kind, tab, value`, the
 * kind being `gauge`, `delta` or `sum`.
 */
public final class PushedMetrics implements MetricsReporter, ClientTelemetryExporterProvider {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(String.valueOf(configs.get("pushed.metrics.file")));
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this::export;
    }

    private synchronized void export(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        try {
            byte[] bytes = new byte[payload.data().remaining()];
            payload.data().duplicate().get(bytes);
            StringBuilder lines = new StringBuilder();
            String client = context.authorizableRequestContext().clientId();
            for (ResourceMetrics resource : MetricsData.parseFrom(bytes).getResourceMetricsList()) {
                for (ScopeMetrics scope : resource.getScopeMetricsList()) {
                    scope.getMetricsList().forEach(metric -> append(lines, client, metric));
                }
            }
            Files.writeString(file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void append(StringBuilder lines, String client, Metric metric) {
        String kind = "gauge";
        List<NumberDataPoint> points = metric.getGauge().getDataPointsList();
        if (metric.hasSum()) {
            boolean isDelta = metric.getSum().getAggregationTemporality()
                == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA;
            kind = isDelta ? "delta" : "sum";
            points = metric.getSum().getDataPointsList();
        }
        for (NumberDataPoint point : points) {
            double value = point.hasAsInt() ? point.getAsInt() : point.getAsDouble();
            lines.append(client).append('\t').append(metric.getName()).append('\t').append(kind).append('\t')
                .append(value).append('\n');
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
