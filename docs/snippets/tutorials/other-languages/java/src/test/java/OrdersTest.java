import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

class OrdersTest {
    static final String IMAGE = System.getenv().getOrDefault("OTTLA_IMAGE", "ottla:dev");
    static final String TOKEN = UUID.randomUUID().toString();
    static final KafkaContainer KAFKA =
        new KafkaContainer(DockerImageName.parse(IMAGE).asCompatibleSubstituteFor("apache/kafka"))
            .withEnv("OTTLA_CONTROL", "0.0.0.0:9644").withEnv("OTTLA_CONTROL_TOKEN", TOKEN);

    @BeforeAll
    static void start() {
        KAFKA.addExposedPort(9644);
        KAFKA.start();
    }

    @AfterAll
    static void stop() {
        KAFKA.stop();
    }

    /** One call to the control plane. */
    static String control(String method, String path, String body) throws Exception {
        var uri = URI.create("http://" + KAFKA.getHost() + ":" + KAFKA.getMappedPort(9644) + "/v1" + path);
        var request = HttpRequest.newBuilder(uri).header("Authorization", "Bearer " + TOKEN)
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        var response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertTrue(response.statusCode() < 300, response::body);
        return response.body();
    }

    @Test
    void anOrderIsStoredOnceAndDeletedAfterEightDays() throws Exception {
        control("POST", "/topics", """
            {"name": "orders"}""");
        control("POST", "/faults", """
            {"action": "disconnect", "when": "after", "api": "Produce", "topic": "orders", "times": 1}""");
        var orders = new TopicPartition("orders", 0);
        Map<String, Object> settings = Map.of("bootstrap.servers", KAFKA.getBootstrapServers());
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            producer.send(new ProducerRecord<>("orders", "bread")).get();
            assertEquals(1, consumer.endOffsets(List.of(orders)).get(orders));

            control("POST", "/clock/advance", """
                {"ms": 691200000}""");
            assertEquals(1, consumer.beginningOffsets(List.of(orders)).get(orders));
        }
    }
}
