import java.time.Duration;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** A Java application's day against one broker: topics, 1,000 records per codec, a group, a search by time. */
public class Clients {
    static final int RECORDS = 1000, PARTITIONS = 3;
    static final long BASE = 1_700_000_000_000L;

    static void check(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    static Properties properties(String servers) {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        p.put("request.timeout.ms", "10000");
        p.put("default.api.timeout.ms", "20000");
        return p;
    }

    static void produce(String servers, String topic, String codec) throws Exception {
        Properties p = properties(servers);
        p.put("enable.idempotence", "true");
        p.put("acks", "all");
        p.put("compression.type", codec);
        p.put("linger.ms", "5");
        p.put("delivery.timeout.ms", "20000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < RECORDS; i++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, i % PARTITIONS, BASE + i, "key" + i, "value " + i + " of " + codec);
                record.headers().add("codec", codec.getBytes());
                sent.add(producer.send(record));
            }
            producer.flush();
        }
        for (int i = 0; i < RECORDS; i++)
            check(sent.get(i).get().offset() == i / PARTITIONS, "offset of record " + i + ": " + sent.get(i).get().offset());
    }

    static void consume(String servers, String topic, String codec) {
        Properties p = properties(servers);
        p.put("group.id", "group-" + topic);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        Set<String> seen = new HashSet<>();
        try (Consumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + 30_000;
            while (seen.size() < RECORDS && System.currentTimeMillis() < deadline)
                for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                    int i = (int) (r.timestamp() - BASE);
                    check(r.key().equals("key" + i) && r.value().equals("value " + i + " of " + codec), "record " + i);
                    check(new String(r.headers().lastHeader("codec").value()).equals(codec), "header of record " + i);
                    check(r.offset() == i / PARTITIONS && r.partition() == i % PARTITIONS, "place of record " + i);
                    check(seen.add(r.value()), "twice: " + r.value());
                }
            check(seen.size() == RECORDS, "consumed " + seen.size());
            consumer.commitSync();
            Map<TopicPartition, Long> times = new HashMap<>();
            for (TopicPartition tp : consumer.assignment()) times.put(tp, BASE + 501);
            check(times.size() == PARTITIONS, "assigned " + times.size());
            for (Map.Entry<TopicPartition, OffsetAndTimestamp> e : consumer.offsetsForTimes(times).entrySet()) {
                long first = 501 + Math.floorMod(e.getKey().partition() - 501, PARTITIONS);
                check(e.getValue().timestamp() == BASE + first, "time found: " + e);
                check(e.getValue().offset() == first / PARTITIONS, "offset found: " + e);
                consumer.seek(e.getKey(), e.getValue().offset());
            }
            int again = 0;
            deadline = System.currentTimeMillis() + 30_000;
            while (again < RECORDS - 501 && System.currentTimeMillis() < deadline)
                again += consumer.poll(Duration.ofMillis(200)).count();
            check(again == RECORDS - 501, "after the seek: " + again);
            for (TopicPartition tp : times.keySet()) {
                OffsetAndMetadata committed = consumer.committed(Collections.singleton(tp)).get(tp);
                check(committed.offset() == (RECORDS - tp.partition() + PARTITIONS - 1) / PARTITIONS, "committed " + committed);
            }
        }
    }

    /** The method's name moved: all() up to 3.0, allTopicNames() since 3.1, the former gone in 4.0. */
    @SuppressWarnings("unchecked")
    static TopicDescription described(Admin admin, String topic) throws Exception {
        DescribeTopicsResult result = admin.describeTopics(Collections.singletonList(topic));
        java.lang.reflect.Method all;
        try {
            all = DescribeTopicsResult.class.getMethod("allTopicNames");
        } catch (NoSuchMethodException e) {
            all = DescribeTopicsResult.class.getMethod("all");
        }
        return ((KafkaFuture<Map<String, TopicDescription>>) all.invoke(result)).get().get(topic);
    }

    @SuppressWarnings("removal")
    static void describe(Admin admin, String topic) throws Exception {
        check(admin.describeCluster().nodes().get().size() == 1, "nodes");
        check(admin.listTopics().names().get().contains(topic), "list of topics");
        check(described(admin, topic).partitions().size() == PARTITIONS, "partitions described");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Config config = admin.describeConfigs(Collections.singletonList(resource)).all().get().get(resource);
        check(config.get("max.message.bytes").value().equals("2000000"), "config described");
        String group = "group-" + topic;
        check(admin.describeConsumerGroups(Collections.singletonList(group)).all().get().containsKey(group), "group");
        check(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), "groups listed");
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        try (Admin admin = Admin.create(properties(servers))) {
            for (String codec : arguments[1].split(",")) {
                String topic = "java-" + codec;
                NewTopic wanted = new NewTopic(topic, PARTITIONS, (short) 1);
                wanted.configs(Collections.singletonMap("max.message.bytes", "2000000"));
                admin.createTopics(Collections.singletonList(wanted)).all().get();
                produce(servers, topic, codec);
                consume(servers, topic, codec);
                describe(admin, topic);
                admin.deleteTopics(Collections.singletonList(topic)).all().get();
                check(!admin.listTopics().names().get().contains(topic), "deleted, and still listed");
                System.out.println("ok " + codec);
            }
        }
    }
}
