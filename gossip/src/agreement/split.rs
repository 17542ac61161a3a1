//! Splits (rule 13): an operator's word (`recover`) let one half of a cluster go on, and the other
//! half lives.
//!
//! ```text
//!   table 1.40 ──> 1.41 ──> 1.42          a majority goes on by elections
//!        └──────> 5.41 b ──> 5.42 b       a minority was recovered: branch b, from 1.40 on
//! ```
//!
//! Every table after a recovery has its branch, so two tables tell whether one may come after the
//! other. Processes that meet and are not members of one table tell each other which tables they
//! follow, and sign that with the key of their votes. A named member that was asserted dead, and
//! signs that it follows tables without the branch, proves the split: only that process has the
//! key. Then the half with the branch serves nothing any more.

use super::api::Output;
use super::context::Context;
use super::event::{Event, Half};
use super::tables::Tables;
use crate::mutant::{self, broken};
use crate::signing::Signature;
use crate::time::Time;
use crate::wire::{Descent, Message};
use doyen_placement::table::annex::BRANCHES_MAX;
use doyen_placement::{Branch, BranchId, MemberId, NamedDead, Table, TableName};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A half that was not heard for this long counts as gone, unless it stops this one.
const QUIET: Duration = Duration::from_secs(30);
/// A half that was kept less often than this one stops at once when it hears that. If a process of
/// it says for this long that it knows a coordinator, it cannot be stopped: it went on by
/// elections.
const GIVES_WAY: Duration = Duration::from_secs(3);
/// The number of processes whose statements are kept.
const HEARD_MAX: usize = 64;

/// Another half of this cluster.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Split {
    /// The name of a process of the other half.
    pub name: String,
    /// Its control port.
    pub address: Option<SocketAddr>,
    /// What that means for this half.
    pub half: Half,
    /// Whether that process was heard within half a minute.
    pub is_heard: bool,
    /// The first branch of this half that a process of another half lacks. `None`: none is known.
    pub lacks: Option<BranchId>,
}

impl Split {
    /// Whether this half serves nothing.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self.half, Half::Stopped { .. })
    }
}

/// What is wrong, without what to type.
impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster is split: {}", self.name)?;
        if let Some(address) = self.address {
            write!(f, " at {address}")?;
        }
        write!(f, " {}", self.half)
    }
}

/// What a member knows of other halves.
#[derive(Debug, Default)]
pub(super) struct Halves {
    heard: BTreeMap<MemberId, OtherHalf>,
    /// The last statements of voters of this half. Others show them once those voters are gone: the
    /// other half named them, and believes no other process.
    kept: BTreeMap<MemberId, Descent>,
    /// Names and control ports of processes that are no members here.
    met: BTreeMap<MemberId, (String, SocketAddr)>,
    now: Time,
    /// This process's last statement. Signing takes longer than comparing.
    own: Option<Descent>,
    /// What people were told last.
    told: Option<Half>,
}

/// A process whose statement was checked.
#[derive(Debug)]
struct OtherHalf {
    name: String,
    address: Option<SocketAddr>,
    half: Half,
    /// The first branch of this half that it lacks.
    lacks: Option<BranchId>,
    at: Time,
    /// How often the other half was kept, as the process said.
    kept: u32,
    /// How often this half had been kept when that was judged.
    judged_after: u64,
    /// Since when it has said itself that it knows a coordinator.
    led_since: Option<Time>,
}

/// How often operators kept the half of this table.
fn keeps(table: &Table) -> u64 {
    table.annex.branches.iter().map(|b| u64::from(b.kept)).sum()
}

impl Halves {
    fn is_fresh(&self, heard: &OtherHalf) -> bool {
        self.now.since(heard.at) < QUIET
    }

    /// This process is of no other half. What stops this half is not forgotten.
    fn forget(&mut self, process: MemberId) {
        let stops = |heard: &OtherHalf| matches!(heard.half, Half::Stopped { .. });
        if !self.heard.get(&process).is_some_and(stops) {
            self.heard.remove(&process);
        }
    }

    fn keep(&mut self, said: Descent) {
        self.kept.insert(said.member, said);
        if self.kept.len() > HEARD_MAX {
            let earliest = self.kept.values().min_by_key(|said| said.committed.order());
            let earliest = earliest.map(|said| said.member);
            earliest.map(|member| self.kept.remove(&member));
        }
    }
}

impl Halves {
    /// The branch of an operator's word. Its table is known when the first one is proposed.
    pub(super) fn new_branch(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        dead: &[MemberId],
    ) -> Branch {
        // What a dead member said of a table that no survivor has proves no life.
        let base = tables.accepted.name;
        self.kept.retain(|_, k| k.committed.order() <= base.order());
        let mut named: Vec<NamedDead> = Vec::new();
        for id in dead {
            let known = tables.member(*id);
            if let Some(member) = known.filter(|_| !named.iter().any(|n| n.id == *id)) {
                named.push(NamedDead {
                    id: *id,
                    key: tables.vote_key(*id).or_else(|| cx.vote_key(*id)),
                    name: member.name.clone(),
                    control: member.addresses.control,
                });
            }
        }
        Branch {
            id: BranchId(u128::from(cx.random()) << 64 | u128::from(cx.random())),
            base,
            named,
            kept: 0,
        }
    }

    /// Whether this node serves nothing: a process that was asserted dead by this half follows
    /// tables without its branch, and no operator has kept this half since.
    pub(super) fn is_stopped(&self) -> bool {
        let stops = |heard: &OtherHalf| matches!(heard.half, Half::Stopped { .. });
        self.heard.values().any(stops)
    }

    /// Whether this process follows tables of another half. Nothing that it says about agreement
    /// counts: otherwise two halves that ping each other would raise the term again and again.
    pub(super) fn is_apart(&self, process: MemberId) -> bool {
        self.heard.contains_key(&process)
    }

    /// What is known of the other half, if there is one: what concerns this one most.
    pub(super) fn split(&self, tables: &Tables) -> Option<Split> {
        let rank = |heard: &&OtherHalf| match heard.half {
            Half::Serves => (0, false, false),
            Half::Doubted => (1, false, false),
            // What was said last counts, and not what a process said that is gone.
            Half::Stopped { both } => (2, self.is_fresh(heard), !both),
        };
        let heard = self.heard.values().max_by_key(rank)?;
        Some(Split {
            name: heard.name.clone(),
            address: heard.address,
            half: heard.half,
            is_heard: self.is_fresh(heard),
            lacks: tables
                .accepted
                .annex
                .branches
                .iter()
                .map(|b| b.id)
                .find(|id| {
                    let mut heard = self.heard.values();
                    heard.any(|heard| heard.lacks == Some(*id))
                }),
        })
    }

    /// Tells a process that this one met which tables it follows, and what voters of this half said
    /// that are gone.
    pub(super) fn show_descent(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        is_led: bool,
        to: MemberId,
        (name, address): &(String, SocketAddr),
    ) {
        if self.met.len() >= HEARD_MAX {
            self.met.clear();
        }
        self.met.insert(to, (name.clone(), *address));
        let gone: Vec<Descent> = self.said_by_former_members(tables).collect();
        let own = self.statement(cx, tables, is_led);
        for said in gone.into_iter().chain([own]) {
            pass_on(cx, to, &said);
        }
    }

    /// Members came or went. Voters tell all members which table they follow now, and newcomers
    /// what voters said that are gone: they can show it to another half later.
    pub(super) fn tell_descent(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        is_led: bool,
        newcomers: &[MemberId],
    ) {
        let me = cx.me();
        if !tables.committed.voters.contains(&me) {
            return;
        }
        let gone: Vec<Descent> = self.said_by_former_members(tables).collect();
        let own = self.statement(cx, tables, is_led);
        let members: Vec<MemberId> = tables.committed.members.iter().map(|m| m.id).collect();
        for member in members.into_iter().filter(|m| *m != me) {
            let gone = gone.iter().filter(|_| newcomers.contains(&member));
            for said in gone.chain([&own]) {
                pass_on(cx, member, said);
            }
        }
    }

    fn said_by_former_members(&self, tables: &Tables) -> impl Iterator<Item = Descent> {
        let gone = |said: &&Descent| tables.committed.member(said.member).is_none();
        self.kept.values().filter(gone).cloned()
    }

    /// What this process says.
    fn statement(&mut self, cx: &Context, tables: &Tables, is_led: bool) -> Descent {
        let name_of = |branch: &Branch| (branch.id, branch.base, branch.kept);
        let mut said = Descent {
            cluster: tables.cluster(),
            member: cx.me(),
            committed: tables.committed.name,
            // A half that stopped serves by no coordinator.
            led: is_led && !self.is_stopped(),
            branches: tables
                .committed
                .annex
                .branches
                .iter()
                .map(name_of)
                .collect(),
            signature: Signature::new([[0; 32]; 2]),
        };
        let own = self.own.take().filter(|own| {
            said.signature = own.signature;
            *own == said
        });
        let own = own.unwrap_or_else(|| {
            said.signature = cx.signing.state(&said);
            said
        });
        self.own = Some(own.clone());
        own
    }

    /// A process says which tables it follows, or passes on what another one said.
    pub(super) fn on_descent(
        &mut self,
        cx: &mut Context,
        tables: &Tables,
        has_coordinator: bool,
        from: MemberId,
        said: Descent,
    ) {
        self.now = cx.now;
        let speaker = said.member;
        if speaker == cx.me() || said.branches.len() > BRANCHES_MAX {
            return cx.ignore();
        }
        let ours = &tables.accepted.annex.branches;
        let theirs = |id: BranchId| said.branches.iter().any(|(of, ..)| *of == id);
        let unshared: Vec<&Branch> = ours.iter().filter(|b| !theirs(b.id)).collect();
        let foreign: Vec<(TableName, u32)> = said
            .branches
            .iter()
            .filter(|(id, ..)| !ours.iter().any(|b| b.id == *id))
            .map(|(_, base, kept)| (*base, *kept))
            .collect();
        if unshared.is_empty() && foreign.is_empty() {
            // It is of this half. What a voter says that is a member may be of use to others later.
            let known = self.kept.get(&speaker);
            let later = known.is_none_or(|k| k.committed.order() < said.committed.order());
            let key = tables.key_of_any(speaker);
            if later && key.is_some_and(|key| said.signature.vouches(&key, &said)) {
                self.keep(said);
            }
            return;
        }
        let mut named = unshared.iter().flat_map(|b| &b.named);
        let named = named.find(|named| named.id == speaker).cloned();
        let proved = named.as_ref().and_then(|named| named.key);
        // The hello showed the key of the sender, and of no other process.
        let shown = || cx.vote_key(speaker).filter(|_| from == speaker);
        let key = proved.or_else(|| tables.key_of_any(speaker)).or_else(shown);
        let unproved = broken(&mutant::BELIEVES_UNPROVED_SPLITS);
        let is_signed = key.is_some_and(|key| said.signature.vouches(&key, &said));
        if !is_signed && !unproved {
            return cx.ignore();
        }
        // How often operators kept the halves, each.
        let kept = (
            unshared.iter().map(|b| b.kept).max().unwrap_or_default(),
            foreign
                .iter()
                .map(|(_, kept)| *kept)
                .max()
                .unwrap_or_default(),
        );
        let known = self.heard.get(&speaker);
        if from != speaker && known.is_some_and(|heard| heard.kept > kept.1) {
            // It has said more since.
            return cx.ignore();
        }
        // Only its own connection shows that it says so now: what is passed on may be from before
        // the recovery.
        let is_led = said.led && from == speaker;
        let led_before = known.and_then(|heard| heard.led_since);
        let led_since = match (is_led, from == speaker) {
            (true, _) => Some(led_before.unwrap_or(cx.now)),
            (false, true) => None,
            (false, false) => led_before,
        };
        let half = if unshared.is_empty() {
            // The other half was recovered. A member that was left behind, alone, joins it again,
            // as one that was expelled. Only voters can have gone on.
            let name = tables.committed.name.order();
            let votes = tables.committed.voters.contains(&cx.me());
            let behind = !votes || foreign.iter().any(|(base, _)| name <= base.order());
            if !has_coordinator && behind {
                return self.forget(speaker);
            }
            Half::Serves
        } else {
            // It did not go on after the recovery, so it joins again. A process that was not named
            // had no vote that counted, so alone it did not go on either.
            let left_behind = |b: &&Branch| said.committed.order() <= b.base.order();
            let behind = proved.is_none() || unshared.iter().all(left_behind);
            if foreign.is_empty() && !is_led && behind && !unproved {
                return self.forget(speaker);
            }
            let is_member = tables.accepted.member(speaker).is_some();
            // Otherwise an operator could keep both halves, one after the other.
            let known = known.map(|heard| heard.half);
            let as_before = from != speaker && known == Some(Half::Stopped { both: false });
            let insists = led_since.is_some_and(|since| cx.now.since(since) >= GIVES_WAY);
            let gives_way = !insists || broken(&mutant::OUTRANKS_THE_ELECTED);
            let outranks = kept.0 > kept.1 && gives_way;
            match (proved, is_member) {
                (Some(_), _) if outranks => Half::Serves,
                (Some(_), _) => Half::Stopped {
                    both: kept.0 == kept.1 && !foreign.is_empty() && !is_led && !as_before,
                },
                _ if unproved => Half::Stopped { both: false },
                // A member of this half stops it by no statement.
                (None, true) => return cx.ignore(),
                // It is of a half that stopped, or that stops when it hears of this one.
                (None, false) if !said.led || outranks => Half::Serves,
                (None, false) => Half::Doubted,
            }
        };
        let lacks = unshared.first().map(|b| b.id);
        let (name, address) = self.called(tables, speaker, named);
        let heard = OtherHalf {
            name,
            address,
            half,
            lacks,
            at: cx.now,
            kept: kept.1,
            judged_after: keeps(&tables.accepted),
            led_since,
        };
        self.hear_half(cx, tables, said, heard);
    }

    /// What a process of another half is called, and its control port.
    fn called(
        &self,
        tables: &Tables,
        speaker: MemberId,
        named: Option<NamedDead>,
    ) -> (String, Option<SocketAddr>) {
        let member = tables.member(speaker);
        let named = named.map(|named| (named.name, Some(named.control)));
        let member = || member.map(|m| (m.name.clone(), Some(m.addresses.control)));
        named
            .or_else(member)
            .or_else(|| {
                let (name, address) = self.met.get(&speaker)?;
                Some((name.clone(), Some(*address)))
            })
            .unwrap_or_else(|| (speaker.to_string(), None))
    }

    fn hear_half(&mut self, cx: &mut Context, tables: &Tables, said: Descent, heard: OtherHalf) {
        let (speaker, half) = (said.member, heard.half);
        let known = self.heard.get(&speaker).map(|heard| heard.half);
        if known.is_none() && self.heard.len() >= HEARD_MAX {
            return cx.ignore();
        }
        let was_stopped = self.is_stopped();
        self.heard.insert(speaker, heard);
        if self.is_stopped() && !was_stopped && !broken(&mutant::SERVES_THOUGH_SPLIT) {
            cx.outputs.push_back(Output::Lease(Time::ZERO));
        }
        self.tell_split(cx, tables);
        if known != Some(half) && matches!(half, Half::Stopped { .. }) {
            // The others of this half may not reach that process. They check its word themselves.
            let me = cx.me();
            let others: Vec<MemberId> = tables.committed.members.iter().map(|m| m.id).collect();
            for member in others.into_iter().filter(|m| *m != me) {
                pass_on(cx, member, &said);
            }
        }
    }

    /// Forgets halves that were not heard for long. One that stops this half is remembered until an
    /// operator keeps this half: then its next statement is judged again.
    pub(super) fn turn(&mut self, cx: &mut Context, tables: &Tables) {
        self.now = cx.now;
        if self.heard.is_empty() {
            return;
        }
        let kept = keeps(&tables.committed).max(keeps(&tables.accepted));
        let mut heard = std::mem::take(&mut self.heard);
        heard.retain(|_, heard| match heard.half {
            Half::Stopped { .. } if broken(&mutant::BELIEVES_UNPROVED_SPLITS) => true,
            Half::Stopped { .. } => kept <= heard.judged_after,
            Half::Serves | Half::Doubted => self.is_fresh(heard),
        });
        self.heard = heard;
        self.tell_split(cx, tables);
    }

    /// Tells people what changed.
    fn tell_split(&mut self, cx: &mut Context, tables: &Tables) {
        let split = self.split(tables);
        let half = split.as_ref().map(|split| split.half);
        if self.told == half {
            return;
        }
        self.told = half;
        cx.event(split.map_or(Event::SplitEnded, |split| {
            Event::Split {
                name: split.name,
                address: split
                    .address
                    .map_or_else(|| "an unknown address".to_owned(), |at| at.to_string()),
                half: split.half,
            }
        }));
    }
}

fn pass_on(cx: &mut Context, to: MemberId, said: &Descent) {
    cx.send(to, Message::Descent(Box::new(said.clone())));
}
