package ottla;

import java.io.File;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;

import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.Gauge;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.storage.internals.log.LogCleaner;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/** Mocks of Kafka's objects with the methods that a client of the cluster can serve; all others throw NeedsInternals. */
public final class Fakes {
    private interface Reply {
        Object to(InvocationOnMock call) throws Throwable;
    }

    private static <T> T fake(Class<T> type, Map<String, Reply> replies) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly().defaultAnswer(call -> {
            String name = call.getMethod().getName();
            Reply reply = replies.get(name);
            if (reply != null)
                return reply.to(call);
            switch (name) {
                case "toString": return type.getSimpleName() + " of Ottla";
                case "hashCode": return System.identityHashCode(call.getMock());
                case "equals": return call.getMock() == call.getArgument(0);
                case "trace": case "debug": case "info": case "warn": case "error": case "fatal": return null;
                default: throw new NeedsInternals(type.getSimpleName() + "." + name);
            }
        }));
    }

    public static BrokerServer broker(java.util.function.Supplier<Ottla> ottla, int id, KafkaConfig config, Runnable startup,
                                      Runnable shutdown) {
        Map<String, Reply> it = new HashMap<>();
        KRaftMetadataCache cache = cache(ottla);
        SocketServer sockets = fake(SocketServer.class, Map.of(
            "boundPort", call -> ottla.get().port(id, call.getArgument(0)),
            "config", call -> given(config)));
        it.put("startup", call -> {
            startup.run();
            return null;
        });
        it.put("shutdown", call -> {
            shutdown.run();
            return null;
        });
        it.put("awaitShutdown", call -> null);
        it.put("isShutdown", call -> !ottla.get().runs(id));
        it.put("brokerState", call -> ottla.get().runs(id) ? BrokerState.RUNNING : BrokerState.SHUTTING_DOWN);
        it.put("clusterId", call -> ottla.get().clusterId());
        it.put("config", call -> given(config));
        it.put("boundPort", call -> ottla.get().port(id, call.getArgument(0)));
        it.put("socketServer", call -> sockets);
        it.put("metadataCache", call -> cache);
        it.put("authorizerPlugin", call -> authorizer(ottla));
        it.put("metrics", call -> metrics(ottla));
        it.put("credentialProvider", call -> MetadataLog.credentials(ottla.get().dirs()));
        it.put("tokenCache", call -> MetadataLog.credentials(ottla.get().dirs()).tokenCache);
        it.put("sharedServer", call -> fake(SharedServer.class, Map.of("loader",
            loader -> fake(MetadataLoader.class, Map.of("lastAppliedOffset", offset -> Long.MAX_VALUE)))));
        it.put("dataPlaneRequestProcessor", call -> fake(KafkaApis.class, Map.of(
            "brokerId", asked -> id,
            "clusterId", asked -> ottla.get().clusterId(),
            "metadataCache", asked -> cache,
            "authorizerPlugin", asked -> authorizer(ottla),
            "isConsumerGroupProtocolEnabled", asked -> ottla.get().serves(68))));
        kafka.log.LogManager logs = fake(kafka.log.LogManager.class, Map.of(
            "getLog$default$2", asked -> false,
            "liveLogDirs", asked -> scala.jdk.javaapi.CollectionConverters.asScala(ottla.get().dirs()).toSeq(),
            "isLogDirOnline", asked -> ottla.get().online(asked.getArgument(0)),
            "cleaner", asked -> fake(LogCleaner.class, Map.of("awaitCleaned",
                cleaned -> ottla.get().awaitCleaned(cleaned.getArgument(0), cleaned.getArgument(2)))),
            "getLog", asked -> log(ottla.get(), asked.getArgument(0))));
        it.put("logManager", call -> logs);
        it.put("replicaManager", call -> fake(kafka.server.ReplicaManager.class, Map.of(
            "logManager", asked -> logs,
            "localLog", asked -> log(ottla.get(), asked.getArgument(0)),
            "getLog", asked -> log(ottla.get(), asked.getArgument(0)),
            "getLogEndOffsetLag", asked -> 0L,  // all replicas are the same log
            "onlinePartition", asked -> partition(ottla.get(), asked.getArgument(0), id),
            "getPartitionOrException", asked -> partition(ottla.get(), asked.getArgument(0) instanceof TopicIdPartition named
                ? named.topicPartition() : asked.getArgument(0), id).get(),
            "config", asked -> given(config))));
        it.put("groupCoordinator", call -> fake(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", asked -> new Properties())));
        it.put("transactionCoordinator", call -> fake(TransactionCoordinator.class, Map.of(
            "transactionTopicConfigs", asked -> new Properties())));
        return fake(BrokerServer.class, it);
    }

    /** Returns an authorizer that has the access control lists of the cluster. */
    private static scala.Option<org.apache.kafka.common.internals.Plugin<org.apache.kafka.server.authorizer.Authorizer>> authorizer(java.util.function.Supplier<Ottla> ottla) {
        var acls = fake(org.apache.kafka.server.authorizer.Authorizer.class, Map.of(
            "acls", call -> ottla.get().acls(call.getArgument(0)),
            "createAcls", call -> ottla.get().createAcls(call.getArgument(1)),
            "deleteAcls", call -> ottla.get().deleteAcls(call.getArgument(1))));
        return scala.Option.apply(org.apache.kafka.common.internals.Plugin.wrapInstance(acls, null, "authorizer.class.name"));
    }

    /** Returns the counters of connections, whose names Ottla has from Kafka. */
    private static Metrics metrics(java.util.function.Supplier<Ottla> ottla) {
        Map<MetricName, KafkaMetric> known = new HashMap<>() {
            @Override
            public KafkaMetric get(Object name) {
                throw new NeedsInternals("the metric " + name);
            }
        };
        for (String name : List.of("successful-authentication", "failed-authentication", "successful-reauthentication",
                "failed-reauthentication", "expired-connections-killed")) {
            var full = new MetricName(name + (name.endsWith("killed") ? "-count" : "-total"), "socket-server-metrics", "", Map.of());
            known.put(full, new KafkaMetric(new Object(), full, (Gauge<Double>) (config, now) -> ottla.get().counter(name),
                new MetricConfig(), Time.SYSTEM));
        }
        return fake(Metrics.class, Map.of("metrics", call -> known));
    }

    public static ControllerServer controller(java.util.function.Supplier<Ottla> ottla, KafkaConfig config) {
        Map<String, Reply> it = new HashMap<>();
        it.put("startup", call -> null);
        it.put("shutdown", call -> null);
        it.put("awaitShutdown", call -> null);
        it.put("clusterId", call -> ottla.get().clusterId());
        it.put("config", call -> given(config));
        it.put("controller", call -> fake(Controller.class, Map.of(
            "isActive", asked -> true,
            "findAllTopicIds", asked -> CompletableFuture.completedFuture(names(ottla.get())),
            "findTopicIds", asked -> {
                Map<String, Uuid> known = names(ottla.get());
                Map<String, ResultOrError<Uuid>> found = new HashMap<>();
                for (String name : asked.<Collection<String>>getArgument(1))
                    found.put(name, known.containsKey(name) ? new ResultOrError<>(known.get(name))
                        : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null));
                return CompletableFuture.completedFuture(found);
            })));
        it.put("authorizerPlugin", call -> authorizer(ottla));
        it.put("raftManager", call -> fake(KafkaRaftManager.class, Map.of("raftLog",
            log -> fake(RaftLog.class, Map.of("endOffset", end -> new LogOffsetMetadata(1L))))));
        return fake(ControllerServer.class, it);
    }

    private static boolean has(Ottla ottla, TopicPartition partition) {
        return ottla.topic(partition.topic()).filter(topic -> topic.partitions().size() > partition.partition()).isPresent();
    }

    /** Returns a log with the facts of ListOffsets and DescribeProducers. */
    private static scala.Option<UnifiedLog> log(Ottla ottla, TopicPartition partition) {
        if (!has(ottla, partition))
            return scala.Option.empty();
        return scala.Option.apply(fake(UnifiedLog.class, Map.of(
            "logEndOffset", asked -> ottla.offset(partition, OffsetSpec.latest()),
            "topicPartition", asked -> partition,
            "dir", asked -> ottla.dir(partition),
            "size", asked -> Stream.of(segments(ottla, partition)).mapToLong(File::length).sum(),
            "roll", asked -> {
                ottla.roll(partition);
                return null;
            },
            "logSegments", asked -> Stream.of(segments(ottla, partition)).sorted().map(Fakes::segment).toList(),
            "numberOfSegments", asked -> segments(ottla, partition).length,
            "producerStateManager", asked -> fake(ProducerStateManager.class, Map.of(
                "activeProducers", active -> ottla.producers(partition).stream().collect(Collectors.toMap(
                    org.apache.kafka.clients.admin.ProducerState::producerId, one -> new ProducerStateEntry(one.producerId(),
                        (short) one.producerEpoch(), one.coordinatorEpoch().orElse(-1), one.lastTimestamp(),
                        one.currentTransactionStartOffset()))))),
            "highWatermark", asked -> ottla.offset(partition, OffsetSpec.latest()),
            "logStartOffset", asked -> ottla.offset(partition, OffsetSpec.earliest()))));
    }

    private static File[] segments(Ottla ottla, TopicPartition partition) {
        return ottla.dir(partition).listFiles((dir, name) -> name.endsWith(".log"));
    }

    /** Returns a segment, which Kafka's code reads from Ottla's file. */
    private static LogSegment segment(File file) {
        return fake(LogSegment.class, Map.of("log", asked -> FileRecords.open(file, false),
            "baseOffset", asked -> Long.parseLong(file.getName().substring(0, 20))));
    }

    /** Returns a partition of node `id`; none if the node has no replica. */
    private static scala.Option<kafka.cluster.Partition> partition(Ottla ottla, TopicPartition partition, int id) {
        TopicPartitionInfo info = ottla.topic(partition.topic()).stream().flatMap(topic -> topic.partitions().stream())
            .filter(one -> one.partition() == partition.partition()).findFirst().orElse(null);
        if (info == null || !ottla.runs(id) || info.replicas().stream().noneMatch(node -> node.id() == id))
            return scala.Option.empty();
        int leader = info.leader() == null ? -1 : info.leader().id();
        return scala.Option.apply(fake(kafka.cluster.Partition.class, Map.of(
            "leaderReplicaIdOpt", asked -> scala.Option.apply(leader),
            "isLeader", asked -> leader == id,
            "leaderIdIfLocal", asked -> leader == id ? scala.Option.apply(id) : scala.Option.empty(),
            "leaderLogIfLocal", asked -> leader == id ? log(ottla, partition) : scala.Option.empty(),
            "log", asked -> log(ottla, partition),
            "localLogOrException", asked -> log(ottla, partition).get(),
            "getLeaderEpoch", asked -> ottla.leaderEpoch(partition))));
    }

    private static KafkaConfig given(KafkaConfig config) {
        if (config == null)
            throw new NeedsInternals("KafkaConfig");
        return config;
    }

    private static KRaftMetadataCache cache(java.util.function.Supplier<Ottla> ottla) {
        Map<String, Reply> it = new HashMap<>();
        it.put("numPartitions", call -> ottla.get().topic(call.getArgument(0)).map(topic -> topic.partitions().size()));
        it.put("contains", call -> call.getArgument(0) instanceof String name
            ? ottla.get().topic(name).isPresent()
            : ottla.get().topic(((org.apache.kafka.common.TopicPartition) call.getArgument(0)).topic()).isPresent());
        it.put("getTopicId", call -> ottla.get().topic(call.getArgument(0)).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID));
        it.put("topicConfig", call -> ottla.get().topicConfigs(call.getArgument(0)));
        it.put("getAllTopics", call -> new HashSet<>(names(ottla.get()).keySet()));
        it.put("topicNamesToIds", call -> names(ottla.get()));
        it.put("topicIdsToNames", call -> names(ottla.get()).entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getValue, Map.Entry::getKey)));
        it.put("getTopicName", call -> names(ottla.get()).entrySet().stream()
            .filter(entry -> entry.getValue().equals(call.getArgument(0))).map(Map.Entry::getKey).findFirst());
        it.put("hasAliveBroker", call -> ottla.get().runs(call.<Integer>getArgument(0)));
        it.put("isBrokerFenced", call -> !ottla.get().runs(call.<Integer>getArgument(0)));
        it.put("getAliveBrokerNode", call -> alive(ottla.get()).stream()
            .filter(node -> node.id() == call.<Integer>getArgument(0)).findFirst());
        it.put("getAliveBrokerNodes", call -> alive(ottla.get()));
        it.put("getRandomAliveBrokerId", call -> alive(ottla.get()).stream().map(Node::id).findFirst());
        it.put("getLeaderAndIsr", call -> ottla.get().topic(call.getArgument(0)).flatMap(topic -> topic.partitions().stream()
            .filter(partition -> partition.partition() == call.<Integer>getArgument(1)).findFirst()
            .map(partition -> new LeaderAndIsr(partition.leader() == null ? -1 : partition.leader().id(), 0,
                partition.isr().stream().map(Node::id).toList(), LeaderRecoveryState.RECOVERED, 0))));
        it.put("getPartitionLeaderEndpoint", call -> ottla.get().topic(call.getArgument(0)).flatMap(topic -> topic.partitions()
            .stream().filter(partition -> partition.partition() == call.<Integer>getArgument(1)).findFirst()
            .map(partition -> partition.leader() == null ? Node.noNode() : partition.leader())));
        it.put("getPartitionReplicaEndpoints", call -> replicas(ottla.get(), call.getArgument(0)));
        return fake(KRaftMetadataCache.class, it);
    }

    /** Returns the running replicas of a partition, by id. */
    private static Map<Integer, Node> replicas(Ottla ottla, org.apache.kafka.common.TopicPartition partition) {
        return ottla.topic(partition.topic()).stream().flatMap(topic -> topic.partitions().stream())
            .filter(one -> one.partition() == partition.partition()).flatMap(one -> one.replicas().stream())
            .filter(node -> ottla.runs(node.id())).collect(Collectors.toMap(Node::id, node -> node));
    }

    private static List<Node> alive(Ottla ottla) {
        List<Node> nodes = new ArrayList<>();
        for (int id : ottla.ids())
            if (ottla.runs(id))
                nodes.add(new Node(id, "localhost", ottla.port(id)));
        return nodes;
    }

    private static Map<String, Uuid> names(Ottla ottla) {
        try {
            Map<String, Uuid> found = new HashMap<>();
            ottla.admin().listTopics(new org.apache.kafka.clients.admin.ListTopicsOptions().listInternal(true)).listings().get()
                .forEach(topic -> found.put(topic.name(), topic.topicId()));
            return found;
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private Fakes() {
    }
}
