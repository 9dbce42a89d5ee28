import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.message.FindCoordinatorRequestData;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/** One connection that sends requests as they are, in any version, right or wrong. */
final class Wire implements AutoCloseable {
    private final Socket socket;
    private int correlation;

    Wire(String bootstrap) throws IOException {
        String[] parts = bootstrap.split(":");
        socket = new Socket(parts[0], Integer.parseInt(parts[1]));
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(120_000);
    }

    AbstractResponse ask(ApiKeys api, int version, ApiMessage message) throws IOException {
        RequestHeader header = send(api, version, message);
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] answer = new byte[in.readInt()];
        in.readFully(answer);
        return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
    }

    /** Sends a request whose answer nobody reads. */
    RequestHeader send(ApiKeys api, int version, ApiMessage message) throws IOException {
        RequestHeader header = new RequestHeader(api, (short) version, "wire", correlation++);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        int size = header.data().size(cache, header.headerVersion()) + message.size(cache, (short) version);
        ByteBuffer frame = ByteBuffer.allocate(4 + size);
        frame.putInt(size);
        ByteBufferAccessor writable = new ByteBufferAccessor(frame);
        header.data().write(writable, cache, header.headerVersion());
        message.write(writable, cache, (short) version);
        socket.getOutputStream().write(frame.array());
        socket.getOutputStream().flush();
        return header;
    }

    /** Waits until a group has a coordinator. Asking creates the topic of the coordinators, which takes a while. */
    void awaitCoordinator(String group) throws Exception {
        Script.await("a coordinator of " + group, () -> errors(ask(ApiKeys.FIND_COORDINATOR, 6,
            new FindCoordinatorRequestData().setKeyType((byte) 0).setCoordinatorKeys(List.of(group)))).equals("[NONE]"));
    }

    /** The errors of an answer, each once, without those that are none where there are others. */
    static String errors(AbstractResponse response) {
        Set<Errors> all = new TreeSet<>(response.errorCounts().keySet());
        if (all.size() > 1) {
            all.remove(Errors.NONE);
        }
        return all.toString();
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
