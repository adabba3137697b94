import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Lines "Name version hex" in: the message read and written again by Apache's generated class, or "-" without one. */
public class Codec {
    static final String[] NAMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.server.common.%s",
    };

    static Message empty(String name) throws Exception {
        for (String pattern : NAMES) {
            try {
                return (Message) Class.forName(String.format(pattern, name)).getConstructor().newInstance();
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        return null;
    }

    static String again(String name, short version, String hex) throws Exception {
        Message message = empty(name);
        if (message == null || version < message.lowestSupportedVersion() || version > message.highestSupportedVersion())
            return "-";
        ByteBuffer buffer = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) return "!left over: " + buffer.remaining();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        return HexFormat.of().formatHex(out.array());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            try {
                out.append(again(words[0], Short.parseShort(words[1]), words[2])).append('\n');
            } catch (Exception | LinkageError e) {
                out.append("!").append(e).append('\n');
            }
        }
        System.out.print(out);
    }
}
