import java.net.URI;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicAuthorizationException;
import org.apache.kafka.common.serialization.*;

public class OrdersTest {
    static final String BOOTSTRAP = System.getenv("OTTLA_BOOTSTRAP"), CONTROL = System.getenv("OTTLA_CONTROL");

    static String control(String method, String path, String body) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(CONTROL + "/v1" + path))
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 300) throw new AssertionError(method + " " + path + ": " + answer.body());
        return answer.body();
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError("not so: " + what);
    }

    public static void main(String[] arguments) throws Exception {
        var topic = new TopicPartition("orders-java", 0);
        control("POST", "/topics", """
            {"name": "orders-java"}""");
        Map<String, Object> settings = Map.of("bootstrap.servers", BOOTSTRAP, "retry.backoff.ms", 10);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            // The broker appends and its answer is lost: the producer sends again, and the order is there once.
            control("POST", "/faults", """
                {"api": "Produce", "topic": "orders-java", "times": 1, "action": "disconnect", "when": "after"}""");
            producer.send(new ProducerRecord<>("orders-java", "bread")).get();
            check(control("GET", "/faults", "").contains("\"fired\": 1"), "an answer is lost");
            check(consumer.endOffsets(List.of(topic)).get(topic) == 1, "the order is stored once");

            // The producer is as safe as it has to be, both times.
            check(control("POST", "/requests/assert", """
                {"api": "Produce", "topic": "orders-java", "acks": -1, "idempotent": true, "count": 2}""")
                .contains("\"passed\": true"), "sent safely, and sent again");

            // An error that is hard to bring about reaches the application.
            control("POST", "/faults", """
                {"api": "Produce", "topic": "orders-java", "times": 1,
                 "action": "error", "code": "TOPIC_AUTHORIZATION_FAILED"}""");
            try {
                producer.send(new ProducerRecord<>("orders-java", "milk")).get();
                throw new AssertionError("the order is not refused");
            } catch (ExecutionException refused) {
                check(refused.getCause() instanceof TopicAuthorizationException, "refused, and said why");
            }

            // Eight days pass, and retention takes the order; then all is as it was before.
            control("POST", "/snapshots", """
                {"name": "java"}""");
            control("POST", "/clock/advance", """
                {"ms": 691200000}""");
            check(consumer.beginningOffsets(List.of(topic)).get(topic) == 1, "the order is gone");
            control("POST", "/snapshots/java/restore", "");
            check(consumer.beginningOffsets(List.of(topic)).get(topic) == 0, "the order is back");
        }
        System.out.println("ok");
    }
}
