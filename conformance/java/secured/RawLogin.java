import java.io.*;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.regex.Pattern;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.requests.*;

/** A connection on which a login is spoken by hand, right or wrong, and what comes back, and when. */
final class RawLogin implements AutoCloseable {
    /** A little less than `connection.failed.authentication.delay.ms`. */
    private static final long LATE_MS = 350;
    private static final int CORRELATION = 7;
    private static final Pattern DELAY = Pattern.compile("(answered|closed) late|open]$");
    private final Socket socket;
    private long sentAt;
    private RequestHeader header;
    /** Whether all of the next answer is shown, and not only its errors. */
    private boolean isWhole;

    RawLogin(String address) throws IOException {
        String[] parts = address.split(":");
        socket = new Socket(parts[0], Integer.parseInt(parts[1]));
        socket.setTcpNoDelay(true);
        socket.setSoTimeout((int) Script.PATIENCE.toMillis());
    }

    /**
     * What is heard in a talk. A pause of the machine delays an answer or an end, and never hastens one: a talk in which
     * something is late, or which does not end the connection, is held again, and counts if less of it is delayed.
     */
    static Object undelayed(Script.Step talk) throws Exception {
        Object heard = talk.run();
        if (delays(heard) == 0) {
            return heard;
        }
        Object again = talk.run();
        return delays(again) < delays(heard) ? again : heard;
    }

    private static long delays(Object heard) {
        return DELAY.matcher(String.valueOf(heard)).results().count();
    }

    RawLogin bytes(byte[] bytes) throws IOException {
        sentAt = System.nanoTime();
        try {
            socket.getOutputStream().write(bytes);
            socket.getOutputStream().flush();
        } catch (IOException gone) {
            // What the peer has done is read below.
        }
        return this;
    }

    RawLogin frame(byte[] frame) throws IOException {
        return bytes(ByteBuffer.allocate(4 + frame.length).putInt(frame.length).put(frame).array());
    }

    RawLogin request(ApiKeys api, int version, byte[] body) throws IOException {
        isWhole = false;
        header = new RequestHeader(api, (short) Math.min(version, api.latestVersion()), "raw", CORRELATION);
        boolean isFlexible = api.requestHeaderVersion((short) version) >= 2;
        ByteBuffer frame = ByteBuffer.allocate(64 + body.length);
        frame.putShort(api.id).putShort((short) version).putInt(CORRELATION);
        frame.putShort((short) 3).put("raw".getBytes(StandardCharsets.UTF_8));
        if (isFlexible) {
            frame.put((byte) 0);
        }
        frame.put(body);
        return frame(Arrays.copyOf(frame.array(), frame.position()));
    }

    /** A request that is not part of a login. All of its answer is shown. */
    RawLogin other(ApiKeys api, int version, ApiMessage message) throws IOException {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer body = ByteBuffer.allocate(message.size(cache, (short) version));
        message.write(new ByteBufferAccessor(body), cache, (short) version);
        request(api, version, body.array());
        isWhole = true;
        return this;
    }

    RawLogin versions(int version, String software) throws IOException {
        if (version < 3) {
            return request(ApiKeys.API_VERSIONS, version, new byte[0]);
        }
        byte[] name = software.getBytes(StandardCharsets.UTF_8);
        ByteBuffer body = ByteBuffer.allocate(3 + 2 * name.length);
        for (int i = 0; i < 2; i++) {
            body.put((byte) (name.length + 1)).put(name);
        }
        return request(ApiKeys.API_VERSIONS, version, body.put((byte) 0).array());
    }

    RawLogin handshake(int version, String mechanism) throws IOException {
        byte[] name = mechanism.getBytes(StandardCharsets.UTF_8);
        return request(ApiKeys.SASL_HANDSHAKE, version,
            ByteBuffer.allocate(2 + name.length).putShort((short) name.length).put(name).array());
    }

    RawLogin authenticate(int version, byte[] token) throws IOException {
        ByteBuffer body = ByteBuffer.allocate(6 + token.length);
        if (version < 2) {
            body.putInt(token.length).put(token);
        } else {
            int length = token.length + 1;
            for (; length > 127; length >>>= 7) {
                body.put((byte) (length & 127 | 128));
            }
            body.put((byte) length).put(token).put((byte) 0);
        }
        return request(ApiKeys.SASL_AUTHENTICATE, version, Arrays.copyOf(body.array(), body.position()));
    }

    RawLogin metadata() throws IOException {
        return request(ApiKeys.METADATA, 1, new byte[] {-1, -1, -1, -1});
    }

    /** What comes next, and whether it was held back: an answer, or the end of the connection. */
    Object next() {
        byte[] frame = frameRead();
        if (frame == null) {
            return when("closed");
        }
        return List.of(when("answered"), shown(frame));
    }

    /** The same for a token without a header. */
    Object nextToken() {
        byte[] frame = frameRead();
        return frame == null ? when("closed") : List.of(when("answered"), token(frame));
    }

    /** The bytes of the next token, which is part of an exchange. */
    byte[] challenge() throws IOException {
        byte[] frame = frameRead();
        SaslAuthenticateResponse response =
            (SaslAuthenticateResponse) AbstractResponse.parseResponse(ByteBuffer.wrap(frame), header);
        return response.saslAuthBytes();
    }

    private byte[] frameRead() {
        try {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            int length = in.readInt();
            if (length < 0 || length > 1 << 20) {
                // The beginning of a TLS alert.
                return "no frame".getBytes(StandardCharsets.UTF_8);
            }
            byte[] frame = new byte[length];
            in.readFully(frame);
            return frame;
        } catch (java.net.SocketTimeoutException silence) {
            return "silence".getBytes(StandardCharsets.UTF_8);
        } catch (IOException gone) {
            return null;
        }
    }

    /** Whether the connection ends within a moment, without anything more being said. */
    boolean isClosedSoon() throws IOException {
        socket.setSoTimeout(300);
        try {
            return socket.getInputStream().read() < 0;
        } catch (java.net.SocketTimeoutException silence) {
            return false;
        } catch (IOException gone) {
            return true;
        }
    }

    private String when(String what) {
        return what + (System.nanoTime() - sentAt >= LATE_MS * 1_000_000 ? " late" : " at once");
    }

    private Object shown(byte[] frame) {
        if (header == null || List.of("silence", "no frame").contains(new String(frame, StandardCharsets.UTF_8))) {
            return token(frame);
        }
        try {
            AbstractResponse response = AbstractResponse.parseResponse(ByteBuffer.wrap(frame), header);
            if (response instanceof SaslAuthenticateResponse answer) {
                // No two runs share what is left of a token's life.
                Object lifetime = answer.sessionLifetimeMs() > 10_000 ? "long" : answer.sessionLifetimeMs();
                return Arrays.asList(answer.error(), answer.errorMessage(), lifetime, token(answer.saslAuthBytes()));
            }
            if (response instanceof SaslHandshakeResponse answer) {
                return List.of(answer.error(), Script.sorted(answer.enabledMechanisms()));
            }
            Object shown = isWhole ? response.data() : Wire.errors(response);
            return response.getClass().getSimpleName() + " " + shown;
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    /** A token without what is drawn at random. */
    private static String token(byte[] token) {
        return new String(token, StandardCharsets.UTF_8).replaceAll("r=[^,]*", "r=…").replaceAll("s=[^,]*", "s=…")
            .replaceAll("v=[^,]*", "v=…");
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
