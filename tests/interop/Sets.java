import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.record.TimestampType;

/**
 * Apache's own writer and reader of records, of the clients from 0.10.2 on, driven line by line.
 *
 *     write MAGIC CODEC KIND COUNT     then COUNT lines "OFFSET TIMESTAMP KEY VALUE"; answers the set in hex
 *     read HEX                         answers lines "record OFFSET TIMESTAMP KEY VALUE" and "end"
 *
 * A key or value is "-" for null or "x" and its hex digits. After a failure the answer is "error CLASS: TEXT".
 */
public class Sets {
    static final Class<?> RECORDS = records();

    /** It moved in 4.1. */
    static Class<?> records() {
        for (String place : new String[] {"org.apache.kafka.common.record.MemoryRecords", "org.apache.kafka.common.record.internal.MemoryRecords"})
            try {
                return Class.forName(place);
            } catch (ClassNotFoundException e) {
                continue;
            }
        throw new IllegalStateException("no MemoryRecords");
    }

    static byte[] bytes(String text) {
        if (text.equals("-")) return null;
        byte[] out = new byte[text.length() / 2];
        for (int i = 0; i < out.length; i++) out[i] = (byte) Integer.parseInt(text.substring(1 + 2 * i, 3 + 2 * i), 16);
        return out;
    }

    static String text(ByteBuffer buffer) {
        if (buffer == null) return "-";
        StringBuilder out = new StringBuilder("x");
        for (ByteBuffer rest = buffer.duplicate(); rest.hasRemaining(); ) out.append(String.format("%02x", rest.get()));
        return out.toString();
    }

    /** The codec as this release's builder takes it: an enum, or since 3.8 an object of its own. */
    static Object codec(Class<?> type, String name) throws Exception {
        if (type.isEnum()) return type.getMethod("forName", String.class).invoke(null, name);
        Object builder = type.getMethod("of", String.class).invoke(null, name);
        Method build = Class.forName("org.apache.kafka.common.compress.Compression$Builder").getMethod("build");
        return build.invoke(builder);
    }

    static Object builder(byte magic, String codec, TimestampType kind, long base) throws Exception {
        for (Method method : RECORDS.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (!method.getName().equals("builder") || types.length < 4 || types.length > 5) continue;
            if (types[0] != ByteBuffer.class || types[1] != byte.class || types[3] != TimestampType.class) continue;
            if (types.length == 5 && types[4] != long.class) continue;
            Object[] given = {ByteBuffer.allocate(1 << 16), magic, codec(types[2], codec), kind, base};
            return method.invoke(null, Arrays.copyOf(given, types.length));
        }
        throw new IllegalStateException("no builder known");
    }

    static String write(String[] words, BufferedReader in) throws Exception {
        byte magic = Byte.parseByte(words[1]);
        Object builder = null;
        Method append = null;
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            String[] r = in.readLine().split(" ");
            long offset = Long.parseLong(r[0]);
            if (builder == null) {
                builder = builder(magic, words[2], TimestampType.forName(words[3]), offset);
                append = builder.getClass().getMethod("appendWithOffset", long.class, long.class, byte[].class, byte[].class);
            }
            append.invoke(builder, offset, Long.parseLong(r[1]), bytes(r[2]), bytes(r[3]));
        }
        Object built = builder.getClass().getMethod("build").invoke(builder);
        return text((ByteBuffer) RECORDS.getMethod("buffer").invoke(built)).substring(1);
    }

    static Object call(Object target, String... names) throws Exception {
        for (String name : names) {
            try {
                for (Class<?> type : new Class<?>[] {target.getClass(), target.getClass().getSuperclass()}) {
                    Method method = type.getMethod(name);
                    method.setAccessible(true);
                    return method.invoke(target);
                }
            } catch (NoSuchMethodException e) {
                continue;
            }
        }
        throw new IllegalStateException("none of " + Arrays.toString(names));
    }

    static String read(String hex) throws Exception {
        StringBuilder out = new StringBuilder();
        Object records = RECORDS.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes("x" + hex)));
        boolean entries = Arrays.stream(RECORDS.getMethods()).anyMatch(m -> m.getName().equals("deepEntries"));
        for (Object one : (Iterable<?>) call(records, entries ? "deepEntries" : "records")) {
            Object record = entries ? call(one, "record") : one;
            call(record, "ensureValid");
            out.append("record ").append(call(one, "offset")).append(' ').append(call(record, "timestamp"));
            out.append(' ').append(text((ByteBuffer) call(record, "key"))).append(' ').append(text((ByteBuffer) call(record, "value"))).append('\n');
        }
        return out.append("end").toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = words[0].equals("write") ? write(words, in) : read(words[1]);
            } catch (Throwable e) {
                Throwable cause = e;
                while (cause.getCause() != null) cause = cause.getCause();
                answer = "error " + cause.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
