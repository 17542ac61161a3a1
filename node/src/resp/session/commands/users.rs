//! Who the client is, what it may do, and `ACL`, which shows and changes that.
//!
//! Each session holds the compiled rules of its user. If they change, all sessions of the user get
//! the new ones before their next command, and a session ends if its user is gone, or may not hear
//! what it subscribes to. As in Redis, other changes do not end sessions.
//!
//! `ACL SETUSER` and `ACL DELUSER` take several steps, between which the command stays where it was
//! parsed, and the connection takes nothing more:
//!
//! ```text
//!   rules ──> errand: a change of the table ──> the table is installed here ──> reply
//!     ^                     │ the user was changed meanwhile
//!     └─ the newest table <─┘
//! ```

use crate::audit::AuditOutcome;
use crate::control::Errand;
use crate::hex::hex;
use crate::resp::acl::compiled::{Compiled, Denied, Home};
use crate::resp::acl::file;
use crate::resp::acl::log::{AclRefusal, DenialReason, Within};
use crate::resp::acl::operator;
use crate::resp::acl::password::Hashing;
use crate::resp::acl::rules::{Selector, User};
use crate::resp::acl::users::Users;
use crate::resp::command::{self, Acl, table};
use crate::resp::common::Common;
use crate::resp::encode::Encoder;
use crate::resp::pubsub::ChannelKind;
use crate::resp::session::Session;
use crate::resp::session::errands::{ErrandReply, ErrandStep, PendingErrand};
use crate::resp::{RespContext, describe, info, monitor};
use bytes::Bytes;
use doyen_engine::command::{Arguments, CATEGORIES, ErrorText, wrong_arity};
use doyen_gossip::agreement::{AdminReply, AdminRequest};
use doyen_placement::access::{AccessChange, AccessSettings, AccessUser, UserChange};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often a change is tried again because others changed the same user at the same time.
const ATTEMPTS_MAX: u8 = 16;

/// The commands that are audited also if they are refused.
const SET_USER: &str = "acl|setuser";
const DELETE_USER: &str = "acl|deluser";

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. The table of \
    the cluster has the users, and ACL SETUSER keeps them there; to use a file, start the node \
    with --resp-acl-file FILE";
const NOT_SAVED: &str = "ERR There was an error trying to save the ACLs. Please check the server \
    logs for more information";

impl Session {
    /// The rules of users have changed. False: the connection ends at once.
    pub(crate) fn use_users(&mut self, users: &mut Users) -> bool {
        self.client.authenticated |= users.is_open();
        let Some(user) = users.find(self.client.user.name()) else {
            return self.errands.end_with_reply();
        };
        if Arc::ptr_eq(&user, &self.client.user) {
            return true;
        }
        self.client.set_user(user);
        let heard = ChannelKind::ALL.into_iter().all(|kind| {
            let mut names = self.subscriptions.names(kind);
            names.all(|name| {
                self.client
                    .user
                    .may_hear(name, kind == ChannelKind::Pattern)
            })
        });
        let words: &[Bytes] = &[Bytes::from_static(b"monitor")];
        let may_monitor = |spec| self.client.user.judge(spec, &words, Home::ANY).is_ok();
        let sees = !self.subscriptions.is_monitor() || monitor::spec().is_some_and(may_monitor);
        heard && sees || self.errands.end_with_reply()
    }

    /// The client with this password is this user from now on. False: it is not.
    pub(crate) fn authenticate(
        &mut self,
        context: &mut RespContext,
        user: &[u8],
        password: &[u8],
        command: &[u8],
    ) -> bool {
        let found = context.front.users.borrow_mut().find(user);
        if let Some(found) = found.as_ref()
            && found.user().admits(password)
        {
            self.client.authenticated = true;
            self.client.set_user(found.clone());
            return true;
        }
        let now = context.now();
        let from = self.client.peer.ip();
        context.front.counters.auth_failures += 1;
        let due = context.front.common.throttle().failed(now, from);
        if let Some(others) = due {
            let why = not_admitted(found.as_deref());
            tracing::warn!("a RESP client at {from} was not logged in: {why}{others}");
        }
        self.log_refusal(context, DenialReason::Auth, command, user);
        false
    }

    fn log_refusal(
        &self,
        context: &mut RespContext,
        reason: DenialReason,
        object: &[u8],
        user: &[u8],
    ) {
        let refusal = AclRefusal {
            reason,
            within: if self.queue().is_some() {
                Within::Transaction
            } else {
                Within::Nothing
            },
            object,
            user,
            client: self.line(context.now(), context.now(), 0),
        };
        let common = &context.front.common;
        let most = common.settings.acl_entries();
        common.acl_log().add(context.unix_ms(), refusal, most);
    }

    /// Whether the client's user may run this command.
    #[inline]
    pub(crate) fn may_run(
        &self,
        context: &mut RespContext,
        spec: &table::RespSpec,
        args: &dyn Arguments,
    ) -> Result<(), ErrorText> {
        if self.client.free || self.errands.is_made() {
            return Ok(());
        }
        let judged =
            self.client
                .user
                .judge(spec, args, self.client.home_if_bound(context, self.queue()));
        judged.map_err(|why| self.deny(context, spec, args, why))
    }

    #[cold]
    fn deny(
        &self,
        context: &mut RespContext,
        spec: &table::RespSpec,
        args: &dyn Arguments,
        why: Denied,
    ) -> ErrorText {
        let object = match why {
            Denied::Command | Denied::Keyspace => spec.name.as_bytes(),
            Denied::Key(at) | Denied::Channel(at) => args.get(at),
        };
        self.log_refusal(context, why.into(), object, self.client.user.name());
        if [SET_USER, DELETE_USER].contains(&spec.name) {
            let refused = AuditOutcome::Refused("the user's rules do not allow it".to_owned());
            self.client.audit(
                context,
                &spec.name.to_uppercase().replace('|', " "),
                refused,
            );
        }
        context.front.count_denied(why.into());
        format!("NOPERM {}", refusal(&self.client.user, spec, why, None)).into()
    }

    pub(crate) fn about_users(&mut self, context: &mut RespContext, asked: Acl) {
        match asked {
            Acl::WhoAmI => {
                let user = self.client.user.clone();
                self.replies.answer(|e| e.bulk(user.name()));
            }
            Acl::Users => {
                let users = context.front.users.borrow();
                let names = users.names();
                self.replies.answer(|e| {
                    e.array(names.len());
                    names.iter().for_each(|name| e.bulk(name));
                });
            }
            Acl::List => {
                let users = context.front.users.borrow();
                let names = users.names();
                self.replies.answer(|e| {
                    e.array(names.len());
                    for name in names {
                        e.bulk(&[b"user ", name, b" ", &users.line(name)].concat());
                    }
                });
            }
            Acl::GetUser(name) => {
                let found = context.front.users.borrow_mut().find(&name);
                self.replies.answer(|e| match found {
                    Some(user) => encode_user(e, user.user()),
                    None => e.nil(),
                });
            }
            Acl::Categories => self.replies.answer(|e| {
                e.array(CATEGORIES.len());
                CATEGORIES.iter().for_each(|name| e.bulk(name.as_bytes()));
            }),
            Acl::Category(name) if !CATEGORIES.contains(&name.as_str()) => {
                self.replies
                    .answer(|e| e.error(&format!("ERR Unknown category '{name}'")));
            }
            Acl::Category(name) => {
                self.replies
                    .answer(|e| describe::command_list(e, &command::Listed::Category(name)));
            }
            Acl::GenPass(bits) => {
                let random: [u8; 512] = rand::random();
                let digits = usize::from(bits).div_ceil(4);
                self.replies
                    .answer(|e| e.bulk(&hex(&random).as_bytes()[..digits]));
            }
            Acl::Log(count) => {
                let log = context.front.common.acl_log();
                let unix_ms = context.unix_ms();
                self.replies.answer(|e| log.encode(e, unix_ms, count));
            }
            Acl::ResetLog => {
                context.front.common.acl_log().clear();
                self.replies.answer(|e| e.simple("OK"));
            }
            Acl::DryRun { user, args } => {
                let home = self.client.home(context, self.queue());
                self.replies
                    .answer(|e| dry_run(e, context, home, (&user, &args)));
            }
            Acl::SetUser { name, rules } => {
                // Without the rules: they may have passwords.
                let what = format!("ACL SETUSER {}", String::from_utf8_lossy(&name));
                self.change_users(context, &what, |context| set_rules(context, &name, &rules));
            }
            Acl::DelUser(names) => {
                let shown = names.iter().map(|name| String::from_utf8_lossy(name));
                let what = format!("ACL DELUSER {}", shown.collect::<Vec<_>>().join(" "));
                self.change_users(context, &what, |context| remove_users(context, &names));
            }
            Acl::Load | Acl::Save if context.front.common.users_file().is_none() => {
                self.replies.answer(|e| e.error(NO_FILE));
            }
            Acl::Load => self.run_blocking(context, |common| {
                let path = common.users_file()?.to_owned();
                Some(Box::new(move |common: &Common| {
                    file::load(&path).map(|users| common.set_users(users))
                }))
            }),
            Acl::Save => self.run_blocking(context, |common| {
                let (path, users) = (common.users_file()?.to_owned(), common.users()?);
                Some(Box::new(move |_: &Common| {
                    file::save(&path, &users).map_err(|why| {
                        tracing::warn!("ACL SAVE: {} was not written: {why}", path.display());
                        NOT_SAVED.to_owned()
                    })
                }))
            }),
        }
    }

    /// Takes the next step of a change of users. `wanted` says what is to change.
    fn change_users(
        &mut self,
        context: &mut RespContext,
        what: &str,
        wanted: impl FnOnce(&RespContext) -> Result<(Vec<UserChange>, ErrandReply), String>,
    ) {
        let (attempts, ends) = match self.errands.take() {
            None => (0, false),
            Some(change) => {
                let step = match change.step {
                    ErrandStep::Asked | ErrandStep::Again => None,
                    ErrandStep::Installing => {
                        return self.changed(context, what, change.reply, change.ends);
                    }
                    ErrandStep::Answered(AdminReply::Done(_)) => Some(ErrandStep::Installing),
                    ErrandStep::Answered(AdminReply::Outdated(_))
                        if change.attempts < ATTEMPTS_MAX =>
                    {
                        Some(ErrandStep::Again)
                    }
                    ErrandStep::Answered(AdminReply::Refused(why) | AdminReply::Outdated(why)) => {
                        self.client
                            .audit(context, what, AuditOutcome::Failed(why.clone()));
                        return self.replies.answer(|e| e.error(&format!("ERR {why}")));
                    }
                };
                let (attempts, ends, reply) = (change.attempts, change.ends, change.reply);
                if let Some(step) = step {
                    self.errands.begin(PendingErrand {
                        step,
                        attempts,
                        reply,
                        ends,
                    });
                    return self.errands.await_table(context, self.client.id);
                }
                (attempts + 1, ends)
            }
        };
        let (changes, reply) = match wanted(context) {
            Ok(wanted) => wanted,
            Err(why) => {
                // The text may repeat a password.
                let outcome = AuditOutcome::Failed("the command is wrong".to_owned());
                self.client.audit(context, what, outcome);
                return self.replies.answer(|e| e.error(&why));
            }
        };
        if changes.is_empty() {
            return self.changed(context, what, reply, ends);
        }
        if context.front.common.users_file().is_some() {
            return self.change_file(context, what, &changes, reply);
        }
        if context.view().is_none() {
            let text = "CLUSTERDOWN this node has not joined a cluster yet: try again later";
            return self.replies.answer(|e| e.error(text));
        }
        self.errands.begin(PendingErrand {
            attempts,
            ends,
            ..PendingErrand::asked(reply)
        });
        let request = AdminRequest::ChangeAccess(AccessChange {
            users: changes,
            ..AccessChange::default()
        });
        context.run_errand(self.client.id, Errand::Admin(request));
    }

    fn changed(&mut self, context: &mut RespContext, what: &str, reply: ErrandReply, ends: bool) {
        self.client.audit(context, what, AuditOutcome::Done);
        let of_file = context.front.common.users_file().is_some();
        operator::warn_without_administrator(context.front.users.borrow().access(), of_file);
        self.replies.answer(|e| match reply {
            ErrandReply::Ok => e.simple("OK"),
            ErrandReply::Removed(count) => e.integer(count),
        });
        self.closing |= ends;
    }

    /// Changes the users of the file, in the memory of this node.
    fn change_file(
        &mut self,
        context: &mut RespContext,
        what: &str,
        changes: &[UserChange],
        reply: ErrandReply,
    ) {
        let Some(present) = context.front.common.users() else {
            return;
        };
        let mut users = (*present).clone().users;
        for UserChange { name, after, .. } in changes {
            users.retain(|user| user.name != *name);
            users.extend(after.clone().map(|rules| AccessUser {
                name: name.clone(),
                rules,
            }));
        }
        users.sort_unstable();
        let next = AccessSettings::of_users(users);
        if let Err(why) = next.validate() {
            self.client
                .audit(context, what, AuditOutcome::Failed(why.to_string()));
            return self.replies.answer(|e| e.error(&format!("ERR {why}")));
        }
        context.front.common.set_users(next);
        let ends = !self.take_users(context);
        self.changed(context, what, reply, ends);
    }

    /// The users of the file have changed: all threads use them. False: this client's user is gone.
    fn take_users(&mut self, context: &mut RespContext) -> bool {
        context.tell_users();
        let Some(users) = context.front.common.users() else {
            return true;
        };
        context.front.use_users(&users);
        self.use_users(context.front.users.get_mut())
    }

    /// `CONFIG SET`. Which messages about keys there are is the table's, for all members, so that
    /// takes the steps of a change of users.
    pub(crate) fn configure(&mut self, context: &mut RespContext, pairs: &[(String, Bytes)]) {
        let change = self.errands.take();
        let facts = self.client.facts(context, info::InfoNeeds::Nothing);
        let wanted = match context.front.common.settings.check(&facts, pairs) {
            Ok(wanted) => wanted,
            Err(why) => return self.replies.answer(|e| e.error(&why)),
        };
        let table = context.view().map(|view| &view.installed);
        let of_table = table.is_some();
        let has = table.and_then(|table| table.annex.key_events);
        let ends = change.as_ref().is_some_and(|change| change.ends);
        if let Some(events) = wanted.events.filter(|_| of_table) {
            let what = format!("CONFIG SET notify-keyspace-events {events}");
            let step = match change.map(|change| change.step) {
                None | Some(ErrandStep::Asked | ErrandStep::Again)
                    if has != Some(events.bits()) =>
                {
                    let events = events.bits();
                    let request = AdminRequest::TellOfKeys { events };
                    context.run_errand(self.client.id, Errand::Admin(request));
                    Some(ErrandStep::Asked)
                }
                Some(ErrandStep::Answered(AdminReply::Done(_))) => {
                    self.errands.await_table(context, self.client.id);
                    Some(ErrandStep::Installing)
                }
                Some(ErrandStep::Answered(
                    AdminReply::Refused(why) | AdminReply::Outdated(why),
                )) => {
                    self.client
                        .audit(context, &what, AuditOutcome::Failed(why.clone()));
                    self.closing |= ends;
                    return self.replies.answer(|e| e.error(&format!("ERR {why}")));
                }
                None | Some(ErrandStep::Asked | ErrandStep::Again | ErrandStep::Installing) => None,
            };
            if let Some(step) = step {
                self.errands.begin(PendingErrand {
                    step,
                    ends,
                    ..PendingErrand::asked(ErrandReply::Ok)
                });
                return;
            }
            self.client.audit(context, &what, AuditOutcome::Done);
        }
        context.front.common.settings.set(wanted, of_table);
        self.replies.answer(|e| e.simple("OK"));
        self.closing |= ends;
    }

    /// Lets the control thread run work that may wait for a disk. `make` makes it.
    fn run_blocking(
        &mut self,
        context: &mut RespContext,
        make: impl FnOnce(&Common) -> Option<DiskWork>,
    ) {
        if let Some(change) = self.errands.take() {
            let ends = !self.take_users(context) || change.ends;
            match change.step {
                ErrandStep::Answered(AdminReply::Refused(why)) if why.starts_with("ERR ") => {
                    self.replies.answer(|e| e.error(&why));
                }
                ErrandStep::Answered(AdminReply::Refused(why)) => {
                    self.replies.answer(|e| e.error(&format!("ERR {why}")));
                }
                ErrandStep::Asked
                | ErrandStep::Again
                | ErrandStep::Installing
                | ErrandStep::Answered(_) => {
                    self.replies.answer(|e| e.simple("OK"));
                }
            }
            self.closing |= ends;
            return;
        }
        let common = context.front.common.clone();
        let Some(work) = make(&common) else {
            return self.replies.answer(|e| e.error(NO_FILE));
        };
        self.errands.begin(PendingErrand::asked(ErrandReply::Ok));
        let work = Box::new(move || match work(&common) {
            Ok(()) => AdminReply::Done(None),
            Err(why) => AdminReply::Refused(why),
        });
        context.run_errand(self.client.id, Errand::Blocking(work));
    }
}

/// What `ACL DRYRUN` answers.
fn dry_run(
    e: &mut Encoder<'_>,
    context: &RespContext,
    home: Home<'_>,
    (user, args): (&[u8], &[Bytes]),
) {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let Some(found) = context.front.users.borrow_mut().find(user) else {
        return e.error(&format!("ERR User '{}' not found", shown(user)));
    };
    let words: &dyn Arguments = &args;
    let named = table::COMMANDS
        .named(words.get(0))
        .filter(|spec| spec.container().is_none());
    let spec = named.and_then(|spec| {
        if words.len() > 1 && !table::COMMANDS.subcommands(spec).is_empty() {
            table::COMMANDS.subcommand(spec, words.get(1))
        } else {
            Some(spec)
        }
    });
    let Some(spec) = spec else {
        let text = format!("ERR Command '{}' not found", shown(words.get(0)));
        return e.error(&text);
    };
    if !spec.takes(words.len()) {
        return e.error(&wrong_arity(spec.name).0);
    }
    match found.judge(spec, words, home) {
        Ok(()) => e.simple("OK"),
        Err(why) => {
            let text = refusal(&found, spec, why, Some(words));
            e.bulk(text.as_bytes());
        }
    }
}

/// What `ACL SETUSER` changes.
fn set_rules(
    context: &RespContext,
    name: &[u8],
    rules: &[Bytes],
) -> Result<(Vec<UserChange>, ErrandReply), String> {
    let users = context.front.users.borrow();
    let hashing = match context.front.common.users_file() {
        Some(_) => Hashing::Redis,
        None => Hashing::Salted,
    };
    let rules = rules.iter().map(|rule| &**rule);
    let change = operator::set(users.access(), name, rules, hashing);
    let change = change.map_err(|why| format!("ERR {why}"))?;
    Ok((change.into_iter().collect(), ErrandReply::Ok))
}

/// What `ACL DELUSER` changes.
fn remove_users(
    context: &RespContext,
    names: &[Bytes],
) -> Result<(Vec<UserChange>, ErrandReply), String> {
    let users = context.front.users.borrow();
    let names: BTreeSet<&Bytes> = names.iter().collect();
    let changes = names
        .into_iter()
        .map(|name| operator::remove(users.access(), name));
    let changes: Result<Vec<_>, String> = changes.collect();
    let changes = changes.map_err(|why| format!("ERR {why}"))?;
    let changes: Vec<UserChange> = changes.into_iter().flatten().collect();
    let count = i64::try_from(changes.len()).unwrap_or(i64::MAX);
    Ok((changes, ErrandReply::Removed(count)))
}

impl RespContext {
    /// Logs what was refused to the callers of scripts that this thread ran.
    pub(crate) fn log_refusals_of_scripts(&mut self) {
        while let Some(refused) = self.poll_refusal() {
            let reason = refused.lacks.into();
            let refusal = AclRefusal {
                reason,
                within: Within::Script,
                object: &refused.object,
                user: &refused.user,
                client: String::new(),
            };
            let common = &self.front.common;
            let most = common.settings.acl_entries();
            common.acl_log().add(self.unix_ms(), refusal, most);
            self.front.count_denied(reason);
        }
    }
}

/// Why a client is not logged in, for the log. The client is not told which it is.
fn not_admitted(user: Option<&Compiled>) -> String {
    match user {
        None => "there is no user of the name that it gave (ACL LIST names the users)".to_owned(),
        Some(user) if !user.user().on => {
            let name = String::from_utf8_lossy(user.name());
            format!("the user {name} is off (`ACL SETUSER {name} on` lets it log in)")
        }
        Some(_) => {
            "it gave a wrong password: clients must send a user's name and password, or the \
             password in --resp-password-file"
                .to_owned()
        }
    }
}

/// Work for a disk.
type DiskWork = Box<dyn FnOnce(&Common) -> Result<(), String> + Send>;

/// Redis's text for what a user lacks. With the arguments, it names the key or channel.
fn refusal(
    user: &Compiled,
    spec: &table::RespSpec,
    why: Denied,
    args: Option<&dyn Arguments>,
) -> String {
    let name = String::from_utf8_lossy(user.name());
    let shown = |at| args.map(|args| String::from_utf8_lossy(args.get(at)).into_owned());
    match why {
        Denied::Command => {
            format!(
                "User {name} has no permissions to run the '{}' command",
                spec.name
            )
        }
        Denied::Keyspace => format!(
            "User {name} has no permissions to run the '{}' command in this keyspace or database",
            spec.name
        ),
        Denied::Key(at) => match shown(at) {
            Some(key) => format!("User {name} has no permissions to access the '{key}' key"),
            None => "No permissions to access a key".to_owned(),
        },
        Denied::Channel(at) => match shown(at) {
            Some(one) => format!("User {name} has no permissions to access the '{one}' channel"),
            None => "No permissions to access a channel".to_owned(),
        },
    }
}

/// `ACL GETUSER`. What Redis does not know is shown only where it restricts the user.
fn encode_user(e: &mut Encoder<'_>, user: &User) {
    e.map(6 + usize::from(user.root.keyspaces.is_some()));
    e.bulk(b"flags");
    e.set(user.flags().count());
    user.flags().for_each(|flag| e.bulk(flag.as_bytes()));
    e.bulk(b"passwords");
    e.array(user.passwords.len());
    for password in &user.passwords {
        e.bulk(password.to_string().as_bytes());
    }
    encode_selector(e, &user.root);
    e.bulk(b"selectors");
    e.array(user.selectors.len());
    for selector in &user.selectors {
        e.map(3 + usize::from(selector.keyspaces.is_some()));
        encode_selector(e, selector);
    }
}

fn encode_selector(e: &mut Encoder<'_>, selector: &Selector) {
    let mut line = |name: &[u8], print: &dyn Fn(&mut Vec<u8>)| {
        let mut rules = Vec::new();
        print(&mut rules);
        e.bulk(name);
        e.bulk(&rules);
    };
    line(b"commands", &|out| selector.print_commands(out));
    line(b"keys", &|out| selector.print_keys(out));
    line(b"channels", &|out| selector.print_channels(out, false));
    if selector.keyspaces.is_some() {
        line(b"keyspaces", &|out| selector.print_keyspaces(out));
    }
}
