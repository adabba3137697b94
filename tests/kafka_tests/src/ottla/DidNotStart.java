package ottla;

/** The broker refused to start with the configs of a test; the message is its last line. */
public class DidNotStart extends RuntimeException {
    public DidNotStart(String why) {
        super(why);
    }
}
