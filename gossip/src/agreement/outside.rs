//! A process that is no member yet: it looks for a cluster, founds the first one with others, or asks to be admitted.
//!
//! ```text
//!  no seeds ───────────────────────────────> founds a cluster of one
//!  seeds ──> probes them ──> a cluster lives ──> Join (again and again) ──> a table that names this process
//!                       └──> all form, same list, 1 s listened ──> the lowest id: Found ──> Promise of all ──> Committed
//! ```

use super::Next;
use super::api::{AdminReply, Input, Output};
use super::context::Context;
use super::seat::Seat;
use crate::time::Time;
use crate::wire::{Committed, Message, Payload, Stand, Standing};
use doyen_placement::planner::first;
use doyen_placement::{ClusterId, Member, MemberId, Table, TableName, Term, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Between probes of the seeds.
const PROBE_INTERVAL: Duration = Duration::from_millis(120);
/// Spread of the probes.
const PROBE_JITTER: Duration = Duration::from_millis(60);
/// What a process said of itself counts for this long.
const FRESH: Duration = Duration::from_millis(1500);
/// Between requests to be admitted.
const JOIN_INTERVAL: Duration = Duration::from_millis(200);
/// A cluster that does not admit this process in this time is looked for again.
const JOIN_TIME: Duration = Duration::from_secs(5);
/// A refusal that lasts this long is final.
const REFUSED_TIME: Duration = Duration::from_secs(10);
/// A founder waits this long for promises before it starts over.
const FOUND_TIME: Duration = Duration::from_secs(2);
/// What a founder said of itself before it was promised anything does not count against the promise: it holds this long.
const PROMISE_TIME: Duration = Duration::from_secs(2);
/// Processes that are remembered at most.
const OTHERS_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Outside {
    began: Time,
    probe_next: Time,
    /// What other processes said of themselves, and when.
    others: BTreeMap<MemberId, (Standing, Time)>,
    /// The first table that this process has promised not to found another one beside, and its founder.
    promise: Option<Promise>,
    founding: Option<Founding>,
    joining: Option<Joining>,
    refused: Option<(Time, String)>,
}

/// What was promised to a founder, and when.
#[derive(Debug, Clone, Copy)]
struct Promise {
    name: TableName,
    founder: MemberId,
    at: Time,
}

/// The first table on its way.
#[derive(Debug)]
struct Founding {
    table: Arc<Table>,
    name: TableName,
    promised: BTreeSet<MemberId>,
    until: Time,
}

/// A cluster that this process asks to be admitted to.
#[derive(Debug)]
struct Joining {
    cluster: ClusterId,
    through: MemberId,
    next: Time,
    until: Time,
}

impl Outside {
    pub(super) fn new(cx: &mut Context) -> Next {
        if cx.config.seeds.is_empty() && cx.config.expect.unwrap_or(1) <= 1 {
            let table = Arc::new(first_table(cx, Vec::new()));
            return Next::Member(Box::new(Seat::founder(cx, table)));
        }
        Next::Outside(Self::empty(cx))
    }

    fn empty(cx: &Context) -> Self {
        Self { began: cx.now, probe_next: cx.now, others: BTreeMap::new(), promise: None, founding: None, joining: None, refused: None }
    }

    /// For a cluster of one that gives way to another.
    pub(super) fn joining(cx: &Context, cluster: ClusterId, through: MemberId) -> Self {
        let joining = Some(Joining { cluster, through, next: cx.now, until: cx.now + JOIN_TIME });
        Self { joining, ..Self::empty(cx) }
    }

    pub(super) fn due(&self, cx: &Context) -> Time {
        let due = self.joining.as_ref().map_or(self.probe_next, |j| self.probe_next.min(j.next));
        due.max(cx.now + Duration::from_millis(1))
    }

    pub(super) fn handle(&mut self, cx: &mut Context, input: Input) -> Next {
        match input {
            Input::Message { from, message } if from != cx.me => return self.handle_message(cx, from, message),
            Input::Admin { ticket, .. } | Input::Recover { ticket, .. } => {
                let reply = AdminReply::Refused(format!("this node is no member of a cluster yet: {}", self.waiting(cx)));
                cx.out.push_back(Output::AdminReply { ticket, reply });
            }
            _ => {}
        }
        Next::Stay
    }

    fn handle_message(&mut self, cx: &mut Context, from: MemberId, message: Message) -> Next {
        match message {
            Message::Probe(standing) => {
                let answer = self.standing(cx);
                cx.send(from, Message::ProbeAnswer(Box::new(answer)));
                self.hear(cx, from, *standing);
            }
            Message::ProbeAnswer(standing) => self.hear(cx, from, *standing),
            Message::Found(table) => self.handle_found(cx, from, &table),
            Message::Promise(name) => return self.handle_promise(cx, from, name),
            Message::Committed(committed) => return self.handle_committed(cx, from, *committed),
            Message::JoinRefused { member, why, .. } if member == cx.me => {
                let since = self.refused.as_ref().map_or(cx.now, |(since, _)| *since);
                if cx.now.since(since) > REFUSED_TIME {
                    cx.out.push_back(Output::Fatal(why.clone()));
                }
                cx.remark(format!("not admitted yet: {why}"));
                self.refused = Some((since, why));
            }
            // Everything else is for members.
            _ => {}
        }
        Next::Stay
    }

    pub(super) fn drive(&mut self, cx: &mut Context) -> Next {
        if cx.leaving {
            // Nothing is held, and nobody counts on this process.
            cx.out.push_back(Output::HandedOver);
            cx.out.push_back(Output::Left);
            return Next::Over;
        }
        let now = cx.now;
        self.others.retain(|_, (_, at)| now.since(*at) < FRESH);
        if now >= self.probe_next {
            self.probe_next = now + PROBE_INTERVAL + cx.jitter(PROBE_JITTER);
            self.probe(cx);
        }
        self.join(cx);
        if self.joining.is_some() {
            return Next::Stay;
        }
        self.lapse(cx);
        self.found(cx)
    }

    fn probe(&self, cx: &mut Context) {
        let standing = Box::new(self.standing(cx));
        let me = cx.me;
        for address in cx.config.seeds.clone() {
            if cx.addresses.get(&address) != Some(&me) {
                cx.send_to(address, Message::Probe(standing.clone()));
            }
        }
        // Whoever probed this process without being one of its seeds learns how the list stands.
        let seeds: BTreeSet<MemberId> = cx.config.seeds.iter().filter_map(|a| cx.addresses.get(a)).copied().collect();
        for other in self.others.keys().filter(|o| !seeds.contains(o)).copied().collect::<Vec<_>>() {
            cx.send(other, Message::Probe(standing.clone()));
        }
    }

    fn hear(&mut self, cx: &mut Context, from: MemberId, standing: Standing) {
        if let Stand::Member { cluster, .. } = standing.state
            && self.joining.is_none()
        {
            self.joining = Some(Joining { cluster, through: from, next: cx.now, until: cx.now + JOIN_TIME });
            self.founding = None;
        }
        if self.others.len() < OTHERS_MAX || self.others.contains_key(&from) {
            self.others.insert(from, (standing, cx.now));
        }
    }

    // ---- joining

    fn join(&mut self, cx: &mut Context) {
        let Some(joining) = &mut self.joining else { return };
        if cx.now >= joining.until {
            // Whoever was asked does not help: look again.
            self.joining = None;
            return;
        }
        if cx.now >= joining.next {
            joining.next = cx.now + JOIN_INTERVAL + cx.jitter(JOIN_INTERVAL / 4);
            let (cluster, through) = (joining.cluster, joining.through);
            cx.send(through, Message::Join { cluster, member: Box::new(cx.self_description()) });
        }
    }

    /// A committed table: of the cluster that this process asked, or of the founder whom it promised.
    fn handle_committed(&mut self, cx: &mut Context, _from: MemberId, committed: Committed) -> Next {
        let Payload::Whole(table) = committed.payload else { return Next::Stay };
        let asked = self.joining.as_ref().is_some_and(|j| j.cluster == table.cluster);
        let promised = self.promise.is_some_and(|p| p.name.cluster == table.cluster);
        if !(asked || promised) || table.member(cx.me).is_none() || table.validate().is_err() || table.name() != committed.name {
            cx.ignore();
            return Next::Stay;
        }
        cx.used = true;
        if table.version == Version(1) && promised {
            return Next::Member(Box::new(Seat::founder(cx, table)));
        }
        let term = table.term;
        Next::Member(Box::new(Seat::new(cx, table, committed.commit, term)))
    }

    // ---- founding

    /// The processes that this one would found a cluster with, itself among them; `None` while some are missing.
    fn initial(&self, cx: &Context) -> Option<BTreeSet<MemberId>> {
        let forming = |id: &MemberId| self.others.get(id).is_some_and(|(s, _)| matches!(s.state, Stand::Forming { .. }));
        let mut initial = BTreeSet::from([cx.me]);
        match cx.config.expect {
            // Told how many: whoever forms and expects as many may be among them. The lowest ids, so that all choose alike.
            Some(expect) => {
                let alike = |s: &Standing| matches!(s.state, Stand::Forming { told: true, expect: e, .. } if e == expect);
                initial.extend(self.others.iter().filter(|(_, (s, _))| alike(s)).map(|(id, _)| *id));
                if initial.len() < usize::from(expect) {
                    return None;
                }
                Some(initial.into_iter().take(usize::from(expect)).collect())
            }
            // The distinct seeds, with oneself among them.
            None => {
                for address in &cx.config.seeds {
                    let id = cx.addresses.get(address)?;
                    if *id != cx.me && !forming(id) {
                        return None;
                    }
                    initial.insert(*id);
                }
                Some(initial)
            }
        }
    }

    fn standing(&self, cx: &Context) -> Standing {
        let initial = self.initial(cx);
        let known = self.others.iter().map(|(id, (s, _))| (*id, s.member.addresses.control)).collect();
        let state = match &self.joining {
            Some(_) => Stand::Joining,
            None => Stand::Forming {
                expect: cx.config.expect.unwrap_or(u16::try_from(cx.config.seeds.len()).unwrap_or(u16::MAX)),
                told: cx.config.expect.is_some(),
                initial: initial.unwrap_or_default().into_iter().collect(),
                promise: self.promise.map(|p| p.name),
                known,
            },
        };
        Standing { member: cx.self_description(), state }
    }

    /// A promise lapses when everybody is there again, its founder among them or replaced, and nobody holds on to it.
    fn lapse(&mut self, cx: &Context) {
        let Some(Promise { name, founder, at }) = self.promise else { return };
        if founder == cx.me || cx.now.since(at) < PROMISE_TIME {
            return;
        }
        let Some(initial) = self.initial(cx) else { return };
        let holds = |id: &MemberId| match self.others.get(id).map(|(s, _)| &s.state) {
            Some(Stand::Forming { promise, .. }) => *promise == Some(name) && *id == founder,
            _ => false,
        };
        if !initial.iter().any(holds) {
            self.promise = None;
        }
    }

    fn found(&mut self, cx: &mut Context) -> Next {
        if let Some(founding) = &self.founding {
            if cx.now >= founding.until {
                self.founding = None;
                self.promise = None;
            }
            return Next::Stay;
        }
        if self.promise.is_some() || cx.now.since(self.began) < cx.config.timing.listen {
            return Next::Stay;
        }
        let Some(initial) = self.initial(cx) else {
            if cx.now.since(self.began) > cx.config.timing.listen * 3 {
                let why = self.waiting(cx);
                cx.lament(why);
            }
            return Next::Stay;
        };
        // The lowest id founds. Everybody must see the same list.
        if initial.first() != Some(&cx.me) {
            return Next::Stay;
        }
        let mine: Vec<MemberId> = initial.iter().copied().collect();
        let agrees = |id: &&MemberId| match self.others.get(id).map(|(s, _)| &s.state) {
            Some(Stand::Forming { initial, .. }) => *initial == mine,
            _ => **id == cx.me,
        };
        if mine.iter().filter(agrees).count() < mine.len() {
            if cx.now.since(self.began) > cx.config.timing.listen * 3 {
                cx.lament(
                    "the initial members have different lists of seeds: start all of them with the same --seed addresses (or --expect)"
                        .to_owned(),
                );
            }
            return Next::Stay;
        }
        let others: Vec<Member> = self.others.iter().filter(|(id, _)| initial.contains(id)).map(|(_, (s, _))| s.member.clone()).collect();
        let table = Arc::new(first_table(cx, others));
        if let Err(why) = table.validate() {
            cx.lament(format!("no cluster can be formed of these members: {why}"));
            return Next::Stay;
        }
        if mine.len() == 1 {
            return Next::Member(Box::new(Seat::founder(cx, table)));
        }
        let name = table.name();
        self.promise = Some(Promise { name, founder: cx.me, at: cx.now });
        let me = cx.me;
        for other in mine.into_iter().filter(|m| *m != me) {
            cx.send(other, Message::Found(table.clone()));
        }
        self.founding = Some(Founding { table, name, promised: BTreeSet::from([cx.me]), until: cx.now + FOUND_TIME });
        Next::Stay
    }

    fn handle_found(&mut self, cx: &mut Context, from: MemberId, table: &Arc<Table>) {
        let Some(initial) = self.initial(cx) else { return };
        let named: BTreeSet<MemberId> = table.members.iter().map(|m| m.id).collect();
        let oldest = table.members.first().map(|m| m.id);
        let name = table.name();
        let free = self.promise.is_none_or(|p| p.name == name);
        if self.joining.is_some()
            || self.founding.is_some()
            || named != initial
            || oldest != Some(from)
            || !free
            || table.validate().is_err()
        {
            return;
        }
        self.promise = Some(Promise { name, founder: from, at: cx.now });
        cx.send(from, Message::Promise(name));
    }

    fn handle_promise(&mut self, cx: &mut Context, from: MemberId, name: TableName) -> Next {
        let Some(founding) = self.founding.as_mut().filter(|f| f.name == name) else { return Next::Stay };
        founding.promised.insert(from);
        if !founding.table.members.iter().all(|m| founding.promised.contains(&m.id)) {
            return Next::Stay;
        }
        let table = founding.table.clone();
        cx.used = true;
        let me = cx.me;
        for member in table.members.iter().filter(|m| m.id != me) {
            let committed = Committed { name, payload: Payload::Whole(table.clone()), commit: None };
            cx.send(member.id, Message::Committed(Box::new(committed)));
        }
        Next::Member(Box::new(Seat::founder(cx, table)))
    }

    // ---- reporting

    /// For people: what this process waits for.
    pub(super) fn waiting(&self, cx: &Context) -> String {
        if let Some((_, why)) = &self.refused {
            return why.clone();
        }
        if let Some(joining) = &self.joining {
            return format!("asking cluster {} to be admitted", joining.cluster);
        }
        let missing: Vec<String> = cx
            .config
            .seeds
            .iter()
            .filter(|a| cx.addresses.get(a).is_none_or(|id| *id != cx.me && !self.others.contains_key(id)))
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            match cx.config.expect {
                Some(expect) => format!("waiting for {expect} initial members: {} are there", self.others.len() + 1),
                None => "forming a cluster with the other seeds".to_owned(),
            }
        } else {
            format!("waiting for the seeds that do not answer: {}", missing.join(", "))
        }
    }
}

/// The first table, with this process as its oldest member.
fn first_table(cx: &mut Context, others: Vec<Member>) -> Table {
    let cluster = ClusterId(cx.random_u128() ^ u128::from(cx.me.0));
    let mut founders = vec![cx.self_description()];
    founders.extend(others);
    let mut table = first(cluster, cx.config.settings.clone(), cx.config.default_keyspace.clone(), founders);
    table.term = Term(1);
    table.version = Version(1);
    table
}
