// RSMQ: a message queue of scripts over sorted sets and hashes.
// needs: rsmq@0.12.4
const RSMQ = require("rsmq");
const { port, test, equal, mark, jobs, pause } = require("./cases.js");

const one = new RSMQ({ host: "127.0.0.1", port, ns: "rsmq" });

async function work(qname) {
  for (;;) {
    try {
      const message = await one.receiveMessageAsync({ qname });
      if (!message.id) { await pause(10); continue; }
      await mark(message.message);
      await one.deleteMessageAsync({ qname, id: message.id });
    } catch (error) {
      console.error(error);
      await pause(100);
    }
  }
}

async function main() {
  const qname = "jobs";
  await test("create", async () => equal(await one.createQueueAsync({ qname }), 1));
  for (let n = 0; n < 2; n++) work(qname);
  await test("jobs", () => jobs((n) => one.sendMessageAsync({ qname, message: String(n) })));
  await test("others", async () => {
    await one.createQueueAsync({ qname: "other", vt: 0 });
    const id = await one.sendMessageAsync({ qname: "other", message: "hello" });
    equal((await one.receiveMessageAsync({ qname: "other", vt: 0 })).message, "hello");
    equal(await one.changeMessageVisibilityAsync({ qname: "other", id, vt: 0 }), 1);
    equal((await one.popMessageAsync({ qname: "other" })).message, "hello");
    equal((await one.getQueueAttributesAsync({ qname: "other" })).msgs, 0);
    equal((await one.listQueuesAsync()).sort(), ["jobs", "other"]);
    equal(await one.deleteQueueAsync({ qname: "other" }), 1);
  });
  process.exit(0);
}

main();
