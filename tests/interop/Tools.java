// Kafka's own command line tools, one after the other in one process.
//
// A line of stdin is a command: the class and its arguments, parted by tabs. What it printed on stdout and stderr comes
// back with one line before each: "out N" and "err N", N being the bytes, and "exit CODE" at the end. A line that the
// command reads from its own stdin is "y".
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

public class Tools {
    /** Ends a command in place of the process. Some commands catch it and exit again: the first code is theirs. */
    static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    static Integer code;

    static Class<?> exits() throws Exception {
        for (String name : new String[] {"org.apache.kafka.common.utils.Exit", "org.apache.kafka.common.utils.internals.Exit"}) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new IllegalStateException("no class Exit");
    }

    static void catchExits() throws Exception {
        Class<?> exits = exits();
        Class<?> procedure = Class.forName(exits.getName() + "$Procedure");
        Object ends = java.lang.reflect.Proxy.newProxyInstance(
            procedure.getClassLoader(), new Class<?>[] {procedure},
            (proxy, method, arguments) -> {
                if (code == null) code = (Integer) arguments[0];
                throw new Ended();
            });
        exits.getMethod("setExitProcedure", procedure).invoke(null, ends);
    }

    static int run(String[] words) throws Exception {
        code = null;
        try {
            Class.forName(words[0]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            return code == null ? 0 : code;
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Ended || code != null) return code;
            thrown.getCause().printStackTrace();
            return 1;
        }
    }

    public static void main(String[] arguments) throws Exception {
        catchExits();
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = commands.readLine()) != null;) {
            ByteArrayOutputStream out = new ByteArrayOutputStream(), err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            System.setIn(new ByteArrayInputStream("y\n".getBytes()));
            int code = run(line.split("\t", -1));
            System.out.flush();
            System.err.flush();
            answers.print("out " + out.size() + "\n");
            answers.write(out.toByteArray());
            answers.print("err " + err.size() + "\n");
            answers.write(err.toByteArray());
            answers.print("exit " + code + "\n");
            answers.flush();
        }
    }
}
