#!/usr/bin/env node
// Goes through the console in a browser without a window: `just console`.
//
//   console.mjs BINARY FOLDER
//
// Starts a cluster of three processes of BINARY, opens the page, kills a member, lets one join,
// drains one by the page's own dialog, and looks at every view in light, dark and narrow. Fails if
// the browser's console has an error, if axe-core finds anything, or if the page does not show what
// happened. Screenshots, also of 100 members by a stream that is made here, lie in FOLDER.
// FOLDER/node_modules has puppeteer-core and axe-core.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, existsSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { connect, createServer } from "node:net";
import path from "node:path";
import assert from "node:assert/strict";

const [binary, folder] = process.argv.slice(2).map((given) => path.resolve(given));
const need = createRequire(path.join(folder, "package.json"));
const puppeteer = need("puppeteer-core");
const axe = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");
const chromium = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((at) => at && existsSync(at));
if (!chromium) {
  console.error("There is no Chromium: install it (apt-get install chromium), or name it in CHROMIUM.");
  process.exit(1);
}

const dir = mkdtempSync(path.join(tmpdir(), "doyen-console-"));
const nodes = new Map();

const freePort = () => new Promise((found) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => found(port));
  });
});

async function start(name, seeds, listen) {
  const http = await freePort(), resp = await freePort();
  const flags = ["run", "--name", name, "--listen", `127.0.0.1:${listen}`, "--data", "127.0.0.1:0", "--resp", `127.0.0.1:${resp}`,
    "--resp-cluster", "127.0.0.1:0", "--http", `127.0.0.1:${http}`, "--memory-max", "256mb", ...seeds.flatMap((port) => ["--seed", `127.0.0.1:${port}`])];
  const child = spawn(binary, flags, { cwd: dir, stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.on("data", (text) => { said += text; });
  nodes.set(name, { child, http, resp, log: () => said });
}

/** Commands of a Redis client, one after the other. */
const redis = (port, commands) => new Promise((done, failed) => {
  const socket = connect(port, "127.0.0.1", () => socket.write(commands.map((line) => `${line}\r\n`).join("")));
  let replies = "";
  socket.on("error", failed);
  socket.on("data", (text) => {
    replies += text;
    if (replies.split("\r\n").length > commands.length) { socket.end(); done(replies); }
  });
});

const kill = (name) => { nodes.get(name).child.kill("SIGKILL"); nodes.delete(name); };

async function page(browser, { width = 1360, height = 900, theme = "light", http, stream } = {}) {
  const tab = await browser.newPage();
  const narrow = width < 600;
  await tab.setViewport({ width, height, isMobile: narrow, hasTouch: narrow });
  await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
  tab.wrong = [];
  tab.on("console", (line) => { if (["error", "warning"].includes(line.type())) tab.wrong.push(line.text()); });
  tab.on("pageerror", (error) => tab.wrong.push(error.message));
  if (stream) {
    await tab.setRequestInterception(true);
    tab.on("request", (request) => {
      const { pathname } = new URL(request.url());
      if (pathname === "/console/stream") request.respond({ status: 200, contentType: "text/event-stream", body: stream });
      else if (pathname === "/console/clients") request.respond({ status: 200, contentType: "application/json", body: JSON.stringify({ members: listed() }) });
      else request.continue();
    });
  }
  await tab.goto(`http://127.0.0.1:${http}/`, { waitUntil: "domcontentloaded" });
  return tab;
}

const shows = (tab, text, selector = "body") => tab.waitForFunction(
  (wanted, at) => document.querySelector(at)?.innerText.includes(wanted), { timeout: 40_000 }, text, selector);

async function judge(tab, name) {
  await tab.screenshot({ path: path.join(folder, `${name}.png`) });
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => globalThis.axe.run());
  const found = violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.target.join(" ")).join(", ")}`);
  assert.deepEqual(found, [], `axe-core finds faults in ${name}: ${found.join("; ")}`);
  assert.deepEqual(tab.wrong, [], `the browser's console has errors in ${name}`);
}

const go = async (tab, view, title) => {
  await tab.evaluate((hash) => { location.hash = hash; }, view);
  await shows(tab, title, "h1");
};

const press = (tab, text, within = "main") => tab.evaluate((wanted, at) => {
  const button = [...document.querySelectorAll(`${at} button`)].find((one) => one.textContent === wanted);
  button.click();
}, text, within);

/** Clients of many members. */
const listed = () => Array.from({ length: 100 }, (_, at) => ({
  name: `node-${String(at + 1).padStart(3, "0")}`, more: 40,
  clients: Array.from({ length: 10 }, (_, of) => ({ address: `10.1.${at}.${of}:4${of}021`, name: "web", user: "app", library: "jedis 5.1", age_s: 60 * of, idle_s: of, database: 0, command: "get" })),
  slow: at % 9 ? [] : [{ at: 1_795_000_000 + at, took_us: 12_000 + at, words: ["HGETALL", `user:${at}:profile`], client: `10.1.${at}.1:41021` }],
}));

/** A stream of many members, as a node would send it. */
function recorded(members, partitions) {
  const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const names = Array.from({ length: members }, (_, at) => `node-${String(at + 1).padStart(3, "0")}`);
  const wave = (at, of) => Math.round(of * (1 + 0.2 * Math.sin(at / 40)));
  const sample = (at) => ({ commands: wave(at, 2e5), operations: wave(at, 2.3e5), errors: 0, p50_us: wave(at, 180), p99_us: wave(at, 900), hits: 9000,
    misses: wave(at, 300), client_bytes: wave(at, 4e7), peer_bytes: wave(at, 9e7), memory: 3e11, memory_max: 6e11, clients: 5200 });
  const states = new Map([[7, "silent"], [11, "draining"], [40, "leaving"]]);
  const map = Array.from({ length: partitions }, (_, at) => {
    const all = [at * 7 % members, (at * 7 + 1 + at % 5) % members];
    return at % 97 === 0 ? all.slice(0, 1) : at % 53 === 0 ? [...all, -1 - (at * 7 + 9) % members] : [...all, (at * 7 + 9) % members];
  });
  return event("hello", { node: names[0], version: "0.1.0", caller: "token admin", role: "operate", may_change_users: true, may_read_values: true, seconds: 5 })
    + event("status", { coordinator: names[0], safe: false, unsafe_for: "node-008 does not answer", gone: [], moves: [], members: names.map((name, at) => ({
      name, id: String(at), age: at + 1, state: states.get(at) ?? "live", role: "data", zone: `eu-${"abc"[at % 3]}`, address: `10.0.0.${at}:7400`, resp: `10.0.0.${at}:7379`, http: `10.0.0.${at}:7480` })),
      keyspaces: [{ name: "default", mode: "fixed", partitions, backups: 2, on_loss: "wait", default_ttl: "none", eviction: "lru", rules: [], unmet: [], under_replicated: 478, unavailable: 0 }] })
    + event("alerts", [{ name: "DoyenUnderReplicated", severity: "warning", text: "Keyspace default: 478 partitions with too few copies.", runbook: "https://github.com/doyen-grid/doyen" }])
    + event("map", { members: names, keyspaces: [{ name: "default", copies: 3, ids: null, partitions: map }] })
    + event("moves", { moves: [], balance: { state: "on", on: true, automatic: [], rate: "adaptive", window: "always", held: [] }, draining: [] })
    + event("loads", names.map((name) => ({ name, memory: 3e9, memory_max: 6e9, cpu: 300, busy: false })))
    + event("maps", []) + event("busiest", [])
    + event("hour", { number: 1, seconds: 5, samples: Array.from({ length: 720 }, (_, at) => sample(at)) })
    + event("sample", { number: 1, cluster: sample(719), members: Object.fromEntries(names.map((name, at) => [name, { ...sample(at), commands: 2000 }])) });
}

const VIEWS = [["members", "Members"], ["partitions", "Partitions"], ["data", "Data"], ["keys", "Keys"], ["clients", "Clients"], ["events", "Events"], ["access", "Access"], ["overview", "Overview"]];

let failed = null, browser;
try {
  const seeds = [await freePort(), await freePort(), await freePort()];
  for (const [at, name] of ["n1", "n2", "n3"].entries()) await start(name, seeds, seeds[at]);
  browser = await puppeteer.launch({ executablePath: chromium, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
  const { http } = nodes.get("n1");
  for (let tries = 0; ; tries += 1) {
    const ready = await fetch(`http://127.0.0.1:${http}/readyz`).then((answer) => answer.ok, () => false);
    if (ready) break;
    assert.ok(tries < 200, `n1 does not get ready:\n${nodes.get("n1").log()}`);
    await new Promise((next) => setTimeout(next, 100));
  }

  const tab = await page(browser, { http });
  await shows(tab, "Safe", "#verdict");
  await shows(tab, "3 / 3");
  await judge(tab, "three-light");
  for (const [view, title] of VIEWS) { await go(tab, view, title); await judge(tab, `three-${view}`); }

  kill("n3");
  // An empty cluster is safe again within a second.
  await shows(tab, "DoyenMemberGone");
  await judge(tab, "killed");
  await start("n4", seeds, await freePort());
  await shows(tab, "3 / 3");
  await shows(tab, "Safe", "#verdict");
  await go(tab, "members", "Members");
  await tab.waitForFunction(() => [...document.querySelectorAll("tr")].some((row) => row.innerText.includes("n2") && row.innerText.includes("Drain")), { timeout: 20_000 });
  await tab.evaluate(() => [...document.querySelectorAll("tr")].find((row) => row.innerText.includes("n2")).querySelector("button").click());
  await shows(tab, "hands all its partitions", "dialog");
  await judge(tab, "drain-dialog");
  await press(tab, "Drain", "dialog");
  await shows(tab, "○ drained", "main");
  await judge(tab, "drained");
  await go(tab, "partitions", "Partitions");
  await tab.waitForSelector("main form select option");
  await tab.type('input[name="key"]', '"\\xffa"');
  await press(tab, "Find it");
  await shows(tab, "belongs to default/");
  await tab.focus("canvas");
  await tab.keyboard.press("ArrowRight");
  await shows(tab, "leads;");

  // A node that hangs sends nothing: the page must not go on to say what it knew.
  const asleep = nodes.get("n1").child;
  asleep.kill("SIGSTOP");
  await shows(tab, "does not answer", "#verdict");
  asleep.kill("SIGCONT");
  await shows(tab, "Safe", "#verdict");

  const { resp } = nodes.get("n1");
  await redis(resp, ["SET user:42 Ada", "HSET cart:7 apples 3 pears 5", "SADD tags red green"]);
  await go(tab, "keys", "Keys");
  await shows(tab, "default / database 0");
  await press(tab, "List");
  await shows(tab, "user:42");
  await press(tab, "cart:7");
  await shows(tab, "apples");
  await press(tab, "user:42");
  await shows(tab, "Ada");
  await press(tab, "Edit…");
  await tab.$eval("dialog textarea", (box) => { box.value = "Grace"; });
  await judge(tab, "edit-dialog");
  await press(tab, "Write", "dialog");
  await shows(tab, "Grace", "main pre");
  await press(tab, "Delete…");
  await press(tab, "Delete", "dialog");
  await tab.waitForFunction(() => !document.querySelector("main").innerText.includes("user:42"));
  await judge(tab, "keys");

  for (const [name, look] of [["three-dark", { theme: "dark" }], ["three-narrow", { width: 390, height: 844 }]]) {
    const other = await page(browser, { http, ...look });
    await shows(other, "2 / 3");
    for (const [view, title] of VIEWS) { await go(other, view, title); await judge(other, `${name}-${view}`); }
    await other.close();
  }
  const stream = recorded(100, 16_384);
  for (const [name, look] of [["hundred-light", {}], ["hundred-dark", { theme: "dark" }], ["hundred-narrow", { width: 390, height: 844 }]]) {
    const other = await page(browser, { http, stream, ...look });
    await shows(other, "16,384");
    const paint = await other.evaluate(() => performance.getEntriesByType("paint").map((one) => `${one.name} ${Math.round(one.startTime)} ms`).join(", "));
    console.log(`${name}: ${paint}`);
    for (const [view, title] of VIEWS) { await go(other, view, title); await judge(other, `${name}-${view}`); }
    await other.close();
  }
  console.log(`The console shows a kill, a join and a drain. Screenshots: ${folder}`);
} catch (error) {
  failed = error;
  for (const [name, node] of nodes) console.error(`== ${name}\n${node.log().split("\n").slice(-12).join("\n")}`);
} finally {
  await browser?.close();
  for (const { child } of nodes.values()) child.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
}
if (failed) { console.error(failed); process.exit(1); }
