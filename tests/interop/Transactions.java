import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * Transactions of one Java client against one broker, each thing printed as "ok NAME DETAIL" once it holds.
 *
 * Compiles with every kafka-clients since 0.11: what came or went since then is called by reflection.
 * Arguments: bootstrap servers, then the names of what is to be done.
 */
public class Transactions {
    static String servers;
    static Admin_ admin;

    static void check(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    static Properties properties() {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        p.put("request.timeout.ms", "10000");
        return p;
    }

    /** AdminClient of any age. */
    static class Admin_ implements AutoCloseable {
        final AdminClient client = AdminClient.create(properties());

        void topic(String name, int partitions) throws Exception {
            client.createTopics(Collections.singletonList(new NewTopic(name, partitions, (short) 1))).all().get();
        }

        public void close() {
            client.close();
        }
    }

    static Producer<String, String> producer(String id, String... more) {
        Properties p = properties();
        p.put("transactional.id", id);
        p.put("max.block.ms", "20000");
        p.put("linger.ms", "2");
        for (int i = 0; i < more.length; i += 2) p.put(more[i], more[i + 1]);
        Producer<String, String> made = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static Consumer<String, String> consumer(String group, String isolation) {
        Properties p = properties();
        p.put("group.id", group);
        p.put("session.timeout.ms", "6000"); // less than a request may take, as old clients demand
        p.put("isolation.level", isolation);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("max.poll.records", "7");
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer) throws Exception {
        try {
            Method newer = Consumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<String, String>) newer.invoke(consumer, Duration.ofMillis(200));
        } catch (NoSuchMethodException old) {
            return (ConsumerRecords<String, String>) Consumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
    }

    /** All values of a topic that are there now, partition by partition. */
    static List<String> values(String topic, String isolation, int partitions) throws Exception {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            TopicPartition one = new TopicPartition(topic, i);
            try (Consumer<String, String> consumer = consumer("reader", isolation)) {
                consumer.assign(Collections.singletonList(one));
                consumer.seekToBeginning(Collections.singletonList(one));
                long end = consumer.endOffsets(Collections.singletonList(one)).get(one);
                long deadline = System.currentTimeMillis() + 20_000;
                while (consumer.position(one) < end) {
                    for (ConsumerRecord<String, String> record : poll(consumer)) found.add(record.value());
                    check(System.currentTimeMillis() < deadline, "at " + consumer.position(one) + " of " + end);
                }
            }
        }
        return found;
    }

    static void send(Producer<String, String> producer, String topic, int from, int to, int partitions) {
        for (int i = from; i < to; i++)
            producer.send(new ProducerRecord<>(topic, i % partitions, null, "value " + i));
    }

    static Set<String> numbers(int from, int to) {
        Set<String> made = new TreeSet<>();
        for (int i = from; i < to; i++) made.add("value " + i);
        return made;
    }

    static void same(Collection<String> found, Set<String> wanted) {
        check(found.size() == wanted.size() && new HashSet<>(found).equals(wanted), found.size() + " values: " + found);
    }

    /** Committed, aborted, empty, committed, aborted before anything was sent, committed; read in both ways. */
    static String commits(String topic) throws Exception {
        admin.topic(topic, 2);
        try (Producer<String, String> producer = producer(topic)) {
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                if (round != 2) send(producer, topic, 100 * round, 100 * round + 20, 2);
                if (round % 2 == 1) {
                    if (round == 1) producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        Set<String> wanted = numbers(0, 20);
        wanted.addAll(numbers(400, 420));
        same(values(topic, "read_committed", 2), wanted);
        int all = values(topic, "read_uncommitted", 2).size();
        check(all >= 60, "uncommitted " + all);
        return wanted.size() + " of at least 60 records committed";
    }

    /** What is open holds back those who read committed records only, and nobody else. */
    static String open(String topic) throws Exception {
        admin.topic(topic, 1);
        try (Producer<String, String> first = producer(topic); Producer<String, String> second = producer(topic + "-2")) {
            first.beginTransaction();
            send(first, topic, 0, 5, 1);
            first.flush();
            second.beginTransaction();
            send(second, topic, 5, 10, 1);
            second.commitTransaction();
            same(values(topic, "read_committed", 1), numbers(0, 0));
            same(values(topic, "read_uncommitted", 1), numbers(0, 10));
            first.abortTransaction();
            same(values(topic, "read_committed", 1), numbers(5, 10));
        }
        return "5 records behind an open transaction, then seen";
    }

    static Class<?> groupMetadata() {
        try {
            return Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
        } catch (ClassNotFoundException old) {
            return null;
        }
    }

    /** The two forms of sendOffsetsToTransaction; false if this release lacks the one asked for. */
    static boolean sendOffsets(
            Producer<String, String> producer, Consumer<String, String> consumer, boolean byMetadata,
            Map<TopicPartition, OffsetAndMetadata> offsets, String group) throws Exception {
        try {
            if (byMetadata) {
                Class<?> metadata = groupMetadata();
                if (metadata == null) return false;
                Object mine = Consumer.class.getMethod("groupMetadata").invoke(consumer);
                Producer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata).invoke(producer, offsets, mine);
            } else {
                Producer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
            }
            return true;
        } catch (NoSuchMethodException lacking) {
            return false;
        } catch (InvocationTargetException thrown) {
            throw (Exception) thrown.getCause();
        }
    }

    /** Reads, writes and commits what was read in one transaction; every third is aborted and done once more. */
    static String offsets(String topic, boolean byMetadata) throws Exception {
        String output = topic + "-out", group = topic + "-group";
        admin.topic(topic, 1);
        admin.topic(output, 1);
        try (Producer<String, String> producer = producer(topic + "-in")) {
            producer.beginTransaction();
            send(producer, topic, 0, 100, 1);
            producer.commitTransaction();
        }
        TopicPartition one = new TopicPartition(topic, 0);
        int rounds = 0, copied = 0;
        try (Producer<String, String> producer = producer(topic); Consumer<String, String> consumer = consumer(group, "read_committed")) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + 40_000;
            while (copied < 100) {
                check(System.currentTimeMillis() < deadline, copied + " copied");
                ConsumerRecords<String, String> records = poll(consumer);
                if (records.isEmpty()) continue;
                long last = -1;
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, 0, null, record.value()));
                    last = record.offset();
                }
                Map<TopicPartition, OffsetAndMetadata> read = Collections.singletonMap(one, new OffsetAndMetadata(last + 1));
                if (!sendOffsets(producer, consumer, byMetadata, read, group)) return "not in this release";
                if (++rounds % 3 == 0) {
                    producer.abortTransaction();
                    OffsetAndMetadata committed = committed(consumer, one);
                    check(committed != null && committed.offset() <= last, "committed by an abort: " + committed);
                    consumer.seek(one, committed.offset());
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                    check(committed(consumer, one).offset() == last + 1, "committed " + committed(consumer, one));
                }
            }
        }
        same(values(output, "read_committed", 1), numbers(0, 100));
        return "100 records copied in " + rounds + " transactions, a third of them aborted";
    }

    @SuppressWarnings("unchecked")
    static OffsetAndMetadata committed(Consumer<String, String> consumer, TopicPartition one) throws Exception {
        try {
            Method newer = Consumer.class.getMethod("committed", Set.class);
            return ((Map<TopicPartition, OffsetAndMetadata>) newer.invoke(consumer, Collections.singleton(one))).get(one);
        } catch (NoSuchMethodException old) {
            return (OffsetAndMetadata) Consumer.class.getMethod("committed", TopicPartition.class).invoke(consumer, one);
        }
    }

    /** What a producer is told that somebody else took the id from, at its next step. */
    static String fenced(String topic) throws Exception {
        admin.topic(topic, 1);
        Set<String> told = new TreeSet<>();
        Producer<String, String> old = producer(topic);
        old.beginTransaction();
        send(old, topic, 0, 5, 1);
        old.flush();
        try (Producer<String, String> owner = producer(topic)) {
            try {
                old.commitTransaction();
                check(false, "a fenced producer committed");
            } catch (ProducerFencedException expected) {
                told.add("commit: ProducerFencedException");
            }
            Producer<String, String> between = owner;
            between.beginTransaction();
            send(between, topic, 5, 10, 1);
            between.flush();
            try (Producer<String, String> last = producer(topic)) {
                try {
                    between.send(new ProducerRecord<>(topic, 0, null, "late")).get();
                    between.commitTransaction();
                    check(false, "a fenced producer wrote and committed");
                } catch (Exception expected) {
                    check(isFenced(expected), "send: " + expected);
                    told.add("send: fenced");
                }
                last.beginTransaction();
                send(last, topic, 10, 15, 1);
                last.commitTransaction();
            }
        }
        try {
            old.close();
        } catch (RuntimeException fencedToo) {
            check(isFenced(fencedToo), "close: " + fencedToo);
        }
        same(values(topic, "read_committed", 1), numbers(10, 15));
        return told + "; only the last one's records were committed";
    }

    static boolean isFenced(Throwable thrown) {
        for (Throwable one = thrown; one != null; one = one.getCause())
            if (one instanceof ProducerFencedException
                    || one.getClass().getSimpleName().equals("InvalidProducerEpochException"))
                return true;
        return false;
    }

    /** The broker ends a transaction that is open for too long; a new producer goes on. */
    static String timedOut(String topic) throws Exception {
        admin.topic(topic, 1);
        String told;
        try (Producer<String, String> slow = producer(topic, "transaction.timeout.ms", "1000")) {
            slow.beginTransaction();
            send(slow, topic, 0, 5, 1);
            slow.flush();
            long deadline = System.currentTimeMillis() + 20_000;
            while (true) {
                try (Consumer<String, String> consumer = consumer("reader", "read_committed")) {
                    TopicPartition one = new TopicPartition(topic, 0);
                    if (consumer.endOffsets(Collections.singletonList(one)).get(one) == 6L) break;
                }
                check(System.currentTimeMillis() < deadline, "not aborted");
                Thread.sleep(100);
            }
            try {
                slow.commitTransaction();
                told = "committed";
            } catch (RuntimeException thrown) {
                told = thrown.getClass().getSimpleName();
            }
        } catch (RuntimeException closing) {
            told = closing.getClass().getSimpleName();
        }
        check(!told.equals("committed"), "committed what was aborted");
        try (Producer<String, String> next = producer(topic)) {
            next.beginTransaction();
            send(next, topic, 5, 10, 1);
            next.commitTransaction();
        }
        same(values(topic, "read_committed", 1), numbers(5, 10));
        return "commit: " + told;
    }

    public static void main(String[] args) throws Exception {
        servers = args[0];
        admin = new Admin_();
        String run = args[1];
        for (String name : Arrays.asList(args).subList(2, args.length)) {
            String topic = run + "-" + name, detail;
            switch (name) {
                case "commits": detail = commits(topic); break;
                case "open": detail = open(topic); break;
                case "offsets": detail = offsets(topic, false); break;
                case "metadata": detail = offsets(topic, true); break;
                case "fenced": detail = fenced(topic); break;
                case "timedOut": detail = timedOut(topic); break;
                default: throw new IllegalArgumentException(name);
            }
            System.out.println("ok " + name + " " + detail);
        }
        admin.close();
    }
}
