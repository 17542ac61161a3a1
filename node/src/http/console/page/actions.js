// Changes: each says what will happen, asks, and shows what the node answered.

import { ask, setToken, tryToken, hasToken, state, OPEN } from "./feed.js";
import { h } from "./views.js";
import { copied } from "./known.js";

const dialog = document.getElementById("dialog");
const toastBox = document.getElementById("toast");
let toastTimer;

export function toast(text) {
  toastBox.replaceChildren(h("p", {}, text));
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => toastBox.replaceChildren(), 6000);
}

const field = (one) => {
  const input = one.options
    ? h("select", { name: one.name }, one.options.map(([value, text]) => h("option", { value }, text)))
    : one.lines ? h("textarea", { name: one.name, rows: one.lines, spellcheck: "false" })
      : h("input", { name: one.name, type: one.secret ? "password" : "text", autocomplete: "off", spellcheck: "false", placeholder: one.hint, required: !one.optional });
  if (one.value) input.value = one.value;
  return h("label", {}, one.label, input);
};

/**
 * Asks a person. `act` gets what was typed; its error stays in the dialog. `typed`: the word that
 * has to be typed first, for what cannot be undone.
 */
export function confirm({ title, text, fields = [], button, danger, typed, act }) {
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const go = h("button", { type: "submit", class: danger ? "danger" : "main" }, button);
  const all = typed ? [...fields, { name: "typed", label: `Type ${typed} to confirm` }] : fields;
  const form = h("form", { method: "dialog", on: { submit: async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    const say = (why) => { wrong.textContent = why; wrong.hidden = false; };
    if (typed && values.typed !== typed) return say(`Type ${typed}, exactly.`);
    go.disabled = true;
    wrong.hidden = true;
    // The cluster may take seconds to agree, or to find out that it cannot.
    go.textContent = "Working…";
    try {
      const done = await act(values);
      if (done instanceof Node) return form.replaceChildren(h("h2", {}, title), done, close("Close"));
      dialog.close();
      toast(done ?? "Done.");
    } catch (error) { say(error.message); } finally { go.disabled = false; go.textContent = button; }
  } } },
    h("h2", { id: "dialog-title" }, title),
    [text].flat().filter(Boolean).map((one) => typeof one === "string" ? h("p", {}, one) : one),
    all.map(field), wrong, h("div", { class: "row" }, close("Cancel"), go));
  dialog.replaceChildren(form);
  dialog.showModal();
}

const close = (text) => h("button", { type: "button", on: { click: () => dialog.close() } }, text);

const name = encodeURIComponent;

export const may = () => state.hello?.role === "operate";

export const drain = (member) => confirm({
  title: `Drain ${member}?`, button: "Drain",
  text: `${member} hands all its partitions to other members, one after the other, and then holds nothing. It stays a member, and clients notice nothing. Members shows what is left. You can cancel at any time.`,
  act: async () => { await ask("POST", `/members/${name(member)}/drain`); return `${member} is being drained. Members shows how far it is.`; },
});
export const undrain = (member) => confirm({
  title: `Let ${member} hold data again?`, button: "Cancel the drain",
  text: `Partitions move back to ${member} as balancing finds right.`,
  act: async () => { await ask("DELETE", `/members/${name(member)}/drain`); return `${member} may hold data again.`; },
});
export const removeLost = (member) => confirm({
  title: `Give up ${member}?`, button: "Give it up", danger: true, typed: member,
  text: `${member} does not answer. If you give it up, partitions of which it has the only copy begin empty, and what they held is lost for good. Prefer to start it again, or to wait.`,
  act: async () => { await ask("DELETE", `/members/${name(member)}`); return `${member} was removed.`; },
});
export const forget = (member) => confirm({
  title: `Forget ${member}?`, button: "Forget", text: `${member} is gone, and no member waits for it any more. Its alert ends. A process of that name may join as a new member.`,
  act: async () => { await ask("DELETE", `/gone/${name(member)}`); return `${member} is forgotten.`; },
});
export const pauseBalance = (paused) => confirm({
  title: paused ? "Pause balancing?" : "Resume balancing?", button: paused ? "Pause" : "Resume",
  text: paused ? "Nothing moves for balance until you resume it. Missing copies are still made, and drains go on." : "Partitions move again as balancing finds right.",
  act: async () => { await ask("PATCH", "/balance", { paused }); return paused ? "Balancing is paused." : "Balancing goes on."; },
});
export const cancelMove = (id) => confirm({
  title: id ? `Cancel the move of ${id}?` : "Cancel all moves for balance?", button: "Cancel the move", danger: false,
  text: id ? "The partition stays where it is until balancing is resumed, or members come or go." : "All moves for balance end where they are, and balancing is paused.",
  act: async () => { await ask("POST", "/moves/cancel", id ? { id } : { all: true }); return "Cancelled."; },
});

export async function previewPlan() {
  let plan;
  try { plan = await ask("GET", "/rebalance"); } catch (error) { return toast(error.message); }
  const steps = plan.operators ?? [];
  const shown = steps.slice(0, 200).map((step) => `${step.keyspace}/${step.partition}  ${step.action}${step.from ? ` from ${step.from} to` : ""}${step.member ? ` ${step.member}` : ""}  (${step.reason})`);
  confirm({
    title: steps.length ? `Plan: ${steps.length === 1 ? "one step" : `${steps.length} steps`}` : "Nothing to move",
    text: steps.length ? [h("pre", { tabindex: "0" }, shown.join("\n") + (steps.length > 200 ? "\n…" : "")), "The plan holds for the table in force. If that changes first, the cluster refuses it."] : "The cluster is balanced as its rules and loads are.",
    button: steps.length ? "Apply the plan" : "Close",
    act: async () => { if (steps.length) { await ask("POST", "/rebalance", plan); return "The plan is applied."; } return "Nothing was changed."; },
  });
}

async function newToken() {
  if (!crypto.subtle) throw new Error("A browser makes tokens on https or localhost alone. Use `doyen token new NAME` in a terminal.");
  const random = crypto.getRandomValues(new Uint8Array(32));
  const text = btoa(String.fromCharCode(...random)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const token = `doyen_${text}`;
  const hash = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(token));
  const sha256 = [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return { token, sha256 };
}
const ROLES = [["read", "read: see the state of the cluster, no keys"], ["operate", "operate: see and change everything but users"]];
export const makeToken = (then) => confirm({
  title: "New token", button: "Make it",
  text: ["This page makes the token, and the cluster keeps its SHA-256 alone. It works at every member at once.",
    state.hello?.caller === OPEN ? "The cluster is open to the programs of its machine. Its first token ends that: from then on, everyone needs one, also this page and the commands. So the first one has the role operate. Keep it." : null],
  fields: [{ name: "name", label: "Name" }, { name: "role", label: "Role", options: state.hello?.caller === OPEN ? [ROLES[1]] : ROLES }],
  act: async (values) => {
    const { token, sha256 } = await newToken();
    const first = state.hello?.caller === OPEN;
    await ask("PUT", `/tokens/${name(values.name)}`, { role: values.role, sha256 });
    if (first) setToken(token); else then();
    return h("div", { class: "stack" }, h("p", {}, "Copy it now: it is shown this once."), copied(token));
  },
});
export const revokeToken = (token, then) => confirm({
  title: `Revoke ${token}?`, button: "Revoke", danger: true,
  text: [`Within moments, every member refuses the token ${token}. Programs that send it (Prometheus, scripts, other pages) get errors until they have another one, and streams that it opened end within 5 s. A revoked token cannot be had back.`,
    state.hello?.caller === `token ${token}` ? "It is the token that you use here: this page logs out." : null],
  act: async () => { await ask("DELETE", `/tokens/${name(token)}`); then(); return `${token} is revoked.`; },
});
export const setUser = (then, user) => confirm({
  title: user ? `Change ${user}` : "New user of Redis clients", button: "Set",
  text: "Rules as in ACL SETUSER, for example: on >PASSWORD ~app:* +@read. They follow those that the user has.",
  fields: [...(user ? [] : [{ name: "name", label: "Name" }]), { name: "rules", label: "Rules" }],
  act: async (values) => {
    await ask("PUT", `/users/${name(user ?? values.name)}`, { rules: values.rules.trim().split(/\s+/) });
    then();
    return `User ${user ?? values.name} is set.`;
  },
});
export const removeUser = (user, then) => confirm({
  title: `Remove ${user}?`, button: "Remove", danger: true, text: "Its connections end, and it cannot log in again.",
  act: async () => { await ask("DELETE", `/users/${name(user)}`); then(); return `${user} is removed.`; },
});

export const login = () => confirm({
  title: hasToken() ? "Another token" : "Log in", button: "Log in",
  text: ["Paste a token of this cluster. An operator makes one with: doyen token new NAME --role read, which sees everything but keys, or --role operate, which also makes changes.",
    "It stays in this tab alone, and is forgotten when the tab closes."],
  fields: [{ name: "token", label: "Token", secret: true }],
  act: async (values) => {
    const next = values.token.trim();
    await tryToken(next);
    setToken(next);
    return "You are logged in.";
  },
});

export const editValue = (body, key, value, then) => confirm({
  title: `Change ${key}`, button: "Write", text: "The whole value is replaced, and its lifetime stays. What clients wrote since you opened it is lost.",
  fields: [{ name: "value", label: "Value", lines: 8, value }],
  act: async (values) => {
    const given = values.value.replaceAll("\r\n", "\n");
    if (given === value) return "Nothing was changed.";
    await ask("PUT", "/console/key", { ...body, value: given });
    then();
    return "It is written.";
  },
});
export const setLifetime = (body, key, then) => confirm({
  title: `Lifetime of ${key}`, button: "Set", text: "After this time, the key is gone with its value. A new time replaces the present one.",
  fields: [{ name: "ttl", label: "Time, as in 90s, 30m, 2h, or none", hint: "30m" }],
  act: async (values) => { await ask("PATCH", "/console/key", { ...body, ttl: values.ttl.trim() }); then(); return "It is set."; },
});
export const deleteKey = (body, key, then) => confirm({
  title: `Delete ${key}?`, button: "Delete", danger: true, text: "The key is gone at all members with its whole value. This cannot be undone.",
  act: async () => { await ask("DELETE", "/console/key", body); then(); return `${key} is deleted.`; },
});
