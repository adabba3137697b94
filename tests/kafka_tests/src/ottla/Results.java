package ottla;

import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/** Writes a JSON line for each test, at its beginning and at its end, to the file of -Dottla.results. */
public class Results implements TestExecutionListener {
    private static final AtomicInteger RUNNING = new AtomicInteger();
    private static final AtomicInteger STARTS = new AtomicInteger();

    private final Map<String, Long> begun = new ConcurrentHashMap<>();
    private final Map<String, Integer> starts = new ConcurrentHashMap<>();

    /** Notes that a broker starts, or that one has stopped: a test that has none is no test of a broker. */
    static void broker(boolean runs) {
        RUNNING.addAndGet(runs ? 1 : -1);
        if (runs)
            STARTS.incrementAndGet();
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        begun.put(test.getUniqueId(), System.nanoTime());
        starts.put(test.getUniqueId(), RUNNING.get() > 0 ? -1 : STARTS.get());
        if (test.isTest())
            write(test, "started", 0, null);
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        write(test, "skipped", 0, reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
        if (!test.isTest() && passed)
            return;
        double seconds = (System.nanoTime() - begun.getOrDefault(test.getUniqueId(), System.nanoTime())) / 1e9;
        String outcome = passed ? "passed" : result.getStatus() == TestExecutionResult.Status.ABORTED ? "skipped" : "failed";
        if (!passed && result.getThrowable().isPresent()) {
            StringWriter stack = new StringWriter();
            result.getThrowable().get().printStackTrace(new PrintWriter(stack));
            System.err.println("ottla: " + test.getDisplayName() + " of " + test.getSource().map(Object::toString).orElse("")
                + "\n" + stack);
        }
        write(test, outcome, seconds, result.getThrowable().map(Results::line).orElse(null));
    }

    /** Returns the first line of an exception and of its causes, with NeedsInternals and DidNotStart first. */
    private static String line(Throwable thrown) {
        StringBuilder text = new StringBuilder();
        String first = "";
        int depth = 0;
        for (Throwable one = thrown; one != null && depth < 6; one = one.getCause(), depth++) {
            String said = one.toString().split("\n")[0];
            if (one instanceof NeedsInternals || one instanceof DidNotStart)
                first = said + " <- ";
            text.append(text.length() == 0 ? "" : " <- ").append(said, 0, Math.min(said.length(), 400));
            for (Throwable other : one.getSuppressed())
                if (other instanceof NeedsInternals)
                    text.append(" (also ").append(other).append(")");
        }
        StringBuilder at = new StringBuilder();
        int frames = 0;
        for (StackTraceElement frame : thrown.getStackTrace())
            if (frame.getClassName().matches("(org.apache.kafka|kafka|integration.kafka|unit.kafka)\\..*(Test|Suite|Harness|TestUtils)[$\\w]*")
                && frames++ < 5)
                at.append(frames == 1 ? " @" : " < ").append(frame.getMethodName()).append(':').append(frame.getLineNumber());
        return first + text + at;
    }

    private synchronized void write(TestIdentifier test, String outcome, double seconds, String failure) {
        String file = System.getProperty("ottla.results");
        if (file == null)
            return;
        String name = test.getSource().map(source -> source instanceof MethodSource method ? method.getMethodName()
            : source instanceof ClassSource ? "(class)" : "").orElse("");
        String type = test.getSource().map(source -> source instanceof MethodSource method ? method.getClassName()
            : source instanceof ClassSource found ? found.getClassName() : "").orElse("");
        try (FileWriter out = new FileWriter(file, true)) {
            out.write("{\"class\": " + json(type) + ", \"method\": " + json(name) + ", \"name\": " + json(test.getDisplayName())
                + ", \"outcome\": " + json(outcome) + ", \"seconds\": " + String.format("%.1f", seconds)
                + ", \"failure\": " + json(failure)
                + ", \"broker\": " + (starts.getOrDefault(test.getUniqueId(), -1) != STARTS.get()) + "}\n");
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    private static String json(String text) {
        if (text == null)
            return "null";
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\')
                out.append('\\').append(c);
            else if (c < 32 || c > 126)
                out.append(String.format("\\u%04x", (int) c));
            else
                out.append(c);
        }
        return out.append('"').toString();
    }
}
