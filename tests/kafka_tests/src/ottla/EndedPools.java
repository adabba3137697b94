package ottla;

import java.lang.reflect.Method;

import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;

/**
 * Lets the threads of pools end after each test. ExecutorService.awaitTermination returns while the last thread still
 * leaves its method, and Kafka's check for threads that stay, which follows at once, sometimes found it
 * (ConsumerBounceTest.testAsyncClose, on each broker). A thread that stays is still found.
 */
public class EndedPools implements InvocationInterceptor {
    private static final long PATIENCE_MS = 20;

    @Override
    public void interceptAfterEachMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> method,
            ExtensionContext context) throws Throwable {
        invocation.proceed();
        for (Thread thread : Thread.getAllStackTraces().keySet())
            if (thread.getName().matches("pool-\\d+-thread-\\d+"))
                thread.join(PATIENCE_MS);
    }
}
