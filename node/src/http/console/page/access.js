// Who may do what: tokens of HTTP, users of Redis clients, and what this node trusts.

import { state, ask } from "./feed.js";
import * as act from "./actions.js";
import { h, pill, table, panel, day } from "./views.js";
import { mayRun } from "./known.js";
import { main } from "./app.js";

const ROLE = { read: "sees, without keys", operate: "sees and changes" };

/** The steps of `doyen secret rotate`, as the files of nodes say them. */
const STEPS = {
  added: ["Step 1 of 3: the new secret is trusted, and the old one still signs.", "Once every member has it, copy client, operator and ca.pem to where they are used, and call doyen secret rotate again."],
  used: ["Step 2 of 3: the new secret signs, and the old one is still trusted.", "Copy client and operator to where they are used, and call doyen secret rotate again: it removes the old secret."],
  removed: ["Step 3 of 3: the old secret is gone.", "Call doyen secret rotate once more: it says that all is done."],
};

function rotation(identity) {
  const [step, next] = STEPS[identity.rotation] ?? (identity.secrets.length > 1
    ? ["This node trusts several secrets, so a rotation is under way.", "doyen secret rotate shows its step, and goes on with it."] : []);
  if (!step) return null;
  return h("div", { class: "stack" }, h("p", {}, pill("warn", "◐ rotation of the secret"), " ", step), h("p", { class: "sub" }, next),
    h("p", { class: "sub" }, "This is what the file of this node says. doyen secret rotate asks all members."),
    identity.ports_behind?.length ? h("p", { class: "sub" }, `Still with a certificate of the other secret: ${identity.ports_behind.join("; ")}.`) : null);
}

function ends(seconds) {
  const left = seconds - Date.now() / 1000;
  const mark = left < 2 * 86400 ? pill("bad", left < 0 ? "✕ ended" : "✕ ends soon") : left < 14 * 86400 ? pill("warn", "▲ ends soon") : null;
  return h("p", {}, `Its certificate for other members ends on ${day(seconds)}. `, mark);
}

export function access() {
  const tokens = h("div", {}), users = h("div", {}), trust = h("div", {});
  main.replaceChildren(h("h1", {}, "Access"), tokens, users, trust);
  const again = async () => {
    if (!state.hello) return;
    if (!act.may()) return tokens.replaceChildren(h("p", { class: "hint" }, "Your token has the role read. The role operate shows tokens, users and certificates."));
    const get = (path) => ask("GET", path).catch((error) => error);
    const [all, of, identity] = await Promise.all([get("/tokens"), get("/users"), get("/trust")]);
    tokens.replaceChildren(panel("Tokens of HTTP", [mayRun("New token…", () => act.makeToken(again))], all instanceof Error ? h("p", {}, all.message) : table([
      ["Name", (one) => h("strong", {}, one.name)], ["Role", (one) => h("span", {}, pill(one.role === "operate" ? "warn" : "", one.role), h("span", { class: "sub" }, ` ${ROLE[one.role] ?? ""}`))],
      ["Made", (one) => day(one.made)], ["Fingerprint", (one) => h("code", {}, one.fingerprint)],
      ["Actions", (one) => mayRun("Revoke…", () => act.revokeToken(one.name, again))],
    ], all, "There are no named tokens.")));
    const mayChange = state.hello?.may_change_users;
    users.replaceChildren(panel("Users of Redis clients", mayChange ? [mayRun("New user…", () => act.setUser(again))] : null, of instanceof Error ? h("p", {}, of.message) : table([
      ["Name", (one) => h("strong", {}, one.name)], ["Passwords", (one) => one.passwords, "num"], ["Rules", (one) => h("code", {}, [one.rules].flat().join(" "))],
      ["Actions", (one) => mayChange ? h("span", { class: "row" }, mayRun("Change…", () => act.setUser(again, one.name)), mayRun("Remove…", () => act.removeUser(one.name, again))) : ""],
    ], of, "There are none in the table: clients are the user default."), h("p", { class: "after sub" }, "At nodes with --resp-password-file, the user default needs that password, too."), mayChange ? null : h("p", { class: "after sub" }, "The operators' token changes users: doyen token operator prints it. So does doyen acl.")));
    trust.replaceChildren(identity instanceof Error ? "" : panel(`Trust of ${identity.name}`, null, h("div", { class: "stack" },
      identity.secrets.length ? h("p", {}, "Fingerprints of its secrets: ", identity.secrets.map((one, at) => [at ? ", " : "", h("code", {}, one), at ? "" : " (signs)"]), ".") : h("p", {}, "This node has no secret of its own file: it answers this machine alone, or has certificates from files."),
      rotation(identity), identity.certificate_ends ? ends(identity.certificate_ends) : null)));
  };
  again();
  return (name) => { if (name === "hello") again(); };
}
