// What Kafka 4's cleaner makes of stored logs. Usage: Cleaned RULE FILE..., one line of hex each, or "refused".
// RULE: all, thirds or sevenths (which records stay); "empty" keeps the headers of batches that lose all records.
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

public class Cleaned {
    static boolean stays(String rule, long offset) {
        return switch (rule) {
            case "all" -> true;
            case "thirds" -> offset % 3 != 1;
            case "sevenths" -> offset % 5 != 4 && offset % 7 != 0;
            default -> offset / 5 % 2 == 0 && offset % 2 == 0;
        };
    }

    public static void main(String[] arguments) throws Exception {
        String rule = arguments[0];
        RecordFilter.BatchRetention retention =
            rule.equals("empty") ? RecordFilter.BatchRetention.RETAIN_EMPTY : RecordFilter.BatchRetention.DELETE_EMPTY;
        for (String file : Arrays.asList(arguments).subList(1, arguments.length)) {
            RecordFilter filter = new RecordFilter(1000, 777) {
                @Override
                protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                    return new BatchRetentionResult(retention, false);
                }

                @Override
                protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                    return stays(rule, record.offset());
                }
            };
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(Path.of(file))));
            try {
                ByteBuffer made = records.filterTo(filter, ByteBuffer.allocate(1 << 20), BufferSupplier.NO_CACHING)
                    .outputBuffer().flip();
                System.out.println(HexFormat.of().formatHex(made.array(), 0, made.limit()));
            } catch (IllegalStateException refused) {
                System.out.println("refused");
            }
        }
    }
}
