//! Messages about keys (`notify-keyspace-events`): what a client that subscribes to
//! `__keyspace@0__:name` or `__keyevent@0__:expired` gets.
//!
//! ```text
//!   SUBSCRIBE __key.. ──> this thread follows the databases ──> Subscriber::subscribe
//!   client <── Hub <── Shard::notify <── a message or two for each change
//! ```
//! A thread follows changes while one of its clients subscribes to a name that is theirs, or, while
//! the setting asks for such messages, to one that may be. So they cost nothing otherwise, and no
//! member sends messages without subscribers. The setting is one of the cluster: the table has it.
//! Like all messages, they come at most once.

use super::RespContext;
use super::cluster::KEYSPACE;
use super::databases;
use crate::key_events::KeyEvents;
use crate::log_limit::{A_MINUTE, LogLimit, Losses};
use crate::resp::session::Connection;
use bytes::Bytes;
use doyen_engine::op::Kind;
use doyen_engine::{
    By, Cause, Change, Filter, Former, KeyFilter, Maps, Publication, SubscriptionId, Told, What,
};
use doyen_gossip::Time;
use doyen_placement::words::counted;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How the names of all such channels begin.
const PREFIX: &[u8] = b"__key";
/// Changes that are handled in one round of a pass.
const CHANGES: usize = 1_024;
/// So long after a client was told that it may subscribe, this thread goes on to follow changes.
const LINGER: Duration = Duration::from_secs(1);

/// Whether messages about keys may come to subscribers of this name or pattern.
pub(super) fn may_be_about_keys(name: &[u8]) -> bool {
    let literal = name.iter().position(|byte| b"*?[\\".contains(byte));
    let literal = &name[..literal.unwrap_or(name.len())];
    literal.starts_with(PREFIX) || (literal.len() < name.len() && PREFIX.starts_with(literal))
}

/// Whether only messages about keys may come to subscribers of this name or pattern.
pub(super) fn is_about_keys(name: &[u8]) -> bool {
    name.starts_with(PREFIX)
}

/// The database of the keys that messages of this channel, or of all channels of this pattern, are
/// about.
pub(super) fn database_of(name: &[u8]) -> Option<i64> {
    let rest = [&b"__keyspace@"[..], b"__keyevent@"];
    let rest = rest.iter().find_map(|prefix| name.strip_prefix(*prefix))?;
    let end = rest.windows(3).position(|three| three == b"__:")?;
    doyen_engine::integer(&rest[..end])
}

/// What a thread follows for messages about keys.
#[derive(Debug)]
pub(super) struct KeyNotices {
    /// The life of this thread that it belongs to, and the subscription.
    following: Option<(u64, SubscriptionId)>,
    /// All changes from now on come.
    ready: bool,
    /// Clients that subscribe once all changes come, and when the first of them waits no longer.
    waiting: Vec<Rc<Connection>>,
    until: Time,
    /// Changes are followed until then, though nothing subscribes to them yet.
    linger: Time,
    /// Changes that were not told, or an unknown number of them for each that is counted.
    pub(super) lost: u64,
    losses: Losses,
    off_line: LogLimit,
}

impl KeyNotices {
    pub(super) fn new() -> Self {
        Self {
            following: None,
            ready: false,
            waiting: Vec::new(),
            until: Time::ZERO,
            linger: Time::ZERO,
            lost: 0,
            losses: Losses::new(A_MINUTE),
            off_line: LogLimit::new(A_MINUTE),
        }
    }

    /// When a client that waits goes on at the latest.
    pub(super) fn due(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// `count` changes are missing, or an unknown number.
    fn lose(&mut self, count: Option<u64>) {
        let count = count.unwrap_or(1);
        self.lost = self.lost.saturating_add(count);
        self.losses.add(count);
        self.warn_of_losses();
    }

    fn warn_of_losses(&mut self) {
        if let Some(count) = self.losses.told(Instant::now()) {
            warn_of(count);
        }
    }
}

impl Drop for KeyNotices {
    fn drop(&mut self) {
        // The last losses may have come while no line was due.
        if let Some(count) = self.losses.rest() {
            warn_of(count);
        }
    }
}

fn warn_of(count: u64) {
    let changes = counted(count, ("change", "changes"));
    tracing::warn!(
        "messages about keys are missing (about {changes} since the last such line): this \
         thread takes changes more slowly than they come, or a new primary does not know the last \
         ones, or a partition lost its data; subscribers should read again what matters"
    );
}

impl RespContext {
    /// Whether this thread gets all changes of keys, if the setting asks for messages of any. If
    /// not, the connection is woken when it does, or at `until`.
    pub(super) fn tells_keys(&mut self, connection: &Rc<Connection>, until: Time) -> bool {
        self.follow_keys(true);
        let tells = self.is_following();
        if !tells {
            let notices = &mut self.front.notices;
            notices.until = match notices.waiting.is_empty() {
                true => until,
                false => notices.until.min(until),
            };
            notices.waiting.push(connection.clone());
        }
        tells
    }

    fn is_following(&self) -> bool {
        let (notices, life) = (&self.front.notices, self.incarnation());
        let followed = notices.following.is_some_and(|(of, _)| of == life) && notices.ready;
        followed || !self.front.common.settings.events().any()
    }

    /// Follows changes as long as clients want messages about keys. `wanted`: some subscribe to a
    /// name that may be about keys.
    pub(super) fn look_at_notices(&mut self, wanted: bool) {
        let now = self.now();
        let notices = &self.front.notices;
        let wanted = wanted || !notices.waiting.is_empty() || now < notices.linger;
        self.follow_keys(wanted);
        let tells = self.is_following();
        let notices = &mut self.front.notices;
        if !notices.waiting.is_empty() && (tells || now >= notices.until) {
            notices.linger = now + LINGER;
            for connection in notices.waiting.drain(..) {
                connection.goes_on();
            }
        }
        notices.warn_of_losses();
    }

    /// Begins or ends to follow changes.
    fn follow_keys(&mut self, wanted: bool) {
        let life = self.incarnation();
        // Clients that subscribe to such names hear what happens from the moment on at which the
        // setting asks for it.
        let waits = self.front.hub.registry().is_about_keys_alone();
        let wanted = wanted && (waits || self.front.common.settings.events().any());
        let notices = &mut self.front.notices;
        if notices.following.is_some_and(|(of, _)| of != life) {
            // This process became another member.
            notices.following = None;
        }
        match (wanted, notices.following) {
            (true, None) => {
                let filter = Filter {
                    keyspace: KEYSPACE,
                    maps: Maps::Databases,
                    keys: KeyFilter::All,
                    values: false,
                    fields: false,
                    old: false,
                };
                // Refused before there is a table, or while some member is too old: it is tried
                // again.
                if let Ok(id) = self.subscribe(filter) {
                    let notices = &mut self.front.notices;
                    notices.following = Some((life, id));
                    notices.ready = false;
                }
            }
            (false, Some((_, id))) => {
                self.front.notices.following = None;
                self.unsubscribe(id);
            }
            _ => {}
        }
    }

    /// Makes messages of changes. True if there are more.
    pub(super) fn tell_of_keys(&mut self) -> bool {
        let Some((_, id)) = self
            .front
            .notices
            .following
            .filter(|(life, _)| *life == self.incarnation())
        else {
            return false;
        };
        let events = self.front.common.settings.events();
        for _ in 0..CHANGES {
            if self.shard().published().has_much() {
                return true;
            }
            match self.take_told(id) {
                None => return false,
                Some(Told::Ready) => self.front.notices.ready = true,
                Some(Told::Ended) => self.front.notices.following = None,
                Some(Told::Lagged(gap)) => self.front.notices.lose(gap.entries),
                // Nothing is asked for confirmations here.
                Some(Told::Confirmed { .. }) => {}
                Some(Told::Change(change)) => {
                    for (event, class) in names(&change) {
                        messages(events, &change, event, class, |message| {
                            self.notify(message)
                        });
                    }
                }
            }
        }
        true
    }

    /// A client subscribes to a name that is about keys alone. If the setting is off, it hears
    /// nothing.
    pub(super) fn note_silence(&mut self) {
        if self.front.common.settings.events().any() {
            return;
        }
        if let Some(others) = self.front.notices.off_line.happened(Instant::now()) {
            tracing::warn!(
                "a client subscribes to messages about keys, but there are none: set them with \
                 `CONFIG SET notify-keyspace-events KEA`, for example{others}"
            );
        }
    }
}

/// The events of a change: their names, and their classes.
fn names(change: &Change) -> impl Iterator<Item = (&'static str, u8)> {
    let by = change.by.and_then(By::event);
    // In Redis, a key that was renamed or copied over another one is a new key, too.
    let made = change.before == Former::Nothing || matches!(by, Some("rename" | "copy"));
    let new = (made && matches!(change.what, What::Put(..))).then_some(("new", b'n'));
    let told = |event: &'static str, class: u8| match event {
        "rename" => ("rename_to", b'g'),
        "copy" => ("copy_to", b'g'),
        "persist" | "expire" => (event, b'g'),
        event => (event, class),
    };
    let put = |kind: Kind| {
        let events = kind.events();
        told(by.unwrap_or(events.put), events.class)
    };
    let events = match &change.what {
        What::Put(kind, _) | What::Field(kind, ..) => {
            let expires = change.by.is_some_and(By::expires);
            [Some(put(*kind)), expires.then_some(("expire", b'g'))]
        }
        What::FieldRemoved(kind, _) => {
            let events = kind.events();
            [Some((by.unwrap_or(events.removed), events.class)), None]
        }
        What::Deadline => [Some((by.unwrap_or("expire"), b'g')), None],
        // Its last field has expired.
        What::Removed(Cause::Expired) if by == Some("hexpired") => {
            [Some(("hexpired", b'h')), Some(("del", b'g'))]
        }
        What::Removed(Cause::Expired) => [Some(("expired", b'x')), None],
        What::Removed(Cause::Evicted) => [Some(("evicted", b'e')), None],
        What::Removed(Cause::Command) => match by {
            Some("rename") => [Some(("rename_from", b'g')), None],
            _ => {
                // A collection without fields is gone.
                let emptied = change.by.and_then(By::emptied);
                let first = emptied.map(|(event, kind)| (event, kind.events().class));
                [first, Some(("del", b'g'))]
            }
        },
        What::Cleared => [None, None],
    };
    let all = new.into_iter().chain(events.into_iter().flatten());
    // Redis tells nothing of some changes.
    all.filter(|(event, _)| !event.is_empty())
}

/// The messages of an event that the setting asks for.
fn messages(
    events: KeyEvents,
    change: &Change,
    event: &'static str,
    class: u8,
    mut send: impl FnMut(Publication),
) {
    if !events.has(class) {
        return;
    }
    let database = databases::index(change.map);
    let mut message = |channel: Bytes, message: Bytes| {
        send(Publication {
            channel,
            message,
            sharded: false,
        });
    };
    if events.has(b'K') {
        let name = format!("__keyspace@{database}__:");
        let channel = [name.as_bytes(), &change.key].concat();
        message(channel.into(), Bytes::from_static(event.as_bytes()));
    }
    if events.has(b'E') {
        let channel = format!("__keyevent@{database}__:{event}");
        message(channel.into(), change.key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_of_a_message_about_keys_is_in_its_channel() {
        for (name, database) in [
            ("__keyspace@0__:a", Some(0)),
            ("__keyevent@15__:expired", Some(15)),
            ("__keyspace@5__:__keyspace@0__:", Some(5)),
            ("__keyspace@5__:*", Some(5)),
            ("__keyspace@*__:a", None),
            ("__keyspace@1?__:a", None),
            ("__keyspace@5_", None),
            ("__key*", None),
            ("news", None),
        ] {
            assert_eq!(database_of(name.as_bytes()), database, "{name}");
        }
    }

    #[test]
    fn every_loss_is_counted_also_while_no_line_is_due() {
        let mut notices = KeyNotices::new();
        for count in [Some(3), None, Some(2)] {
            notices.lose(count);
        }
        assert_eq!((notices.lost, notices.losses.rest()), (6, Some(3)));
    }

    #[test]
    fn names_and_patterns_that_may_be_about_keys_are_known() {
        for name in [
            "__keyevent@0__:expired",
            "__keyspace@0__:a",
            "__key*",
            "*",
            "__*",
            "?_key*",
            "__keyevent@*__:del",
        ] {
            assert!(may_be_about_keys(name.as_bytes()), "{name}");
        }
        for name in ["news", "news*", "__ke", "_", "", "a*"] {
            assert!(!may_be_about_keys(name.as_bytes()), "{name}");
        }
    }
}
