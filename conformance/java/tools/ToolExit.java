import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.function.IntConsumer;

/** Catches what Kafka's tools call to end the process. The class has moved in Kafka 4.4, hence the reflection. */
final class ToolExit {
    private static final String[] CLASSES = {
        "org.apache.kafka.common.utils.Exit", "org.apache.kafka.common.utils.internals.Exit",
    };

    private ToolExit() {
    }

    /** From now on a tool calls this with its status, and gets what it throws. */
    static void catchWith(IntConsumer exited) {
        for (String name : CLASSES) {
            try {
                Class<?> exit = Class.forName(name);
                Class<?> procedure = Class.forName(name + "$Procedure");
                Object caught = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure},
                    (proxy, method, arguments) -> {
                        if (!method.getName().equals("execute")) {
                            throw new UnsupportedOperationException(method.toString());
                        }
                        exited.accept((Integer) arguments[0]);
                        return null;
                    });
                for (String setter : new String[] {"setExitProcedure", "setHaltProcedure"}) {
                    Method set = exit.getMethod(setter, procedure);
                    set.invoke(null, caught);
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
