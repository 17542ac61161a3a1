//! Messages of publishers reach the threads that have subscribers, and no others.

use super::*;
use crate::wire::questions::AskedSubscribers;

/// A member with two threads, and two with one.
fn world(seed: u64) -> World {
    let mut w = World::of_threads(seed, 3, |n| if n == 1 { 2 } else { 1 }, |_| vec![1, 2]);
    w.settle(Duration::from_millis(50));
    w
}

const ALL: [u64; 4] = [1, 1001, 2, 3];

fn message(text: &str) -> Publication {
    Publication {
        channel: Bytes::from_static(b"news"),
        message: Bytes::copy_from_slice(text.as_bytes()),
        sharded: false,
    }
}

impl World {
    fn want(&mut self, n: u64, wanted: bool) {
        let now = self.now;
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        shard.channels().want_published(now, wanted);
        self.drain(n);
    }

    fn publish(&mut self, n: u64, text: &str) {
        let now = self.now;
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        shard.channels().publish(now, message(text));
        self.drain(n);
    }

    fn is_heard(&self, n: u64) -> bool {
        self.nodes[&n].shard.published().is_heard(self.now)
    }

    /// What has come to a thread.
    fn published(&mut self, n: u64) -> Vec<String> {
        let shard = &mut self.nodes.get_mut(&n).unwrap().shard;
        let all = std::iter::from_fn(|| shard.channels().poll_published());
        all.map(|p| String::from_utf8(p.message.to_vec()).unwrap())
            .collect()
    }
}

#[test]
fn a_message_reaches_every_thread_that_wants_messages_once_and_in_order() {
    let mut w = world(1);
    ALL.into_iter()
        .filter(|n| *n != 2)
        .for_each(|n| w.want(n, true));
    w.settle(Duration::from_millis(20));
    for n in ALL {
        w.publish(n, &format!("{n} a"));
        w.publish(n, &format!("{n} b"));
    }
    w.settle(Duration::from_millis(20));
    for n in ALL {
        let got = w.published(n);
        let of = |publisher: u64| {
            let from = format!("{publisher} ");
            got.iter()
                .filter(move |m| m.starts_with(&from))
                .collect::<Vec<_>>()
        };
        for publisher in ALL {
            let both = [format!("{publisher} a"), format!("{publisher} b")];
            let expected = if n == 2 { &both[..0] } else { &both[..] };
            assert!(of(publisher).into_iter().eq(expected), "at {n}: {got:?}");
        }
        assert_eq!(w.nodes[&n].shard.stats().published, got.len() as u64);
    }
    w.want(3, false);
    w.settle(Duration::from_millis(20));
    w.publish(1, "late");
    w.settle(Duration::from_millis(20));
    assert!(w.published(3).is_empty() && w.published(1001) == ["late"]);
}

#[test]
fn a_thread_knows_when_all_peers_know_that_it_wants_messages() {
    let mut w = world(2);
    w.want(3, true);
    assert!(!w.is_heard(3), "no peer has answered");
    w.settle(Duration::from_millis(20));
    assert!(w.is_heard(3));
    w.publish(1001, "now");
    w.settle(Duration::from_millis(20));
    assert_eq!(w.published(3), ["now"]);
    // A peer that is gone, or says nothing for long, is not waited for.
    w.want(2, true);
    [1, 1001, 3].into_iter().for_each(|n| w.disconnect(2, n));
    assert!(w.is_heard(2));
    let until = w.nodes[&3].shard.published().heard_until();
    w.want(3, false);
    w.want(3, true);
    assert!(!w.is_heard(3));
    let shard = &w.nodes[&3].shard;
    assert!(
        shard.published().heard_until() >= until
            && shard.published().is_heard(shard.published().heard_until())
    );
}

#[test]
fn a_new_connection_learns_what_is_wanted() {
    let mut w = world(3);
    w.want(3, true);
    w.settle(Duration::from_millis(20));
    w.disconnect(1, 3);
    w.publish(1, "lost");
    w.connect(1, 3);
    w.settle(Duration::from_millis(20));
    w.publish(1, "again");
    w.settle(Duration::from_millis(20));
    assert_eq!(w.published(3), ["again"]);
    assert_eq!(w.nodes[&3].shard.stats().malformed, 0);
}

#[test]
fn messages_for_a_congested_peer_wait_and_are_dropped_beyond_a_limit() {
    let mut w = world(4);
    w.want(3, true);
    w.settle(Duration::from_millis(20));
    let now = w.now;
    let congest = |w: &mut World, congested| {
        let shard = &mut w.nodes.get_mut(&1).unwrap().shard;
        shard.congested(now, id(3), congested);
    };
    congest(&mut w, true);
    let long = "x".repeat(1 << 20);
    (0..20).for_each(|i| w.publish(1, &format!("{i} {long}")));
    w.settle(Duration::from_millis(20));
    assert!(w.published(3).is_empty());
    congest(&mut w, false);
    w.drain(1);
    w.settle(Duration::from_millis(100));
    let got = w.published(3);
    let dropped = w.nodes[&1].shard.stats().published_dropped;
    assert!(dropped > 0 && got.len() as u64 + dropped == 20, "{dropped}");
    let places = (0..).zip(&got);
    places.for_each(|(i, m)| assert!(m.starts_with(&format!("{i} ")), "the first ones, in order"));
    w.publish(1, "after");
    w.settle(Duration::from_millis(20));
    assert_eq!(w.published(3), ["after"]);
}

#[test]
fn all_members_with_subscribers_are_asked_once_how_many_they_have() {
    let mut w = world(9);
    let names = [b"news".to_vec(), b"other".to_vec()];
    let ask = |w: &mut World, n: u64| {
        let now = w.now;
        let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
        let asked = AskedSubscribers::Subscribers {
            sharded: true,
            names: names.to_vec(),
        };
        let ticket = shard.channels().ask_subscribers(now, asked);
        w.drain(n);
        w.settle(Duration::from_millis(10));
        ticket
    };
    let questions = |w: &mut World, n: u64| -> Vec<CountQuestion> {
        let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
        std::iter::from_fn(|| shard.channels().poll_question()).collect()
    };
    let counted = |w: &mut World, n: u64| {
        let counted = w.nodes.get_mut(&n).unwrap().shard.channels().poll_counted();
        counted.map(|(ticket, counted)| (ticket, counted.counts))
    };
    assert_eq!(ask(&mut w, 3), None, "nobody has subscribers");
    [1, 1001, 2, 3].into_iter().for_each(|n| w.want(n, true));
    w.settle(Duration::from_millis(20));
    // One thread of each other member answers for its process.
    let first = ask(&mut w, 3).unwrap();
    let mut asked = 0;
    for (n, counts) in [(1, [4, 0]), (1001, [4, 0]), (2, [1, 2])] {
        for question in questions(&mut w, n) {
            let sharded = true;
            let names = names.to_vec();
            assert_eq!(
                question.asked,
                AskedSubscribers::Subscribers { sharded, names }
            );
            let shard = &mut w.nodes.get_mut(&n).unwrap().shard;
            shard.channels().answer_question(&question, counts.to_vec());
            asked += 1;
            w.drain(n);
        }
    }
    w.settle(Duration::from_millis(10));
    assert_eq!((asked, counted(&mut w, 3)), (2, Some((first, vec![5, 2]))));
    // A member that is gone, or says nothing, has none.
    let second = ask(&mut w, 3).unwrap();
    assert_eq!(counted(&mut w, 3), None);
    [1, 1001].into_iter().for_each(|n| w.disconnect(3, n));
    let question = questions(&mut w, 2).pop().unwrap();
    let shard = &mut w.nodes.get_mut(&2).unwrap().shard;
    shard.channels().answer_question(&question, vec![1, 1]);
    shard.channels().answer_question(&question, vec![1, 1]);
    w.drain(2);
    w.settle(Duration::from_millis(10));
    assert_eq!(counted(&mut w, 3), Some((second, vec![1, 1])));
    let third = ask(&mut w, 3).unwrap();
    w.settle(Duration::from_millis(1_100));
    assert_eq!(counted(&mut w, 3), Some((third, vec![0, 0])));
    assert_eq!(counted(&mut w, 3), None);
}

/// Regression: a publisher was told of the subscribers of its own member only.
#[test]
fn the_receivers_of_a_message_and_all_names_are_asked_of_the_other_members() {
    let mut w = world(10);
    [1, 2, 3].into_iter().for_each(|n| w.want(n, true));
    w.settle(Duration::from_millis(20));
    let ask = |w: &mut World, asked: AskedSubscribers| {
        let now = w.now;
        let ticket = w
            .nodes
            .get_mut(&3)
            .unwrap()
            .shard
            .channels()
            .ask_subscribers(now, asked);
        w.drain(3);
        w.settle(Duration::from_millis(10));
        ticket.unwrap()
    };
    let question = |w: &mut World, n: u64| {
        w.nodes
            .get_mut(&n)
            .unwrap()
            .shard
            .channels()
            .poll_question()
    };
    let channels = vec![(false, b"news".to_vec()), (true, b"news".to_vec())];
    let first = ask(&mut w, AskedSubscribers::Receivers(channels.clone()));
    for (n, counts) in [(1, vec![2, 0]), (2, vec![1, 7])] {
        let asked = question(&mut w, n).unwrap();
        assert_eq!(asked.asked, AskedSubscribers::Receivers(channels.clone()));
        w.nodes
            .get_mut(&n)
            .unwrap()
            .shard
            .channels()
            .answer_question(&asked, counts);
        w.drain(n);
    }
    w.settle(Duration::from_millis(10));
    let (ticket, counted) = w
        .nodes
        .get_mut(&3)
        .unwrap()
        .shard
        .channels()
        .poll_counted()
        .unwrap();
    assert_eq!((ticket, counted.counts), (first, vec![3, 7]));
    // Names come in pages.
    let names = |after: Option<&[u8]>| AskedSubscribers::Names {
        kind: 1,
        pattern: None,
        after: after.map(<[u8]>::to_vec),
    };
    let second = ask(&mut w, names(None));
    let told =
        |w: &mut World, n: u64, after: Option<&[u8]>, told: &[&[u8]], next: Option<&[u8]>| {
            let asked = question(w, n).unwrap();
            assert_eq!(asked.asked, names(after));
            let told = told.iter().map(|name| name.to_vec()).collect();
            let next = next.map(<[u8]>::to_vec);
            w.nodes
                .get_mut(&n)
                .unwrap()
                .shard
                .channels()
                .answer_names(&asked, told, next);
            w.drain(n);
            w.settle(Duration::from_millis(10));
            w.drain(3);
            w.settle(Duration::from_millis(10));
        };
    told(&mut w, 1, None, &[b"a*", b"b*"], Some(b"b*"));
    told(&mut w, 2, None, &[b"a*"], None);
    assert_eq!(
        w.nodes.get_mut(&3).unwrap().shard.channels().poll_counted(),
        None
    );
    told(&mut w, 1, Some(b"b*"), &[b"c*"], None);
    let (ticket, counted) = w
        .nodes
        .get_mut(&3)
        .unwrap()
        .shard
        .channels()
        .poll_counted()
        .unwrap();
    let all: Vec<_> = counted.names.iter().map(|name| &**name).collect();
    assert_eq!((ticket, all), (second, vec![&b"a*"[..], b"b*", b"c*"]));
    assert!(!counted.too_many);
}

#[test]
fn a_script_is_asked_of_one_thread_of_every_member_until_one_has_its_text() {
    let mut w = world(11);
    let script = AskedSubscribers::Script(vec![b'a'; 40]);
    let ask = |w: &mut World, asked: &AskedSubscribers| {
        let now = w.now;
        let shard = &mut w.nodes.get_mut(&3).unwrap().shard;
        let ticket = shard.channels().ask_subscribers(now, asked.clone());
        w.drain(3);
        w.settle(Duration::from_millis(10));
        ticket.unwrap()
    };
    // The threads of member 1 are 1 and 1001. One of them is asked.
    let question = |w: &mut World, n: u64| {
        let threads: &[u64] = if n == 1 { &[1, 1001] } else { &[2] };
        let mut shards = threads.iter().filter_map(|n| {
            let question = w.nodes.get_mut(n).unwrap().shard.channels().poll_question();
            question.map(|question| (*n, question))
        });
        let (n, question) = shards.next().unwrap();
        assert_eq!(shards.next(), None);
        (n, question)
    };
    let answer = |w: &mut World, (n, question): &(u64, CountQuestion), texts: &[&[u8]]| {
        let texts = texts.iter().map(|text| text.to_vec()).collect();
        let shard = &mut w.nodes.get_mut(n).unwrap().shard;
        shard.channels().answer_names(question, texts, None);
        w.drain(*n);
        w.settle(Duration::from_millis(10));
    };
    let answered = |w: &mut World| {
        let counted = w.nodes.get_mut(&3).unwrap().shard.channels().poll_counted();
        counted.map(|(ticket, counted)| (ticket, counted.names.into_iter().collect::<Vec<_>>()))
    };
    // No member has subscribers. The text of one ends the question while the other is silent.
    let first = ask(&mut w, &script);
    let (one, other) = (question(&mut w, 1), question(&mut w, 2));
    assert_eq!((&one.1.asked, &other.1.asked), (&script, &script));
    answer(&mut w, &one, &[b"return 1"]);
    assert_eq!(answered(&mut w), Some((first, vec![b"return 1".to_vec()])));
    answer(&mut w, &other, &[b"return 1"]);
    assert_eq!(answered(&mut w), None);
    // If one does not know it, the other is waited for, for a second at most.
    for silent in [false, true] {
        let ticket = ask(&mut w, &script);
        let (one, other) = (question(&mut w, 1), question(&mut w, 2));
        answer(&mut w, &one, &[]);
        assert_eq!(answered(&mut w), None);
        if silent {
            w.settle(Duration::from_millis(1_100));
        } else {
            answer(&mut w, &other, &[]);
        }
        assert_eq!(answered(&mut w), Some((ticket, Vec::new())));
    }
    // All are to forget.
    let ticket = ask(&mut w, &AskedSubscribers::ForgetScripts);
    for n in [1, 2] {
        assert_eq!(answered(&mut w), None);
        let asked = question(&mut w, n);
        answer(&mut w, &asked, &[]);
    }
    assert_eq!(answered(&mut w), Some((ticket, Vec::new())));
}
