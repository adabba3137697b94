import java.io.*;
import java.lang.reflect.Method;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Apache's Java clients from 0.10 on, driven line by line; one source for all of them, so what only some have is found by name.
 *
 *     produce TOPIC CODEC COUNT [NAME=VALUE...]     then COUNT lines "TIMESTAMP KEY VALUE HEADERS"
 *     consume TOPIC FROM COUNT SECONDS [NAME=VALUE...]
 *
 * A key or value is "-" for null or "x" and its hex digits; headers are NAME=VALUE with commas between, or "-". Timestamp -1: none
 * given. Answers "ok OFFSET..." or "record OFFSET KIND TIMESTAMP KEY VALUE HEADERS" and "end"; after a failure "error CLASS: TEXT".
 */
public class Lines {
    static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};

    static byte[] bytes(String text) {
        if (text.equals("-")) return null;
        byte[] out = new byte[text.length() / 2];
        for (int i = 0; i < out.length; i++) out[i] = (byte) Integer.parseInt(text.substring(1 + 2 * i, 3 + 2 * i), 16);
        return out;
    }

    static String text(byte[] bytes) {
        if (bytes == null) return "-";
        StringBuilder out = new StringBuilder("x");
        for (byte b : bytes) out.append(String.format("%02x", b));
        return out.toString();
    }

    static Map<String, Object> properties(String servers, String[] words, int from) {
        Map<String, Object> p = new HashMap<>();
        p.put("bootstrap.servers", servers);
        p.put("request.timeout.ms", "10000");
        p.put("client.id", "java");
        for (int i = from; i < words.length; i++) {
            int cut = words[i].indexOf('=');
            p.put(words[i].substring(0, cut), words[i].substring(cut + 1));
        }
        return p;
    }

    static void addHeaders(ProducerRecord<byte[], byte[]> record, String text) throws Exception {
        if (text.equals("-")) return;
        Object headers = record.getClass().getMethod("headers").invoke(record);
        Method add = Class.forName("org.apache.kafka.common.header.Headers").getMethod("add", String.class, byte[].class);
        for (String one : text.split(",")) add.invoke(headers, one.substring(0, one.indexOf('=')), bytes(one.substring(one.indexOf('=') + 1)));
    }

    static String headers(ConsumerRecord<byte[], byte[]> record) throws Exception {
        Method method;
        try {
            method = record.getClass().getMethod("headers");
        } catch (NoSuchMethodException e) {
            return "-";
        }
        StringBuilder out = new StringBuilder();
        Class<?> type = Class.forName("org.apache.kafka.common.header.Header");
        for (Object one : (Iterable<?>) method.invoke(record)) {
            out.append(out.length() == 0 ? "" : ",").append(type.getMethod("key").invoke(one)).append('=');
            out.append(text((byte[]) type.getMethod("value").invoke(one)));
        }
        return out.length() == 0 ? "-" : out.toString();
    }

    static String produce(String servers, String[] words, BufferedReader in) throws Exception {
        Map<String, Object> p = properties(servers, words, 4);
        p.put("acks", "all");
        p.putIfAbsent("linger.ms", "200");
        p.putIfAbsent("max.block.ms", "8000");
        p.putIfAbsent("retries", "3");
        p.put("compression.type", words[2]);
        int count = Integer.parseInt(words[3]);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String[] r = in.readLine().split(" ");
            Long timestamp = r[0].equals("-1") ? null : Long.valueOf(r[0]);
            records.add(new ProducerRecord<>(words[1], 0, timestamp, bytes(r[1]), bytes(r[2])));
            addHeaders(records.get(i), r[3]);
        }
        StringBuilder out = new StringBuilder("ok");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) sent.add(producer.send(record));
            for (Future<RecordMetadata> one : sent) out.append(' ').append(one.get(25, TimeUnit.SECONDS).offset());
        } finally {
            producer.close();
        }
        return out.toString();
    }

    @SuppressWarnings("unchecked")
    static Iterable<ConsumerRecord<byte[], byte[]>> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        Object found;
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            found = KafkaConsumer.class.getMethod("poll", duration).invoke(consumer, duration.getMethod("ofMillis", long.class).invoke(null, 200L));
        } catch (NoSuchMethodException e) {
            found = KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, 200L);
        }
        return (Iterable<ConsumerRecord<byte[], byte[]>>) found;
    }

    static String consume(String servers, String[] words) throws Exception {
        Map<String, Object> p = properties(servers, words, 5);
        p.put("enable.auto.commit", "false");
        p.put("auto.offset.reset", "none");
        p.put("group.id", "lines");
        p.put("session.timeout.ms", "9000");
        p.put("fetch.max.wait.ms", "100");
        StringBuilder out = new StringBuilder();
        TopicPartition place = new TopicPartition(words[1], 0);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        try {
            consumer.assign(Collections.singletonList(place));
            consumer.seek(place, Long.parseLong(words[2]));
            long end = System.currentTimeMillis() + 1000 * Long.parseLong(words[4]);
            for (int left = Integer.parseInt(words[3]); left > 0 && System.currentTimeMillis() < end; )
                for (ConsumerRecord<byte[], byte[]> r : poll(consumer)) {
                    out.append("record ").append(r.offset()).append(' ').append(r.timestampType()).append(' ').append(r.timestamp());
                    out.append(' ').append(text(r.key())).append(' ').append(text(r.value())).append(' ').append(headers(r)).append('\n');
                    left--;
                }
        } finally {
            consumer.close();
        }
        return out.append("end").toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = words[1].equals("produce") ? produce(words[0], drop(words), in) : consume(words[0], drop(words));
            } catch (Throwable e) {
                Throwable cause = e;
                while (cause.getCause() != null) cause = cause.getCause();
                answer = "error " + (e == cause ? "" : e.getClass().getSimpleName() + ": ") + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    static String[] drop(String[] words) {
        return Arrays.copyOfRange(words, 1, words.length);
    }
}
