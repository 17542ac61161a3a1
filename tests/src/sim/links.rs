//! The data connections between processes: dialling, breaking, and bytes in order.

use super::network::{
    CONGESTED_BYTES, Connection, ConnectionId, NARROW_PIECE, Plane, STALL, lane_index,
};
use super::process::{DataInput, ProcessId, ThreadId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use doyen_engine::Lane;
use doyen_placement::MemberId;
use rand::Rng;

/// A connection whose bytes are stalled for this long breaks.
const IDLE_MAX: Nanos = 2 * SECOND;

impl World {
    pub(crate) fn dial(&mut self, p: ProcessId) {
        if self.processes[p].gone {
            return;
        }
        let wait = self.rng.random_range(80 * MS..250 * MS);
        // One chain of dials for each process is enough. A view adds a single dial, which must not
        // multiply.
        if self.network.dial_due(p, self.schedule.now(), wait) {
            self.schedule.after(wait, Event::Dial(p));
        }
        for t in 0..self.processes[p].threads.len() {
            self.dial_from((p, t));
        }
    }

    fn dial_from(&mut self, (p, t): ThreadId) {
        let (me, slot) = (self.processes[p].thread_id(t), self.processes[p].slot);
        for peer in self.processes[p].peers.clone() {
            if peer < me || self.processes[p].threads[t].links.contains_key(&peer) {
                continue;
            }
            let Some(&there) = self.directory.get(&peer.member()) else {
                continue;
            };
            let (target, there_t) = (&self.processes[there], usize::from(peer.thread_number()));
            let now = self.schedule.now();
            let blocked = target.data_blocked(there_t, now).is_some()
                || self.processes[p].data_blocked(t, now).is_some();
            let apart = !self.network.reaches(Plane::Data, slot, target.slot)
                || !self.network.reaches(Plane::Data, target.slot, slot);
            let ends = [(p, t), (there, there_t)];
            if blocked
                || apart
                || !target.peers.contains(&me)
                || !self.network.dialling.insert((ends[0], ends[1]))
            {
                continue;
            }
            let there_slot = target.slot;
            let out = self.delay(slot, there_slot);
            let back = self.delay(there_slot, slot);
            let id = self.network.next_connection;
            self.network.next_connection += 1;
            self.network
                .connections
                .insert(id, Connection::new([(ends[0], me), (ends[1], peer)]));
            self.schedule.after(out, Event::ConnectionUp(id, 1));
            self.schedule.after(out + back, Event::ConnectionUp(id, 0));
        }
    }

    pub(crate) fn connection_up(&mut self, id: ConnectionId, end: usize) {
        let Some(connection) = self.network.connections.get(&id) else {
            return;
        };
        let ((p, t), me) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        if end == 0 {
            self.network
                .dialling
                .remove(&((p, t), connection.ends[1].0));
        }
        let process = &self.processes[p];
        if connection.broken
            || process.gone
            || process.thread_id(t) != me
            || !process.peers.contains(&peer)
        {
            return self.break_connection(id, 10 * MS);
        }
        if let Some(old) = self.processes[p].threads[t].links.insert(peer, id) {
            self.break_connection(old, SECOND);
            self.data((p, t), DataInput::Disconnected(peer, old));
        }
        self.data((p, t), DataInput::Connected(peer, id));
    }

    /// Ends a connection. Each end learns of it separately, within `late`.
    pub(crate) fn break_connection(&mut self, id: ConnectionId, late: Nanos) {
        let Some(connection) = self.network.connections.get_mut(&id) else {
            return;
        };
        if connection.broken {
            return;
        }
        connection.broken = true;
        connection.lanes = Default::default();
        for end in 0..2 {
            let delay = self.rng.random_range(0..=late);
            self.schedule.after(delay, Event::ConnectionDown(id, end));
        }
    }

    pub(crate) fn connection_down(&mut self, id: ConnectionId, end: usize) {
        let Some(connection) = self.network.connections.get(&id) else {
            return;
        };
        let ((p, t), _) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        self.network
            .dialling
            .remove(&(connection.ends[0].0, connection.ends[1].0));
        if self.processes[p].threads[t].links.get(&peer) == Some(&id) {
            self.processes[p].threads[t].links.remove(&peer);
            self.data((p, t), DataInput::Disconnected(peer, id));
        }
    }

    /// Closes connections with processes that are no peers any more.
    pub(crate) fn close_strangers(&mut self, p: ProcessId) {
        let peers = &self.processes[p].peers;
        let links = self.processes[p]
            .threads
            .iter()
            .flat_map(|thread| &thread.links);
        let strangers: Vec<ConnectionId> = links
            .filter(|(peer, _)| !peers.contains(peer))
            .map(|(_, id)| *id)
            .collect();
        for id in strangers {
            self.break_connection(id, 5 * MS);
        }
    }

    /// Gives bytes of a lane to the connection with a peer.
    pub(crate) fn transmit(&mut self, (p, t): ThreadId, peer: MemberId, lane: Lane, bytes: &[u8]) {
        let Some(&id) = self.processes[p].threads[t].shard_links.get(&peer) else {
            return;
        };
        let Some(connection) = self.network.connections.get(&id) else {
            return;
        };
        if connection.broken {
            return;
        }
        let to = usize::from(
            connection.ends[0].0 == (p, t)
                && connection.ends[0].1.member() == self.processes[p].threads[t].shard_me,
        );
        let slots = connection
            .ends
            .map(|((process, _), _)| self.processes[process].slot);
        let delay = self.delay(slots[1 - to], slots[to]);
        let bandwidth = self.mix.bandwidth;
        // On a narrow link, bytes arrive bit by bit, and now and then in two pieces, so that frames
        // arrive torn.
        let mut pieces: Vec<Vec<u8>> = bytes
            .chunks(bandwidth.map_or(usize::MAX, |_| NARROW_PIECE))
            .map(<[u8]>::to_vec)
            .collect();
        if pieces.len() == 1 && bytes.len() > 1 && self.rng.random_bool(0.05) {
            let cut = self.rng.random_range(1..bytes.len());
            let tail = pieces[0].split_off(cut);
            pieces.push(tail);
        }
        for piece in pieces {
            let Some(connection) = self.network.connections.get_mut(&id) else {
                return;
            };
            let mut at = (self.schedule.now() + delay).max(connection.last[to][lane_index(lane)]);
            if let Some(bandwidth) = bandwidth {
                at = at.max(connection.busy_until[to]) + piece.len() as u64 * SECOND / bandwidth;
                connection.busy_until[to] = at;
            }
            connection.last[to][lane_index(lane)] = at;
            connection.lanes[to][lane_index(lane)].push_back(piece);
            self.schedule.at(at, Event::Arrive(id, to, lane));
        }
        let now = self.processes[p].clock(self.schedule.now());
        if let Some(connection) = self.network.connections.get_mut(&id)
            && connection.calls_under_way(to) >= CONGESTED_BYTES
        {
            self.network.congested +=
                u64::from(!std::mem::replace(&mut connection.congested[to], true));
            self.processes[p].threads[t]
                .shard
                .congested(now, peer, true);
        }
    }

    /// Sends a datagram: it waits for nothing, overtakes others, and may be lost.
    pub(crate) fn throw(&mut self, (p, t): ThreadId, peer: MemberId, bytes: &[u8]) {
        let Some(&id) = self.processes[p].threads[t].shard_links.get(&peer) else {
            return;
        };
        let Some(connection) = self.network.connections.get(&id).filter(|c| !c.broken) else {
            return;
        };
        let to = usize::from(
            connection.ends[0].0 == (p, t)
                && connection.ends[0].1.member() == self.processes[p].threads[t].shard_me,
        );
        let (there, me) = (connection.ends[to].0, connection.ends[1 - to].1);
        let slots = [self.processes[p].slot, self.processes[there.0].slot];
        let lost = !self.network.reaches(Plane::Data, slots[0], slots[1]);
        if lost || self.rng.random_bool(0.05) {
            return;
        }
        let delay = self.delay(slots[0], slots[1]);
        let input = DataInput::Datagram(me, id, bytes.to_vec());
        self.schedule.after(delay, Event::Data(there, input));
    }

    pub(crate) fn arrive(&mut self, id: ConnectionId, end: usize, lane: Lane) {
        let now = self.schedule.now();
        let Some(connection) = self.network.connections.get_mut(&id) else {
            return;
        };
        if connection.broken {
            return;
        }
        let ((p, t), _) = connection.ends[end];
        let peer = connection.ends[1 - end].1;
        let from = self.processes[connection.ends[1 - end].0.0].slot;
        let reaches = self
            .network
            .reaches(Plane::Data, from, self.processes[p].slot);
        let Some(connection) = self.network.connections.get_mut(&id) else {
            return;
        };
        if !reaches || self.processes[p].threads[t].links.get(&peer) != Some(&id) {
            let since = *connection.stalled[end].get_or_insert(now);
            if now - since > IDLE_MAX {
                return self.break_connection(id, SECOND);
            }
            return self.schedule.after(STALL, Event::Arrive(id, end, lane));
        }
        connection.stalled[end] = None;
        let bytes = connection.lanes[end][lane_index(lane)].pop_front();
        let (sender, me) = (connection.ends[1 - end].0, connection.ends[end].1);
        let drained =
            connection.congested[end] && connection.calls_under_way(end) < CONGESTED_BYTES;
        connection.congested[end] &= !drained;
        if let Some(bytes) = bytes {
            self.data((p, t), DataInput::Bytes(peer, id, lane, bytes));
        }
        if drained {
            self.data(sender, DataInput::Drained(me, id));
        }
    }
}
