import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;

/** Settings of single groups, which the broker has taken over when they are set. */
final class GroupSettings {
    private final Admin admin;

    GroupSettings(Admin admin) {
        this.admin = admin;
    }

    void set(String group, Map<String, String> settings) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Script.get(admin.incrementalAlterConfigs(Map.of(resource, settings.entrySet().stream().map(entry ->
            new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue()), AlterConfigOp.OpType.SET)).toList())).all());
        Script.await("the settings of " + group, () -> {
            Config config = Script.get(admin.describeConfigs(List.of(resource)).all()).get(resource);
            return settings.entrySet().stream()
                .allMatch(entry -> entry.getValue().equals(config.get(entry.getKey()).value()));
        });
    }
}
