import java.io.IOException;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.requests.*;

/**
 * Requests of transactions as no client sends them: for unknown ids, producers, epochs, groups, members and partitions,
 * in every state and version. What is shown of an answer are its errors, and the epoch where one is given.
 */
final class RequestSteps implements AutoCloseable {
    private static final short NEW_END = 5;
    private static final short OLD_END = 4;
    private static final List<String> STATES = List.of("EMPTY", "ONGOING", "COMPLETE_COMMIT", "COMPLETE_ABORT");

    private final TransactionsScript script;
    private final Wire wire;
    private final String level;
    /**
     * Whether the records of `__transaction_state` say by which version a client works. Where they do not, Kafka refuses such a
     * client once, and the id is of no more use: its write has begun and never ends.
     */
    private final boolean versionsAreWritten;
    private final String topic;
    private Uuid topicId;
    private int nextId;

    /** What a producer has to say of itself. */
    private record Known(String id, long producerId, short epoch) {
        Known withEpoch(int other) {
            return new Known(id, producerId, (short) other);
        }

        Known withProducerId(long other) {
            return new Known(id, other, epoch);
        }

        Known withId(String other) {
            return new Known(other, producerId, epoch);
        }
    }

    RequestSteps(TransactionsScript script, int level) throws IOException {
        this.script = script;
        this.wire = new Wire(script.bootstrap);
        this.level = "v" + level + " request: ";
        this.versionsAreWritten = level > 0;
        this.topic = "requests-v" + level;
    }

    private void named(String name, Script.Step step) {
        Script.step(level + name, step);
    }

    @Override
    public void close() throws IOException {
        wire.close();
    }

    // ---- requests --------------------------------------------------------------------------------------------------

    private InitProducerIdResponseData init(int version, String id, int timeout, long producerId, int epoch)
        throws Exception {
        InitProducerIdRequestData request = new InitProducerIdRequestData().setTransactionalId(id)
            .setTransactionTimeoutMs(timeout).setProducerId(producerId).setProducerEpoch((short) epoch);
        return ((InitProducerIdResponse) wire.ask(ApiKeys.INIT_PRODUCER_ID, version, request)).data();
    }

    /** A new id with its first producer. */
    private Known known() throws Exception {
        String id = topic + "-" + nextId++;
        long deadline = System.nanoTime() + Script.PATIENCE.toNanos();
        while (true) {
            InitProducerIdResponseData answer = init(5, id, 60_000, -1, -1);
            if (answer.errorCode() == 0) {
                return new Known(id, answer.producerId(), answer.producerEpoch());
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(Errors.forCode(answer.errorCode()).name());
            }
            find(1, id);
            Thread.sleep(20);
        }
    }

    /** The same in its second epoch, so that there is one behind it that a batch may have. */
    private Known second() throws Exception {
        Known first = known();
        return first.withEpoch(init(5, first.id, 60_000, first.producerId, first.epoch).producerEpoch());
    }

    private String find(int type, String key) throws Exception {
        FindCoordinatorRequestData request = new FindCoordinatorRequestData().setKeyType((byte) type)
            .setCoordinatorKeys(List.of(key));
        return Wire.errors(wire.ask(ApiKeys.FIND_COORDINATOR, 6, request));
    }

    private String add(int version, Known known, TopicPartition... partitions) throws Exception {
        AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection topics = topics(partitions);
        AddPartitionsToTxnRequestData request = new AddPartitionsToTxnRequestData();
        if (version < 4) {
            request.setV3AndBelowTransactionalId(known.id).setV3AndBelowProducerId(known.producerId)
                .setV3AndBelowProducerEpoch(known.epoch).setV3AndBelowTopics(topics);
        } else {
            request.transactions().add(transaction(known, false, topics));
        }
        return Wire.errors(wire.ask(ApiKeys.ADD_PARTITIONS_TO_TXN, version, request));
    }

    private String verify(int version, Known known, TopicPartition... partitions) throws Exception {
        AddPartitionsToTxnRequestData request = new AddPartitionsToTxnRequestData();
        request.transactions().add(transaction(known, true, topics(partitions)));
        return Wire.errors(wire.ask(ApiKeys.ADD_PARTITIONS_TO_TXN, version, request));
    }

    private static AddPartitionsToTxnRequestData.AddPartitionsToTxnTransaction transaction(Known known, boolean verifies,
        AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection topics) {
        return new AddPartitionsToTxnRequestData.AddPartitionsToTxnTransaction().setTransactionalId(known.id)
            .setProducerId(known.producerId).setProducerEpoch(known.epoch).setVerifyOnly(verifies).setTopics(topics);
    }

    private static AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection topics(TopicPartition... partitions) {
        AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection topics =
            new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopicCollection();
        for (TopicPartition partition : partitions) {
            AddPartitionsToTxnRequestData.AddPartitionsToTxnTopic found = topics.find(partition.topic());
            if (found == null) {
                found = new AddPartitionsToTxnRequestData.AddPartitionsToTxnTopic().setName(partition.topic());
                topics.add(found);
            }
            found.partitions().add(partition.partition());
        }
        return topics;
    }

    private String addOffsets(int version, Known known, String group) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.ADD_OFFSETS_TO_TXN, version, new AddOffsetsToTxnRequestData()
            .setTransactionalId(known.id).setProducerId(known.producerId).setProducerEpoch(known.epoch)
            .setGroupId(group)));
    }

    /** The error, and how far the epoch that is given is from the one that was sent. */
    private String end(int version, Known known, boolean commits) throws Exception {
        EndTxnResponseData answer = ((EndTxnResponse) wire.ask(ApiKeys.END_TXN, version, new EndTxnRequestData()
            .setTransactionalId(known.id).setProducerId(known.producerId).setProducerEpoch(known.epoch)
            .setCommitted(commits))).data();
        String error = Errors.forCode(answer.errorCode()).name();
        if (answer.producerId() == -1) {
            return error;
        }
        return error + (answer.producerId() == known.producerId ? " epoch " : " other producer, epoch ")
            + (answer.producerEpoch() - known.epoch);
    }

    private String commitOffset(int version, Known known, String group, int generation, String member, String ofTopic,
        int partition, String metadata) throws Exception {
        TxnOffsetCommitRequestData request = new TxnOffsetCommitRequestData().setTransactionalId(known.id)
            .setProducerId(known.producerId).setProducerEpoch(known.epoch).setGroupId(group)
            .setTopics(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setName(ofTopic)
                .setPartitions(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition()
                    .setPartitionIndex(partition).setCommittedOffset(3).setCommittedMetadata(metadata)))));
        if (version >= 3) {
            request.setGenerationId(generation).setMemberId(member);
        }
        return Wire.errors(wire.ask(ApiKeys.TXN_OFFSET_COMMIT, version, request));
    }

    private String commitOffset(int version, Known known, String group) throws Exception {
        return commitOffset(version, known, group, -1, "", topic, 0, "m");
    }

    private String produce(int version, String id, Known known, int partition, int sequence) throws Exception {
        MemoryRecords records = MemoryRecords.withTransactionalRecords(Compression.NONE, known.producerId, known.epoch,
            sequence, new SimpleRecord(System.currentTimeMillis(), "k".getBytes(), "v".getBytes()));
        ProduceRequestData.TopicProduceData data = new ProduceRequestData.TopicProduceData()
            .setPartitionData(List.of(new ProduceRequestData.PartitionProduceData().setIndex(partition)
                .setRecords(records)));
        if (version >= 13) {
            data.setTopicId(topicId);
        } else {
            data.setName(topic);
        }
        ProduceRequestData request = new ProduceRequestData().setTransactionalId(id).setAcks((short) -1)
            .setTimeoutMs(10_000);
        request.topicData().add(data);
        return Wire.errors(wire.ask(ApiKeys.PRODUCE, version, request));
    }

    private String mark(int version, long producerId, int epoch, int coordinatorEpoch, int transactionVersion,
        TopicPartition... partitions) throws Exception {
        List<WriteTxnMarkersRequestData.WritableTxnMarkerTopic> topics = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            topics.add(new WriteTxnMarkersRequestData.WritableTxnMarkerTopic().setName(partition.topic())
                .setPartitionIndexes(List.of(partition.partition())));
        }
        WriteTxnMarkersRequestData.WritableTxnMarker marker = new WriteTxnMarkersRequestData.WritableTxnMarker()
            .setProducerId(producerId).setProducerEpoch((short) epoch).setTransactionResult(false)
            .setCoordinatorEpoch(coordinatorEpoch).setTopics(topics);
        if (version >= 2) {
            marker.setTransactionVersion((byte) transactionVersion);
        }
        return Wire.errors(wire.ask(ApiKeys.WRITE_TXN_MARKERS, version,
            new WriteTxnMarkersRequestData().setMarkers(List.of(marker))));
    }

    private TopicPartition partition(int index) {
        return new TopicPartition(topic, index);
    }

    /** Records of a transaction that its coordinator knows nothing of, which only a broker takes that does not ask. */
    void leaveHanging() {
        named("hanging transactions", () -> {
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
            ConfigEntry unverified = new ConfigEntry("transaction.partition.verification.enable", "false");
            Script.get(script.admin.incrementalAlterConfigs(Map.of(broker,
                List.of(new AlterConfigOp(unverified, AlterConfigOp.OpType.SET)))).all());
            List<Object> shown = new ArrayList<>();
            for (String name : List.of("hanging-theirs", "hanging-ours")) {
                Script.get(script.admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
                script.settle();
                Known known = known();
                MemoryRecords records = MemoryRecords.withTransactionalRecords(Compression.NONE, known.producerId,
                    known.epoch, 0, new SimpleRecord(System.currentTimeMillis() - 86_400_000, "v".getBytes()));
                ProduceRequestData request = new ProduceRequestData().setTransactionalId(known.id).setAcks((short) -1)
                    .setTimeoutMs(10_000);
                request.topicData().add(new ProduceRequestData.TopicProduceData().setName(name).setPartitionData(
                    List.of(new ProduceRequestData.PartitionProduceData().setIndex(0).setRecords(records))));
                shown.add(Wire.errors(wire.ask(ApiKeys.PRODUCE, 11, request)));
            }
            return shown;
        });
    }

    // ---- steps -----------------------------------------------------------------------------------------------------

    void beforeThereAreCoordinators() {
        Known nobody = new Known("nobody", 5, (short) 0);
        // One that is there: that a partition is not comes first.
        TopicPartition there = new TopicPartition(script.topic, 0);
        named("before there are coordinators", () -> List.of(
            init(5, "nobody", 1000, -1, -1).errorCode(),
            add(3, nobody, there), add(5, nobody, there), verify(5, nobody, there), addOffsets(4, nobody, "g"),
            end(OLD_END, nobody, true), end(NEW_END, nobody, true),
            commitOffset(4, nobody, "g", -1, "", script.topic, 0, "m"),
            commitOffset(5, nobody, "g", -1, "", script.topic, 0, "m"),
            describe("nobody"), list(2, List.of(), null)));
        try (ClassicRequests groups = new ClassicRequests(script.bootstrap, script.topic)) {
            groups.beforeThereAreCoordinators();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    void inits() {
        named("topic", () -> {
            Script.get(script.admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all());
            script.settle();
            topicId = Script.get(script.admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).topicId();
            return "there";
        });
        named("find coordinators", () -> List.of(find(1, topic + "-x"), find(1, ""), find(0, ""), find(9, "x")));
        for (int version = 0; version <= 5; version++) {
            int of = version;
            named("init v" + of, () -> {
                Known known = known();
                List<Object> shown = new ArrayList<>();
                shown.add(error(init(of, null, 1000, -1, -1)));
                shown.add(error(init(of, "", 1000, -1, -1)));
                shown.add(error(init(of, known.id, 0, -1, -1)));
                shown.add(error(init(of, known.id, -1, -1, -1)));
                shown.add(error(init(of, known.id, 900_001, -1, -1)));
                if (of < 3) {
                    return shown;
                }
                shown.add(error(init(of, known.id, 1000, known.producerId, -1)));
                shown.add(error(init(of, known.id, 1000, -1, known.epoch)));
                shown.add(error(init(of, null, 1000, known.producerId, known.epoch)));
                shown.add(error(init(of, known.id, 1000, known.producerId, known.epoch + 5)));
                shown.add(error(init(of, known.id, 1000, known.producerId + 1_000_000, known.epoch)));
                for (int epoch : new int[] {known.epoch, known.epoch, known.epoch - 1}) {
                    InitProducerIdResponseData answer = init(of, known.id, 1000, known.producerId, epoch);
                    shown.add(error(answer) + " " + answer.producerEpoch());
                }
                InitProducerIdResponseData unknown = init(of, known.id + "-other", 1000, 999_999, 3);
                shown.add(error(unknown) + " " + unknown.producerEpoch() + " " + (unknown.producerId() == 999_999));
                return shown;
            });
        }
        inEachState("init", (own, ahead) -> {
            InitProducerIdResponseData answer = init(5, own.id, 60_000, own.producerId, own.epoch + ahead);
            return error(answer) + " " + (answer.producerId() == own.producerId) + " " + answer.producerEpoch();
        });
        named("init of an open transaction", () -> {
            Known known = known();
            add(3, known, partition(0));
            List<Object> shown = new ArrayList<>();
            shown.add(error(init(5, known.id, 1000, known.producerId, known.epoch + 1)));
            script.awaitState(known.id, "COMPLETE_ABORT");
            InitProducerIdResponseData answer = init(5, known.id, 1000, -1, -1);
            shown.add(error(answer) + " " + answer.producerEpoch());
            return shown;
        });
    }

    private static String error(InitProducerIdResponseData answer) {
        return Errors.forCode(answer.errorCode()).name();
    }

    private interface Asking {
        Object ask(Known own, int ahead) throws Exception;
    }

    /** Asks with the epochs around the own one, each time on behalf of another producer whose transaction is in the state. */
    private void inEachState(String what, Asking asking) {
        for (String state : STATES) {
            for (short before : endsBefore(state)) {
                named(what + " in " + state + (before == 0 ? "" : " by v" + before), () -> {
                    List<Object> shown = new ArrayList<>();
                    for (int ahead = -2; ahead <= 1; ahead++) {
                        shown.add(ahead + ": " + asking.ask(in(state, before), ahead));
                    }
                    return shown;
                });
            }
        }
    }

    void adds() {
        for (int version : versionsAreWritten ? new int[] {3, 5} : new int[] {3}) {
            inEachState("add partitions v" + version, (own, ahead) ->
                add(version, own.withEpoch(own.epoch + ahead), partition(1)));
        }
        inEachState("add offsets", (own, ahead) -> addOffsets(4, own.withEpoch(own.epoch + ahead), "g"));
        for (int version : new int[] {0, 2, 3, 4, 5}) {
            named("add partitions v" + version, () -> {
                Known known = known();
                List<Object> shown = new ArrayList<>();
                shown.add(add(version, known.withId(""), partition(0)));
                shown.add(add(version, known.withId("nobody"), partition(0)));
                shown.add(add(version, known.withProducerId(known.producerId + 1_000_000), partition(0)));
                shown.add(add(version, known.withEpoch(known.epoch + 1), partition(0)));
                shown.add(add(version, known.withEpoch(known.epoch - 1), partition(0)));
                shown.add(add(version, known, partition(0), partition(7)));
                shown.add(add(version, known, new TopicPartition("nowhere", 0)));
                shown.add(add(version, known, new TopicPartition("__consumer_offsets", 0)));
                if (version >= 4 && !versionsAreWritten) {
                    return shown;
                }
                shown.add(add(version, known, partition(0), partition(1)));
                shown.add(add(version, known, partition(0)));
                shown.add(add(version, known.withId("nobody")));
                return shown;
            });
            named("add offsets v" + Math.min(version, 4), () -> {
                Known known = known();
                int of = Math.min(version, 4);
                return List.of(addOffsets(of, known.withId(""), "g"), addOffsets(of, known, ""),
                    addOffsets(of, known.withId("nobody"), "g"), addOffsets(of, known.withEpoch(9), "g"),
                    addOffsets(of, known.withProducerId(9_999_999), "g"), addOffsets(of, known, "g"),
                    addOffsets(of, known, "g"));
            });
        }
        for (int version : new int[] {4, 5}) {
            named("verify v" + version, () -> {
                Known known = known();
                List<Object> shown = new ArrayList<>();
                shown.add(verify(version, known, partition(0)));
                add(3, known, partition(0));
                shown.add(verify(version, known, partition(0)));
                shown.add(verify(version, known, partition(0), partition(1)));
                shown.add(verify(version, known, new TopicPartition("nowhere", 0)));
                shown.add(verify(version, known.withEpoch(known.epoch + 1), partition(0)));
                shown.add(verify(version, known.withProducerId(9_999_999), partition(0)));
                shown.add(verify(version, known.withId("nobody"), partition(0)));
                shown.add(verify(version, known.withId(""), partition(0)));
                return shown;
            });
        }
    }

    void ends() {
        for (String state : STATES) {
            for (short version : new short[] {OLD_END, NEW_END}) {
                for (short before : endsBefore(state)) {
                    named("end v" + version + " in " + state + (before == 0 ? "" : " by v" + before), () -> {
                        List<Object> shown = new ArrayList<>();
                        for (boolean commits : new boolean[] {true, false}) {
                            for (int ahead = -2; ahead <= 1; ahead++) {
                                Known known = in(state, before);
                                shown.add((commits ? "commit " : "abort ") + ahead + ": "
                                    + end(version, known.withEpoch(known.epoch + ahead), commits));
                            }
                        }
                        return shown;
                    });
                }
            }
        }
        for (int version = 0; version <= 5; version++) {
            int of = version;
            named("end v" + of, () -> {
                Known known = known();
                return List.of(end(of, known.withId(""), true), end(of, known.withId("nobody"), true),
                    end(of, known.withProducerId(9_999_999), true), end(of, known.withEpoch(4), false));
            });
        }
    }

    /** By which versions of an end a transaction has come to its state. */
    private short[] endsBefore(String state) {
        if (!state.startsWith("COMPLETE")) {
            return new short[] {0};
        }
        return versionsAreWritten ? new short[] {OLD_END, NEW_END} : new short[] {OLD_END};
    }

    /** A producer with its current epoch, whose transaction is in a state that the version of an end has brought it to. */
    private Known in(String state, short endedBy) throws Exception {
        Known known = known();
        if (state.equals("EMPTY")) {
            return known;
        }
        add(3, known, partition(0));
        if (state.equals("ONGOING")) {
            return known;
        }
        end(endedBy, known, state.equals("COMPLETE_COMMIT"));
        script.awaitState(known.id, state);
        return endedBy == NEW_END ? known.withEpoch(known.epoch + 1) : known;
    }

    void produces() {
        for (int version : new int[] {3, 8, 11, 12, 13}) {
            named("produce v" + version, () -> {
                Known known = second();
                List<Object> shown = new ArrayList<>();
                shown.add("no id: " + produce(version, null, known, 0, 0));
                shown.add("unknown id: " + produce(version, "nobody", known, 0, 0));
                shown.add("other producer: " + produce(version, known.id, known.withProducerId(9_999_999), 0, 0));
                shown.add("epoch ahead: " + produce(version, known.id, known.withEpoch(known.epoch + 1), 0, 0));
                shown.add("not added: " + produce(version, known.id, known, 0, 0));
                if (version >= 12 && !versionsAreWritten) {
                    return shown;
                }
                add(3, known, partition(1), partition(2));
                shown.add("from the middle: " + produce(version, known.id, known, 1, 5));
                shown.add("first: " + produce(version, known.id, known, 1, 0));
                shown.add("again: " + produce(version, known.id, known, 1, 0));
                shown.add("gap: " + produce(version, known.id, known, 1, 7));
                shown.add("epoch behind: " + produce(version, known.id, known.withEpoch(known.epoch - 1), 1, 1));
                shown.add(end(version >= 12 ? NEW_END : OLD_END, known, true));
                script.awaitState(known.id, "COMPLETE_COMMIT");
                shown.add("ended: " + produce(version, known.id, known, 1, 1));
                shown.add("ended, elsewhere: " + produce(version, known.id, known, 2, 0));
                shown.add("next epoch: " + produce(version, known.id, known.withEpoch(known.epoch + 1), 1, 0));
                return shown;
            });
        }
    }

    void offsetCommits() {
        for (int version : new int[] {0, 2, 3, 4, 5}) {
            named("commit offsets v" + version, () -> {
                Known known = known();
                String group = known.id + "-group";
                find(0, group);
                List<Object> shown = new ArrayList<>();
                shown.add("not added: " + commitOffset(version, known, group));
                if (version >= 5 && !versionsAreWritten) {
                    return shown;
                }
                addOffsets(4, known, group);
                shown.add("added: " + commitOffset(version, known, group));
                shown.add("no id: " + commitOffset(version, known.withId(""), group));
                shown.add("unknown id: " + commitOffset(version, known.withId("nobody"), group + "-2"));
                shown.add("epoch ahead: " + commitOffset(version, known.withEpoch(known.epoch + 1), group));
                shown.add("epoch behind: " + commitOffset(version, known.withEpoch(known.epoch - 1), group));
                shown.add("other producer: " + commitOffset(version, known.withProducerId(9_999_999), group));
                shown.add("no group: " + commitOffset(version, known, ""));
                shown.add("generation: " + commitOffset(version, known, group, 4, "stranger", topic, 0, ""));
                shown.add("member: " + commitOffset(version, known, group, -1, "stranger", topic, 0, ""));
                shown.add("metadata: "
                    + commitOffset(version, known, group, -1, "", topic, 0, "m".repeat(5000)));
                shown.add("no metadata: " + commitOffset(version, known, group, -1, "", topic, 0, null));
                shown.add("topic: " + commitOffset(version, known, group, -1, "", "nowhere", 0, ""));
                shown.add("partition: " + commitOffset(version, known, group, -1, "", topic, 17, ""));
                shown.add(end(version >= 5 ? NEW_END : OLD_END, known, false));
                script.awaitState(known.id, "COMPLETE_ABORT");
                shown.add("ended: " + commitOffset(version, known, group));
                return shown;
            });
        }
    }

    /** Offsets of groups that have members, of both protocols. */
    void offsetCommitsOfMembers() {
        named("groups with members", () -> {
            find(0, topic);
            try (ClassicRequests groups = new ClassicRequests(script.bootstrap, topic)) {
                classic = groups.stable(topic + "-classic");
            }
            ConsumerGroupHeartbeatResponseData joined = ((ConsumerGroupHeartbeatResponse) wire.ask(
                ApiKeys.CONSUMER_GROUP_HEARTBEAT, 1, new ConsumerGroupHeartbeatRequestData().setGroupId(topic + "-consumers")
                    .setMemberId("m").setMemberEpoch(0).setRebalanceTimeoutMs(600_000).setSubscribedTopicNames(List.of(topic))
                    .setTopicPartitions(List.of()))).data();
            consumers = new ClassicRequests.Standing(topic + "-consumers", "m", joined.memberEpoch());
            return Errors.forCode(joined.errorCode()).name();
        });
        for (int version : versionsAreWritten ? new int[] {2, 3, 4, 5} : new int[] {2, 3, 4}) {
            named("commit offsets of members v" + version, () -> {
                List<Object> shown = new ArrayList<>();
                for (ClassicRequests.Standing own : List.of(classic, consumers)) {
                    Known known = known();
                    if (version < 5) {
                        addOffsets(4, known, own.group());
                    }
                    for (String member : List.of(own.member(), "stranger", "")) {
                        for (int generation : new int[] {own.generation(), own.generation() + 1, own.generation() - 1, -1}) {
                            shown.add(own.group() + (member.equals(own.member()) ? " own " : " " + member + " ")
                                + (generation == -1 ? "none" : generation - own.generation()) + ": "
                                + commitOffset(version, known, own.group(), generation, member, topic, 0, "m"));
                        }
                    }
                    if (version >= 3) {
                        shown.add(own.group() + " other name: " + commitOffsetByName(version, known, own));
                    }
                    shown.add(end(version >= 5 ? NEW_END : OLD_END, known, false));
                }
                return shown;
            });
        }
    }

    private ClassicRequests.Standing classic;
    private ClassicRequests.Standing consumers;

    private String commitOffsetByName(int version, Known known, ClassicRequests.Standing own) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.TXN_OFFSET_COMMIT, version, new TxnOffsetCommitRequestData()
            .setTransactionalId(known.id).setProducerId(known.producerId).setProducerEpoch(known.epoch)
            .setGroupId(own.group()).setMemberId(own.member()).setGenerationId(own.generation()).setGroupInstanceId("named")
            .setTopics(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setName(topic)
                .setPartitions(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition()
                    .setPartitionIndex(0).setCommittedOffset(3)))))));
    }

    void markers() {
        for (int version : new int[] {1, 2}) {
            for (int by : version == 1 ? new int[] {0} : new int[] {0, 1, 2}) {
                named("markers v" + version + " of transaction version " + by, () -> {
                    Known known = second();
                    add(3, known, partition(0), partition(1));
                    List<Object> shown = new ArrayList<>();
                    shown.add("unknown: " + mark(version, 777_777, 0, 3, by, new TopicPartition("nowhere", 0)));
                    shown.add("stranger: " + mark(version, 888_888 + level.charAt(1) + 10L * by + 100L * version, 0, 3,
                        by, partition(2)));
                    shown.add("offsets: " + mark(version, 777_777, 0, 3, by, new TopicPartition("__consumer_offsets", 77)));
                    // The offsets of groups have a coordinator of their own, which writes their markers.
                    TopicPartition offsets = new TopicPartition("__consumer_offsets", 0);
                    long stranger = 999_888 + level.charAt(1) + 10L * by + 100L * version;
                    shown.add("offsets, no producer: " + mark(version, -1, 0, 3, by, offsets));
                    shown.add("offsets, no epoch: " + mark(version, stranger, -1, 3, by, offsets));
                    shown.add("offsets, stranger: " + mark(version, stranger, 1, 3, by, offsets));
                    shown.add("offsets, again: " + mark(version, stranger, 1, 3, by, offsets));
                    shown.add("offsets, epoch behind: " + mark(version, stranger, 0, 3, by, offsets));
                    shown.add("offsets, coordinator behind: " + mark(version, stranger, 2, 2, by, offsets));
                    shown.add(produce(11, known.id, known, 0, 0));
                    shown.add("no epoch: " + mark(version, known.producerId, -1, 3, by, partition(0)));
                    shown.add("no producer: " + mark(version, -1, 0, 3, by, partition(0)));
                    shown.add("epoch behind: " + mark(version, known.producerId, known.epoch - 1, 3, by, partition(0)));
                    shown.add("same epoch: " + mark(version, known.producerId, known.epoch, 3, by, partition(0)));
                    shown.add("next epoch: " + mark(version, known.producerId, known.epoch + 1, 3, by, partition(0)));
                    shown.add("again: " + mark(version, known.producerId, known.epoch + 1, 3, by, partition(0)));
                    shown.add("coordinator behind: "
                        + mark(version, known.producerId, known.epoch + 2, 2, by, partition(0)));
                    shown.add("none: " + mark(version, known.producerId, known.epoch + 2, 3, by));
                    return shown;
                });
            }
        }
    }

    private String describe(String... ids) throws Exception {
        return Wire.errors(wire.ask(ApiKeys.DESCRIBE_TRANSACTIONS, 0,
            new DescribeTransactionsRequestData().setTransactionalIds(List.of(ids))));
    }

    /** The error, the states that are unknown, and which of this script's ids are listed. */
    private String list(int version, List<String> states, String pattern, long... producerIds) throws Exception {
        ListTransactionsRequestData request = new ListTransactionsRequestData().setStateFilters(states);
        List<Long> ids = new ArrayList<>();
        for (long id : producerIds) {
            ids.add(id);
        }
        request.setProducerIdFilters(ids);
        if (version >= 2) {
            request.setTransactionalIdPattern(pattern);
        }
        ListTransactionsResponseData answer =
            ((ListTransactionsResponse) wire.ask(ApiKeys.LIST_TRANSACTIONS, version, request)).data();
        return Errors.forCode(answer.errorCode()) + " " + Script.sorted(answer.unknownStateFilters()) + " "
            + Script.sorted(answer.transactionStates().stream().map(one -> one.transactionalId() + " "
            + one.transactionState()).filter(one -> one.startsWith(topic)).toList());
    }

    /** The errors and their words, by partition. */
    private List<String> producers(String of, Integer... partitions) throws Exception {
        DescribeProducersResponseData answer = ((DescribeProducersResponse) wire.ask(ApiKeys.DESCRIBE_PRODUCERS, 0,
            new DescribeProducersRequestData().setTopics(List.of(new DescribeProducersRequestData.TopicRequest()
                .setName(of).setPartitionIndexes(List.of(partitions)))))).data();
        return answer.topics().stream().flatMap(one -> one.partitions().stream()).map(one -> one.partitionIndex() + " "
            + Errors.forCode(one.errorCode()) + ": " + one.errorMessage()).toList();
    }

    void inspections() {
        named("describe producers", () -> List.of(producers(topic, 0), producers(topic, 0, 7), producers(topic, -1),
            producers("nowhere", 0), producers("a/b", 0), producers("", 0), producers(topic),
            producers("__transaction_state", 0)));
        named("describe", () -> {
            Known known = known();
            return List.of(describe(known.id), describe("nobody"), describe(""), describe(),
                describe(known.id, known.id), describe(known.id, "nobody"));
        });
        named("list", () -> {
            Known known = in("ONGOING", (short) 0);
            return List.of(list(0, List.of("Ongoing"), null, known.producerId),
                list(2, List.of("Empty", "Sleeping"), null, known.producerId),
                list(2, List.of("Sleeping"), null), list(2, List.of("Dead"), null),
                list(2, List.of("Ongoing"), known.id), list(2, List.of(), known.id.substring(0, 5)),
                list(2, List.of(), ".*-" + (nextId - 1)), list(2, List.of("Dead"), ""), list(2, List.of("CompleteCommit"), "(["),
                list(2, List.of(), "nobody", known.producerId), list(1, List.of(), null, 999_999_999L));
        });
    }
}
