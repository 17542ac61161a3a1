// Bottleneck in clustering mode: scripts over hashes and sorted sets, and messages.
// needs: bottleneck@2.19.5 ioredis@4.30.1
const Bottleneck = require("bottleneck");
const tag = (id) => (process.env.TAGGED ? `{${id}}` : id);
const { port, kill, test, equal, inTime } = require("./cases.js");

const redis = {
  datastore: "ioredis", Redis: require("ioredis"), clientOptions: { host: "127.0.0.1", port },
};
const make = (id, more) => {
  const it = new Bottleneck({ ...redis, id: tag(id), clearDatastore: true, ...more });
  it.on("error", (error) => console.error("error", error.message));
  return it;
};

async function main() {
  await test("ready", () => inTime("ready", make("ready", {}).ready()));
  await test("schedule", async () => {
    const one = make("schedule", { maxConcurrent: 2, minTime: 5 });
    await inTime("ready", one.ready());
    const all = [];
    for (let n = 0; n < 200; n++) {
      all.push(one.schedule(async () => { if (n === 50) kill(); return n; }));
    }
    equal(await inTime("200 jobs", Promise.all(all), 60000), [...Array(200).keys()]);
  });
  await test("reservoir", async () => {
    const one = make("reservoir", { reservoir: 3 });
    await inTime("ready", one.ready());
    for (let n = 0; n < 3; n++) await inTime("a job", one.schedule(async () => n));
    equal(await one.currentReservoir(), 0);
    equal(await one.check(), false);
    await one.incrementReservoir(1);
    equal(await inTime("a job", one.schedule(async () => 7)), 7);
    equal(await one.done(), 4);
  });
  await test("group", async () => {
    const group = new Bottleneck.Group({ ...redis, id: tag("group") });
    equal(await inTime("a job", group.key("a").schedule(async () => 1)), 1);
    equal((await group.clusterKeys()).length, 1);
    equal(await group.deleteKey("a"), true);
  });
  process.exit(0);
}

main();
