// Socket.IO with the streams adapter: two servers, messages to all, to a room, and back.
// needs: socket.io@4.8.1 socket.io-client@4.8.1 @socket.io/redis-streams-adapter@0.2.2 redis@4.7.0
const { createServer } = require("http");
const { Server } = require("socket.io");
const connect = require("socket.io-client").io;
const { createAdapter } = require("@socket.io/redis-streams-adapter");
const { createClient } = require("redis");
const { port, kill, test, equal, inTime, until } = require("./cases.js");

async function server() {
  const redis = createClient({ url: `redis://127.0.0.1:${port}` });
  redis.on("error", (error) => console.error("error", error.message));
  await redis.connect();
  const http = createServer();
  const io = new Server(http, { adapter: createAdapter(redis) });
  io.on("connection", (socket) => {
    socket.on("join", (room, done) => { socket.join(room); done(); });
  });
  await new Promise((done) => http.listen(0, "127.0.0.1", done));
  return { io, client: connect(`http://127.0.0.1:${http.address().port}`) };
}

async function main() {
  const heard = (client, name) => inTime(name, new Promise((yes) => client.once(name, yes)), 15000);
  let one, other;
  await test("start", async () => {
    one = await inTime("a server", server());
    other = await inTime("a server", server());
    await inTime("join", other.client.emitWithAck("join", "room"));
  });
  await test("to-all", async () => {
    for (let n = 0; n < 60; n++) {
      const all = [one, other].map(({ client }) => heard(client, `all${n}`));
      if (n === 20) kill();
      one.io.emit(`all${n}`, n);
      equal(await Promise.all(all), [n, n]);
    }
  });
  await test("to-a-room", async () => {
    const there = heard(other.client, "here");
    one.io.to("room").emit("here", 7);
    equal(await there, 7);
  });
  // Servers hear of each other by heartbeats, some seconds apart.
  await test("sockets", () => until("two sockets",
    async () => (await one.io.fetchSockets()).length === 2, 20000));
  process.exit(0);
}

main();
