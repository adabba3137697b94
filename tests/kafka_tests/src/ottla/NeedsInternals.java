package ottla;

/** A test uses an object in the Java process of Kafka, which no other broker has. */
public class NeedsInternals extends RuntimeException {
    public NeedsInternals(String what) {
        super(what);
    }
}
