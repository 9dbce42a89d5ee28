import java.lang.reflect.Proxy;
import java.util.function.Consumer;
import java.util.function.IntConsumer;

/**
 * Catches what Kafka's tools call to end the process, and what they leave to be done while it ends. The class has moved in
 * Kafka 4.4, hence the reflection.
 */
final class ToolExit {
    private static final String[] CLASSES = {
        "org.apache.kafka.common.utils.Exit", "org.apache.kafka.common.utils.internals.Exit",
    };

    private ToolExit() {
    }

    /** From now on a tool calls this with its status, and gets what it throws. */
    static void catchWith(IntConsumer exited) {
        replace("Procedure", "execute", arguments -> exited.accept((Integer) arguments[0]),
            "setExitProcedure", "setHaltProcedure");
    }

    /** From now on this gets what a tool wants to be done while the process ends. */
    static void catchHooks(Consumer<Runnable> added) {
        replace("ShutdownHookAdder", "addShutdownHook", arguments -> added.accept((Runnable) arguments[1]),
            "setShutdownHookAdder");
    }

    private static void replace(String type, String method, Consumer<Object[]> called, String... setters) {
        for (String name : CLASSES) {
            try {
                Class<?> exit = Class.forName(name);
                Class<?> replaced = Class.forName(name + "$" + type);
                Object caught = Proxy.newProxyInstance(replaced.getClassLoader(), new Class<?>[] {replaced},
                    (proxy, invoked, arguments) -> {
                        if (!invoked.getName().equals(method)) {
                            throw new UnsupportedOperationException(invoked.toString());
                        }
                        called.accept(arguments);
                        return null;
                    });
                for (String setter : setters) {
                    exit.getMethod(setter, replaced).invoke(null, caught);
                }
                return;
            } catch (ClassNotFoundException error) {
                // The class of another version.
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }
        throw new IllegalStateException("Kafka has no class through which tools exit");
    }
}
