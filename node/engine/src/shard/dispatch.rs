//! Decides about a call: it is executed here, sent to the primary, parked, answered, or given up.

use super::clients::Sending;
use super::context::ShardContext;
use crate::command::operation::{Action, Operation, Work};
use crate::log::dedup::OpId;
use crate::log::waiting::TicketName;
use crate::mutant::{self, broken};
use crate::role::calls::{CallOrigin, CallSource, Executed, PendingCall, Tried};
use crate::role::one_key::OneKey;
use crate::role::partition::Slot;
use crate::role::spans;
use crate::value::entry::Entry;
use crate::value::outcome::{Failure, Outcome};
use crate::wire::api::Malformed;
use crate::wire::frame::{self, Forwarded, Frame, ReplyTo};
use bytes::Bytes;
use doyen_placement::{MapId, MemberId, PartitionRef};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// About how many bytes of values the parked calls of a partition handle before others have their
/// turn. A script counts by its time.
const PUMP_WORK_MAX: usize = 4 << 20;

impl ShardContext {
    /// A call arrives: it is executed or sent at once, or parked behind those that came before it.
    pub(crate) fn take_call(&mut self, slot: &mut Slot, call: PendingCall) {
        self.host.callers.outstanding += 1;
        let overtakes = slot.calls.parked.is_empty()
            || (slot.serving() && !call.work.is_write() && slot.calls.may_overtake(&call.work));
        if !overtakes {
            slot.calls.parked.push_back(call);
        } else if let Some(call) = self.dispatch(slot, call) {
            slot.calls.parked.push_back(call);
        }
    }

    /// Executes a call or sends it on. Gives it back if neither is possible now.
    pub(crate) fn dispatch(&mut self, slot: &mut Slot, call: PendingCall) -> Option<PendingCall> {
        let at = slot.at;
        if let CallSource::Peer {
            member,
            lineage,
            attempt,
            ..
        } = call.source
            && slot
                .installed
                .as_ref()
                .is_some_and(|a| a.lineage != lineage)
            && !broken(&mutant::ASKS_NEW_LINEAGE)
        {
            // It may have been applied in the lineage that is lost. Its origin answers it as soon
            // as it knows of the loss.
            self.host.callers.outstanding -= 1;
            self.host.refuse(at, member, call.n, attempt);
            return None;
        }
        if slot.primary() == Some(self.host.me) {
            return if slot.takes(call.work.is_write()) {
                self.execute(slot, call)
            } else {
                Some(call)
            };
        }
        if let CallSource::Peer {
            member, attempt, ..
        } = call.source
        {
            // This member is not the primary any more, or not yet.
            if slot
                .accepted
                .as_ref()
                .is_some_and(|a| a.primary == self.host.me)
            {
                return Some(call);
            }
            self.host.callers.outstanding -= 1;
            self.host.refuse(at, member, call.n, attempt);
            return None;
        }
        let Some((primary, lineage)) = slot.installed.as_ref().map(|a| (a.primary, a.lineage))
        else {
            return Some(call);
        };
        let elsewhere = slot.calls.sent_to.is_some_and(|to| to != primary);
        if elsewhere {
            return Some(call);
        }
        if self.host.me.is_client() {
            match self.host.sending(primary, &call) {
                Sending::Now => {}
                Sending::Wait => return Some(call),
                Sending::TooLarge => {
                    self.answer(slot, call.asker(), Outcome::Failed(Failure::TooLarge));
                    return None;
                }
            }
        }
        let traced = call
            .source
            .token()
            .and_then(|t| self.host.callers.traced(t));
        let context = traced.filter(|_| self.host.peers.up(primary));
        // Parked if the primary is not connected, or takes its bytes slower than they are sent.
        let Some(out) = self.host.peers.room(primary) else {
            if self.host.peers.up(primary) {
                slot.wait_for_room(&mut self.host, primary);
            }
            return Some(call);
        };
        let forwarded = Forwarded {
            at,
            lineage,
            n: call.n,
            finished: slot.calls.finished(call.n),
            attempt: slot.calls.attempt,
        };
        if let Some(context) = context {
            let n = call.n;
            Frame::Traced { at, n, context }.put(out);
        }
        frame::forward(out, &forwarded, call.before(), &call.work);
        self.host.stats.forwarded += 1;
        slot.calls.sent_to = Some(primary);
        slot.calls.sent.push_back(call);
        None
    }

    /// Executes or sends parked calls in order. Calls on one key never overtake each other.
    pub(crate) fn pump(&mut self, slot: &mut Slot) {
        if slot.executes_tickets() {
            self.host.waiting.stir(slot.at);
        }
        if slot.calls.parked.is_empty() {
            return;
        }
        let mut parked = std::mem::take(&mut slot.calls.parked);
        let mut left: VecDeque<PendingCall> = VecDeque::new();
        let mut blocked = BTreeSet::new();
        let most = self.host.worked.saturating_add(PUMP_WORK_MAX);
        while let Some(call) = parked.pop_front() {
            if self.host.worked >= most {
                // Others have their turn first.
                let soon = self.host.now + Duration::from_nanos(1);
                self.host.timers.wake(slot.at, soon);
                left.push_back(call);
                left.append(&mut parked);
                break;
            }
            let key = match &call.work {
                Work::Key(op) if !op.action.is_joint() => Some((op.map, op.key.clone())),
                Work::Key(_) | Work::Partition(_) | Work::Transaction(_) | Work::Script(_) => None,
            };
            let free = left.is_empty()
                || (!call.work.is_write() && key.as_ref().is_some_and(|k| !blocked.contains(k)));
            let refused = if free && (left.is_empty() || slot.serving()) {
                self.dispatch(slot, call)
            } else {
                Some(call)
            };
            if let Some(call) = refused {
                left.push_back(call);
                match key {
                    Some(key) if slot.serving() => {
                        blocked.insert(key);
                    }
                    // All others wait behind a call on the whole partition or on several keys, or
                    // because no member serves them.
                    _ => {
                        left.append(&mut parked);
                        break;
                    }
                }
            }
        }
        slot.calls.parked = left;
    }

    /// A peer asks for an operation. If it asks again, it names the write after which the operation
    /// must not be executed.
    pub(crate) fn forwarded(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        forwarded: &Forwarded,
        before: Option<u64>,
        work: Work,
    ) -> Result<(), Malformed> {
        let at = forwarded.at;
        let right = match &work {
            Work::Key(op) if op.keyspace != at.keyspace => Some(false),
            Work::Key(op) if !op.action.is_joint() => self.belongs(at, op.map, &op.key),
            Work::Partition(op) => Some(op.keyspace == at.keyspace && op.partition == at.partition),
            Work::Transaction(transaction) if !transaction.is_sound(at.keyspace) => Some(false),
            Work::Script(call) if call.keyspace != at.keyspace => Some(false),
            Work::Key(_) | Work::Transaction(_) | Work::Script(_) => {
                let named = work.names_keys();
                work.keys().try_fold(true, |all, (map, key)| {
                    let belongs = if named {
                        self.belongs(at, map, key)?
                    } else {
                        self.host.tables.belongs(at, map, key)?
                    };
                    Some(belongs && all)
                })
            }
        };
        if before.is_some_and(|before| before <= forwarded.n) {
            return Err(Malformed("an operation that names itself as a later write"));
        }
        let writes = work.is_write();
        if !self.admits(slot, right, peer, forwarded, Some(&work))? {
            return Ok(());
        }
        self.host
            .traces
            .begin_serving(self.host.now, peer, forwarded, || spans::name(&work));
        if let Work::Key(op) = &work
            && writes
            && before.is_none()
            && !op.action.is_joint()
            && self.write_for_peer(slot, peer, forwarded, |id| {
                OneKey::of(op, Some(id), Some(peer))
            })
        {
            return Ok(());
        }
        self.take_forwarded(slot, peer, forwarded, before, work);
        Ok(())
    }

    /// A peer asks for a write without conditions. It is executed at once, or becomes an operation
    /// like any other.
    pub(crate) fn forwarded_set(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        forwarded: &Forwarded,
        map: MapId,
        entry: Entry,
    ) -> Result<(), Malformed> {
        let at = forwarded.at;
        let belongs = self.belongs(at, map, entry.key());
        if self.admits(slot, belongs, peer, forwarded, None)? {
            self.host
                .traces
                .begin_serving(self.host.now, peer, forwarded, || "write");
            let put = |id| OneKey::put(map, &entry, id, Some(peer));
            if self.write_for_peer(slot, peer, forwarded, put) {
                return Ok(());
            }
            let (key, value) = (
                Bytes::copy_from_slice(entry.key()),
                Bytes::copy_from_slice(entry.value()),
            );
            let operation = Operation {
                keyspace: at.keyspace,
                map,
                key,
                action: Action::set(value),
            };
            self.take_forwarded(slot, peer, forwarded, None, Work::Key(operation));
        }
        Ok(())
    }

    fn take_forwarded(
        &mut self,
        slot: &mut Slot,
        peer: MemberId,
        forwarded: &Forwarded,
        before: Option<u64>,
        work: Work,
    ) {
        let n = forwarded.n;
        let source = CallSource::of_forwarded(peer, forwarded);
        let tried = before.map(|n| {
            Box::new(Tried {
                before: Some(n),
                outcome: None,
            })
        });
        let until = self.host.now + self.host.limits.park;
        let call = PendingCall {
            tried,
            ..PendingCall::new(source, n, work, (until, false))
        };
        self.take_call(slot, call);
        if peer.is_client() {
            self.park_only_small(slot, peer);
        }
    }

    /// A caller of another node waits until an operation is not blocked.
    pub(crate) fn take_ticket(
        &mut self,
        slot: &Slot,
        name: TicketName,
        (age_ms, stamp): (u64, u64),
        work: Work,
    ) -> Result<(), Malformed> {
        let at = slot.at;
        let Work::Key(operation) = work else {
            return Err(Malformed("a wait for more than one key"));
        };
        let belongs = self.belongs(at, operation.map, &operation.key);
        if operation.keyspace != at.keyspace
            || belongs == Some(false)
            || !operation.action.may_wait()
        {
            return Err(Malformed("a wait with what would not stay blocked here"));
        }
        // The table that names this map comes in a moment.
        let is_known = belongs.is_some() && !self.host.bounds.is_unknown(operation.map);
        if !is_known || !self.may_ask(name.0) || !slot.takes_tickets(self.host.me) {
            self.host.turn_away(at, name);
        } else {
            let age = Duration::from_millis(age_ms);
            self.host.peers.stamp(name.0, stamp);
            self.host.enter(at, name, age, operation.detached());
        }
        Ok(())
    }

    /// Whether a key belongs to this partition. `None` if no table names the partition.
    fn belongs(&self, at: PartitionRef, map: MapId, key: &[u8]) -> Option<bool> {
        let belongs = self.host.tables.belongs(at, map, key)?;
        Some(belongs && key.len() <= self.host.limits.key_bytes_max)
    }

    /// Whether a peer's operation is accepted (`None`: a write without conditions). If not, it was
    /// refused, or belongs to a refused attempt.
    fn admits(
        &mut self,
        slot: &mut Slot,
        right: Option<bool>,
        peer: MemberId,
        forwarded: &Forwarded,
        work: Option<&Work>,
    ) -> Result<bool, Malformed> {
        let Forwarded {
            at,
            n,
            finished,
            attempt,
            ..
        } = *forwarded;
        if right == Some(false) || finished > n {
            return Err(Malformed(
                "an operation that does not belong to its partition",
            ));
        }
        // Its caller has not heard that the partition was split or merged.
        let write = work.is_none_or(Work::is_write);
        if right.is_none()
            || !self.may_ask(peer)
            || (peer.is_client() && write && !self.host.is_fresh(peer))
        {
            self.host.refuse(at, peer, n, attempt);
            return Ok(false);
        }
        if let Some(p) = self.host.peers.get(peer) {
            match p.refused.get(&at) {
                Some(refused) if *refused == attempt && !broken(&mutant::EXECUTES_REFUSED) => {
                    return Ok(false);
                }
                Some(_) => {
                    p.refused.remove(&at);
                    // The remaining calls of earlier attempts come again in this one.
                    self.retain_parked(slot, |c| {
                        !matches!(c.source, CallSource::Peer { member, attempt: of, .. }
                            if member == peer && of != attempt)
                    });
                }
                None => {}
            }
        }
        // A peer may have as many calls here as the callers of this node: twice the limit bounds
        // both together. Clients leave room for members.
        let shares = if peer.is_client() { 1 } else { 2 };
        let most = self.host.limits.waiting_max.saturating_mul(shares);
        let waiting = self.host.callers.outstanding;
        if waiting >= most && !work.is_some_and(|work| work.finds_place(waiting, most)) {
            let reply = Frame::Reply {
                at,
                n,
                attempt,
                outcome: Outcome::Failed(Failure::Overloaded),
            };
            self.host.peers.tell(peer, &reply);
            return Ok(false);
        }
        Ok(true)
    }

    /// Drops calls of peers, which are not answered here.
    pub(crate) fn retain_parked(&mut self, slot: &mut Slot, keep: impl Fn(&PendingCall) -> bool) {
        self.host.callers.outstanding -= slot.calls.retain(keep);
    }

    /// Whether operations of this process are accepted: those of members and of clients.
    pub(crate) fn may_ask(&self, id: MemberId) -> bool {
        let member = id.member();
        id.is_client() || broken(&mutant::TAKES_STRANGERS) || self.host.tables.name_member(member)
    }

    /// Gives a call its outcome, for good.
    pub(crate) fn answer(&mut self, slot: &mut Slot, asker: CallOrigin, outcome: Outcome) {
        let at = slot.at;
        self.host.callers.outstanding -= 1;
        match asker.source {
            CallSource::Local(token) => {
                if asker.write {
                    slot.calls.finish(asker.n);
                }
                self.host.callers.answer(token, outcome);
            }
            CallSource::Peer {
                member, attempt, ..
            } => {
                self.host.traces.served(member, at, asker.n);
                self.host
                    .peers
                    .answer(member, at, ReplyTo::Call(asker.n, attempt), outcome);
            }
            CallSource::Waiter { member, stamp } => {
                self.host
                    .answer_waiter(at, (member, asker.n), stamp, outcome);
            }
        }
        if self.host.callers.is_idle() {
            self.host.callers.forget_none();
        }
    }

    /// A call that was sent in this attempt was answered.
    pub(crate) fn replied(&mut self, slot: &mut Slot, (n, attempt): (u64, u32), outcome: Outcome) {
        let Some(mut call) = slot.calls.take(n, attempt) else {
            return;
        };
        slot.calls.refusals = 0;
        if outcome == Outcome::Failed(Failure::Overloaded) && call.maybe && call.work.is_write() {
            // The peer that answers so has not checked whether the call is applied.
            self.answer(slot, call.asker(), Outcome::Failed(Failure::Unknown));
        } else if outcome != Outcome::Failed(Failure::Overtaken) {
            self.answer(slot, call.asker(), outcome);
        } else if let Some(outcome) = call.take_outcome() {
            self.answer(slot, call.asker(), outcome);
        } else {
            self.leave_to_caller(slot, call);
        }
        self.pump(slot);
    }

    /// A local call was executed and changed nothing, and its outcome is lost. Its caller decides
    /// whether to ask again.
    pub(crate) fn leave_to_caller(&mut self, slot: &mut Slot, call: PendingCall) {
        self.host.callers.outstanding -= 1;
        if call.work.is_write() {
            slot.calls.finish(call.n);
        }
        if let Some(token) = call.source.token() {
            self.host.callers.leave(token, call.work);
        }
    }

    /// Gives up the calls that had waited long enough when this look at the partitions began.
    pub(crate) fn give_up(&mut self, slot: &mut Slot) {
        let now = self.host.upkeep.gives_up_to;
        // A write that waits for room is refused with that reason (`Host::is_late`).
        let short = self.host.memory.evicting.is_waiting(slot.at);
        if slot.serving() && (slot.crowded_by.is_some() || !short) {
            self.refuse_waiting(slot);
        }
        if !slot.calls.all().any(|(_, until)| until <= now) {
            return;
        }
        let (parked, sent, waiting) = slot.calls.take_late(now);
        for call in parked {
            self.fail(slot, call.asker(), call.maybe);
        }
        for call in sent {
            self.fail(slot, call.asker(), true);
        }
        for executed in waiting {
            self.fail_executed(slot, executed);
        }
    }

    /// Writes that waited long enough, for a crowded copy or behind others, are refused as
    /// overload: the partition works, and the writes were not executed. Writes of peers are refused
    /// early enough for their origins to hear of it before they give up.
    fn refuse_waiting(&mut self, slot: &mut Slot) {
        let (now, soon) = (self.host.now, self.host.now + self.host.limits.park / 5);
        let late = |call: &PendingCall| {
            // A call with a deadline of its own may have come just now.
            let due = if call.source.peer().is_some() && !call.hurried {
                soon
            } else {
                now
            };
            call.work.is_write() && !call.maybe && call.until <= due
        };
        if !slot.calls.parked.iter().any(late) {
            return;
        }
        let (late, left) = std::mem::take(&mut slot.calls.parked)
            .into_iter()
            .partition::<Vec<PendingCall>, _>(late);
        slot.calls.parked = left.into();
        for call in late {
            self.answer(slot, call.asker(), Outcome::Failed(Failure::Overloaded));
        }
    }

    pub(crate) fn fail_executed(&mut self, slot: &mut Slot, executed: Executed) {
        if executed.is_of_ticket() {
            return self.host.void_executed(slot.at, &executed);
        }
        if let CallSource::Peer { member, .. } = executed.asker.source {
            self.host.peers.disown(member, &executed.outcome);
        }
        self.fail(slot, executed.asker, executed.logged || executed.maybe);
    }

    /// Gives up a call that may or may not be applied.
    pub(crate) fn fail(&mut self, slot: &mut Slot, asker: CallOrigin, maybe: bool) {
        if asker.source.peer().is_some() {
            // Its origin gives up by itself, at about the same time.
            self.host.callers.outstanding -= 1;
            return;
        }
        self.host.copying.rate.failed();
        self.answer(
            slot,
            asker,
            Outcome::Failed(if asker.write && maybe {
                Failure::Unknown
            } else {
                Failure::Unavailable
            }),
        );
    }

    /// The name of a local caller's operation in logs.
    pub(crate) fn local_id(&self, slot: &Slot, n: u64) -> OpId {
        OpId {
            origin: self.host.me,
            n,
            finished: slot.calls.finished(n),
        }
    }

    /// The name of a call's operation in logs.
    pub(crate) fn op_id(&self, slot: &Slot, call: &PendingCall) -> OpId {
        match call.source {
            CallSource::Local(_) => self.local_id(slot, call.n),
            CallSource::Waiter { member, .. } => OpId {
                origin: member,
                n: call.n,
                finished: 0,
            },
            CallSource::Peer {
                member, finished, ..
            } => OpId {
                origin: member,
                n: call.n,
                finished,
            },
        }
    }
}
