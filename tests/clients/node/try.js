// Uses a node over TLS as a user with rules, by ioredis: PORT CLUSTER_PORT CA
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import Redis from "ioredis";

const [port, clusterPort, ca] = process.argv.slice(2);
const tls = { ca: readFileSync(ca), servername: "localhost" };
const user = { username: "app", password: "app-password-1" };
const once = { retryStrategy: () => null, maxRetriesPerRequest: 0, enableReadyCheck: false };

function check(holds, what) {
  if (!holds) throw new Error(what);
}

async function refused(promise, text) {
  const why = await promise.then(() => "nothing", (e) => e.message);
  check(why.includes(text), `${text} was expected, not: ${why}`);
}

const client = new Redis({ host: "localhost", port, tls, ...user });
check((await client.set("app:node", "value")) === "OK", "SET");
check((await client.get("app:node")) === "value", "GET");
const pipeline = client.pipeline();
for (let n = 0; n < 2000; n++) pipeline.set(`app:${n}`, n);
check((await pipeline.exec()).every(([why]) => !why), "a pipeline");
await refused(client.set("other", "value"), "NOPERM");

const cluster = new Redis.Cluster([{ host: "localhost", port: clusterPort }], {
  dnsLookup: (address, done) => done(null, address),
  redisOptions: { tls, ...user },
});
for (let n = 0; n < 200; n++) await cluster.set(`app:${n}`, n);

async function failure(options) {
  const failing = new Redis({ host: "localhost", port, ...user, ...once, lazyConnect: true, ...options });
  const why = new Promise((resolve) => failing.on("error", (e) => resolve(e.message)));
  failing.connect().catch(() => {});
  const told = await why;
  failing.disconnect();
  return told;
}
await refused(Promise.reject(new Error(await failure({ tls, password: "wrong" }))), "WRONGPASS");
const told = await failure({ tls: { servername: "localhost" } });
check(/self.signed|unable to (get|verify)/.test(told), told);

client.disconnect();
cluster.disconnect();
console.log("ok: ioredis", createRequire(import.meta.url)("ioredis/package.json").version);
