import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.*;

/**
 * Runs Kafka's command line tools in this process, since a new Java process for each would take longer than the tools
 * do: a tool's output is caught, and its exit becomes an exception.
 */
final class ToolRun {
    private ToolRun() {
    }

    /** Everything that a tool's main method prints on either stream, and its exit status if it is not 0. */
    static String of(String name, String... arguments) {
        ToolExit.catchWith(ToolRun::exited);
        PrintStream out = System.out;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        PrintStream err = System.err;
        System.setOut(stream);
        System.setErr(stream);
        String ending = "";
        exit = null;
        caught = bytes;
        ExecutorService runner = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        try {
            runner.submit(() -> {
                try {
                    call(name, arguments);
                    return null;
                } catch (Throwable error) {
                    throw new ExecutionException(error);
                }
            }).get(60, TimeUnit.SECONDS);
        } catch (TimeoutException error) {
            ending = "! it did not end in a minute";
        } catch (Exception error) {
            Throwable root = error;
            while (root instanceof ExecutionException && root.getCause() != null) {
                root = root.getCause();
            }
            if (!(root instanceof Exited)) {
                ending = "! " + root.getClass().getSimpleName() + ": " + root.getMessage();
            }
        } finally {
            runner.shutdownNow();
            System.setOut(out);
            System.setErr(err);
        }
        if (exit != null) {
            // The process would have ended there, whatever the tool does with the exception.
            String until = new String(bytes.toByteArray(), 0, exit.length, StandardCharsets.UTF_8);
            return exit.status == 0 ? until : until + "! exit status " + exit.status;
        }
        return bytes.toString(StandardCharsets.UTF_8) + ending;
    }

    private static void call(String name, String[] arguments) throws Throwable {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException error) {
            throw error.getCause();
        }
    }

    /** The tool's first exit, and the output it is caught in. */
    private static volatile Exited exit;
    private static volatile ByteArrayOutputStream caught;

    private static void exited(int status) {
        if (exit == null) {
            exit = new Exited(status, caught.size());
        }
        throw exit;
    }

    /** The end of a tool that would have been the end of this process. */
    private static final class Exited extends RuntimeException {
        final int status;
        final int length;

        Exited(int status, int length) {
            this.status = status;
            this.length = length;
        }
    }
}
