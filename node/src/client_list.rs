//! The Redis clients of a node and its slow commands, for the console: what `CLIENT LIST` and
//! `SLOWLOG GET` show, within limits. Every member answers for its own.

use minicbor::{Decode, Encode};
use serde::Serialize;

/// Clients that a data thread lists, and that a node lists.
pub const CLIENTS_MAX: usize = 200;
/// Slow commands that a data thread lists, the newest ones, and that a node lists.
pub const SLOW_MAX: usize = 64;

/// A connection of a Redis client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Encode, Decode)]
pub struct ListedClient {
    /// Where it is connected from.
    #[n(0)]
    pub address: String,
    /// The name that it gave itself.
    #[n(1)]
    pub name: String,
    /// The name of its user.
    #[n(2)]
    pub user: String,
    /// Its library with the version, as far as the library told them.
    #[n(3)]
    pub library: String,
    /// For how long it is connected.
    #[n(4)]
    pub age_s: u64,
    /// For how long it has sent nothing and read nothing.
    #[n(5)]
    pub idle_s: u64,
    /// The number of its database.
    #[n(6)]
    pub database: u32,
    /// Its last command.
    #[n(7)]
    pub command: String,
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ListedWord {
    /// The word, or its beginning. Bytes that are no text are replaced.
    #[n(0)]
    pub text: String,
    /// Neither the command nor a key: it may be a value.
    #[n(1)]
    pub is_value: bool,
}

/// A slow command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SlowCommand {
    /// When it was executed, in Unix seconds.
    #[n(0)]
    pub at: u64,
    /// How long the thread worked on it, in microseconds.
    #[n(1)]
    pub took_us: u64,
    /// The command with its arguments.
    #[n(2)]
    pub words: Vec<ListedWord>,
    /// Where its client is connected from.
    #[n(3)]
    pub client: String,
}

/// The clients of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct ClientList {
    /// Some or all of them.
    #[n(0)]
    pub clients: Vec<ListedClient>,
    /// How many others there are.
    #[n(1)]
    pub more: u64,
    /// Slow commands, the newest first.
    #[n(2)]
    pub slow: Vec<SlowCommand>,
}

impl ClientList {
    /// Adds the clients of another data thread.
    pub fn add(&mut self, other: Self) {
        self.clients.extend(other.clients);
        self.slow.extend(other.slow);
        self.more += other.more;
        *self = std::mem::take(self).bounded();
    }

    /// Within the limits, also if another member made it.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let above = self.clients.len().saturating_sub(CLIENTS_MAX);
        self.clients.truncate(CLIENTS_MAX);
        self.more = self.more.saturating_add(above as u64);
        self.slow.sort_by_key(|slow| std::cmp::Reverse(slow.at));
        self.slow.truncate(SLOW_MAX);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_threads_are_one_within_the_limits() {
        let client = |number: usize| ListedClient {
            address: format!("10.0.0.1:{number}"),
            name: String::new(),
            user: "default".into(),
            library: String::new(),
            age_s: 1,
            idle_s: 0,
            database: 0,
            command: "get".into(),
        };
        let slow = |at| SlowCommand {
            at,
            took_us: 20_000,
            words: Vec::new(),
            client: "10.0.0.1:1".into(),
        };
        let thread = |clients, slow_from| ClientList {
            clients: (0..clients).map(client).collect(),
            more: 3,
            slow: (slow_from..slow_from + 40).map(slow).collect(),
        };
        let mut all = thread(150, 0);
        all.add(thread(150, 1_000));
        assert_eq!((all.clients.len(), all.more), (CLIENTS_MAX, 3 + 3 + 100));
        assert_eq!(all.slow.len(), SLOW_MAX);
        assert_eq!(all.slow[0].at, 1_039, "the newest first");
    }
}
