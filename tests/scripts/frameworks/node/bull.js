// Bull: two processes, delayed and repeated jobs, retries, priorities, a rate limit.
// needs: bull@4.16.5
const Queue = require("bull");
const { port, test, mark, until, equal, jobs, inTime, worker } = require("./cases.js");

const redis = { host: "127.0.0.1", port };
const prefix = process.env.TAGGED ? "{bull}" : "bull";
const queue = new Queue("jobs", { redis, prefix });
const sums = new Queue("sums", { redis, prefix });
const other = new Queue("other", { redis, prefix, limiter: { max: 5, duration: 500 } });
for (const q of [queue, sums, other]) {
  q.on("error", (error) => console.error("error", error.message));
}

function work() {
  queue.process("leave", 2, async (job) => { await mark(job.data.n); return job.data.n; });
}

async function main() {
  sums.process("add", 1, async (job) => job.data.a + job.data.b);
  sums.process("again", 1, async (job) => {
    if (job.attemptsMade < 2) throw new Error("on purpose");
    return job.attemptsMade;
  });
  work();
  const end = (job) => inTime("the job", job.finished());
  await test("jobs", () => jobs((n) => queue.add("leave", { n })));
  await test("result", async () => equal(await end(await sums.add("add", { a: 1, b: 2 })), 3));
  await test("delayed", async () => {
    const began = Date.now();
    equal(await end(await sums.add("add", { a: 1, b: 2 }, { delay: 1000 })), 3);
    if (Date.now() - began < 1000) throw new Error("before its time");
  });
  await test("retry", async () => equal(
    await end(await sums.add("again", {}, { attempts: 3, backoff: 100 })), 2));
  await test("priority", async () => equal(
    await end(await sums.add("add", { a: 1, b: 2 }, { priority: 3 })), 3));
  await test("lifo", async () => equal(
    await end(await sums.add("add", { a: 1, b: 2 }, { lifo: true })), 3));
  await test("bulk", async () => {
    const some = await sums.addBulk([1, 2, 3].map((a) => ({ name: "add", data: { a, b: 1 } })));
    equal(await Promise.all(some.map(end)), [2, 3, 4]);
  });
  await test("repeated", async () => {
    let times = 0;
    sums.process("tick", 1, async () => { times += 1; });
    await sums.add("tick", {}, { repeat: { every: 300 } });
    await until("three times", () => times >= 3);
    await sums.removeRepeatable("tick", { every: 300 });
  });
  await test("limited", async () => {
    other.process(async (job) => job.data);
    const some = [];
    for (let n = 0; n < 12; n++) some.push(await other.add(n));
    equal((await Promise.all(some.map(end))).length, 12);
  });
  await test("pause", async () => {
    await sums.pause();
    const job = await sums.add("add", { a: 1, b: 2 });
    equal((await sums.getJobCounts()).paused, 1);
    await sums.resume();
    equal(await end(job), 3);
  });
  await test("remove", async () => {
    const job = await sums.add("add", { a: 1, b: 2 }, { delay: 100000 });
    await job.remove();
    equal(await sums.getJob(job.id), null);
  });
  await test("clean", async () => {
    if ((await queue.clean(0, "completed")).length < 300) throw new Error("too few");
    await queue.obliterate({ force: true });
  });
  process.exit(0);
}

if (process.argv[2] === "worker") work();
else { worker(__filename); main(); }
