import java.io.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

/**
 * The Java client of one life in a history, led by lines on stdin (`life_lines.py` has the words). Each command gets a
 * line "done", "abortable REASON" or "final REASON"; lines about records and partitions come as they happen. Ends at once,
 * without a word to the broker, when stdin does: the life was killed.
 */
public class HistoryClient {
    static final long PATIENCE_MS = 60_000;
    static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    static String servers;
    static KafkaProducer<byte[], byte[]> producer;
    static KafkaConsumer<byte[], byte[]> consumer;

    static synchronized void say(String... words) {
        OUT.println(String.join("\t", words).replace('\n', ' '));
        OUT.flush();
    }

    static Map<String, Object> common() {
        return new HashMap<>(Map.of("bootstrap.servers", servers, "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200,
            "retry.backoff.ms", 20, "request.timeout.ms", 5000, "default.api.timeout.ms", 10_000));
    }

    static TopicPartition partition(String name) {
        int at = name.lastIndexOf('-');
        return new TopicPartition(name.substring(0, at), Integer.parseInt(name.substring(at + 1)));
    }

    static Map<TopicPartition, OffsetAndMetadata> offsets(String pairs) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (String pair : pairs.split(",")) {
            int at = pair.lastIndexOf('=');
            found.put(partition(pair.substring(0, at)), new OffsetAndMetadata(Long.parseLong(pair.substring(at + 1))));
        }
        return found;
    }

    static void open(String id, String timeoutMs) {
        Map<String, Object> configs = common();
        configs.remove("default.api.timeout.ms");
        configs.putAll(Map.of("linger.ms", 2, "max.block.ms", 10_000, "delivery.timeout.ms", 30_000));
        if (id.equals("-"))
            // A broker that was stopped and started again knows only the newest batch of a producer, in Kafka, too. Of several
            // in flight whose responses were lost, the others would be sent again with a new epoch, and be there twice.
            configs.put("max.in.flight.requests.per.connection", 1);
        else
            configs.putAll(Map.of("transactional.id", id, "transaction.timeout.ms", timeoutMs, "delivery.timeout.ms", timeoutMs));
        producer = new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void send(String number, String where, String data) {
        TopicPartition to = partition(where);
        try {
            producer.send(new ProducerRecord<>(to.topic(), to.partition(), null, data.getBytes(StandardCharsets.UTF_8)), (sent, error) ->
                say(error == null ? "sent" : "unsent", number, error == null ? "" + sent.offset() : error.toString()));
        } catch (RuntimeException e) {
            say("unsent", number, e.toString());
        }
    }

    static void join(String group, String topics, String isolation, String protocol) {
        Map<String, Object> configs = common();
        configs.putAll(Map.of("group.id", group, "isolation.level", isolation, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "fetch.max.wait.ms", 100, "max.poll.records", 100));
        if (protocol.equals("classic"))  // in the other one, the broker has these configs
            configs.putAll(Map.of("session.timeout.ms", 4000, "heartbeat.interval.ms", 500));
        consumer = new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topics.split(",")), new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("assigned", names(partitions));
            }

            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("revoked", names(partitions));
            }
        });
    }

    static String names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).collect(Collectors.joining(","));
    }

    static void poll(long ms) {
        for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(ms)))
            say("record", one.topic() + "-" + one.partition(), "" + one.offset(), new String(one.value(), StandardCharsets.UTF_8));
    }

    static void rewind() {
        consumer.committed(consumer.assignment()).forEach((of, found) -> {
            long offset = found == null ? 0 : found.offset();
            consumer.seek(of, offset);
            say("place", of.toString(), "" + offset);
        });
    }

    static void run(String... words) {
        switch (words[0]) {
            case "open" -> open(words[1], words[2]);
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "flush" -> producer.flush();
            case "offsets" -> producer.sendOffsetsToTransaction(offsets(words[1]), consumer.groupMetadata());
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "join" -> join(words[1], words[2], words[3], words[4]);
            case "poll" -> poll(Long.parseLong(words[1]));
            case "store" -> consumer.commitSync(offsets(words[1]));
            case "rewind" -> rewind();
            case "leave" -> consumer.close();
            case "end" -> producer.close();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** Repeats a call that timed out, as its documentation wants it: the transaction is neither ended nor lost. */
    static void insist(String... words) {
        long until = System.currentTimeMillis() + PATIENCE_MS;
        while (true) {
            try {
                run(words);
                return;
            } catch (TimeoutException e) {
                if (System.currentTimeMillis() > until || !Set.of("init", "offsets", "commit", "abort").contains(words[0]))
                    throw e;
            }
        }
    }

    static boolean isFinal(Throwable e) {
        return e instanceof ApplicationRecoverableException || e instanceof InvalidConfigurationException || e instanceof ProducerFencedException
            || e instanceof InvalidProducerEpochException || e instanceof OutOfOrderSequenceException || e instanceof AuthorizationException
            || e instanceof UnsupportedVersionException || e instanceof IllegalStateException || e instanceof FencedInstanceIdException;
    }

    public static void main(String[] args) throws IOException {
        servers = args[0];
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("send")) {
                send(words[1], words[2], words[3]);
                continue;
            }
            try {
                insist(words);
                say("done");
            } catch (RuntimeException e) {
                boolean isFinal = isFinal(e) || (e.getCause() != null && isFinal(e.getCause())) || words[0].equals("abort");
                say(isFinal ? "final" : "abortable", e.toString());
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
