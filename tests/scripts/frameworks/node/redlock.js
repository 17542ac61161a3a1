// redlock: locks of one key and of several, extended, under contention.
// needs: redlock@5.0.0-beta.2 ioredis@5.8.2
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");
const { port, kill, test, equal } = require("./cases.js");

const client = new Redis({ host: "127.0.0.1", port });
const redlock = new Redlock([client], { retryCount: 2000, retryDelay: 10, retryJitter: 10 });

async function main() {
  await test("one", async () => {
    const lock = await redlock.acquire(["one"], 5000);
    await (await lock.extend(5000)).release();
  });
  await test("contended", async () => {
    let number = 0;
    kill();
    const add = () => redlock.using(["contended"], 5000, async () => {
      const read = number;
      await client.ping();
      number = read + 1;
    });
    await Promise.all([...Array(20).keys()].map(add));
    equal(number, 20);
  });
  await test("several-slots", async () => {
    const lock = await redlock.acquire(["a", "b", "c"], 5000);
    await lock.release();
  });
  process.exit(0);
}

main();
