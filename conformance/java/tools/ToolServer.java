import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/**
 * Runs Kafka's command line tools one after the other in this process, since a new Java process for each would take longer
 * than the tools do. A line of standard input is a JSON object with a tool's class, arguments and standard input; the line
 * of standard output that answers it has the tool's exit status and what it has printed on both streams. As in a process of
 * its own, a tool that does not exit ends with its last thread that is not a daemon. What a tool leaves to be done while its
 * process ends (the console producer sends its last records there) is done before the answer. A tool that does not end ends
 * this process, with the reason on standard error.
 */
public final class ToolServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PATIENCE_SECONDS = 300;
    /** How long a tool may go on after it has called the exit, from another thread than its first. */
    private static final int UNWIND_MS = 2000;
    private static final int HOOKS_MS = 60_000;
    /** The time between two checks whether the threads of a tool have ended. */
    private static final long LOOK_NANOS = 5_000_000;
    /**
     * The tool that a thread belongs to. Its threads inherit it, so a thread that a tool leaves behind neither prints into
     * the output of the next one, nor ends it.
     */
    private static final InheritableThreadLocal<Run> RUN = new InheritableThreadLocal<>();

    private ToolServer() {
    }

    public static void main(String[] none) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        PrintStream errors = System.err;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // Set once, because Scala's println keeps the stream that it finds first.
        System.setOut(switched(run -> run.out));
        System.setErr(switched(run -> run.err));
        ToolExit.catchWith(ToolServer::exited);
        ToolExit.catchHooks(hook -> RUN.get().hooks.add(hook));
        try {
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(answer(JSON.readTree(line)));
            }
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // An exception would not end the process while threads of the tool run.
            error.printStackTrace(errors);
            Runtime.getRuntime().halt(1);
        }
    }

    private static String answer(JsonNode request) throws Exception {
        String tool = request.get("tool").asText();
        String[] arguments = JSON.convertValue(request.get("arguments"), String[].class);
        System.setIn(new ByteArrayInputStream(request.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        Run run = new Run();
        ThreadGroup threads = new ThreadGroup(tool);
        // Not a daemon, as in a process: the threads that it starts inherit this.
        Thread thread = new Thread(threads, () -> {
            RUN.set(run);
            int status = statusOf(tool, arguments);
            while (!run.hasEnded() && hasOthers(threads)) {
                LockSupport.parkNanos(LOOK_NANOS);
            }
            run.end(status);
        }, "main");
        thread.start();
        if (!run.ended.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(tool + " does not end");
        }
        thread.join(UNWIND_MS);
        Thread last = new Thread(() -> {
            RUN.set(run);
            for (Runnable hook : run.hooks) {
                try {
                    hook.run();
                } catch (Throwable error) {
                    // In a process each has its own thread, so one that fails does not affect the others.
                    error.printStackTrace();
                }
            }
        }, "hooks");
        run.last = last;
        last.start();
        last.join(HOOKS_MS);
        if (last.isAlive()) {
            throw new IllegalStateException("what " + tool + " left to be done at its end does not end");
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("status", run.status);
        answer.put("out", run.out.toString(StandardCharsets.UTF_8));
        answer.put("err", run.err.toString(StandardCharsets.UTF_8));
        return JSON.writeValueAsString(answer);
    }

    /** The exit status, if the tool does not call the exit. */
    private static int statusOf(String tool, String[] arguments) {
        try {
            Method main = Class.forName(tool).getMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                error.getCause().printStackTrace();
            }
            return 1;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
    }

    /** Whether non-daemon threads other than the current one run. */
    private static boolean hasOthers(ThreadGroup threads) {
        Thread[] running = new Thread[2 * threads.activeCount() + 16];
        int count = threads.enumerate(running);
        for (int index = 0; index < count; index++) {
            if (running[index] != Thread.currentThread() && !running[index].isDaemon()) {
                return true;
            }
        }
        return false;
    }

    private static void exited(int status) {
        Run run = RUN.get();
        if (run != null) {
            run.end(status);
        }
        throw new Exited();
    }

    /** A stream that leads to the output of the tool whose thread prints. */
    private static PrintStream switched(Function<Run, OutputStream> output) {
        return new PrintStream(new OutputStream() {
            @Override
            public void write(int octet) throws IOException {
                write(new byte[] {(byte) octet}, 0, 1);
            }

            @Override
            public void write(byte[] octets, int from, int length) throws IOException {
                Run run = RUN.get();
                if (run != null && run.mayPrint()) {
                    output.apply(run).write(octets, from, length);
                }
            }
        }, true, StandardCharsets.UTF_8);
    }

    private static final class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        final CountDownLatch ended = new CountDownLatch(1);
        int status;
        /** The thread that does what is left to do after the end. */
        volatile Thread last;

        /** The first end counts: the process would have ended there, whatever the tool does next. */
        synchronized void end(int status) {
            if (!hasEnded()) {
                // The status of a process has eight bits.
                this.status = status & 0xff;
                ended.countDown();
            }
        }

        boolean hasEnded() {
            return ended.getCount() == 0;
        }

        boolean mayPrint() {
            return !hasEnded() || Thread.currentThread() == last;
        }
    }

    /** The end of a tool that would have been the end of this process. */
    private static final class Exited extends RuntimeException {
    }
}
