import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.state.*;

/**
 * An application of Kafka Streams in a history (`history.py` has its format): makes one record from each record, exactly
 * once. Between them are a repartition topic and a state store of what was made: that of a transaction which was aborted must
 * not be in it.
 *
 * Arguments: history, process, number of its first value, bootstrap servers, application id, group protocol, topic, target,
 * its partitions, folder of its state.
 */
public class HistoryStreams {
    static final int KEYS = 50;
    static FileChannel history;
    static String process;
    static AtomicLong values;

    /** Adds one whole line, as each process does that writes to the file. */
    static void note(String type, String op, String rest) {
        String line = String.format(Locale.ROOT, "{\"at\":%.6f,\"process\":\"%s\",\"type\":\"%s\",\"op\":\"%s\",%s}\n",
            System.nanoTime() / 1e9, process, type, op, rest);  // the clock of the other processes, too
        try {
            history.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        } catch (IOException e) {
            e.printStackTrace();
            Runtime.getRuntime().halt(4);
        }
    }

    static long value(String data) {
        return Long.parseLong(data.substring(0, data.indexOf(':')));
    }

    static class Once implements Processor<String, String, String, String> {
        final String target;
        final int partitions;
        ProcessorContext<String, String> context;
        KeyValueStore<Long, Long> made;

        Once(String target, int partitions) {
            this.target = target;
            this.partitions = partitions;
        }

        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            made = context.getStateStore("made");
        }

        public void process(org.apache.kafka.streams.processor.api.Record<String, String> one) {
            long of = value(one.value()), next = values.incrementAndGet();
            if (made.putIfAbsent(of, next) != null) {
                System.err.println(of + " was made before, as the store has it");
                Runtime.getRuntime().halt(5);
            }
            note("invoke", "send", "\"partition\":\"" + target + "-" + next % partitions + "\",\"value\":" + next + ",\"of\":" + of);
            context.forward(one.withValue(next + ":"));
        }
    }

    @SuppressWarnings("removal")  // of the method that the lambda is, without a method to take its place
    public static void main(String[] args) throws Exception {
        history = FileChannel.open(Path.of(args[0]), StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        process = args[1];
        values = new AtomicLong(Long.parseLong(args[2]));
        String target = args[7];
        int partitions = Integer.parseInt(args[8]);
        Properties p = new Properties();
        p.put("bootstrap.servers", args[3]);
        p.put("application.id", args[4]);
        p.put("state.dir", args[9]);
        p.put("processing.guarantee", "exactly_once_v2");
        p.put("num.stream.threads", "2");
        p.put("commit.interval.ms", "100");
        p.put("topology.optimization", "none");
        p.put("consumer.auto.offset.reset", "earliest");
        p.put("consumer.max.poll.records", "100");
        if (args[5].equals("classic")) {
            p.put("consumer.session.timeout.ms", "4000");
            p.put("consumer.heartbeat.interval.ms", "500");
        } else { // the broker has the timeouts
            p.put("group.protocol", args[5]);
        }
        for (String of : List.of("reconnect.backoff.ms", "retry.backoff.ms"))
            p.put(of, "20");
        p.put("reconnect.backoff.max.ms", "200");
        p.put("request.timeout.ms", "5000");
        p.put("producer.transaction.timeout.ms", "6000");
        p.put("producer.max.block.ms", "10000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("made"), Serdes.Long(), Serdes.Long()));
        builder.stream(args[6], Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((key, data) -> "key " + value(data) % KEYS)
            .repartition(Repartitioned.<String, String>as("keyed").withKeySerde(Serdes.String()).withValueSerde(Serdes.String()))
            .process(() -> new Once(target, partitions), "made")
            .to(target, Produced.with(Serdes.String(), Serdes.String(),
                (topic, key, data, count) -> Optional.of(Set.of((int) (value(data) % partitions)))));
        KafkaStreams streams = new KafkaStreams(builder.build(), p);
        AtomicBoolean ends = new AtomicBoolean();
        CountDownLatch broken = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(thrown -> {
            thrown.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(before + " -> " + now);
            if (now == KafkaStreams.State.ERROR)
                broken.countDown();
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends.set(true);
            boolean isClosed = streams.close(Duration.ofSeconds(20));
            note("ok", "exit", "\"error\":" + (isClosed ? "null" : "\"the threads do not end\""));
            Runtime.getRuntime().halt(0);
        }));
        note("ok", "start", "\"client\":\"streams\",\"role\":\"application\"");
        streams.start();
        broken.await();
        if (!ends.get()) {
            note("ok", "exit", "\"error\":\"the application is in the state ERROR\"");
            Runtime.getRuntime().halt(3);
        }
    }
}
