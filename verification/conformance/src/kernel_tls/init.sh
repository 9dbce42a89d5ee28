#!/bin/busybox sh
# The only process of the virtual machine: `cargo xtask kernel-tls` reads what it prints.
# Lines of measurements begin with RESULT.

/bin/busybox --install -s /bin
export PATH=/bin HOME=/ottla TMPDIR=/ottla
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=80% work /ottla
ip link set lo up
mkdir -p /etc
echo '127.0.0.1 localhost' > /etc/hosts
cd /ottla
# PAIRS, RECORDS and RECORD_BYTES.
. /settings

finish() {
    echo "GUEST $1"
    poweroff -f
    # The kernel panics if this process ends.
    sleep 60
}

number() {
    awk -v name="$1" '$1 == name { print $2 }' /proc/net/tls_stat
}

# The CPU time of the broker, in ticks of 10 ms.
ticks() {
    awk '{ print $14 + $15 }' "/proc/$broker/stat"
}

# For modules of ciphers, which the kernel loads itself.
echo /bin/modprobe > /proc/sys/kernel/modprobe
# What udev would load for this processor.
for accelerated in aesni_intel ghash_clmulni_intel; do
    modprobe $accelerated 2> /dev/null
done
modprobe tls || finish "failed: the kernel has no module tls"
echo "kernel $(uname -r), $(nproc) processors"

echo "The tests that need a kernel with TLS:"
/bin/net-tests --ignored --test-threads=1 stream::kernel_tls > tests.log 2>&1
failed=$?
cat tests.log
[ $failed -eq 0 ] || finish "failed: tests"
# A filter that matches none succeeds as well.
grep -q '^test result: ok\. [1-9]' tests.log || finish "failed: there are no such tests"

ottla tls init --dir tls > /dev/null || finish "failed: no certificates"

# Starts a broker with a new directory, and sets `broker`.
start() {
    rm -rf data server.properties
    cp tls/broker-1.properties server.properties
    cat >> server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
listeners=SSL://:9094,CONTROLLER://:9095
controller.listener.names=CONTROLLER
inter.broker.listener.name=SSL
controller.quorum.bootstrap.servers=localhost:9095
log.dirs=/ottla/data
num.partitions=4
offsets.topic.replication.factor=1
ottla.ssl.kernel.enable=$1
PROPERTIES
    sed -i '/^security.inter.broker.protocol/d' server.properties
    ottla storage format --standalone --cluster-id "$(ottla storage random-uuid)" \
        --config server.properties > format.log 2>&1 || { cat format.log; finish "failed: formatting"; }
    ottla server server.properties > server.log 2>&1 &
    broker=$!
    tries=0
    until ottla topics --bootstrap-server localhost:9094 --command-config tls/client.properties \
        --create --topic t --partitions 4 > topic.log 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 60 ]; then
            cat topic.log server.log
            finish "failed: the broker did not start"
        fi
        sleep 1
    done
}

measure() {
    start "$1"
    grep 'ottla.ssl.kernel.enable' server.log
    tls_before=$(number TlsTxSw)
    begin=$(ticks)
    ottla producer-perf-test --bootstrap-server localhost:9094 --command-config tls/client.properties \
        --topic t --num-records "$RECORDS" --record-size "$RECORD_BYTES" --throughput -1 \
        > produce.log 2>&1 || { cat produce.log server.log; finish "failed: producing"; }
    produced=$(ticks)
    ottla consumer-perf-test --bootstrap-server localhost:9094 --command-config tls/client.properties \
        --topic t --num-records "$RECORDS" --timeout 60000 --hide-header > consume.log 2>&1 &
    consumer=$!
    # The most connections that were seen at once.
    current=0
    while kill -0 $consumer 2> /dev/null; do
        seen=$(number TlsCurrTxSw)
        [ "$seen" -gt "$current" ] && current=$seen
        sleep 0.2
    done
    wait $consumer || { cat consume.log server.log; finish "failed: consuming"; }
    consumed=$(ticks)
    tls_after=$(number TlsTxSw)
    tail -n 1 produce.log
    tail -n 1 consume.log
    echo "RESULT kernel=$1 produce=$((produced - begin)) consume=$((consumed - produced))" \
        "most_at_once=$current opened=$((tls_after - tls_before))"
    kill $broker
    wait $broker
    rm -rf data
}

pair=0
while [ $pair -lt "$PAIRS" ]; do
    measure false
    measure true
    pair=$((pair + 1))
done
finish done
