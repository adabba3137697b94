import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.*;
import org.apache.kafka.common.serialization.*;

/**
 * Delegation tokens with Apache's own clients: creates, describes, renews and expires them, logs in with them, and is
 * refused where Kafka refuses. Argument: the address of a listener with SASL. Prints a line for each step.
 */
public class Tokens {
    static final String COMMON = "org.apache.kafka.common.security.";

    interface Step {
        void run() throws Exception;
    }

    static Map<String, Object> by(String address, String mechanism, String module, String user, String password, String more) {
        Map<String, Object> p = new HashMap<>();
        p.put("bootstrap.servers", address);
        p.put("security.protocol", "SASL_PLAINTEXT");
        p.put("sasl.mechanism", mechanism);
        p.put("sasl.jaas.config", COMMON + module + " required username=\"" + user + "\" password=\"" + password + "\"" + more + ";");
        p.put("default.api.timeout.ms", "20000");
        p.put("request.timeout.ms", "10000");
        p.put("max.block.ms", "20000");
        return p;
    }

    static Map<String, Object> byPassword(String address, String user) {
        return by(address, "PLAIN", "plain.PlainLoginModule", user, "p", "");
    }

    static Map<String, Object> byToken(String address, String mechanism, DelegationToken token) {
        return by(address, mechanism, "scram.ScramLoginModule", token.tokenInfo().tokenId(), token.hmacAsBase64String(),
            " tokenauth=\"true\"");
    }

    static void check(boolean is, Object found) {
        if (!is) throw new IllegalStateException(String.valueOf(found));
    }

    static void refused(Class<? extends Exception> type, Step step) throws Exception {
        try {
            step.run();
        } catch (Exception e) {
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            check(type.isInstance(cause), cause);
            return;
        }
        throw new IllegalStateException("not refused with " + type.getSimpleName());
    }

    static void sendAndRead(Map<String, Object> p, String topic) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, topic)).get();
        }
        p.put("group.id", topic);
        p.put("auto.offset.reset", "earliest");
        try (Consumer<String, String> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Collections.singletonList(topic));
            long deadline = System.currentTimeMillis() + 20_000;
            while (System.currentTimeMillis() < deadline)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                    if (record.value().equals(topic)) return;
            throw new IllegalStateException("the record did not come");
        }
    }

    static void step(String name, Step step) {
        try {
            step.run();
            System.out.println("ok " + name);
        } catch (Exception e) {
            System.out.println("failed " + name + ": " + e + " " + e.getCause());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        KafkaPrincipal bob = new KafkaPrincipal("User", "bob");
        try (Admin ann = Admin.create(byPassword(address, "ann")); Admin renewer = Admin.create(byPassword(address, "bob"));
                Admin cat = Admin.create(byPassword(address, "cat"))) {
            DelegationToken token = ann.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(Collections.singletonList(bob))).delegationToken().get();
            step("create", () -> check(token.tokenInfo().ownerAsString().equals("User:ann")
                && token.tokenInfo().renewers().contains(bob), token));
            step("describe", () -> {
                List<DelegationToken> found = renewer.describeDelegationToken(
                    new DescribeDelegationTokenOptions().owners(Collections.singletonList(bob))).delegationTokens().get();
                check(found.equals(Collections.singletonList(token)), found);
            });
            step("renew", () -> {
                long expiry = renewer.renewDelegationToken(token.hmac(),
                    new RenewDelegationTokenOptions().renewTimePeriodMs(3_600_000)).expiryTimestamp().get();
                check(Math.abs(expiry - System.currentTimeMillis() - 3_600_000) < 60_000, expiry);
            });
            for (String mechanism : List.of("SCRAM-SHA-256", "SCRAM-SHA-512"))
                step(mechanism, () -> sendAndRead(byToken(address, mechanism, token), "by-" + mechanism));
            step("another user", () -> refused(DelegationTokenOwnerMismatchException.class,
                () -> cat.renewDelegationToken(token.hmac()).expiryTimestamp().get()));
            step("another type", () -> refused(InvalidPrincipalTypeException.class, () -> ann.createDelegationToken(
                new CreateDelegationTokenOptions().renewers(Collections.singletonList(new KafkaPrincipal("Group", "g"))))
                .delegationToken().get()));
            step("unknown", () -> refused(DelegationTokenNotFoundException.class,
                () -> ann.expireDelegationToken("x".getBytes(StandardCharsets.UTF_8)).expiryTimestamp().get()));
            try (Admin worker = Admin.create(byToken(address, "SCRAM-SHA-512", token))) {
                step("by token", () -> refused(UnsupportedByAuthenticationException.class,
                    () -> worker.createDelegationToken().delegationToken().get()));
            }
            step("expire", () -> ann.expireDelegationToken(token.hmac()).expiryTimestamp().get());
            step("after", () -> refused(SaslAuthenticationException.class,
                () -> sendAndRead(byToken(address, "SCRAM-SHA-256", token), "after")));
        }
    }
}
