// node-redis: its cache at the client, by CLIENT TRACKING.
// needs: redis@5.9.0
const { createClient } = require("redis");
const { port, kill, test, equal, until, inTime } = require("./cases.js");

async function main() {
  let one, other;
  await test("connect", async () => {
    one = createClient({ RESP: 3, url: `redis://127.0.0.1:${port}`,
      clientSideCache: { ttl: 0, maxEntries: 0, evictPolicy: "LRU" } });
    one.on("error", (error) => console.error("error", error.message));
    await inTime("connect", one.connect(), 10000);
    other = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
  });
  await test("invalidated", async () => {
    for (let n = 0; n < 100; n++) {
      if (n === 30) kill();
      await inTime("a write", other.set("key", String(n)));
      await until("the new value", async () => (await one.get("key")) === String(n), 5000);
      equal(await one.get("key"), String(n));
    }
  });
  process.exit(0);
}

main();
