// Bee-Queue: two processes, retries, delayed jobs.
// needs: bee-queue@2.0.0
const Queue = require("bee-queue");
const { port, test, mark, equal, jobs, inTime, worker } = require("./cases.js");

const prefix = process.env.TAGGED ? "{bq}" : "bq";
const make = (name, more) => {
  const queue = new Queue(name, { redis: { host: "127.0.0.1", port }, prefix, ...more });
  queue.on("error", (error) => console.error("error", error.message));
  return queue;
};
const queue = make("jobs", {});

function work() {
  queue.process(2, async (job) => { await mark(job.data.n); return job.data.n; });
}

async function main() {
  work();
  const sums = make("sums", { activateDelayedJobs: true });
  sums.process(async (job) => {
    if (job.data.fails && job.options.retries > 0) throw new Error("on purpose");
    return job.data.a + job.data.b;
  });
  const end = (job) => inTime("the job", new Promise((yes, no) => {
    job.on("succeeded", yes);
    job.on("failed", no);
    job.save().catch(no);
  }));
  await test("jobs", () => jobs((n) => queue.createJob({ n }).save()));
  await test("result", async () => equal(await end(sums.createJob({ a: 1, b: 2 })), 3));
  await test("delayed", async () => equal(
    await end(sums.createJob({ a: 1, b: 2 }).delayUntil(Date.now() + 1000)), 3));
  await test("retry", async () => equal(
    await end(sums.createJob({ a: 1, b: 2, fails: true }).retries(2)), 3));
  await test("id", async () => {
    const job = await sums.createJob({ a: 1, b: 2 }).setId("one").save();
    equal((await sums.createJob({ a: 1, b: 2 }).setId("one").save()).id, null);
    equal(job.id, "one");
  });
  await test("bulk", async () => equal(
    (await sums.saveAll([1, 2, 3].map((a) => sums.createJob({ a, b: 1 })))).size, 0));
  await test("stalled", () => queue.checkStalledJobs());
  await test("health", async () => {
    const health = await queue.checkHealth();
    equal([health.waiting, health.active, health.failed], [0, 0, 0]);
    equal((await queue.getJobs("succeeded", { size: 10 })).length >= 0, true);
  });
  await test("destroy", () => sums.destroy());
  process.exit(0);
}

if (process.argv[2] === "worker") work();
else { worker(__filename); main(); }
