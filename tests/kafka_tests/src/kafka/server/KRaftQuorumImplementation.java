package kafka.server;

import java.io.File;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;

import kafka.utils.Logging;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.fault.FaultHandler;

import ottla.Fakes;
import ottla.NeedsInternals;
import ottla.Ottla;

/**
 * Replaces Kafka's class of this name, from which its older harness (QuorumTestHarness, KafkaServerTestHarness,
 * IntegrationTestHarness) gets its brokers one after the other. Ottla starts at the first call of a broker's method, with
 * a node for each broker. The harness also starts a controller of Kafka, which no test uses.
 */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final ControllerServer controllerServer;
    private final FaultHandlerFactory faultHandlerFactory;
    private final File metadataDir;
    private final CompletableFuture<Map<Integer, InetSocketAddress>> voters;
    private final String clusterId;
    private final Logging log;
    private final FaultHandler faultHandler;
    private final Map<Integer, KafkaConfig> configs = new TreeMap<>();
    private final ControllerServer seen;
    private Ottla ottla;

    public KRaftQuorumImplementation(ControllerServer controllerServer, FaultHandlerFactory faultHandlerFactory, File metadataDir,
            CompletableFuture<Map<Integer, InetSocketAddress>> voters, String clusterId, Logging log, FaultHandler faultHandler) {
        this.controllerServer = controllerServer;
        this.faultHandlerFactory = faultHandlerFactory;
        this.metadataDir = metadataDir;
        this.voters = voters;
        this.clusterId = clusterId;
        this.log = log;
        this.faultHandler = faultHandler;
        this.seen = Fakes.controller(this::ottla, controllerServer.config());
    }

    public ControllerServer controllerServer() {
        return seen;
    }

    public FaultHandlerFactory faultHandlerFactory() {
        return faultHandlerFactory;
    }

    public File metadataDir() {
        return metadataDir;
    }

    public CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture() {
        return voters;
    }

    public String clusterId() {
        return clusterId;
    }

    public Logging log() {
        return log;
    }

    public FaultHandler faultHandler() {
        return faultHandler;
    }

    private synchronized Ottla ottla() {
        if (ottla == null) {
            Map<Integer, Map<String, Object>> ofBrokers = new TreeMap<>();
            configs.forEach((id, config) -> ofBrokers.put(id, config.originals()));
            Map<String, Object> passed = Ottla.common(ofBrokers);
            passed.putAll(Ottla.differing(ofBrokers));
            KafkaConfig first = configs.values().iterator().next();
            String listener = first.interBrokerListenerName().value();
            String protocol = first.interBrokerSecurityProtocol().name;
            Ottla.withoutPlaces(passed);
            passed.remove("security.inter.broker.protocol");
            java.util.List<String> listeners = listeners(first, listener, protocol);
            String map = String.join(",", listeners.stream().map(one -> one + ":" + protocol).toList());
            Object given = passed.get("listener.security.protocol.map");  // has that of the controllers, which some tests read
            passed.put("listener.security.protocol.map", given != null && String.valueOf(given).startsWith(map) ? given : map);
            passed.put("listeners", String.join(",", listeners.stream().map(one -> one + "://localhost:0").toList()));
            Ottla.asKafka(passed);
            Ottla.withFeatures(passed, controllerServer.bootstrapMetadata());
            // Only tests that move logs between directories need them.
            java.util.List<String> disks = first.logDirs().size() > 1 ? linked(first.logDirs()) : java.util.List.of();
            Ottla made = new Ottla(java.util.List.copyOf(configs.keySet()), disks, listeners, passed, protocol);
            made.start();
            ottla = made;
            withScramUsers();
        }
        return ottla;
    }

    /** Returns the listener of the brokers, and those on which a test's principal builder makes other principals. */
    private static java.util.List<String> listeners(KafkaConfig config, String listener, String protocol) {
        java.util.List<String> found = new java.util.ArrayList<>(java.util.List.of(listener));
        if (protocol.equals("PLAINTEXT") && config.originals().keySet().stream().anyMatch(name -> name.endsWith("principal.builder.class")))
            for (var one : scala.jdk.javaapi.CollectionConverters.asJava(config.effectiveAdvertisedBrokerListeners()))
                if (!one.listener().equals(listener) && one.securityProtocol().name.equals(protocol))
                    found.add(one.listener());
        return found;
    }

    /** Adds the users with which the harness formats the directories: their records have no password. */
    private void withScramUsers() {
        for (var record : controllerServer.bootstrapMetadata().records())
            if (record.message() instanceof org.apache.kafka.common.metadata.UserScramCredentialRecord user
                    && user.name().equals(kafka.security.JaasTestUtils.KAFKA_SCRAM_ADMIN))
                ottla.withScramUser(user.name(), kafka.security.JaasTestUtils.KAFKA_SCRAM_ADMIN_PASSWORD, user.mechanism());
    }

    /** Puts links in place of the directories: the harness deletes them while the process of the brokers still runs. */
    private static java.util.List<String> linked(java.util.List<String> dirs) {
        try {
            for (String dir : dirs) {
                java.nio.file.Path link = java.nio.file.Path.of(dir);
                java.nio.file.Files.deleteIfExists(link);
                java.nio.file.Files.createSymbolicLink(link, java.nio.file.Files.createTempDirectory("ottla-disk"));
            }
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
        return java.util.List.copyOf(dirs);
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, scala.Option<String> threads) {
        int id = config.brokerId();
        if (ottla != null)
            throw new NeedsInternals("a broker that is made anew");
        configs.put(id, config);
        return Fakes.broker(this::ottla, id, config, () -> {
            if (ottla != null)
                ottla.node(id, true);
        }, () -> {
            if (ottla != null)
                ottla.node(id, false);
        });
    }

    @Override
    public void shutdown() {
        if (ottla != null)
            ottla.stop();
        controllerServer.shutdown();
    }
}
