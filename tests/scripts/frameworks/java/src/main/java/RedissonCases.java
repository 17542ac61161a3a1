import static java.util.concurrent.TimeUnit.SECONDS;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RLock;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RScheduledExecutorService;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSetCache;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson: queues, sets, lists, caches, rate limits, locks. */
public final class RedissonCases {
    static final int COUNT = 300;
    static RedissonClient redisson;

    static RedissonClient client() {
        Config config = new Config();
        config.useSingleServer().setAddress(Cases.URL).setConnectionMinimumIdleSize(2);
        return Redisson.create(config);
    }

    static void queue() throws Exception {
        ConcurrentHashMap<Integer, Integer> marks = new ConcurrentHashMap<>();
        ExecutorService threads = Executors.newFixedThreadPool(2);
        RedissonClient other = client();
        for (RedissonClient own : List.of(redisson, other)) {
            threads.submit(() -> {
                RBlockingQueue<Integer> from = own.getBlockingQueue("queue");
                while (!Thread.interrupted()) {
                    Integer n = from.poll(1, SECONDS);
                    if (n != null) {
                        Thread.sleep(10);
                        marks.merge(n, 1, Integer::sum);
                    }
                }
                return null;
            });
        }
        RBlockingQueue<Integer> to = redisson.getBlockingQueue("queue");
        for (int n = 0; n < COUNT / 2; n++) {
            to.add(n);
        }
        Cases.until("a quarter of the jobs", () -> marks.size() >= COUNT / 4);
        Cases.say("kill");
        for (int n = COUNT / 2; n < COUNT; n++) {
            to.add(n);
        }
        try {
            Cases.until("all jobs", () -> marks.size() == COUNT);
        } finally {
            int all = marks.values().stream().mapToInt(n -> n).sum();
            Cases.say("jobs " + COUNT + " " + marks.size() + " " + (all - marks.size()));
            threads.shutdownNow();
            threads.awaitTermination(5, SECONDS);
            other.shutdown();
        }
    }

    static void mapCache() throws Exception {
        RMapCache<String, Integer> map = redisson.getMapCache("cache");
        map.put("a", 1, 1, SECONDS);
        map.put("b", 2, 1000, SECONDS, 1000, SECONDS);
        map.put("c", 3);
        Cases.equal(map.get("b"), 2);
        Cases.equal(map.size() >= 2, true);
        Cases.until("the end of a", () -> map.get("a") == null);
        Cases.equal(map.readAllKeySet(), Set.of("b", "c"));
        Cases.equal(map.getAll(Set.of("b", "c")), Map.of("b", 2, "c", 3));
        Cases.equal(map.fastRemove("b", "c"), 2L);
        RSetCache<String> set = redisson.getSetCache("setcache");
        Cases.equal(set.add("a", 1000, SECONDS), true);
        Cases.equal(set.contains("a"), true);
    }

    static void limiter() {
        RRateLimiter limiter = redisson.getRateLimiter("limiter");
        Cases.equal(limiter.trySetRate(RateType.OVERALL, 3, Duration.ofMinutes(1)), true);
        int taken = 0;
        for (int n = 0; n < 5; n++) {
            taken += limiter.tryAcquire() ? 1 : 0;
        }
        Cases.equal(taken, 3);
        Cases.equal(limiter.availablePermits(), 0L);
    }

    static void sorted() {
        RScoredSortedSet<String> set = redisson.getScoredSortedSet("scored");
        set.addAll(Map.of("a", 1.0, "b", 2.0, "c", 3.0));
        Cases.equal(List.copyOf(set.valueRange(0, -1)), List.of("a", "b", "c"));
        Cases.equal(List.of(set.rank("c"), set.getScore("b"), set.addScore("a", 5)),
                List.of(2, 2.0, 6.0));
        Cases.equal(List.of(set.pollFirst(), set.pollLast()), List.of("b", "a"));
        Cases.equal(set.takeFirst(), "c");
        var words = redisson.getLexSortedSet("lex");
        words.addAll(List.of("a", "b", "c"));
        Cases.equal(List.copyOf(words.range("b", true, "c", true)), List.of("b", "c"));
    }

    static void lists() {
        var list = redisson.<String>getList("list");
        list.addAll(List.of("a", "b", "c", "d"));
        list.add(1, "x");
        list.remove("c");
        list.remove(0);
        list.fastSet(0, "y");
        Cases.equal(list.readAll(), List.of("y", "b", "d"));
        Cases.equal(list.indexOf("d"), 2);
        Cases.equal(list.subList(1, 3).readAll(), List.of("b", "d"));
        var deque = redisson.<Integer>getBlockingDeque("deque");
        deque.addFirst(1);
        deque.addLast(2);
        Cases.equal(List.of(deque.pollLast(), deque.pollFirst()), List.of(2, 1));
        var ranked = redisson.<Integer>getPriorityQueue("ranked");
        ranked.addAll(List.of(3, 1, 2));
        Cases.equal(List.of(ranked.poll(), ranked.poll()), List.of(1, 2));
    }

    static void sets() {
        var set = redisson.<String>getSet("{s}1");
        set.addAll(List.of("a", "b", "c"));
        redisson.<String>getSet("{s}2").addAll(List.of("b", "c", "d"));
        Cases.equal(set.readIntersection("{s}2"), Set.of("b", "c"));
        Cases.equal(set.removeRandom(2).size(), 2);
        Cases.equal(set.size(), 1);
        var values = redisson.<String, Integer>getSetMultimap("multi");
        values.put("a", 1);
        values.put("a", 2);
        Cases.equal(values.get("a").readAll(), Set.of(1, 2));
    }

    static void delayed() throws Exception {
        RBlockingQueue<String> queue = redisson.getBlockingQueue("late");
        RDelayedQueue<String> delayed = redisson.getDelayedQueue(queue);
        delayed.offer("a", 1, SECONDS);
        Cases.equal(queue.poll(), null);
        Cases.equal(queue.poll(30, SECONDS), "a");
        delayed.destroy();
    }

    static void locks() throws Exception {
        AtomicInteger number = new AtomicInteger();
        Thread[] threads = new Thread[8];
        for (int n = 0; n < threads.length; n++) {
            threads[n] = new Thread(() -> {
                for (int m = 0; m < 10; m++) {
                    RLock lock = redisson.getFairLock("lock");
                    lock.lock();
                    int read = number.get();
                    redisson.getKeys().count();
                    number.set(read + 1);
                    lock.unlock();
                }
            });
            threads[n].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Cases.equal(number.get(), 80);
        var both = redisson.getReadWriteLock("both");
        both.readLock().lock();
        Cases.equal(both.writeLock().tryLock(), false);
        both.readLock().unlock();
        var some = redisson.getPermitExpirableSemaphore("permits");
        some.trySetPermits(1);
        String id = some.acquire();
        Cases.equal(some.tryAcquire(), null);
        some.release(id);
        var latch = redisson.getCountDownLatch("latch");
        latch.trySetCount(1);
        latch.countDown();
        Cases.equal(latch.await(10, SECONDS), true);
    }

    static void executor() throws Exception {
        RScheduledExecutorService executor = redisson.getExecutorService("executor");
        executor.registerWorkers(org.redisson.api.WorkerOptions.defaults().workers(1));
        Cases.equal(executor.submit(new Sum(1, 2)).get(30, SECONDS), 3);
        Cases.equal(executor.schedule(new Sum(3, 4), 1, SECONDS).get(30, SECONDS), 7);
        executor.shutdown();
    }

    public static final class Sum implements java.util.concurrent.Callable<Integer>,
            java.io.Serializable {
        public int a;
        public int b;

        public Sum() {}

        public Sum(int a, int b) {
            this.a = a;
            this.b = b;
        }

        @Override
        public Integer call() {
            return a + b;
        }
    }

    public static void main(String[] words) {
        redisson = client();
        Cases.test("queue", RedissonCases::queue);
        Cases.test("map-cache", RedissonCases::mapCache);
        Cases.test("rate-limiter", RedissonCases::limiter);
        Cases.test("sorted-sets", RedissonCases::sorted);
        Cases.test("lists", RedissonCases::lists);
        Cases.test("sets", RedissonCases::sets);
        Cases.test("delayed-queue", RedissonCases::delayed);
        Cases.test("locks", RedissonCases::locks);
        Cases.test("executor", RedissonCases::executor);
        System.exit(0);
    }
}
