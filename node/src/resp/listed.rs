//! The clients and the slow commands of a data thread, as the console lists them.

use super::RespContext;
use super::command::table::COMMANDS;
use super::databases;
use super::session::{Connection, Session};
use super::slowlog::Slow;
use crate::client_list::{
    CLIENTS_MAX, ClientList, ListedClient, ListedWord, SLOW_MAX, SlowCommand,
};
use bytes::Bytes;
use doyen_engine::command::Arguments;
use doyen_gossip::Time;

impl RespContext {
    /// The clients of this thread, except one that is borrowed, and its newest slow commands.
    pub(crate) fn listed(&self) -> ClientList {
        let all = &self.front.connections;
        let listed = all.values().take(CLIENTS_MAX);
        let clients = listed.filter_map(|connection: &std::rc::Rc<Connection>| {
            let session = connection.session.try_borrow().ok()?;
            Some(client(&session, self.now(), connection.active_at()))
        });
        let slow = self.front.slow.newest(SLOW_MAX);
        ClientList {
            clients: clients.collect(),
            more: all.len().saturating_sub(CLIENTS_MAX) as u64,
            slow: slow.into_iter().map(slow_command).collect(),
        }
    }
}

/// The client of a session. `active_at`: when it last did something.
fn client(session: &Session, now: Time, active_at: Time) -> ListedClient {
    let client = &session.client;
    let library = client.library.as_ref().map(|library| {
        let (name, version) = (text(&library.name), text(&library.version));
        format!("{name} {version}").trim().to_owned()
    });
    let commands = COMMANDS.all();
    let command = commands.get(usize::from(session.replies.command));
    ListedClient {
        address: client.peer.to_string(),
        name: text(&client.name),
        user: text(client.user.name()),
        library: library.unwrap_or_default(),
        age_s: now.since(client.began).as_secs(),
        idle_s: now.since(active_at).as_secs(),
        // There are 16.
        database: databases::index(client.map) as u32,
        command: command.map_or("none", |spec| spec.name).replace('|', " "),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn slow_command(slow: Slow) -> SlowCommand {
    let words = slow.args.iter().zip(values(&slow.args));
    let words = words.map(|(word, is_value)| ListedWord {
        text: text(word),
        is_value,
    });
    SlowCommand {
        at: slow.unix_s,
        took_us: u64::try_from(slow.took.as_micros()).unwrap_or(u64::MAX),
        words: words.collect(),
        client: slow.peer.to_string(),
    }
}

/// Which words of a command may be values: those that are neither its name nor keys. Of a command
/// that is not known, all but the first.
fn values(args: &[Bytes]) -> Vec<bool> {
    let mut values = vec![true; args.len()];
    let given: &dyn Arguments = &args;
    let spec = COMMANDS.find(given).ok();
    let names = spec.map_or(1, |spec| spec.name.split('|').count());
    let keys = spec.map(|spec| spec.key_indexes(given));
    for at in (0..names).chain(keys.into_iter().flatten()) {
        if let Some(value) = values.get_mut(at) {
            *value = false;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who may see keys and no values sees the slow log.
    #[test]
    fn words_that_may_be_values_are_marked() {
        for (command, shown) in [
            ("get a", "get a"),
            ("SET a secret EX 5", "SET a"),
            ("mset a 1 b 2", "mset a b"),
            ("hset h field value", "hset h"),
            ("del a b", "del a b"),
            ("object encoding a", "object encoding a"),
            ("config set timeout 5", "config set"),
            // Its row does not say which words are keys.
            ("eval return 1 k arg", "eval"),
            ("nonsense a b", "nonsense"),
            ("get", "get"),
        ] {
            let args: Vec<Bytes> = command
                .split(' ')
                .map(|word| word.to_owned().into())
                .collect();
            let kept = args
                .iter()
                .zip(values(&args))
                .filter(|(_, is_value)| !is_value);
            let kept: Vec<_> = kept.map(|(word, _)| text(word)).collect();
            assert_eq!(kept.join(" "), shown, "{command}");
        }
    }
}
