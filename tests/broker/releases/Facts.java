import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ApiVersionsResponse;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints facts of the Kafka release on the class path as JSON: APIs, errors, features and configs. */
public class Facts {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("apis", apis());
        found.put("unstable", unstable());
        found.put("errors", errors());
        found.put("features", features());
        found.put("configs", configs());
        new ObjectMapper().writeValue(System.out, found);
    }

    /** The versions in the response of a broker to ApiVersions, by key, with the name. */
    static Map<Integer, Object> apis() {
        Map<Integer, Object> found = new TreeMap<>();
        ApiMessageType.ListenerType broker = ApiMessageType.ListenerType.BROKER;
        EnumSet<ApiKeys> keys = ApiKeys.apisForListener(broker);
        ApiVersionsResponse.collectApis(broker, keys, false).forEach(api ->
            found.put((int) api.apiKey(), List.of(ApiKeys.forId(api.apiKey()).name, api.minVersion(), api.maxVersion())));
        return found;
    }

    /** The last version of each API on any listener that brokers serve only with unstable.api.versions.enable. */
    static Map<String, Integer> unstable() {
        Map<String, Integer> found = new TreeMap<>();
        for (ApiKeys api : ApiKeys.values()) {
            if (api.messageType.latestVersionUnstable()) found.put(api.name, (int) api.latestVersion());
        }
        return found;
    }

    static Map<Integer, String> errors() {
        Map<Integer, String> found = new TreeMap<>();
        for (Errors error : Errors.values()) found.put((int) error.code(), error.name());
        return found;
    }

    /** Of each feature the first and last level, the last including unstable ones, and the level of a new cluster. */
    static Map<String, Object> features() {
        Map<String, Object> found = new TreeMap<>();
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            int level = feature.defaultLevel(MetadataVersion.LATEST_PRODUCTION);
            found.put(feature.featureName(), List.of((int) feature.minimumProduction(), (int) feature.latestProduction(),
                (int) feature.latestTesting(), level));
        }
        int newest = MetadataVersion.LATEST_PRODUCTION.featureLevel();
        found.put(MetadataVersion.FEATURE_NAME, List.of((int) MetadataVersion.MINIMUM_VERSION.featureLevel(), newest,
            (int) MetadataVersion.latestTesting().featureLevel(), newest));
        return found;
    }

    static List<Object> configs() throws Exception {
        List<Object> found = new ArrayList<>();
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        ConfigDef broker = new ConfigDef(AbstractKafkaConfig.CONFIG_DEF);
        ConfigDef quotas = QuotaConfig.brokerQuotaConfigs();
        quotas.configKeys().values().forEach(broker::define);
        for (ConfigDef.ConfigKey key : broker.configKeys().values()) {
            List<String> synonyms = DynamicBrokerConfig.brokerConfigSynonyms(key.name, false);
            Map<String, Object> row = row("broker", key, synonyms.size() == 1 ? List.of() : synonyms);
            String mode = quotas.names().contains(key.name) ? "cluster-wide" : modes.get(key.name);
            row.put("dynamic", "cluster-wide".equals(mode) ? "cluster" : mode);
            found.add(row);
        }
        for (ConfigDef.ConfigKey key : LogConfig.configDefCopy().configKeys().values()) {
            List<String> synonyms = new ArrayList<>();
            ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of()).forEach(one -> synonyms.add(one.name()));
            found.add(row("topic", key, synonyms));
        }
        for (ConfigDef.ConfigKey key : GroupConfig.CONFIG_DEF.configKeys().values()) {
            found.add(row("group", key, GroupConfig.brokerSynonym(key.name).stream().toList()));
        }
        for (ConfigDef.ConfigKey key : ClientMetricsConfigs.configDef().configKeys().values()) {
            found.add(row("client-metrics", key, List.of()));
        }
        return found;
    }

    static Map<String, Object> row(String scope, ConfigDef.ConfigKey key, List<String> synonyms) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("name", key.name);
        row.put("scope", scope);
        row.put("type", key.type.name());
        row.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
        row.put("valid", key.validator == null ? null : key.validator.toString());
        row.put("synonyms", synonyms);
        row.put("internal", key.internalConfig);
        row.put("dynamic", null);
        if (key.validator instanceof ConfigDef.ValidList) {
            Field empty = key.validator.getClass().getDeclaredField("isEmptyAllowed");
            empty.setAccessible(true);
            row.put("emptyAllowed", empty.get(key.validator));
        }
        return row;
    }
}
