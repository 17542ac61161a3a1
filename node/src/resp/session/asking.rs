//! Questions of a client of the plain port that take an answer of every data thread of the node: what `INFO` counts, and who is in
//! `CLIENT LIST`. (On the cluster-aware port each thread is a node of its own, and answers for itself.)

use super::*;

/// A reply that waits for the other threads' parts.
#[derive(Debug)]
pub(super) struct Asking {
    left: usize,
    answer: Answer,
}

#[derive(Debug)]
enum Answer {
    Info { facts: describe::Facts, sections: Vec<String> },
    Clients(Vec<(u64, String)>),
}

impl Asking {
    pub(super) fn info(facts: describe::Facts, sections: Vec<String>) -> Self {
        Self { left: 0, answer: Answer::Info { facts, sections } }
    }

    pub(super) fn clients(lines: Vec<(u64, String)>) -> Self {
        Self { left: 0, answer: Answer::Clients(lines) }
    }

    fn question(&self) -> Question {
        match self.answer {
            Answer::Info { .. } => Question::Counts,
            Answer::Clients(_) => Question::Clients,
        }
    }

    fn take(&mut self, told: Told) {
        match (&mut self.answer, told) {
            (Answer::Info { facts, .. }, Told::Counts(counted)) => facts.counted.add(&counted),
            (Answer::Clients(all), Told::Clients(lines)) => all.extend(lines),
            // What was not asked.
            (Answer::Info { .. } | Answer::Clients(_), _) => return,
        }
        self.left = self.left.saturating_sub(1);
    }

    fn text(&mut self) -> String {
        match &mut self.answer {
            Answer::Info { facts, sections } => describe::info(facts, sections),
            Answer::Clients(lines) => {
                lines.sort_by_key(|(id, _)| *id);
                lines.drain(..).map(|(_, line)| line).collect()
            }
        }
    }
}

impl Session {
    /// Whether this connection is answered for the whole node, and that takes other threads.
    fn asks_others(&self, inner: &Inner) -> bool {
        !self.cluster_port && inner.crew.threads() > 1
    }

    /// Answers with this thread's part, or once the others have told theirs.
    pub(super) fn ask(&mut self, inner: &Inner, mut asking: Asking) {
        if !self.asks_others(inner) {
            let text = asking.text();
            return self.answer(|e| e.text(&text));
        }
        let back = Back { thread: inner.me.thread_number(), connection: self.id, slot: self.next() };
        asking.left = inner.crew.ask(asking.question(), back);
        self.push(State::Asking(Box::new(asking)), 0);
    }
}

impl Connection {
    /// Another thread's part of an answer.
    pub(crate) fn told(&self, slot: u64, told: Told) {
        let mut session = self.session.borrow_mut();
        let session = &mut *session;
        let Some(at) = slot.checked_sub(session.first).and_then(|i| usize::try_from(i).ok()) else { return };
        let Some(entry) = session.slots.get_mut(at) else { return };
        let State::Asking(asking) = &mut entry.state else { return };
        asking.take(told);
        if asking.left > 0 {
            return;
        }
        let mut bytes = BytesMut::new();
        Encoder::new(&mut bytes, entry.protocol).text(&asking.text());
        entry.state = State::Encoded(bytes.freeze());
        if at == 0 && session.encode_ready() {
            self.wake();
        }
    }
}

impl Inner {
    /// What this thread counts for `INFO`.
    pub(crate) fn counted(&self) -> describe::Counted {
        let stats = self.shard.stats();
        let (input, answers) = self.budget.counted();
        // Every key has one leader, so that what all nodes say adds up to `DBSIZE`.
        let (keys, expires) = self.shard.led(cluster::KEYSPACE, MapId(0));
        describe::Counted {
            connected_clients: self.connections.len() as u64,
            memory_bytes: stats.memory_bytes + (input + answers) as u64,
            connections_received: self.counters.connections,
            connections_rejected: self.counters.connections_rejected,
            commands: self.counters.commands,
            expired: stats.expired,
            evicted: stats.evicted,
            parked: stats.parked,
            keys,
            expires,
        }
    }

    /// A line for each connection of this thread, but for one that is borrowed.
    pub(crate) fn client_lines(&self) -> Vec<(u64, String)> {
        let lines = self.connections.iter().filter_map(|(id, c)| Some((*id, c.session.try_borrow().ok()?.line())));
        lines.collect()
    }
}
