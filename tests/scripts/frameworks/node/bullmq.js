// BullMQ: two processes, flows, delayed and scheduled jobs, retries, priorities, rate limits.
// needs: bullmq@5.63.0 ioredis@5.8.2
const { Queue, Worker, QueueEvents, FlowProducer } = require("bullmq");
const { port, test, mark, until, equal, jobs, inTime, worker } = require("./cases.js");

const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const more = { connection, prefix: process.env.TAGGED ? "{bull}" : "bull" };
const silent = (it) => it.on("error", (error) => console.error("error", error.message));

function work() {
  silent(new Worker("jobs", (job) => mark(job.data.n), { ...more, concurrency: 2 }));
}

async function main() {
  work();
  const queue = silent(new Queue("jobs", more));
  const sums = silent(new Queue("sums", more));
  const events = silent(new QueueEvents("sums", more));
  let ticks = 0;
  silent(new Worker("sums", async (job) => {
    if (job.name === "tick") ticks += 1;
    if (job.name === "again" && job.attemptsMade < 2) throw new Error("on purpose");
    if (job.name === "again") return job.attemptsMade;
    const children = Object.values(await job.getChildrenValues());
    return children.reduce((a, b) => a + b, job.data.a + job.data.b);
  }, { ...more, limiter: { max: 20, duration: 500 } }));
  const end = (job) => inTime("the job", job.waitUntilFinished(events));
  const add = async (name, options) => end(await sums.add(name, { a: 1, b: 2 }, options));
  await test("jobs", () => jobs((n) => queue.add("leave", { n })));
  await test("result", async () => equal(await add("add"), 3));
  await test("delayed", async () => equal(await add("add", { delay: 1000 }), 3));
  await test("priority", async () => equal(await add("add", { priority: 3 }), 3));
  await test("retry", async () => equal(await add("again", { attempts: 3, backoff: 100 }), 2));
  await test("bulk", async () => {
    const some = await sums.addBulk([1, 2, 3].map((a) => ({ name: "add", data: { a, b: 1 } })));
    equal(await Promise.all(some.map(end)), [2, 3, 4]);
  });
  await test("flow", async () => {
    const child = (a) => ({ name: "add", queueName: "sums", data: { a, b: 1 } });
    const tree = await silent(new FlowProducer(more)).add(
      { name: "add", queueName: "sums", data: { a: 1, b: 2 }, children: [child(1), child(2)] });
    equal(await end(tree.job), 8);
  });
  await test("scheduled", async () => {
    await sums.upsertJobScheduler("ticks", { every: 300 }, { name: "tick", data: { a: 0, b: 0 } });
    await until("three times", () => ticks >= 3, 30000);
    await sums.removeJobScheduler("ticks");
  });
  await test("counts", async () => equal((await queue.getJobCounts()).completed >= 300, true));
  await test("clean", async () => {
    await queue.clean(0, 1000, "completed");
    await queue.obliterate({ force: true });
  });
  process.exit(0);
}

if (process.argv[2] === "worker") work();
else { worker(__filename); main(); }
