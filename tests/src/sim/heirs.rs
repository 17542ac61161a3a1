//! What directories must not forget (rule 14): whose heir a process is, and what it has promised.

use doyen_gossip::agreement::{Durable, Peer};
use doyen_gossip::wire::Message;
use doyen_placement::{MemberId, MemberState, Table, Term, Version, VoteKey};
use std::collections::{BTreeMap, BTreeSet};

/// What the processes of one key said to others.
#[derive(Debug, Default)]
struct Vow {
    /// The last vote.
    voted: Option<(Term, MemberId)>,
    /// The latest table that was acknowledged.
    accepted: Option<(Term, Version)>,
}

/// The processes of all directories.
#[derive(Debug, Default)]
pub(crate) struct Heirs {
    /// The first process of each key.
    firsts: BTreeMap<VoteKey, MemberId>,
    /// The same by process. A process without a directory has no entry.
    persons: BTreeMap<MemberId, MemberId>,
    /// The last process of each key, by the first.
    lasts: BTreeMap<MemberId, MemberId>,
    vows: BTreeMap<MemberId, Vow>,
}

impl Heirs {
    /// This process signs with this key.
    pub(crate) fn signs(&mut self, me: MemberId, key: VoteKey) {
        let first = *self.firsts.entry(key).or_insert(me);
        self.persons.insert(me, first);
        self.lasts.insert(first, me);
    }

    /// The first process with the key of this one: all of them are one voter.
    pub(crate) fn person(&self, me: MemberId) -> MemberId {
        self.persons.get(&me).copied().unwrap_or(me)
    }

    /// A partition begins empty from one table to the next only if all that held it are gone: none
    /// of them answers, but perhaps its heir. (Without directories, an operator may say so.)
    pub(crate) fn may_be_lost(
        &self,
        before: &Table,
        after: &Table,
        unheard: &BTreeSet<MemberId>,
    ) -> Result<(), String> {
        if self.persons.is_empty() {
            return Ok(());
        }
        let is_last = |m: &MemberId| self.lasts.get(&self.person(*m)) == Some(m);
        for (at, old) in before.partitions() {
            let lost = after.partition(at).is_some_and(|p| p.lineage > old.lineage);
            let answers = |m: &MemberId| {
                let live = before.member(*m).map(|m| m.state) == Some(MemberState::Live);
                live && !unheard.contains(m) && is_last(m)
            };
            let holder = old.in_sync().find(answers).filter(|_| lost);
            hold!(
                holder.is_none(),
                "rule 7: {at} begins empty in {}.{}, and {holder:?} has it and answers",
                after.term,
                after.version
            );
        }
        Ok(())
    }

    /// A process says something. `resumed`: it began with what its directory had. `installed`: its
    /// table in force. What it acknowledges up to there is committed without it, so it may forget
    /// that.
    pub(crate) fn says(
        &mut self,
        me: MemberId,
        (resumed, installed): (bool, Option<(Term, Version)>),
        to: Peer,
        message: &Message,
    ) -> Result<(), String> {
        let Some(person) = self.persons.get(&me) else {
            return Ok(());
        };
        let vow = self.vows.entry(*person).or_default();
        match (message, to) {
            (Message::Promise(name), _) => hold!(
                !resumed,
                "I12: {me} is the heir of a member, and promises the first table {}.{}",
                name.term,
                name.version
            ),
            (Message::VoteAnswer(answer, _), Peer::Member(candidate)) if answer.granted => {
                vow.votes(answer.term, candidate, &self.persons)?;
            }
            (Message::Vote(ballot), _) => vow.votes(ballot.term, me, &self.persons)?,
            (Message::Ack(ack), _) if Some((ack.name.term, ack.name.version)) > installed => {
                vow.accepted = vow.accepted.max(Some((ack.name.term, ack.name.version)));
            }
            _ => {}
        }
        Ok(())
    }

    /// The cluster went on without this process, whose directory forgets what it has.
    pub(crate) fn forgets(&mut self, me: MemberId) {
        self.vows.remove(&self.person(me));
    }

    /// A process begins with what its directory has.
    pub(crate) fn begins(&self, me: MemberId, has: Option<&Durable>) -> Result<(), String> {
        let Some(vow) = self.vows.get(&self.person(me)) else {
            return Ok(());
        };
        if let Some((term, candidate)) = vow.voted {
            let candidate = self.person(candidate);
            let knows = |d: &Durable| {
                let same = d.voted.is_some_and(|of| self.person(of) == candidate);
                d.term > term || (d.term == term && same)
            };
            let said = has.map(|d| (d.term, d.voted));
            hold!(
                has.is_some_and(knows),
                "rule 14: {me} voted for {candidate} in term {term}, and its directory has {said:?}"
            );
        }
        if let Some(accepted) = vow.accepted {
            let said = has.map(|d| (d.accepted.term, d.accepted.version));
            hold!(
                said >= Some(accepted),
                "rule 14: {me} acknowledged table {}.{}, and its directory has {said:?}",
                accepted.0,
                accepted.1
            );
        }
        Ok(())
    }
}

impl Vow {
    fn votes(
        &mut self,
        term: Term,
        candidate: MemberId,
        persons: &BTreeMap<MemberId, MemberId>,
    ) -> Result<(), String> {
        let person = |id: MemberId| persons.get(&id).copied().unwrap_or(id);
        if let Some((before, other)) = self.voted {
            hold!(
                before != term || person(other) == person(candidate),
                "rule 1: a voter votes for {other} and for {candidate} in term {term}"
            );
            if before > term {
                return Ok(());
            }
        }
        self.voted = Some((term, candidate));
        Ok(())
    }
}

/// Whether ages and keys go together from one table to a later one: an heir has the age of a member
/// with its key, which is then another age or gone (I4, I11, rule 14).
pub(crate) fn same_ages(names: &str, before: &Table, after: &Table) -> Result<(), String> {
    for member in &after.members {
        let seat = before.members.iter().find(|m| m.age == member.age);
        let old = before.member(member.id);
        let inherited = |seat: MemberId| {
            let of = before.member(seat).and_then(|m| m.vote_key);
            member.vote_key.is_some() && of.is_none_or(|key| Some(key) == member.vote_key)
        };
        match (old, seat) {
            (_, Some(seat)) if seat.id == member.id => {}
            (None, Some(seat)) => hold!(
                inherited(seat.id),
                "I11: {names}: {} ({}) came back",
                member.name,
                member.id
            ),
            (Some(_), Some(_)) => {
                return Err(format!("I4: {names}: {} has another's age", member.name));
            }
            (Some(old), None) => {
                let heir = after.members.iter().find(|m| m.age == old.age);
                hold!(
                    member.age >= before.next_age
                        && heir.is_none_or(|heir| heir.vote_key == old.vote_key.or(heir.vote_key)),
                    "I4: {names}: {} changed its age",
                    member.name
                );
            }
            (None, None) => hold!(
                member.age >= before.next_age,
                "I11: {names}: {} ({}) came back",
                member.name,
                member.id
            ),
        }
    }
    Ok(())
}
