//! Native clients: what a member knows of a client, and what a client knows of a member.
//!
//! A client is a shard that holds nothing. Like a member, it forwards its callers' operations to
//! the primary, which answers it as it answers a member.
//!
//! ```text
//!   member                                    client
//!     Tick: my clock, limits, table ─────────>  ready; each second again
//!     Table, in parts <──── Pull ─────────────  knows an older one (View, Tick): what is new
//!                                               since it (`published`)
//!     Reply | NotServing <─ Heard? Forward ───  an operation
//!     MapMade <──────────── MakeMap ──────────  a map that its table does not name
//! ```
//!
//! **No write is applied twice, though no member keeps a client's outcomes for ever.** Members keep
//! the outcomes of another member as long as it is in the table, but a client is in no table. A
//! client sends an operation for [`PARK`] at most. `Heard` bounds the age of what follows, by the
//! receiver's own clock: the client sends the last clock that it was told, and only with a time
//! that it read afterwards. A member takes no write of a client that may be older than [`FRESH`] at
//! its arrival. So no copy of a write arrives later than both together after the first one, and its
//! outcome is kept for [`RETENTION`] or longer. Only rates of clocks matter, however long either
//! process was suspended in between.

use super::forwarding::{Call, Source};
use super::frame::Frame;
use super::op::{Action, Work};
use super::peers::Peer;
use super::published;
use super::{Core, Lane, Malformed, MemberId, Request, Slot};
use crate::codec;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::{MapEntry, PartitionRef, Table, TableName};
use std::sync::Arc;
use std::time::Duration;

/// How long a client tries to get an operation done.
pub const PARK: Duration = Duration::from_secs(5);
/// How old a client's write may be when it arrives.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// How long what became of a client's operations is kept at least: half as much again as both.
pub(super) const RETENTION: Duration = Duration::from_secs(15);
/// Bytes of one part of a table.
const PART_BYTES: usize = 64 << 10;
/// A reason that is told to a client is cut here.
const REASON_BYTES_MAX: usize = 1024;
/// A client's call up to this size may wait at a member; a larger one is sent back, and waits where
/// it came from.
const PARKED_BYTES_MAX: usize = 1 << 10;

/// A table of which nothing comes for this long is not waited for: of the next member that names
/// one it is asked for.
const TABLE_PATIENCE: Duration = Duration::from_secs(2);
/// And whoever named it is not asked for so long.
const BROKEN_WORD: Duration = Duration::from_secs(30);

/// What one of the two ends of a connection between member and client knows of the other.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// To a client: the last clock it was told.
    told: u64,
    /// Of a client: the last clock that it had heard. 0: none.
    heard: u64,
    /// To a client: the last table it was sent,
    table: Option<TableName>,
    /// and since which ones.
    since: Vec<Option<TableName>>,
    /// Of a member: the largest value that it takes. `None`: it has not said that it is ready.
    value_bytes_max: Option<u64>,
    /// Of a member: its last clock, and when that came; until it is sent back.
    clock: Option<(u64, Time)>,
    /// Of a member: when it was last found not to have a table that it had named.
    broke_word: Option<Time>,
}

/// A table on its way to a client.
#[derive(Debug)]
pub(super) struct Arriving {
    from: MemberId,
    name: TableName,
    next: u32,
    bytes: Vec<u8>,
}

/// What a client does with a call whose primary it knows.
pub(super) enum Sending {
    /// It may be sent.
    Now,
    /// Not now.
    Wait,
    /// The primary would not take it.
    TooLarge,
}

/// Whether a frame may come from there.
pub(super) fn fits(me: MemberId, from: MemberId, frame: &Frame) -> bool {
    let (to_client, of_client) = (me.is_client(), from.is_client());
    match frame {
        Frame::Forward { .. } | Frame::ForwardSet { .. } => !to_client,
        Frame::Heard { .. } | Frame::Pull { .. } | Frame::MakeMap { .. } => of_client && !to_client,
        Frame::View(_) | Frame::Reply { .. } | Frame::NotServing { .. } => !of_client,
        Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => to_client && !of_client,
        _ => !to_client && !of_client,
    }
}

// ---- a member

impl Core {
    /// Tells a client this node's clock, limits and table.
    pub(super) fn greet(&mut self, client: MemberId) {
        let Some(table) = self.name else { return };
        let tick = Frame::Tick {
            clock: self.now.0,
            value_bytes_max: self.limits.value_bytes_max as u64,
            table,
        };
        if let Some(peer) = self.peers.get(client) {
            peer.visit.told = self.now.0;
            self.peers.send(client, Lane::Calls, &tick);
        }
    }

    /// Tells all of them.
    pub(super) fn greet_clients(&mut self) {
        for client in self.peers.ids().into_iter().filter(|id| id.is_client()) {
            self.greet(client);
        }
    }

    /// Whether what comes from a client now was sent not long ago.
    pub(super) fn is_fresh(&mut self, client: MemberId) -> bool {
        let now = self.now;
        self.peers
            .get(client)
            .is_some_and(|p| p.visit.heard > 0 && now.since(Time(p.visit.heard)) <= FRESH)
    }

    /// Where a client's call could not be executed: a large one is given back.
    pub(super) fn park_only_small(&mut self, at: PartitionRef, slot: &mut Slot, client: MemberId) {
        let large = |c: &Call| c.source.peer() == Some(client) && bytes(&c.work) > PARKED_BYTES_MAX;
        if slot.calls.parked.back().is_some_and(large)
            && let Some(call) = slot.calls.parked.pop_back()
            && let Source::Peer { attempt, .. } = call.source
        {
            self.outstanding -= 1;
            self.refuse(at, client, call.n, attempt);
        }
    }

    /// What a client asks that is no operation.
    pub(super) fn asked_by_client(
        &mut self,
        client: MemberId,
        frame: Frame,
    ) -> Result<(), Malformed> {
        match frame {
            Frame::Heard { clock } => {
                let Some(peer) = self.peers.get(client) else {
                    return Ok(());
                };
                if clock > peer.visit.told {
                    return Err(Malformed("a clock that was never told"));
                }
                peer.visit.heard = peer.visit.heard.max(clock);
            }
            Frame::Pull { have } => self.send_table(client, have),
            Frame::MakeMap {
                ticket,
                keyspace,
                name,
            } => match self
                .view
                .as_ref()
                .and_then(|v| v.installed.map_in(&keyspace, &name))
            {
                Some(known) => self.answer_map(client, ticket, Ok(known.clone())),
                None => self.requests.push_back(Request::MakeMap {
                    client,
                    ticket,
                    keyspace,
                    name,
                }),
            },
            _ => {}
        }
        Ok(())
    }

    fn answer_map(&mut self, client: MemberId, ticket: u64, made: Result<MapEntry, String>) {
        let made = made.map_err(|mut why| {
            let cut = (0..=REASON_BYTES_MAX.min(why.len()))
                .rev()
                .find(|at| why.is_char_boundary(*at))
                .unwrap_or(0);
            why.truncate(cut);
            why
        });
        self.peers
            .send(client, Lane::Calls, &Frame::MapMade { ticket, made });
    }

    /// Each table once a connection for each one that it may be told the news of: streams lose
    /// nothing.
    fn send_table(&mut self, client: MemberId, have: Option<TableName>) {
        let Some(name) = self.name else { return };
        let Some(peer) = self.peers.get(client) else {
            return;
        };
        if peer.visit.table.replace(name) != Some(name) {
            peer.visit.since.clear();
        }
        let level = peer.version;
        let base = self.published.base(have, level);
        if peer.visit.since.contains(&base) || have.is_some_and(|have| have.order() >= name.order())
        {
            return;
        }
        peer.visit.since.push(base);
        // No table comes near the limit: members are sent it likewise.
        let Some(bytes) = self.published.encoded(base, level) else {
            return;
        };
        // The order of a name is the same at every level.
        let Some(name) = self.published.name(level) else {
            return;
        };
        // At most a thousand: 64 MiB of 64 KiB.
        let parts = bytes.len().div_ceil(PART_BYTES) as u32;
        for (part, at) in (0..parts).zip((0..).step_by(PART_BYTES)) {
            let body = bytes.slice(at..bytes.len().min(at + PART_BYTES));
            self.peers.send(
                client,
                Lane::Bulk,
                &Frame::Table {
                    name,
                    part,
                    parts,
                    body,
                },
            );
        }
    }
}

// ---- a client

impl Core {
    /// Whether a call may be sent to its primary now. What precedes it is sent.
    pub(super) fn sending(&mut self, primary: MemberId, call: &Call) -> Sending {
        let now = self.now;
        let Some(peer) = self.peers.get(primary) else {
            return Sending::Wait;
        };
        let Some(most) = peer.visit.value_bytes_max else {
            return Sending::Wait;
        };
        if call.until <= now {
            // What became of it may be forgotten by the time it arrives.
            return Sending::Wait;
        }
        if largest_value(&call.work) as u64 > most {
            // One that may be applied elsewhere is not said to be not.
            return if call.maybe {
                Sending::Wait
            } else {
                Sending::TooLarge
            };
        }
        // Only a clock that came before `now` was read: what is sent now is no older than that
        // clock.
        if let Some((clock, _)) = peer.visit.clock.take_if(|(_, came)| *came < now) {
            self.peers
                .send(primary, Lane::Calls, &Frame::Heard { clock });
        }
        Sending::Now
    }

    /// A member knows a table: if it is newer than ours, it is asked for there.
    pub(super) fn pull(&mut self, member: MemberId, known: TableName) {
        let other = self.name.is_some_and(|ours| ours.cluster != known.cluster);
        if other {
            return self.requests.push_back(Request::OtherCluster(known));
        }
        let now = self.now;
        if let Some((late, since)) = self.asked_of
            && now.since(since) >= TABLE_PATIENCE
        {
            // It would keep everybody else from being asked for what they have.
            if let Some(peer) = self.peers.get(late) {
                peer.visit.broke_word = Some(now);
            }
            self.pull_again(late);
        }
        let trusted = |p: &mut Peer| {
            p.visit
                .broke_word
                .is_none_or(|at| now.since(at) >= BROKEN_WORD)
        };
        if !self.peers.get(member).is_some_and(trusted) {
            return;
        }
        let have = self.own_name();
        let newest = have
            .into_iter()
            .chain(self.asked_for)
            .map(|name| name.order())
            .max();
        if newest.is_none_or(|newest| newest < known.order()) {
            self.asked_for = Some(known);
            self.arriving = None;
            self.asked_of = Some((member, now));
            self.peers.send(member, Lane::Calls, &Frame::Pull { have });
        }
    }

    /// A member is gone: what was asked of it is asked again, of whoever says next that there is
    /// something newer.
    pub(super) fn pull_again(&mut self, member: MemberId) {
        if self.asked_of.is_some_and(|(asked, _)| asked == member) {
            (self.asked_of, self.asked_for, self.arriving) = (None, None, None);
        }
    }

    /// What a member says to a client. True: from now on it takes operations.
    pub(super) fn told_by_member(
        &mut self,
        member: MemberId,
        frame: Frame,
    ) -> Result<bool, Malformed> {
        match frame {
            Frame::Tick {
                clock,
                value_bytes_max,
                table,
            } => {
                let now = self.now;
                let Some(peer) = self.peers.get(member) else {
                    return Ok(false);
                };
                peer.visit.clock = Some((clock, now));
                let first = peer
                    .visit
                    .value_bytes_max
                    .replace(value_bytes_max)
                    .is_none();
                self.pull(member, table);
                return Ok(first);
            }
            Frame::View(table) => self.pull(member, table),
            Frame::MapMade { ticket, made } => {
                self.requests.push_back(Request::MapMade { ticket, made })
            }
            Frame::Table {
                name,
                part,
                parts,
                body,
            } => {
                let arrived = self.take_part(member, name, (part, parts), &body)?;
                if let Some(table) =
                    arrived.filter(|_| self.name.is_none_or(|ours| ours.order() < name.order()))
                {
                    self.requests.push_back(Request::Table(table));
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// The next part of a table; the table, once it is whole.
    fn take_part(
        &mut self,
        from: MemberId,
        name: TableName,
        (part, parts): (u32, u32),
        body: &Bytes,
    ) -> Result<Option<Arc<Table>>, Malformed> {
        match &mut self.asked_of {
            Some((asked, since)) if *asked == from => *since = self.now,
            // Nobody asked, or somebody else was asked since, for a newer one.
            _ => return Ok(None),
        }
        if part == 0 {
            self.arriving = Some(Arriving {
                from,
                name,
                next: 0,
                bytes: Vec::new(),
            });
        }
        let Some(arriving) = &mut self.arriving else {
            return Err(Malformed("a table that begins in the middle"));
        };
        if (arriving.from, arriving.name, arriving.next) != (from, name, part) || part >= parts {
            return Err(Malformed("a part of a table that is not the next one"));
        }
        if arriving.bytes.len() + body.len() > codec::BYTES_MAX {
            return Err(Malformed("a table above the limit"));
        }
        arriving.bytes.extend_from_slice(body);
        arriving.next += 1;
        if part + 1 < parts {
            return Ok(None);
        }
        let bytes = self.arriving.take().map(|a| a.bytes).unwrap_or_default();
        let own = self
            .arrived
            .as_ref()
            .map(|(_, table)| &**table)
            .or_else(|| self.view.as_ref().map(|view| &*view.installed));
        let Some(table) = published::read(&bytes, name, own)?.map(Arc::new) else {
            // It was asked for when this client had another one.
            let have = self.own_name();
            self.peers.send(from, Lane::Calls, &Frame::Pull { have });
            return Ok(None);
        };
        (self.asked_of, self.asked_for) = (None, None);
        self.arrived = Some((name, table.clone()));
        Ok(Some(table))
    }

    /// What the newest table is called that this client has.
    fn own_name(&self) -> Option<TableName> {
        self.arrived.as_ref().map(|(name, _)| *name).or(self.name)
    }

    /// Asks one of the members, another one each time, which map this is. False: none is there.
    pub(super) fn ask_map(&mut self, ticket: u64, keyspace: String, name: String) -> bool {
        let mut ready = self.peers.ids();
        ready.retain(|id| {
            self.peers
                .get(*id)
                .is_some_and(|p: &mut Peer| p.visit.value_bytes_max.is_some())
        });
        let Some(member) = ready.get(ticket as usize % ready.len().max(1)) else {
            return false;
        };
        self.peers.send(
            *member,
            Lane::Calls,
            &Frame::MakeMap {
                ticket,
                keyspace,
                name,
            },
        );
        true
    }
}

/// Bytes that an operation brings along.
fn bytes(work: &Work) -> usize {
    match work {
        Work::Key(op) => {
            let values = match &op.action {
                Action::Set { value, .. } | Action::Append { value } => value.len(),
                Action::CompareAndSwap { expected, value } => {
                    expected.as_ref().map_or(0, Bytes::len) + value.len()
                }
                _ => 0,
            };
            op.key.len() + values
        }
        Work::Partition(_) => 0,
    }
}

/// The largest value that an operation brings along.
fn largest_value(work: &Work) -> usize {
    match work {
        Work::Key(op) => match &op.action {
            Action::Set { value, .. } | Action::Append { value } => value.len(),
            Action::CompareAndSwap { expected, value } => {
                expected.as_ref().map_or(0, Bytes::len).max(value.len())
            }
            _ => 0,
        },
        Work::Partition(_) => 0,
    }
}

impl super::Shard {
    /// Of a member: what became of a client's `Request::MakeMap`.
    pub fn map_made(
        &mut self,
        now: Time,
        client: MemberId,
        ticket: u64,
        made: Result<MapEntry, String>,
    ) {
        self.core.now = now;
        self.core.answer_map(client, ticket, made);
    }

    /// Of a client: asks a member which map this is, and to make it if it is not there;
    /// `Request::MapMade` is the answer, if the member lives to give it. False: no member is there
    /// to be asked.
    pub fn ask_map(&mut self, now: Time, ticket: u64, keyspace: String, name: String) -> bool {
        self.core.now = now;
        self.core.ask_map(ticket, keyspace, name)
    }
}
