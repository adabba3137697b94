package ottla;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Skips tests. Kafka runs each cluster test with separate controllers and, at even numbers, with controllers in the brokers;
 * for another broker these are the same test, so -Dottla.twins=skip leaves out the second. -Dottla.without=REGEX leaves
 * out tests by their display names.
 */
public class Twins implements ExecutionCondition {
    private static final Pattern NAME = Pattern.compile("\\[(\\d+)\\] Type=Raft-Combined");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        Matcher found = NAME.matcher(context.getDisplayName());
        boolean twin = "skip".equals(System.getProperty("ottla.twins")) && found.find() && Integer.parseInt(found.group(1)) % 2 == 0;
        String without = System.getProperty("ottla.without");
        if (without != null && Pattern.compile(without).matcher(context.getDisplayName()).find())
            return ConditionEvaluationResult.disabled("without");
        return twin ? ConditionEvaluationResult.disabled("twin") : ConditionEvaluationResult.enabled("");
    }
}
