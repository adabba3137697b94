import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;
import kafka.api.FetchRequestBuilder;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The clients of 0.8.2, driven as Lines.java is: the first KafkaProducer, and SimpleConsumer of the Scala client. */
public class Lines08 {
    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] out = new byte[buffer.remaining()];
        buffer.get(out);
        return out;
    }

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

    static String produce(String servers, String[] words, BufferedReader in) throws Exception {
        Map<String, Object> p = new HashMap<>();
        p.put("bootstrap.servers", servers);
        p.put("client.id", "java");
        p.put("acks", "all");
        p.put("linger.ms", "200");
        p.put("retries", "3");
        p.put("metadata.fetch.timeout.ms", "8000");
        p.put("compression.type", words[2]);
        int count = Integer.parseInt(words[3]);
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String[] r = in.readLine().split(" ");
            records.add(new ProducerRecord<>(words[1], 0, bytes(r[1]), bytes(r[2])));
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

    static String consume(String servers, String[] words) throws Exception {
        String[] place = servers.split(":");
        StringBuilder out = new StringBuilder();
        SimpleConsumer consumer = new SimpleConsumer(place[0], Integer.parseInt(place[1]), 10000, 1 << 20, "java");
        try {
            long offset = Long.parseLong(words[2]), end = System.currentTimeMillis() + 1000 * Long.parseLong(words[4]);
            for (int left = Integer.parseInt(words[3]); left > 0 && System.currentTimeMillis() < end; ) {
                FetchResponse found = consumer.fetch(
                    new FetchRequestBuilder().clientId("java").addFetch(words[1], 0, offset, 1 << 20).maxWait(100).minBytes(1).build());
                if (found.hasError()) throw new IllegalStateException("error code " + found.errorCode(words[1], 0));
                for (MessageAndOffset one : found.messageSet(words[1], 0)) {
                    if (one.offset() < offset) continue;  // of a wrapper that begins before the offset asked for
                    out.append("record ").append(one.offset()).append(" NoTimestampType -1 ").append(text(bytes(one.message().key())));
                    out.append(' ').append(text(bytes(one.message().payload()))).append(" -\n");
                    offset = one.nextOffset();
                    left--;
                }
            }
        } finally {
            consumer.close();
        }
        return out.append("end").toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" "), rest = Arrays.copyOfRange(words, 1, words.length);
            String answer;
            try {
                answer = words[1].equals("produce") ? produce(words[0], rest, in) : consume(words[0], rest);
            } catch (Throwable e) {
                Throwable cause = e;
                while (cause.getCause() != null) cause = cause.getCause();
                answer = "error " + (e == cause ? "" : e.getClass().getSimpleName() + ": ") + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
