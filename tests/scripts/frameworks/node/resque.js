// node-resque: Resque's keys: lists, sets, sorted sets; scheduler, delayed jobs, retries.
// needs: node-resque@9.7.1 ioredis@5.8.2
const { Queue, Worker, Scheduler } = require("node-resque");
const { port, test, mark, until, equal, jobs } = require("./cases.js");

const connection = { pkg: "ioredis", host: "127.0.0.1", port, database: 0,
  namespace: process.env.TAGGED ? "{resque}" : "resque" };
let tries = 0;
const plan = {
  leave: { perform: mark },
  again: {
    plugins: ["Retry"],
    pluginOptions: { Retry: { retryLimit: 3, retryDelay: 100 } },
    perform: async () => { if (++tries < 2) throw new Error("on purpose"); },
  },
};

async function main() {
  const silent = (it) => it.on("error", (error) => console.error("error", error));
  const queue = silent(new Queue({ connection }, plan));
  await test("connect", async () => {
    await queue.connect();
    for (let n = 0; n < 2; n++) {
      const worker = silent(new Worker(
        { connection, queues: ["jobs"], name: `w${n}`, timeout: 20 }, plan));
      await worker.connect();
      await worker.start();
    }
    const scheduler = silent(new Scheduler({ connection, timeout: 200 }));
    await scheduler.connect();
    await scheduler.start();
  });
  await test("jobs", () => jobs((n) => queue.enqueue("jobs", "leave", [n])));
  await test("delayed", async () => {
    await queue.enqueueIn(1000, "jobs", "leave", [1000]);
    equal(Object.keys(await queue.allDelayed()).length, 1);
    await until("no delayed job", async () => Object.keys(await queue.allDelayed()).length === 0);
  });
  await test("retry", async () => {
    await queue.enqueue("jobs", "again", []);
    await until("the second try", () => tries >= 2);
  });
  await test("state", async () => {
    equal(await queue.queues(), ["jobs"]);
    await until("an empty queue", async () => (await queue.length("jobs")) === 0);
    equal(Object.keys(await queue.workers()).length, 2);
    equal(Number((await queue.stats()).processed) >= 300, true);
  });
  process.exit(0);
}

main();
