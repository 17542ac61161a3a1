// redis-semaphore: mutexes and semaphores by scripts over strings and sorted sets.
// needs: redis-semaphore@5.8.0 ioredis@5.8.2
const Redis = require("ioredis");
const { Mutex, Semaphore } = require("redis-semaphore");
const { port, kill, pause, test, equal } = require("./cases.js");

const client = new Redis({ host: "127.0.0.1", port });
const options = { lockTimeout: 10000, acquireTimeout: 40000, retryInterval: 5 };

async function crowd(make, most, killed) {
  let [inside, highest, done] = [0, 0, 0];
  await Promise.all([...Array(30).keys()].map(async (n) => {
    const it = make();
    await it.acquire();
    inside += 1;
    highest = Math.max(highest, inside);
    if (killed && n === 10) kill();
    await pause(10);
    inside -= 1;
    await it.release();
    done += 1;
  }));
  equal([highest <= most, done], [true, 30]);
}

async function main() {
  await test("mutex", () => crowd(() => new Mutex(client, "it", options), 1, true));
  await test("semaphore", () => crowd(() => new Semaphore(client, "some", 3, options), 3));
  await test("refreshed", async () => {
    const mutex = new Mutex(client, "kept", { ...options, lockTimeout: 500, refreshInterval: 100 });
    await mutex.acquire();
    await pause(1500);
    const other = new Mutex(client, "kept", { ...options, acquireTimeout: 100 });
    equal(await other.tryAcquire(), false);
    await mutex.release();
    equal(await other.tryAcquire(), true);
  });
  process.exit(0);
}

main();
