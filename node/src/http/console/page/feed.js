// What the node sends, and what this page knows of it.
//
// EventSource cannot send a token, so the stream of server-sent events is read by fetch.

const KEY = "doyen-token";
/** Who asks a node that has no credentials. */
export const OPEN = "anyone on this machine";

export const state = {
  connected: false, refused: null, full: null, hello: null, status: null, waiting: null, map: null, moves: null,
  loads: [], maps: [], alerts: [], busiest: null, events: [], sample: null, hour: null,
};
const listeners = new Set();
export const onChange = (listener) => listeners.add(listener);
const changed = (name) => listeners.forEach((listener) => listener(name));

let token = sessionStorage.getItem(KEY);
export const hasToken = () => token !== null;
function forgetToken() {
  token = null;
  sessionStorage.removeItem(KEY);
}
/** What only some roles see is forgotten with the role. */
function forgetKnown() {
  Object.assign(state, { hello: null, map: null, busiest: null, moves: null, events: [] });
  changed("role");
}
export function setToken(next) {
  token = next || null;
  if (token) sessionStorage.setItem(KEY, token); else sessionStorage.removeItem(KEY);
  forgetKnown();
  connection?.abort();
  wake?.();
}
// A node without credentials takes this word from programs of its own machine.
const bearer = () => `Bearer ${token ?? "loopback"}`;

/** Asks this node. Throws an Error with its own words if it refuses. */
export async function ask(method, path, body) {
  const headers = { authorization: bearer() };
  const content = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method, headers, body: content, cache: "no-store" });
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

/** Whether the node takes a token. Throws an Error with words for the person who typed it. */
export async function tryToken(next) {
  if (!/^[\x21-\x7e]{16,}$/.test(next)) throw new Error("This is no token: it has at least 16 letters, digits and signs, without spaces.");
  const answer = await fetch("/balance", { headers: { authorization: `Bearer ${next}` }, cache: "no-store" });
  if (answer.status === 401) throw new Error("This token opens nothing here: it was revoked, is mistyped, or belongs to another cluster.");
  if (answer.status === 403) throw new Error(await reason(answer));
}

/** What the node says in an answer that is an error. */
async function reason(answer) {
  const text = await answer.text();
  try { return JSON.parse(text).error ?? text; } catch { return text || `the node answered ${answer.status}`; }
}

const EVENTS_KEPT = 300;
const HOUR = 720;

function take(name, value) {
  if (name === "happened") {
    state.events.unshift(value);
    state.events.length = Math.min(state.events.length, EVENTS_KEPT);
  } else if (name === "sample") {
    // The hour may have come with this sample.
    if (state.hour && value.number !== state.hour.number) {
      state.hour.samples.push(value.cluster);
      state.hour.number = value.number;
      if (state.hour.samples.length > HOUR) state.hour.samples.shift();
    }
    state.sample = value;
  } else {
    if (name === "hello" && state.hello && state.hello.role !== value.role) forgetKnown();
    state[name] = value;
    // A node without credentials answers everyone, whatever they send: a token would only be refused
    // where something is changed.
    if (name === "hello" && token && value.caller === OPEN) forgetToken();
  }
  changed(name);
}

let connection = null;
let wake = null;
/** The node sends a sign of life every 5 s. After this time without one, it does not answer. */
const SILENT = 12_000;
const pause = (ms) => new Promise((done) => { wake = done; setTimeout(done, ms); });

async function read() {
  connection = new AbortController();
  let silent = null;
  const alive = () => { clearTimeout(silent); silent = setTimeout(() => connection.abort(), SILENT); };
  alive();
  try { return await readStream(alive); } finally { clearTimeout(silent); }
}

async function readStream(alive) {
  const answer = await fetch("/console/stream", {
    headers: token ? { authorization: bearer() } : {}, signal: connection.signal, cache: "no-store",
  });
  if (answer.status === 401 || answer.status === 403) {
    // The node's words for 401 are for programs. Those for 403 say what it lacks.
    const why = await reason(answer);
    state.refused = answer.status === 403 ? why : token ? "The token of this tab opens nothing here any more: it was revoked, or belongs to another cluster." : "This cluster asks for a token.";
    changed("refused");
    return 3600_000;
  }
  state.full = answer.status === 429 ? await reason(answer) : null;
  if (state.full) return 8000;
  if (!answer.ok) throw new Error(`the node answered ${answer.status}`);
  state.connected = true; state.refused = null; state.events = [];
  changed("connected");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read();
    alive();
    if (done) return 500;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      let name = null, data = "";
      for (const line of part.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (name) take(name, JSON.parse(data));
    }
  }
}

/** Follows the stream, and begins again when it ends. */
export async function follow() {
  for (let wait = 500;;) {
    let next = wait;
    try { next = await read(); wait = 500; } catch { next = wait; wait = Math.min(wait * 2, 8000); state.full = null; }
    state.connected = false; state.waiting = null;
    changed("connected");
    await pause(next);
  }
}
