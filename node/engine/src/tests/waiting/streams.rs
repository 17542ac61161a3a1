//! Callers that wait for entries of streams: a new entry is for all that read, and for one consumer
//! of each group.

use super::*;
use crate::command::{Arguments, BlockingPop, COMMANDS, ParsedRequest};

const KEY: &str = "k1";

fn waiting_read(line: &str) -> BlockingPop {
    let words: Vec<Bytes> = line.split(' ').map(|w| w.to_owned().into()).collect();
    let args: &dyn Arguments = &words.as_slice();
    match COMMANDS.find(args).and_then(|spec| spec.request(args, 0)) {
        Ok(ParsedRequest::Pop(pop)) => *pop,
        other => panic!("{line}: {other:?}"),
    }
}

impl World {
    /// A client sends this line to a node, finds nothing, and waits.
    fn wait_to_read(&mut self, n: u64, line: &str) -> (u64, CallToken, BlockingPop) {
        let mut pop = waiting_read(line);
        let (_, take) = pop.take_at(0);
        let found = self.ask(n, KEY, take);
        assert!(pop.finds_nothing(0, &found), "{line}: {found:?}");
        let token = self.next_token;
        self.next_token += 1;
        self.wait_with(n, token, on(KEY, pop.wait_at(0)), None);
        self.settle(Duration::from_millis(20));
        (n, token, pop)
    }

    fn told_to_read(&self, waiting: &[(u64, CallToken, BlockingPop)]) -> Vec<bool> {
        let told = waiting.iter().map(|(_, token, _)| self.outcomes.get(token));
        told.map(|outcome| outcome.is_some()).collect()
    }

    /// One that was told reads, and withdraws its ticket.
    fn read_now(&mut self, (n, token, pop): &mut (u64, CallToken, BlockingPop)) -> bool {
        let (_, take) = pop.take_at(0);
        let outcome = self.ask(*n, KEY, take);
        self.leave(*n, *token);
        self.settle(Duration::from_millis(20));
        !pop.finds_nothing(0, &outcome)
    }

    fn changed(&mut self, line: &str) {
        self.streams(2, line);
        self.settle(Duration::from_millis(20));
    }
}

#[test]
fn an_entry_wakes_all_that_read_and_one_consumer_of_each_group() {
    let mut w = World::new(110, 3, |_| vec![1, 2]);
    w.changed("XADD k1 5-0 a b");
    for group in ["g", "h"] {
        w.changed(&format!("XGROUP CREATE k1 {group} $"));
    }
    let lines = [
        "XREAD BLOCK 0 STREAMS k1 9999-0",
        "XREAD BLOCK 0 STREAMS k1 $",
        "XREADGROUP GROUP g a BLOCK 0 STREAMS k1 >",
        "XREADGROUP GROUP g b BLOCK 0 STREAMS k1 >",
        "XREAD BLOCK 0 STREAMS k1 5-0",
        "XREADGROUP GROUP h a BLOCK 0 STREAMS k1 >",
        "XREAD BLOCK 0 STREAMS k1 $",
    ];
    let nodes = [3, 1, 2].into_iter().cycle();
    let mut all = Vec::new();
    for (line, n) in lines.into_iter().zip(nodes) {
        all.push(w.wait_to_read(n, line));
    }
    assert_eq!(w.told_to_read(&all), [false; 7]);
    // A change that adds nothing wakes none for good.
    w.changed("XDEL k1 5-0");
    assert_eq!(w.told_to_read(&all), [false; 7]);
    w.changed("XADD k1 7-0 a b");
    let told = [false, true, true, false, true, true, true];
    assert_eq!(w.told_to_read(&all), told);
    for (at, told) in told.into_iter().enumerate() {
        assert!(!told || w.read_now(&mut all[at]), "{at}");
    }
    assert_eq!(w.told_to_read(&all), told, "its entry is taken");
    w.changed("XADD k1 8-0 a b");
    let told = [false, true, true, true, true, true, true];
    assert_eq!(w.told_to_read(&all), told);
    assert!(w.read_now(&mut all[3]));
    w.changed("XADD k1 10000-0 a b");
    assert_eq!(w.told_to_read(&all), [true; 7]);
}

#[test]
fn consumers_of_a_group_that_is_gone_are_told() {
    for line in ["XGROUP DESTROY k1 g", "DEL k1"] {
        let mut w = World::new(111, 3, |_| vec![1, 2]);
        w.changed("XGROUP CREATE k1 g $ MKSTREAM");
        let mut all = vec![w.wait_to_read(3, "XREADGROUP GROUP g a BLOCK 0 STREAMS k1 >")];
        match line {
            "DEL k1" => _ = w.ask(2, KEY, Action::Delete),
            line => w.changed(line),
        }
        w.settle(Duration::from_millis(20));
        assert_eq!(w.told_to_read(&all), [true], "{line}");
        let (_, take) = all.remove(0).2.take_at(0);
        let Outcome::Bulk(reply) = w.ask(3, KEY, take) else {
            panic!("it is an error")
        };
        assert!(String::from_utf8_lossy(&reply).contains("NOGROUP"));
    }
}

/// `$` is what was the last entry when the command began, also if the primary dies then.
#[test]
fn those_that_wait_miss_nothing_in_a_failover() {
    let mut w = World::new(112, 4, |_| vec![1, 2]);
    w.changed("XADD k1 5-0 a b");
    let mut all = vec![w.wait_to_read(3, "XREAD BLOCK 0 STREAMS k1 $")];
    all.push(w.wait_to_read(4, "XREAD BLOCK 0 STREAMS k1 $"));
    w.kill(1);
    w.propose(|t| remove(t, 1));
    w.settle(Duration::from_secs(1));
    assert_eq!(w.told_to_read(&all), [false; 2]);
    w.changed("XADD k1 6-0 a b");
    w.settle(Duration::from_secs(1));
    assert_eq!(w.told_to_read(&all), [true; 2]);
    assert!(w.read_now(&mut all[0]) && w.read_now(&mut all[1]));
}
