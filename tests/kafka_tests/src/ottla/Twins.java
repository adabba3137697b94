package ottla;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Skips tests. Kafka runs a cluster test with separate controllers and with controllers in the brokers, at an odd number and
 * the next one; for another broker these are the same test, so -Dottla.twins=skip leaves out the second. Which of them
 * is the first differs with each process, where they are in a set. -Dottla.without=REGEX leaves out tests by their display
 * names.
 */
public class Twins implements ExecutionCondition {
    private static final Pattern NAME = Pattern.compile("\\[(\\d+)\\] Type=Raft-(Combined|Isolated)");
    private static final Set<String> FIRST = ConcurrentHashMap.newKeySet();

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        boolean twin = "skip".equals(System.getProperty("ottla.twins")) && isTwin(context);
        String without = System.getProperty("ottla.without");
        if (without != null && Pattern.compile(without).matcher(context.getDisplayName()).find())
            return ConditionEvaluationResult.disabled("without");
        return twin ? ConditionEvaluationResult.disabled("twin") : ConditionEvaluationResult.enabled("");
    }

    private static boolean isTwin(ExtensionContext context) {
        Matcher found = NAME.matcher(context.getDisplayName());
        if (!found.find())
            return false;
        int number = Integer.parseInt(found.group(1));
        String method = context.getParent().map(ExtensionContext::getUniqueId).orElse("");
        if (number % 2 != 0) {
            FIRST.add(method + number + found.group(2));
            return false;
        }
        return FIRST.contains(method + (number - 1) + (found.group(2).equals("Combined") ? "Isolated" : "Combined"));
    }
}
