import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.config.ConfigResource;

/** Settings of single groups, which the broker has taken over when they are set. */
final class GroupSettings {
    private final Admin admin;

    GroupSettings(Admin admin) {
        this.admin = admin;
    }

    void set(String group, Map<String, String> settings) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        Script.get(admin.incrementalAlterConfigs(Map.of(resource, settings.entrySet().stream().map(entry ->
            new AlterConfigOp(new ConfigEntry(entry.getKey(), entry.getValue()), AlterConfigOp.OpType.SET)).toList())).all());
        // They are described before the coordinator has them.
        Script.settle(admin);
    }
}
