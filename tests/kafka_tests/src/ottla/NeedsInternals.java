package ottla;

import org.apache.kafka.test.NoRetryException;

/** A test uses an object in the Java process of Kafka, which no other broker has. Kafka's helpers do not try it again. */
public class NeedsInternals extends NoRetryException {
    private final String what;

    public NeedsInternals(String what) {
        super(null);
        this.what = what;
    }

    @Override
    public String getMessage() {
        return what;
    }
}
