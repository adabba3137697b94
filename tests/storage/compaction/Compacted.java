// What the cleaner of Kafka 4.3.1 makes of a partition's folder, pass by pass, each dirty from where the last one ended.
// Usage: Compacted FOLDER SEGMENT_BYTES DELETE_RETENTION_MS PASS..., a pass being NOW_MS:END.
// Prints a line for each pass: its end, then BASE:MODIFIED_MS:LOG_HEX:TXNINDEX_HEX of each segment below END.
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class Compacted {
    static final Time FIXED = new Time() {
        public long milliseconds() { return 10_000; }
        public long nanoseconds() { return 10_000_000_000L; }
        public void sleep(long ms) { }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    };

    static String hex(Path path) throws Exception {
        return Files.exists(path) ? HexFormat.of().formatHex(Files.readAllBytes(path)) : "";
    }

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        Properties config = new Properties();
        config.put("cleanup.policy", "compact");
        config.put("internal.segment.bytes", arguments[1]);
        config.put("delete.retention.ms", arguments[2]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(folder, new LogConfig(config), 0, 0, scheduler, new BrokerTopicStats(), FIXED,
            1 << 30, new ProducerStateManagerConfig(1 << 30, false), 1 << 30, new LogDirFailureChannel(1), false,
            Optional.empty());
        long dirty = 0;
        for (int number = 3; number < arguments.length; number++) {
            String[] pass = arguments[number].split(":");
            Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "a", "b", FIXED);
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 16), 1 << 16, 1 << 20, 0.9,
                throttler, FIXED, partition -> { });
            long end = Long.parseLong(pass[1]);
            dirty = cleaner.doClean(new LogToClean(log, dirty, end, false), Long.parseLong(pass[0])).getKey();
            StringBuilder line = new StringBuilder().append(dirty);
            for (LogSegment segment : log.logSegments()) {
                if (segment.baseOffset() < end) {
                    String stem = String.format("%020d", segment.baseOffset());
                    line.append(' ').append(segment.baseOffset()).append(':').append(segment.lastModified()).append(':')
                        .append(hex(folder.toPath().resolve(stem + ".log"))).append(':')
                        .append(hex(folder.toPath().resolve(stem + ".txnindex")));
                }
            }
            System.out.println(line);
        }
        System.exit(0);
    }
}
