import java.io.*;
import java.nio.ByteBuffer;
import java.util.*;
import kafka.javaapi.message.ByteBufferMessageSet;
import kafka.message.*;

/** The message sets of 0.8.2, driven as Sets.java is; their offsets are counted from 0. */
public class Sets08 {
    static final Map<String, CompressionCodec> CODECS = Map.of("none", NoCompressionCodec$.MODULE$, "gzip", GZIPCompressionCodec$.MODULE$,
        "snappy", SnappyCompressionCodec$.MODULE$, "lz4", LZ4CompressionCodec$.MODULE$);

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

    static String write(String[] words, BufferedReader in) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            String[] r = in.readLine().split(" ");
            messages.add(new Message(bytes(r[3]), bytes(r[2])));
        }
        return text(new ByteBufferMessageSet(CODECS.get(words[2]), messages).getBuffer()).substring(1);
    }

    static String read(String hex) {
        StringBuilder out = new StringBuilder();
        for (MessageAndOffset one : new ByteBufferMessageSet(ByteBuffer.wrap(bytes("x" + hex)))) {
            one.message().ensureValid();
            out.append("record ").append(one.offset()).append(" -1 ").append(text(one.message().key()));
            out.append(' ').append(text(one.message().payload())).append('\n');
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
