import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

/** Kafka's own command line tools, run in this process, since a new one for each would take longer than the tool. */
final class Tools {
    private final String bootstrap;
    /** What the tool wants to be done while the process ends. */
    private final List<Runnable> hooks = new CopyOnWriteArrayList<>();

    Tools(String bootstrap) {
        this.bootstrap = bootstrap;
        ToolExit.catchWith(Tools::exited);
        ToolExit.catchHooks(hooks::add);
    }

    /** Runs the tool of that class and answers with what it printed; a tool that fails is an error. */
    String run(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        command.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        var in = System.in;
        System.setOut(stream);
        System.setIn(new ByteArrayInputStream(
            command.path("input").asText().getBytes(StandardCharsets.UTF_8)));
        FutureTask<Object> task = new FutureTask<>(() ->
            Class.forName(Workload.text(command, "class")).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0])));
        Thread thread = new Thread(task, "tool");
        thread.setDaemon(true);
        thread.start();
        try {
            task.get(150, TimeUnit.SECONDS);
        } catch (ExecutionException error) {
            Throwable root = error.getCause();
            while (!(root instanceof Exited) && root.getCause() != null) {
                root = root.getCause();
            }
            if (!(root instanceof Exited exited)) {
                throw error;
            }
            if (exited.status != 0) {
                throw new IllegalStateException("exit status " + exited.status + ": " + bytes);
            }
        } finally {
            System.setOut(out);
            System.setIn(in);
        }
        // The console producer is closed only there. Left open, it would look for the broker at each change of hands.
        hooks.forEach(Runnable::run);
        hooks.clear();
        return bytes.toString(StandardCharsets.UTF_8);
    }

    private static void exited(int status) {
        throw new Exited(status);
    }

    /** The end of a tool that would have been the end of this process. */
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            this.status = status;
        }
    }
}
