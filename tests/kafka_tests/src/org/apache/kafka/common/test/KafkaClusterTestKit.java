package org.apache.kafka.common.test;

import java.io.File;
import java.io.IOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;

import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import ottla.Fakes;
import ottla.NeedsInternals;
import ottla.Ottla;

/**
 * Replaces Kafka's class of this name, on which its newer fixtures are built (ClusterInstance, EmbeddedKafkaCluster of
 * Streams and of Connect): the same methods, with an Ottla process as the cluster.
 */
public class KafkaClusterTestKit implements AutoCloseable {
    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> configs = new LinkedHashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            configs.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> voters) {
            return this;
        }

        public Builder setDeleteOnClose(boolean delete) {
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(nodes, configs);
        }
    }

    private final TestKitNodes nodes;
    private final Ottla ottla;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
    private final MockFaultHandler fatal = new MockFaultHandler("fatal");
    private final MockFaultHandler nonFatal = new MockFaultHandler("nonFatal");

    private KafkaClusterTestKit(TestKitNodes nodes, Map<String, Object> configs) {
        this.nodes = nodes;
        int count = nodes.brokerNodes().size();
        Map<String, Object> ours = new LinkedHashMap<>(configs);
        Map<Integer, Map<String, Object>> ofBrokers = new LinkedHashMap<>();
        nodes.brokerNodes().forEach((id, node) -> ofBrokers.put(id, new LinkedHashMap<>(node.propertyOverrides())));
        ours.putAll(Ottla.common(ofBrokers));
        nodes.controllerNodes().values().forEach(node -> node.propertyOverrides().forEach(ours::putIfAbsent));
        ours.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152"); // as Kafka's fixture: two cleaner threads are refused
        String listener = nodes.brokerListenerName().value();
        String protocol = nodes.brokerListenerProtocol().name;
        if (protocol.equals("SASL_PLAINTEXT"))
            withUsers(ours, listener);
        Map<String, Object> passed = new LinkedHashMap<>(ours);
        passed.putAll(Ottla.differing(ofBrokers));
        Ottla.withoutPlaces(passed);
        for (String one : String.valueOf(ours.get("listener.security.protocol.map")).split(","))
            if (one.trim().startsWith(listener + ":"))
                protocol = one.trim().substring(listener.length() + 1);
        if (!protocol.equals("PLAINTEXT"))
            passed.put("listeners", listener + "://localhost:0");
        passed.put("listener.security.protocol.map", listener + ":" + protocol);
        Ottla.withFeatures(passed, nodes.bootstrapMetadata());
        Ottla.asKafka(passed);
        // All nodes share one log store: it takes the directories of the first broker.
        List<String> disks = nodes.brokerNodes().values().stream().findFirst().map(node -> List.copyOf(node.logDataDirectories()))
            .orElse(List.of());
        ottla = new Ottla(count == 0 ? List.of(0) : List.copyOf(nodes.brokerNodes().keySet()), disks, List.of(listener), passed, protocol);
        nodes.brokerNodes().keySet().forEach(id -> brokers.put(id, Fakes.broker(() -> ottla, id, config(id, nodes.isCombined(id) ? "broker,controller" : "broker", ours),
            () -> ottla.node(id, true), () -> ottla.node(id, false))));
        nodes.controllerNodes().keySet().forEach(id -> controllers.put(id, Fakes.controller(() -> ottla,
            config(id, nodes.isCombined(id) ? "broker,controller" : "controller", ours))));
    }

    /** Adds the users of Kafka's fixture, and its authorizer. */
    private static void withUsers(Map<String, Object> ours, String listener) {
        ours.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        ours.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        ours.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        ours.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
        ours.put("listener.name." + listener.toLowerCase(java.util.Locale.ROOT) + ".plain.sasl.jaas.config", String.format(
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=\"%s\" user_%s=\"%s\";",
            JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
            JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD));
    }

    /** Returns the config of a broker in Kafka, for tests that read it from the broker. */
    private KafkaConfig config(int id, String role, Map<String, Object> ours) {
        Properties all = new Properties();
        ours.forEach((name, value) -> all.put(name, String.valueOf(value)));
        TestKitNode node = nodes.brokerNodes().getOrDefault(id, nodes.controllerNodes().get(id));
        node.propertyOverrides().forEach(all::put);
        String listener = nodes.brokerListenerName().value();
        String controller = nodes.controllerListenerName().value();
        all.put("process.roles", role);
        all.put("node.id", "" + id);
        all.putIfAbsent("listeners", (role.contains("broker") ? listener + "://localhost:0" : "")
            + (role.equals("broker,controller") ? "," : "") + (role.contains("controller") ? controller + "://localhost:0" : ""));
        all.putIfAbsent("listener.security.protocol.map", listener + ":" + nodes.brokerListenerProtocol().name + ","
            + controller + ":" + nodes.controllerListenerProtocol().name);
        if (role.contains("broker"))
            all.putIfAbsent("inter.broker.listener.name", listener);
        all.putIfAbsent("controller.listener.names", controller);
        all.put("controller.quorum.voters", nodes.controllerNodes().keySet().stream().map(one -> one + "@localhost:1")
            .collect(java.util.stream.Collectors.joining(",")));
        all.put("log.dirs", node.logDataDirectories().isEmpty() ? node.metadataDirectory()
            : String.join(",", node.logDataDirectories()));
        all.putIfAbsent("unstable.api.versions.enable", "true");
        all.putIfAbsent("unstable.feature.versions.enable", "true");
        try {
            return new KafkaConfig(all, false);
        } catch (RuntimeException e) {
            System.err.println("ottla: no KafkaConfig: " + e);
            return null;
        }
    }

    public void format() {
    }

    public void startup() throws ExecutionException, InterruptedException {
        ottla.start();
    }

    public void waitForReadyBrokers() throws ExecutionException, InterruptedException {
    }

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    public Admin admin(Map<String, Object> configs, boolean controllers) {
        Map<String, Object> all = new HashMap<>(configs);
        if (controllers)
            all.put("bootstrap.controllers", bootstrapControllers());
        else
            all.putIfAbsent("bootstrap.servers", bootstrapServers());
        return Admin.create(all);
    }

    public String bootstrapServers() {
        return ottla.bootstrap();
    }

    public String bootstrapControllers() {
        throw new NeedsInternals("a controller's listener");
    }

    public Map<Integer, ControllerServer> controllers() {
        return Collections.unmodifiableMap(controllers);
    }

    public Controller waitForActiveController() {
        throw new NeedsInternals("Controller");
    }

    public Map<Integer, BrokerServer> brokers() {
        return Collections.unmodifiableMap(brokers);
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        throw new NeedsInternals("KafkaRaftManager");
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatal;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatal;
    }

    public Ottla ottla() {
        return ottla;
    }

    @Override
    public void close() {
        ottla.stop();
        try {
            Utils.delete(new File(nodes.baseDirectory()));
        } catch (IOException e) {
            // The directory of a test is not needed any more.
        }
    }
}
