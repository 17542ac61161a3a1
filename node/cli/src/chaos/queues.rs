//! Queues beside the clients: elements are pushed, and clients of all nodes wait for them. Each
//! element has a name of its own.
//!
//! - No element is popped twice, and none that was not pushed.
//! - An element whose push was acknowledged is missing in the end only if a pop is open whose
//!   outcome its client does not know. One that was moved to another list is never missing.

use super::SharedBook;
use super::load::{RespLoad, Sent};
use crate::CommandFailed;
use doyen::resp::client::Reply;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The clients that wait at each queue.
const POPPERS: usize = 3;
/// The time between two pushes to a queue.
const PUSH: Duration = Duration::from_millis(40);
/// The pause before another attempt after an operation that did not happen.
const RETRY: Duration = Duration::from_millis(10);
/// How often the end of a queue is tried, with this pause.
const TRIES: u32 = 100;
const END_RETRY: Duration = Duration::from_millis(100);
/// The most violations that are printed in full.
const TOLD_MAX: usize = 5;

/// A queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueKind {
    /// A list, from which `BLPOP` takes.
    List,
    /// A sorted set, from which `BZPOPMIN` takes.
    Sorted,
    /// A list, from which `BLMOVE` moves to another one.
    Moved,
}

impl QueueKind {
    const ALL: [Self; 3] = [Self::List, Self::Sorted, Self::Moved];

    const fn key(self) -> &'static str {
        match self {
            Self::List => "chaos:queue:list",
            Self::Sorted => "chaos:queue:sorted",
            Self::Moved => "{chaos:queue:moved}",
        }
    }

    /// The list to which elements are moved.
    const TAKEN: &str = "{chaos:queue:moved}:taken";

    fn push(self, element: &str) -> Vec<&str> {
        match self {
            Self::List | Self::Moved => vec!["RPUSH", self.key(), element],
            Self::Sorted => vec!["ZADD", self.key(), "1", element],
        }
    }

    /// Waits for an element for a second.
    fn pop(self) -> Vec<&'static str> {
        match self {
            Self::List => vec!["BLPOP", self.key(), "1"],
            Self::Sorted => vec!["BZPOPMIN", self.key(), "1"],
            Self::Moved => vec!["BLMOVE", self.key(), Self::TAKEN, "LEFT", "RIGHT", "1"],
        }
    }

    /// Reads all that is left.
    const fn rest(self) -> [&'static str; 4] {
        match self {
            Self::List | Self::Moved => ["LRANGE", self.key(), "0", "-1"],
            Self::Sorted => ["ZRANGE", self.key(), "0", "-1"],
        }
    }
}

/// What was seen of a queue.
#[derive(Debug, Default)]
struct QueueSeen {
    /// Elements whose push was acknowledged, and those that were perhaps pushed.
    pushed: BTreeSet<String>,
    perhaps: BTreeSet<String>,
    /// How often each element was popped, or is in the queue or in the other list in the end.
    found: BTreeMap<String, u32>,
    /// Pops whose outcome is not known.
    open: usize,
    /// It could not be read in the end.
    is_stuck: bool,
}

impl QueueSeen {
    fn found(&mut self, element: &[u8]) {
        let element = String::from_utf8_lossy(element).into_owned();
        *self.found.entry(element).or_default() += 1;
    }
}

/// The verdict on all queues.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Queues {
    /// Elements whose push was acknowledged.
    pub(super) pushed: u64,
    /// Those among them that are missing, each with a pop whose outcome is open.
    pub(super) open: u64,
    /// Those that are missing without one.
    pub(super) missing: u64,
    /// Elements that were popped more than once.
    pub(super) twice: u64,
    /// Elements that were popped and never pushed.
    pub(super) strange: u64,
    /// Queues that could not be read in the end.
    pub(super) stuck: u64,
    /// The first violations.
    pub(super) violations: Vec<String>,
}

impl Queues {
    /// How many promises did not hold.
    pub(super) const fn broken(&self) -> u64 {
        self.missing + self.twice + self.strange + self.stuck
    }

    pub(super) const fn holds(&self) -> bool {
        self.broken() == 0
    }

    fn judge(&mut self, kind: QueueKind, seen: &QueueSeen) {
        let key = kind.key();
        self.pushed += seen.pushed.len() as u64;
        if seen.is_stuck {
            self.stuck += 1;
            return self.violation(format!("{key}: it could not be read in the end"));
        }
        for (element, times) in &seen.found {
            if *times > 1 {
                self.twice += 1;
                self.violation(format!("{key}: {element} was popped {times} times"));
            }
            if !seen.pushed.contains(element) && !seen.perhaps.contains(element) {
                self.strange += 1;
                self.violation(format!("{key}: {element} was popped and never pushed"));
            }
        }
        let is_missing = |element: &&String| !seen.found.contains_key(*element);
        let missing: Vec<&String> = seen.pushed.iter().filter(is_missing).collect();
        // What moves is in one of the two lists, whatever its client knows.
        let open = match kind {
            QueueKind::List | QueueKind::Sorted => seen.open.min(missing.len()),
            QueueKind::Moved => 0,
        };
        self.open += open as u64;
        self.missing += (missing.len() - open) as u64;
        for element in missing.iter().skip(open) {
            self.violation(format!("{key}: {element} was pushed and is missing"));
        }
    }

    fn violation(&mut self, text: String) {
        if self.violations.len() < TOLD_MAX {
            self.violations.push(text);
        }
    }
}

/// The running clients of the queues.
pub(super) struct QueueClients {
    book: SharedBook,
    all: Vec<(QueueKind, Rc<RefCell<QueueSeen>>)>,
    tasks: Vec<JoinHandle<()>>,
}

impl QueueClients {
    /// Begins to push and to pop while `running`.
    pub(super) fn start(book: &SharedBook, running: &Rc<Cell<bool>>) -> Self {
        let (mut all, mut tasks) = (Vec::new(), Vec::new());
        for (at, kind) in QueueKind::ALL.into_iter().enumerate() {
            let seen = Rc::new(RefCell::new(QueueSeen::default()));
            for client in 0..=POPPERS {
                let asker = RespLoad::new(book, at + client);
                let (seen, running) = (seen.clone(), running.clone());
                tasks.push(if client == 0 {
                    tokio::task::spawn_local(pushes(kind, asker, seen, running))
                } else {
                    tokio::task::spawn_local(pops(kind, asker, seen, running))
                });
            }
            all.push((kind, seen));
        }
        Self {
            book: book.clone(),
            all,
            tasks,
        }
    }

    /// The verdict, once the tasks have ended because nothing is `running` any more.
    pub(super) async fn finish(self) -> Result<Queues, CommandFailed> {
        for task in self.tasks {
            task.await
                .map_err(|e| CommandFailed::new(format!("a client of the queues panicked: {e}")))?;
        }
        let mut queues = Queues::default();
        let mut asker = RespLoad::new(&self.book, 0);
        for (kind, seen) in &self.all {
            let taken =
                (*kind == QueueKind::Moved).then_some(["LRANGE", QueueKind::TAKEN, "0", "-1"]);
            let mut left = Vec::new();
            for read in [Some(kind.rest()), taken].into_iter().flatten() {
                left.push(all_of(&mut asker, &read).await);
            }
            let mut seen = seen.borrow_mut();
            if taken.is_some() {
                // All of it is in the other list, or was not moved.
                seen.found.clear();
            }
            for left in left {
                match left {
                    Some(left) => left.iter().for_each(|element| seen.found(element)),
                    None => seen.is_stuck = true,
                }
            }
            queues.judge(*kind, &seen);
        }
        Ok(queues)
    }
}

/// The elements that a command answers. `None`: it was not answered.
async fn all_of(asker: &mut RespLoad, command: &[&str]) -> Option<Vec<Vec<u8>>> {
    for _ in 0..TRIES {
        if let Sent::Answered(Reply::Array(all)) = asker.command(command).await {
            let bytes = |reply| match reply {
                Reply::Bulk(bytes) => bytes,
                other => format!("{other:?}").into_bytes(),
            };
            return Some(all.into_iter().map(bytes).collect());
        }
        asker.turn_away();
        tokio::time::sleep(END_RETRY).await;
    }
    None
}

async fn pushes(
    kind: QueueKind,
    mut asker: RespLoad,
    seen: Rc<RefCell<QueueSeen>>,
    running: Rc<Cell<bool>>,
) {
    for n in 0_u64.. {
        let element = format!("{kind:?}.{n}");
        while running.get() {
            match asker.command(&kind.push(&element)).await {
                Sent::Answered(_) => {
                    seen.borrow_mut().pushed.insert(element);
                    break;
                }
                Sent::Unknown => {
                    seen.borrow_mut().perhaps.insert(element);
                    asker.turn_away();
                    break;
                }
                Sent::NotDone => {
                    asker.turn_away();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        if !running.get() {
            return;
        }
        tokio::time::sleep(PUSH).await;
    }
}

async fn pops(
    kind: QueueKind,
    mut asker: RespLoad,
    seen: Rc<RefCell<QueueSeen>>,
    running: Rc<Cell<bool>>,
) {
    while running.get() {
        let sent = asker.command(&kind.pop()).await;
        let mut seen = seen.borrow_mut();
        match sent {
            Sent::Answered(Reply::Array(parts)) => {
                if let Some(Reply::Bulk(element)) = parts.get(1) {
                    seen.found(element);
                }
            }
            // What was moved is counted in the end.
            Sent::Answered(_) => {}
            Sent::Unknown => {
                seen.open += 1;
                asker.turn_away();
            }
            Sent::NotDone => {
                drop(seen);
                asker.turn_away();
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pushed: &[&str], found: &[&str], open: usize) -> QueueSeen {
        let mut seen = QueueSeen {
            pushed: pushed.iter().map(|name| (*name).to_owned()).collect(),
            perhaps: BTreeSet::from(["perhaps".to_owned()]),
            open,
            ..QueueSeen::default()
        };
        found
            .iter()
            .for_each(|element| seen.found(element.as_bytes()));
        seen
    }

    fn judged(kind: QueueKind, seen: &QueueSeen) -> Queues {
        let mut queues = Queues::default();
        queues.judge(kind, seen);
        queues
    }

    #[test]
    fn what_is_popped_twice_or_missing_or_was_never_pushed_is_found() {
        let list = |pushed: &[&str], found: &[&str], open| {
            judged(QueueKind::List, &seen(pushed, found, open))
        };
        assert!(list(&["a", "b"], &["a", "b", "perhaps"], 0).holds());
        assert!(list(&[], &[], 3).holds());
        let queues = list(&["a", "b"], &["a", "a", "c"], 0);
        assert_eq!((queues.twice, queues.strange, queues.missing), (1, 1, 1));
        assert_eq!(queues.violations.len(), 3);
        // One pop is open, and two elements are missing.
        let queues = list(&["a", "b", "c"], &["a"], 1);
        assert_eq!((queues.open, queues.missing), (1, 1));
        // An element that moves is never missing.
        let queues = judged(QueueKind::Moved, &seen(&["a", "b"], &["a"], 9));
        assert_eq!((queues.open, queues.missing, queues.holds()), (0, 1, false));
        let stuck = QueueSeen {
            is_stuck: true,
            ..QueueSeen::default()
        };
        assert_eq!(judged(QueueKind::Sorted, &stuck).broken(), 1);
    }
}
