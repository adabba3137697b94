import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.serialization.*;

/**
 * Logs in to a broker in several ways, each with records that are written and read.
 *
 * Arguments: a file in PEM with what is trusted, one with a key and its certificate, in PEM or PKCS12, how many records
 * each way writes, one in a millisecond, or one record without this; and how many milliseconds a transaction lasts: one that
 * is committed and one that is aborted, in place of the records. A line of the standard input is one way: name, address, security protocol, mechanism, user, password, separated by tabs. With OAUTHBEARER the
 * password is the scope of an unsecured token; with GSSAPI it is a keytab, and the name of the service follows. Prints a
 * line for each.
 */
public class Secured {
    static final String COMMON = "org.apache.kafka.common.security.";

    static String module(String mechanism, String user, String password) {
        if (mechanism.equals("OAUTHBEARER"))
            return COMMON + "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"" + user
                    + "\" unsecuredLoginListClaim_scope=\"|" + password + "\";";
        if (mechanism.equals("GSSAPI"))
            return "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab=\"" + password
                    + "\" principal=\"" + user + "\";";
        String name = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String quoted = password.replace("\"", "\\\"");
        return COMMON + name + " required username=\"" + user + "\" password=\"" + quoted + "\";";
    }

    static Properties properties(String[] way, String trusted, String own) {
        Properties p = new Properties();
        p.put("bootstrap.servers", way[1]);
        p.put("security.protocol", way[2]);
        p.put("default.api.timeout.ms", "20000");
        p.put("request.timeout.ms", "10000");
        p.put("max.block.ms", "60000");
        p.put("ssl.truststore.type", "PEM");
        p.put("ssl.truststore.location", trusted);
        if (way[2].equals("SSL")) {
            p.put("ssl.keystore.type", own.endsWith(".p12") ? "PKCS12" : "PEM");
            p.put("ssl.keystore.location", own);
            if (own.endsWith(".p12")) p.put("ssl.keystore.password", "changeit");
        }
        if (way[2].startsWith("SASL")) {
            p.put("sasl.mechanism", way[3]);
            p.put("sasl.jaas.config", module(way[3], way[4], way[5]));
            if (way.length > 6) p.put("sasl.kerberos.service.name", way[6]);
        }
        return p;
    }

    static void sendAndRead(Properties p, String topic, int records) throws Exception {
        Set<String> missing = new HashSet<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < records; i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, topic + i)));
                missing.add(topic + i);
                if (records > 1) Thread.sleep(1);
            }
            for (Future<RecordMetadata> one : sent) one.get();
        }
        read(p, topic, missing);
    }

    static void read(Properties p, String topic, Set<String> missing) throws Exception {
        p.put("group.id", topic);
        p.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + (missing.size() > 1 ? 60_000 : 20_000);
            while (System.currentTimeMillis() < deadline)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.value().startsWith("aborted")) throw new IllegalStateException("an aborted record");
                    if (missing.remove(record.value()) && missing.isEmpty()) return;
                }
            throw new IllegalStateException(missing.size() + " records did not come");
        }
    }

    static void transact(Properties p, String topic, long millis) throws Exception {
        Set<String> missing = new HashSet<>();
        p.put("transactional.id", topic);
        try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (String kind : Arrays.asList("aborted", "committed")) {
                producer.beginTransaction();
                long end = System.currentTimeMillis() + millis;
                for (int i = 0; System.currentTimeMillis() < end; i++) {
                    producer.send(new ProducerRecord<>(topic, kind + i)).get();
                    if (kind.equals("committed")) missing.add(kind + i);
                    Thread.sleep(20);
                }
                if (kind.equals("committed")) producer.commitTransaction();
                else producer.abortTransaction();
            }
        }
        p.remove("transactional.id");
        p.put("isolation.level", "read_committed");
        read(p, topic, missing);
    }

    public static void main(String[] arguments) throws Exception {
        int records = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 1;
        long millis = arguments.length > 3 ? Long.parseLong(arguments[3]) : 0;
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] way = lines.nextLine().split("\t", -1);
            try {
                Properties p = properties(way, arguments[0], arguments[1]);
                if (millis > 0) transact(p, way[0], millis);
                else sendAndRead(p, way[0], records);
                System.out.println(way[0] + " ok");
            } catch (Exception e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                boolean refused = cause instanceof AuthenticationException;
                System.out.println(way[0] + (refused ? " refused" : " failed " + e + " " + e.getCause()));
            }
        }
    }
}
