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
//! client sends an operation for [`PARK`](crate::PARK) at most. `Heard` bounds the age of what
//! follows, by the receiver's own clock: the client sends the last clock that it was told, and only
//! with a time that it read afterwards. A member takes no write of a client that may be older than
//! [`FRESH`] at its arrival. So no copy of a write arrives later than both together after the first
//! one, and its outcome is kept for [`RETENTION`](crate::wire::visit::RETENTION) or longer. Only
//! rates of clocks matter, however long either process was suspended in between.

use super::context::ShardContext;
use crate::role::calls::{CallSource, PendingCall};
use crate::role::host::Host;
use crate::role::partition::Slot;
use crate::shard::machine::Shard;
use crate::wire::api::{Lane, Malformed, ShardRequest};
use crate::wire::frame::Frame;
use crate::wire::peers::PeerState;
use crate::wire::published;
use crate::wire::visit::FRESH;
use bytes::Bytes;
use doyen_gossip::Time;
use doyen_placement::codec;
use doyen_placement::{MapEntry, MapWish, MemberId, Table, TableName, WantedMap};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one part of a table.
const PART_BYTES: usize = 64 << 10;
/// Most bytes of a reason that is sent to a client. Longer ones are cut.
const REASON_BYTES_MAX: usize = 1024;
/// Largest call of a client that may wait at a member. A larger one is sent back and waits at the
/// client.
const PARKED_BYTES_MAX: usize = 1 << 10;

/// If no part of a table arrives for this long, the client stops waiting for it and asks the next
/// member that names a table.
const TABLE_PATIENCE: Duration = Duration::from_secs(2);
/// For so long, the member that did not send the table is not asked again.
const BROKEN_WORD: Duration = Duration::from_secs(30);

/// A table on its way to a client.
#[derive(Debug)]
struct Arriving {
    from: MemberId,
    name: TableName,
    next: u32,
    bytes: Vec<u8>,
}

/// At a client: the tables that it asks members for.
#[derive(Debug, Default)]
pub(crate) struct Pulling {
    /// The newest table that was asked for. At a member: of the control thread.
    newest: Option<TableName>,
    /// The member that was asked for it, and when its last part came.
    asked: Option<(MemberId, Time)>,
    arriving: Option<Arriving>,
    /// The last table that arrived. It is not installed before the shell has taken it.
    arrived: Option<(TableName, Arc<Table>)>,
}

impl Pulling {
    /// A table is installed.
    pub(crate) fn installed(&mut self) {
        self.arrived = None;
    }
}

/// Whether a client may send a call whose primary it knows.
pub(crate) enum Sending {
    /// The call may be sent.
    Now,
    /// The call must wait.
    Wait,
    /// The primary would refuse the call, because its value is too large.
    TooLarge,
}

/// Whether this sender may send this frame.
pub(crate) fn fits(me: MemberId, from: MemberId, frame: &Frame) -> bool {
    let (to_client, of_client) = (me.is_client(), from.is_client());
    match frame {
        Frame::Forward { .. } | Frame::ForwardSet { .. } | Frame::Traced { .. } => !to_client,
        Frame::Heard { .. }
        | Frame::Pull { .. }
        | Frame::MakeMap { .. }
        | Frame::WantMap { .. } => of_client && !to_client,
        Frame::Wait { .. }
        | Frame::Unwait { .. }
        | Frame::Stamp { .. }
        | Frame::Subscribe { .. }
        | Frame::Unsubscribe { .. }
        | Frame::Taken { .. }
        | Frame::Confirm { .. }
        | Frame::Reads { .. } => !to_client,
        Frame::Subscribed { .. } | Frame::Changes { .. } | Frame::Confirmed { .. } => !of_client,
        Frame::View(_) | Frame::Reply { .. } | Frame::Waited { .. } | Frame::NotServing { .. } => {
            !of_client
        }
        Frame::Tick { .. } | Frame::Table { .. } | Frame::MapMade { .. } => to_client && !of_client,
        _ => !to_client && !of_client,
    }
}

// ---- the member's side

impl ShardContext {
    /// A peer has installed this table. If it is newer than ours, it is asked for.
    pub(crate) fn heard_of(&mut self, name: TableName) {
        let newer = self
            .host
            .tables
            .name
            .is_none_or(|ours| ours.cluster == name.cluster && ours.order() < name.order());
        // A name that no table has must not keep later names from being asked for.
        if newer && self.pulling.newest != Some(name) {
            self.pulling.newest = Some(name);
            self.host.outbox.push(ShardRequest::Newer(name));
        }
    }

    /// A client's call could not be executed here. A large one is sent back.
    pub(crate) fn park_only_small(&mut self, slot: &mut Slot, client: MemberId) {
        let at = slot.at;
        let large =
            |c: &PendingCall| c.source.peer() == Some(client) && c.work.bytes() > PARKED_BYTES_MAX;
        if slot.calls.parked.back().is_some_and(large)
            && let Some(call) = slot.calls.parked.pop_back()
            && let CallSource::Peer { attempt, .. } = call.source
        {
            self.host.callers.outstanding -= 1;
            self.host.refuse(at, client, call.n, attempt);
        }
    }

    /// Handles a client's request that is not an operation.
    pub(crate) fn asked_by_client(
        &mut self,
        client: MemberId,
        frame: Frame,
    ) -> Result<(), Malformed> {
        match frame {
            Frame::Heard { clock } => {
                let Some(peer) = self.host.peers.get(client) else {
                    return Ok(());
                };
                if clock > peer.visit.told {
                    return Err(Malformed("a clock that this node never sent"));
                }
                peer.visit.heard = peer.visit.heard.max(clock);
            }
            Frame::Pull { have } => self.host.send_table(client, have),
            Frame::MakeMap {
                ticket,
                keyspace,
                name,
            } => {
                let table = self.host.tables.view.as_ref().map(|view| &view.installed);
                match table.and_then(|table| table.map_in(&keyspace, &name)) {
                    Some(known) => {
                        let known = known.clone();
                        self.host.answer_map(client, ticket, Ok(known));
                    }
                    None => self.host.outbox.push(ShardRequest::WantMap {
                        client,
                        ticket,
                        wanted: WantedMap {
                            keyspace,
                            name,
                            wish: MapWish::Exists,
                        },
                    }),
                }
            }
            Frame::WantMap { ticket, wanted } => self.host.outbox.push(ShardRequest::WantMap {
                client,
                ticket,
                wanted,
            }),
            _ => {}
        }
        Ok(())
    }
}

impl Host {
    /// Tells a client this node's clock, limits and table.
    pub(crate) fn greet(&mut self, client: MemberId) {
        let Some(table) = self.tables.name else {
            return;
        };
        let tick = Frame::Tick {
            clock: self.now.0,
            value_bytes_max: self.limits.value_bytes_max as u64,
            table,
        };
        if let Some(peer) = self.peers.get(client) {
            peer.visit.told = self.now.0;
            self.peers.tell(client, &tick);
        }
    }

    /// Tells all clients.
    pub(crate) fn greet_clients(&mut self) {
        for client in self.peers.ids().into_iter().filter(|id| id.is_client()) {
            self.greet(client);
        }
    }

    /// Whether the next frames of a client were sent recently.
    pub(crate) fn is_fresh(&mut self, client: MemberId) -> bool {
        let now = self.now;
        self.peers
            .get(client)
            .is_some_and(|p| p.visit.heard > 0 && now.since(Time(p.visit.heard)) <= FRESH)
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
        let map_made = Frame::MapMade { ticket, made };
        self.peers.tell(client, &map_made);
    }

    /// Each table is sent once a connection for each table since which it is news: streams lose
    /// nothing.
    fn send_table(&mut self, client: MemberId, have: Option<TableName>) {
        let Some(name) = self.tables.name else { return };
        let Some(peer) = self.peers.get(client) else {
            return;
        };
        if peer.visit.table.replace(name) != Some(name) {
            peer.visit.since.clear();
        }
        let level = peer.version;
        let base = self.tables.published.base(have, level);
        if peer.visit.since.contains(&base) || have.is_some_and(|have| have.order() >= name.order())
        {
            return;
        }
        peer.visit.since.push(base);
        // A table never comes near the limit: members are sent it in the same way.
        let Some(bytes) = self.tables.published.encoded(base, level) else {
            return;
        };
        // Names are in the same order at every level.
        let Some(name) = self.tables.published.name(level) else {
            return;
        };
        // A thousand parts at most: 64 MiB in parts of 64 KiB.
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

    /// Whether a call may be sent to its primary now. Sends what must precede it.
    pub(crate) fn sending(&mut self, primary: MemberId, call: &PendingCall) -> Sending {
        let now = self.now;
        let Some(peer) = self.peers.get(primary) else {
            return Sending::Wait;
        };
        let Some(most) = peer.visit.value_bytes_max else {
            return Sending::Wait;
        };
        if call.until <= now {
            // By the time it arrives, the outcome of an earlier attempt may be forgotten.
            return Sending::Wait;
        }
        if call.work.given().largest as u64 > most {
            // The client must not claim that a call was not applied if it may be applied elsewhere.
            return if call.maybe {
                Sending::Wait
            } else {
                Sending::TooLarge
            };
        }
        // Only a clock that came before `now` was read: what is sent now is no older than that
        // clock.
        if let Some((clock, _)) = peer.visit.clock.take_if(|(_, came)| *came < now) {
            let heard = Frame::Heard { clock };
            self.peers.tell(primary, &heard);
        }
        Sending::Now
    }

    /// Asks a member for a map, another member each time. False: no member is connected.
    pub(crate) fn ask_map(&mut self, ticket: u64, wanted: WantedMap) -> bool {
        let mut ready = self.peers.ids();
        ready.retain(|id| {
            let ready = |p: &mut PeerState| p.visit.value_bytes_max.is_some();
            self.peers.get(*id).is_some_and(ready)
        });
        let Some(member) = ready.get(ticket as usize % ready.len().max(1)) else {
            return false;
        };
        let frame = match wanted.wish {
            MapWish::Exists => Frame::MakeMap {
                ticket,
                keyspace: wanted.keyspace,
                name: wanted.name,
            },
            MapWish::Limited(_) | MapWish::Dropped | MapWish::Replaced(_) => {
                Frame::WantMap { ticket, wanted }
            }
        };
        self.peers.tell(*member, &frame);
        true
    }
}

// ---- the client's side

impl ShardContext {
    /// A member knows a table. If it is newer than ours, the client pulls it from that member.
    pub(crate) fn pull(&mut self, member: MemberId, known: TableName) {
        let other = self
            .host
            .tables
            .name
            .is_some_and(|ours| ours.cluster != known.cluster);
        if other {
            return self.host.outbox.push(ShardRequest::OtherCluster(known));
        }
        let now = self.host.now;
        if let Some((late, since)) = self.pulling.asked
            && now.since(since) >= TABLE_PATIENCE
        {
            // Otherwise this member would keep the client from pulling tables of other members.
            if let Some(peer) = self.host.peers.get(late) {
                peer.visit.broke_word = Some(now);
            }
            self.pull_again(late);
        }
        let trusted = |p: &mut PeerState| {
            p.visit
                .broke_word
                .is_none_or(|at| now.since(at) >= BROKEN_WORD)
        };
        if !self.host.peers.get(member).is_some_and(trusted) {
            return;
        }
        let have = self.own_name();
        let newest = have
            .into_iter()
            .chain(self.pulling.newest)
            .map(|name| name.order())
            .max();
        if newest.is_none_or(|newest| newest < known.order()) {
            self.pulling.newest = Some(known);
            self.pulling.arriving = None;
            self.pulling.asked = Some((member, now));
            let pull = Frame::Pull { have };
            self.host.peers.tell(member, &pull);
        }
    }

    /// A member is gone. If it was asked for a table, the next member that names a newer one is
    /// asked.
    pub(crate) fn pull_again(&mut self, member: MemberId) {
        if self.pulling.asked.is_some_and(|(asked, _)| asked == member) {
            (
                self.pulling.asked,
                self.pulling.newest,
                self.pulling.arriving,
            ) = (None, None, None);
        }
    }

    /// Handles a member's frame. True if the member accepts operations from now on.
    pub(crate) fn told_by_member(
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
                let now = self.host.now;
                let Some(peer) = self.host.peers.get(member) else {
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
            Frame::MapMade { ticket, made } => self
                .host
                .outbox
                .push(ShardRequest::MapMade { ticket, made }),
            Frame::Table {
                name,
                part,
                parts,
                body,
            } => {
                let arrived = self.take_part(member, name, (part, parts), &body)?;
                if let Some(table) = arrived.filter(|_| {
                    self.host
                        .tables
                        .name
                        .is_none_or(|ours| ours.order() < name.order())
                }) {
                    self.host.outbox.push(ShardRequest::Table(table));
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// Takes the next part of a table. Returns the table once it is whole.
    fn take_part(
        &mut self,
        from: MemberId,
        name: TableName,
        (part, parts): (u32, u32),
        body: &Bytes,
    ) -> Result<Option<Arc<Table>>, Malformed> {
        match &mut self.pulling.asked {
            Some((asked, since)) if *asked == from => *since = self.host.now,
            // The client did not ask for this table, or has asked another member for a newer one
            // since.
            _ => return Ok(None),
        }
        if part == 0 {
            self.pulling.arriving = Some(Arriving {
                from,
                name,
                next: 0,
                bytes: Vec::new(),
            });
        }
        let Some(arriving) = &mut self.pulling.arriving else {
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
        let bytes = self
            .pulling
            .arriving
            .take()
            .map(|a| a.bytes)
            .unwrap_or_default();
        let own = self
            .pulling
            .arrived
            .as_ref()
            .map(|(_, table)| &**table)
            .or_else(|| self.host.tables.view.as_ref().map(|view| &*view.installed));
        let Some(table) = published::read(&bytes, name, own)?.map(Arc::new) else {
            // The client had another table when it asked.
            let have = self.own_name();
            let pull = Frame::Pull { have };
            self.host.peers.tell(from, &pull);
            return Ok(None);
        };
        (self.pulling.asked, self.pulling.newest) = (None, None);
        self.pulling.arrived = Some((name, table.clone()));
        Ok(Some(table))
    }

    /// The name of the newest table that this client has.
    fn own_name(&self) -> Option<TableName> {
        self.pulling
            .arrived
            .as_ref()
            .map(|(name, _)| *name)
            .or(self.host.tables.name)
    }
}

impl Shard {
    /// At a member: answers a client's `ShardRequest::WantMap`.
    pub fn map_made(
        &mut self,
        now: Time,
        client: MemberId,
        ticket: u64,
        made: Result<MapEntry, String>,
    ) {
        self.cx.host.now = now;
        self.cx.host.answer_map(client, ticket, made);
    }

    /// At a client: asks a member for a map that is as it is wanted.
    /// `ShardRequest::MapMade` is the answer, unless the member fails first. False: no member is
    /// connected.
    pub fn ask_map(&mut self, now: Time, ticket: u64, wanted: WantedMap) -> bool {
        self.cx.host.now = now;
        self.cx.host.ask_map(ticket, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{called, kinds};
    use bytes::Bytes;
    use doyen_placement::level::LEVELS;
    use std::collections::{BTreeMap, BTreeSet};

    /// A frame of each kind, by its kind, from the stored bytes of the newest wire version.
    fn every() -> BTreeMap<u8, Frame> {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus");
        let file = format!("{corpus}/v{}/frames.txt", LEVELS.1);
        let text = std::fs::read_to_string(file).expect("the stored frames");
        let hex = text.lines().filter_map(|line| line.split(' ').nth(1));
        let frame = |hex: &str| {
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
            let fields: Bytes = (8..hex.len()).step_by(2).map(byte).collect();
            (fields[0], Frame::read(fields).expect("a frame"))
        };
        hex.map(frame).collect()
    }

    /// What the holder of a client's secret may ask of a node: operations on data, changes of data,
    /// the table, and maps. docs/security.md says so. A frame that is added to this list must be
    /// one of these.
    #[test]
    fn a_client_may_send_requests_for_data_and_nothing_else() {
        let (node, client) = (MemberId(16), MemberId::of_client(1));
        let frames = every();
        assert_eq!(frames.keys().copied().collect::<Vec<_>>(), kinds());
        let names = |from| -> BTreeSet<String> {
            let sent = frames.values().filter(|frame| fits(node, from, frame));
            let variant = |name: String| name.split('/').next().unwrap_or_default().to_owned();
            sent.map(|frame| variant(called(frame))).collect()
        };
        let wanted = [
            "Confirm",
            "Forward",
            "ForwardSet",
            "Heard",
            "MakeMap",
            "Pull",
            "Reads",
            "Stamp",
            "Subscribe",
            "Taken",
            "Traced",
            "Unsubscribe",
            "Unwait",
            "Wait",
            "WantMap",
        ];
        assert_eq!(names(client), wanted.map(str::to_owned).into());
        // The control: a member sends copies, and much else.
        let of_member = names(MemberId(32));
        assert!(of_member.len() > 2 * wanted.len(), "{of_member:?}");
        assert!(of_member.contains("Append"), "{of_member:?}");
    }
}
