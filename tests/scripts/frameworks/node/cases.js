// What the Node programs share: their words for the runner, and jobs that leave a mark.
const fs = require("fs");
const path = require("path");

const port = Number(process.env.REDIS_PORT);
const marks = path.join(process.env.DIR, "marks");
const JOBS = Number(process.env.JOBS || 300);

const say = (...words) => console.log(...words);
const kill = () => say("kill");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function inTime(what, promise, ms = 30000) {
  let timer;
  const late = new Promise((_, no) => {
    timer = setTimeout(() => no(new Error(`${what}: not within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

async function test(name, body) {
  try {
    const result = await inTime(name, body(), 90000);
    say("case", name, "ok");
    return result;
  } catch (error) {
    console.error(error);
    say("case", name, "failed", String(error.message || error).replace(/\s+/g, " ").slice(0, 300));
  }
}

async function mark(n) {
  await pause(10);
  fs.appendFileSync(marks, `${n}\n`);
}

function found() {
  if (!fs.existsSync(marks)) return [];
  return fs.readFileSync(marks, "utf8").split("\n").filter((n) => n !== "");
}

async function until(what, isTrue, ms = 60000) {
  const end = Date.now() + ms;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`${what}: not within ${ms} ms`);
    await pause(50);
  }
}

function equal(found, expected) {
  require("assert").deepStrictEqual(found, expected);
}

// Sends jobs; the node is killed when a quarter of them is executed, while more are sent.
async function jobs(send, count = JOBS) {
  for (let n = 0; n < count / 2; n++) await send(n);
  await until("a quarter of the jobs", () => new Set(found()).size >= count / 4);
  kill();
  for (let n = count / 2; n < count; n++) await send(n);
  try {
    await until("all jobs", () => new Set(found()).size === count);
  } finally {
    const all = found();
    const different = new Set(all).size;
    say("jobs", count, different, all.length - different);
  }
}

// A second process of the program, as a worker. It ends with the group of this one.
function worker(file) {
  return require("child_process").spawn(process.execPath, [file, "worker"],
    { stdio: ["ignore", 2, 2] });
}

module.exports = { port, say, kill, pause, inTime, test, mark, until, equal, jobs, worker };
