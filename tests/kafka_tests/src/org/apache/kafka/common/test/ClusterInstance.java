package org.apache.kafka.common.test;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.fault.FaultHandlerException;

import ottla.NeedsInternals;
import ottla.Ottla;

/** Replaces Kafka's interface of this name: methods that wait for a state ask an admin client, not objects of a broker. */
public interface ClusterInstance {
    Type type();

    Map<Integer, KafkaBroker> brokers();

    default Map<Integer, KafkaBroker> aliveBrokers() {
        return brokers().entrySet().stream().filter(entry -> !entry.getValue().isShutdown())
            .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }

    Map<Integer, ControllerServer> controllers();

    ClusterConfig config();

    Set<Integer> controllerIds();

    default Set<Integer> brokerIds() {
        return brokers().keySet();
    }

    ListenerName clientListener();

    ListenerName controllerListenerName();

    String bootstrapServers();

    String bootstrapControllers();

    default List<Integer> controllerBoundPorts() {
        throw new NeedsInternals("a controller's listener");
    }

    default List<Integer> brokerBoundPorts() {
        return brokers().values().stream().map(broker -> broker.boundPort(clientListener())).toList();
    }

    String clusterId();

    private Map<String, Object> client(Map<String, Object> configs, Map<String, Object> defaults) {
        Map<String, Object> all = new HashMap<>(configs);
        defaults.forEach(all::putIfAbsent);
        all.putIfAbsent("bootstrap.servers", bootstrapServers());
        return setClientSaslConfig(all);
    }

    default <K, V> Producer<K, V> producer(Map<String, Object> configs) {
        return new KafkaProducer<>(client(configs, Map.of("key.serializer", ByteArraySerializer.class.getName(),
            "value.serializer", ByteArraySerializer.class.getName())));
    }

    default <K, V> Producer<K, V> producer() {
        return producer(Map.of());
    }

    default <K, V> Consumer<K, V> consumer(Map<String, Object> configs) {
        return new KafkaConsumer<>(client(configs, Map.of("key.deserializer", ByteArrayDeserializer.class.getName(),
            "value.deserializer", ByteArrayDeserializer.class.getName(), "auto.offset.reset", "earliest",
            "group.id", "group_" + UUID.randomUUID().toString().substring(0, 5))));
    }

    default <K, V> Consumer<K, V> consumer() {
        return consumer(Map.of());
    }

    default <K, V> ShareConsumer<K, V> shareConsumer() {
        return shareConsumer(Map.of());
    }

    default <K, V> ShareConsumer<K, V> shareConsumer(Map<String, Object> configs) {
        return shareConsumer(configs, null, null);
    }

    default <K, V> ShareConsumer<K, V> shareConsumer(Map<String, Object> configs, Deserializer<K> key, Deserializer<V> value) {
        Map<String, Object> defaults = new HashMap<>();
        if (key == null)
            defaults.put("key.deserializer", ByteArrayDeserializer.class.getName());
        if (value == null)
            defaults.put("value.deserializer", ByteArrayDeserializer.class.getName());
        defaults.put("group.id", "group_" + UUID.randomUUID().toString().substring(0, 5));
        return new KafkaShareConsumer<>(client(configs, defaults), key, value);
    }

    default Admin admin(Map<String, Object> configs, boolean controllers) {
        if (controllers)
            throw new NeedsInternals("a controller's listener");
        return Admin.create(client(configs, Map.of()));
    }

    default Map<String, Object> setClientSaslConfig(Map<String, Object> configs) {
        Map<String, Object> all = new HashMap<>(configs);
        if (config().brokerSecurityProtocol().name.equals("SASL_PLAINTEXT")) {
            all.putIfAbsent("security.protocol", "SASL_PLAINTEXT");
            all.putIfAbsent("sasl.mechanism", "PLAIN");
            all.putIfAbsent("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\";",
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        }
        return all;
    }

    default Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    default Admin admin() {
        return admin(Map.of(), false);
    }

    default Set<GroupProtocol> supportedGroupProtocols() {
        boolean both = brokers().values().stream().allMatch(broker -> broker.dataPlaneRequestProcessor().isConsumerGroupProtocolEnabled());
        return both ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    Optional<FaultHandlerException> firstFatalException();

    Optional<FaultHandlerException> firstNonFatalException();

    void start();

    boolean started();

    void stop();

    boolean stopped();

    void shutdownBroker(int id);

    void startBroker(int id);

    private Optional<TopicDescription> seen(Admin admin, String topic) {
        try {
            return Optional.of(admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get());
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException)
                return Optional.empty();
            throw new RuntimeException(e.getCause());
        }
    }

    /** As the brokers know them: the clients of a test may not be allowed to see them. */
    private Optional<Integer> partitions(String topic) {
        return brokers().values().iterator().next().metadataCache().numPartitions(topic);
    }

    default void waitTopicDeletion(String topic) throws InterruptedException {
        Ottla.await(() -> partitions(topic).isEmpty(), topic + " is gone");
    }

    default void createTopic(String topic, int partitions, short replicas) throws InterruptedException {
        createTopic(topic, partitions, replicas, Map.of());
    }

    default void createTopic(String topic, int partitions, short replicas, Map<String, String> configs) throws InterruptedException {
        create(new NewTopic(topic, partitions, replicas).configs(configs), partitions);
    }

    default void createTopicWithAssignment(String topic, Map<Integer, List<Integer>> replicas) throws InterruptedException {
        create(new NewTopic(topic, replicas), replicas.size());
    }

    private void create(NewTopic topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            var made = admin.createTopics(List.of(topic));
            try {
                made.all().get();
            } catch (ExecutionException e) {
                // Kafka's fixture ignores the error; the log of the class has it.
                System.err.println("ottla: createTopics " + topic + ": " + e.getCause());
                if (!(e.getCause() instanceof org.apache.kafka.common.errors.TopicExistsException))
                    throw new AssertionError("createTopics " + topic, e.getCause());
            }
            waitTopicCreation(topic.name(), partitions);
        }
    }

    default void deleteTopic(String topic) throws InterruptedException, ExecutionException {
        try (Admin admin = admin()) {
            admin.deleteTopics(List.of(topic));
            waitTopicDeletion(topic);
        }
    }

    void waitForReadyBrokers() throws InterruptedException;

    default void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0)
            throw new IllegalArgumentException("Partition count must be > 0, but was " + partitions);
        Ottla.await(() -> partitions(topic).filter(count -> count == partitions).isPresent(),
            topic + " with " + partitions + " partitions");
    }

    default void ensureConsistentMetadata() throws InterruptedException {
    }

    default void ensureConsistentMetadata(Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers)
        throws InterruptedException {
    }

    default List<Authorizer> authorizers() {
        throw new NeedsInternals("Authorizer");
    }

    default void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        Set<AccessControlEntry> wanted = new HashSet<>(entries);
        // The clients of a test may not be allowed to see them.
        Authorizer authorizer = brokers().values().iterator().next().authorizerPlugin().get().get();
        Ottla.await(() -> {
            Set<AccessControlEntry> found = new HashSet<>();
            authorizer.acls(filter).forEach(one -> found.add(one.entry()));
            return found.equals(wanted);
        }, "acls " + entries);
    }

    default int getLeaderBrokerId(TopicPartition partition) throws ExecutionException, InterruptedException {
        try (Admin admin = admin()) {
            return admin.describeTopics(List.of(partition.topic())).topicNameValues().get(partition.topic()).get().partitions()
                .get(partition.partition()).leader().id();
        }
    }

    default int waitUntilLeaderIsElectedOrChangedWithAdmin(Admin admin, String topic, int partition, long timeout) throws Exception {
        long end = System.currentTimeMillis() + timeout;
        do {
            var found = seen(admin, topic).flatMap(one -> one.partitions().stream()
                .filter(info -> info.partition() == partition && info.leader() != null && !info.leader().isEmpty()).findFirst());
            if (found.isPresent())
                return found.get().leader().id();
            Thread.sleep(100);
        } while (System.currentTimeMillis() < end);
        throw new AssertionError("no leader of " + topic + "-" + partition);
    }
}
