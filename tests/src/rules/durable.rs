//! Directories: nothing is promised before it is synced (rule 14).

use doyen_gossip::agreement::{Agreement, AgreementConfig, Durable, Input, Output};
use doyen_gossip::time::Time;
use doyen_gossip::wire::{Ballot, Message, Payload, Proposal};
use doyen_placement::{Addresses, Keyspace, Member, MemberId, Table, Term, Version, planner};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The time after which an heir speaks, and then believes what it cannot check.
const LATER: Duration = Duration::from_secs(5);

fn id(number: u64) -> MemberId {
    MemberId(number << 4)
}

fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7000 + number))
}

/// The table of three members without keys.
fn table() -> Arc<Table> {
    let member = |number| {
        let at = address(number);
        Member::new(
            id(number.into()),
            format!("n{number}"),
            Addresses::new(at, at),
        )
    };
    let table = Table::of_test((1..=3).map(member), Keyspace::fixed(4, 1));
    Arc::new(planner::assign(&table))
}

/// A process that has the directory of member 1, and what comes out of it.
struct Heir {
    machine: Agreement,
    now: Time,
    written: Option<(u64, Durable)>,
    sent: Vec<Message>,
}

impl Heir {
    fn of(durable: Durable, process: u64) -> Self {
        let now = Time(1_000_000_000_000);
        let config = AgreementConfig::of_test(id(process), "n1", address(1));
        let mut heir = Self {
            machine: Agreement::resume(config, durable, now),
            now,
            written: None,
            sent: Vec::new(),
        };
        for _ in 0..20 {
            heir.now = heir.now + LATER / 20;
            heir.input(Input::DataThreadAlive);
        }
        heir.sync();
        heir
    }

    /// An heir whose predecessor agreed to this table.
    fn began(process: u64) -> Self {
        let table = table();
        let durable = Durable {
            me: id(1),
            term: table.term,
            voted: None,
            committed: table.clone(),
            commit: None,
            committed_voters: table.voters.clone(),
            accepted: table,
            proposer: None,
            promised: false,
        };
        Self::of(durable, process)
    }

    fn input(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Store(number, durable) => self.written = Some((number, *durable)),
                Output::Send { message, .. } => self.sent.push(message),
                _ => {}
            }
        }
    }

    fn hears(&mut self, from: u64, message: Message) {
        let from = id(from);
        self.sent.clear();
        self.input(Input::Message { from, message });
    }

    /// What was written last is synced.
    fn sync(&mut self) {
        if let Some((number, _)) = &self.written {
            let number = *number;
            self.input(Input::Stored(number));
        }
    }

    /// The power fails: another process begins with what was synced.
    fn loses_power(self, process: u64) -> Result<Self, String> {
        let (_, durable) = self.written.ok_or("nothing was written")?;
        Ok(Self::of(durable, process))
    }

    fn votes(&self) -> bool {
        let granted = |m: &Message| matches!(m, Message::VoteAnswer(answer, _) if answer.granted);
        self.sent.iter().any(granted)
    }

    fn acks(&self) -> Option<bool> {
        self.sent.iter().find_map(|message| match message {
            Message::Ack(ack) => Some(ack.ages.is_some() || ack.seal.is_some()),
            _ => None,
        })
    }
}

fn ask(term: u64) -> Message {
    let accepted = table().name();
    Message::Vote(Ballot {
        term: Term(term),
        accepted,
    })
}

/// The power fails after a vote. If the vote left before it was synced, the next process votes for
/// another candidate of that term.
pub(super) fn a_vote_leaves_once_it_is_synced() -> Result<(), String> {
    let mut heir = Heir::began(7);
    heir.hears(2, ask(9));
    if heir.votes() {
        return Err("rule 14: a vote left before it was synced".into());
    }
    heir.sync();
    if !heir.votes() {
        return Err("a synced vote did not leave".into());
    }
    let mut next = heir.loses_power(8)?;
    next.hears(3, ask(9));
    next.sync();
    if next.votes() {
        return Err("I2: two candidates of one term got the vote of one member".into());
    }
    Ok(())
}

/// What the second member proposes as the coordinator of this term.
fn proposal(term: u64) -> Message {
    let committed = table();
    let next = Table {
        term: Term(term),
        version: Version(committed.version.0 + 1),
        ..Table::clone(&committed)
    };
    Message::Propose(Box::new(Proposal {
        name: next.name(),
        committed: committed.name(),
        commit: None,
        voters: committed.voters.clone(),
        payload: Payload::Whole(Arc::new(next)),
    }))
}

/// A table whose acknowledgement left before it was synced is forgotten by the next process, though
/// it may be committed.
pub(super) fn an_acknowledgement_leaves_once_the_table_is_synced() -> Result<(), String> {
    let mut heir = Heir::began(7);
    heir.hears(2, proposal(9));
    if heir.acks().is_some() {
        return Err("rule 14: an acknowledgement left before its table was synced".into());
    }
    heir.sync();
    if heir.acks().is_none() {
        return Err("a synced table was not acknowledged".into());
    }
    let mut next = heir.loses_power(8)?;
    // Its accepted table is later than that of this candidate.
    next.hears(3, ask(12));
    next.sync();
    if next.votes() {
        return Err("I4: a member voted against a table that it had acknowledged".into());
    }
    Ok(())
}

/// The predecessor may have answered a primary a moment ago, so the heir must not say for how long
/// nothing was answered.
pub(super) fn an_heir_does_not_know_what_its_predecessor_answered() -> Result<(), String> {
    let mut heir = Heir::began(7);
    heir.hears(2, proposal(9));
    heir.sync();
    match heir.acks() {
        None => Err("a synced table was not acknowledged".into()),
        Some(true) => Err("rule 14: an heir reports ages of leases".into()),
        Some(false) => Ok(()),
    }
}
