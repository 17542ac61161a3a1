package rivals;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.Recorder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/**
 * Load PORTS: a smart client that stays warm between runs. It prints READY, and then one line of
 * JSON for each line that it reads. It ends with its stdin:
 *
 *   members                                   how many members it sees
 *   fill KEYS BYTES                           writes every key once, many at a time
 *   run set|get KEYS BYTES IN_FLIGHT SECONDS  a closed loop of asynchronous operations
 */
public class Load {
    public static void main(String[] a) throws Exception {
        ClientConfig cc = new ClientConfig();
        cc.setClusterName("rivals");
        cc.setProperty("hazelcast.logging.type", "none");
        for (String p : a[0].split(",")) cc.getNetworkConfig().addAddress("127.0.0.1:" + p);
        HazelcastInstance hz = HazelcastClient.newHazelcastClient(cc);
        IMap<String, byte[]> m = hz.getMap("bench");
        System.out.println("READY");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.trim().split(" +");
            switch (w[0]) {
                case "members" ->
                        System.out.printf("{\"members\":%d}%n", hz.getCluster().getMembers().size());
                case "fill" -> System.out.printf("{\"filled\":%d}%n",
                        fill(m, Integer.parseInt(w[1]), Integer.parseInt(w[2])));
                case "run" -> System.out.println(run(m, w[1], Integer.parseInt(w[2]),
                        Integer.parseInt(w[3]), Integer.parseInt(w[4]), Double.parseDouble(w[5])));
                default -> System.out.println("{\"error\":\"unknown command " + w[0] + "\"}");
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static String key(int i) {
        return String.format("key:%012d", i);
    }

    static byte[] value(int bytes) {
        byte[] v = new byte[bytes];
        ThreadLocalRandom.current().nextBytes(v);
        return v;
    }

    static int fill(IMap<String, byte[]> m, int keys, int bytes) {
        byte[] v = value(bytes);
        for (int from = 0; from < keys; from += 2000) {
            Map<String, byte[]> some = new HashMap<>();
            for (int i = from; i < Math.min(from + 2000, keys); i++) some.put(key(i), v);
            m.putAll(some);
        }
        return m.size();
    }

    static String run(IMap<String, byte[]> m, String op, int keys, int bytes, int inFlight,
            double seconds) throws Exception {
        // Keys are made first, because formatting them is not the client's work.
        String[] names = new String[keys];
        for (int i = 0; i < keys; i++) names[i] = key(i);
        Loop loop = new Loop(m, op.equals("set"), names, value(bytes), seconds, inFlight);
        long start = System.nanoTime();
        for (int i = 0; i < inFlight; i++) loop.next();
        loop.done.await();
        double took = (System.nanoTime() - start) / 1e9;
        Histogram h = loop.latencies.getIntervalHistogram();
        return String.format(Locale.ROOT,
                "{\"operation\":\"%s\",\"operations\":%d,\"seconds\":%.3f,"
                        + "\"throughput\":%.1f,\"errors\":{%s},\"mean_us\":%.1f,"
                        + "\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f}",
                op, h.getTotalCount(), took, h.getTotalCount() / took,
                loop.errors.sum() == 0 ? "" : "\"failed\":" + loop.errors.sum(), h.getMean() / 1e3,
                h.getValueAtPercentile(50) / 1e3, h.getValueAtPercentile(99) / 1e3,
                h.getValueAtPercentile(99.9) / 1e3,
                h.getMaxValue() / 1e3);
    }

    /** Keeps this many operations in flight: each is followed by another one until time is over. */
    static final class Loop {
        static final long MOST = TimeUnit.SECONDS.toNanos(60);
        final IMap<String, byte[]> m;
        final boolean set;
        final String[] names;
        final byte[] value;
        final long end;
        final Recorder latencies = new Recorder(MOST, 3);
        final LongAdder errors = new LongAdder();
        final CountDownLatch done;

        Loop(IMap<String, byte[]> m, boolean set, String[] names, byte[] value, double seconds,
                int inFlight) {
            this.m = m;
            this.set = set;
            this.names = names;
            this.value = value;
            this.end = System.nanoTime() + (long) (seconds * 1e9);
            this.done = new CountDownLatch(inFlight);
        }

        void next() {
            long t0 = System.nanoTime();
            if (t0 > end) {
                done.countDown();
                return;
            }
            String k = names[ThreadLocalRandom.current().nextInt(names.length)];
            CompletionStage<?> f = set ? m.setAsync(k, value) : m.getAsync(k);
            f.whenCompleteAsync((r, e) -> {
                if (e != null) errors.increment();
                else latencies.recordValue(Math.min(System.nanoTime() - t0, MOST));
                next();
            }, ForkJoinPool.commonPool());
        }
    }
}
