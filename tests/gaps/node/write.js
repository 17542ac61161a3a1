// What both libraries of this folder share: the arguments, and four tasks that write.
import { setTimeout as pause } from "node:timers/promises";

const [mode, settings, prefix, list] = process.argv.slice(2);
export const addresses = list.split(",").map((address) => {
  const [host, port] = address.split(":");
  return { host, port: Number(port) };
});
export const which = `${mode}_${settings}`;

// Errors that no command carries (a lost connection) are not seen by the tasks.
export function quiet(client) {
  for (const event of ["error", "node error"]) client.on(event, () => {});
  return client;
}

export async function write(set) {
  const task = async (task) => {
    for (let number = 0; ; number++) {
      try {
        await set(`${prefix}:${task}:${number}`, String(number));
        console.log("+", task, number);
      } catch (why) {
        console.log("-", task, number, `${why.name} ${why.message}`.split("\n")[0]);
      }
      await pause(10);
    }
  };
  await Promise.all([0, 1, 2, 3].map(task));
}
