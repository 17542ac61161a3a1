//! Newcomers whose weight is far above the others'.

use super::*;
use doyen_placement::MemberState;
use doyen_placement::access::{AccessChange, WeightChange};

const WAITS: &str = "more than 8 times the median weight";

/// The request that allows this weight for a name that has had this one.
fn allows(name: &str, before: Option<u32>, weight: u32) -> AdminRequest {
    let change = AccessChange {
        weights: vec![WeightChange {
            name: name.into(),
            before,
            after: Some(weight),
        }],
        ..AccessChange::default()
    };
    AdminRequest::ChangeAccess(change)
}

/// An operator allows this weight, at a member that need not coordinate.
fn allow(net: &mut Net, slot: usize, name: &str, weight: u32) {
    let request = allows(name, net.table(slot).access.weight(name), weight);
    net.input(slot, Input::Admin { ticket: 1, request });
}

/// How often a process told people that a newcomer waits.
fn told(net: &Net, slot: usize) -> usize {
    let is = |e: &&Event| matches!(e, Event::Note { text } if text.contains(WAITS));
    net.process(slot).events.iter().filter(is).count()
}

/// Why the process in this slot is no member yet.
fn waiting(net: &Net, slot: usize) -> String {
    let process = net.process(slot);
    assert!(process.view.is_none() && process.fatal.is_none());
    let status = process.agreement.status(net.local(process));
    status.waiting.expect("it waits")
}

#[test]
fn a_newcomer_that_is_far_too_heavy_waits_until_its_weight_is_allowed() {
    for seed in 0..12 {
        let mut net = Net::cluster(seed, 3);
        net.until(3000, Net::healed);
        let leader = net.leaders()[0];
        let other = (leader + 1) % 3;
        // It finds the coordinator, or another member, which passes its requests on.
        net.seeds[3] = vec![if seed % 2 == 0 { leader } else { other }];
        net.weights.insert(3, 801);
        let id = net.start(3);
        net.run_ms(1000);
        let tables = net.published;
        // Longer than a process goes on that is refused for good.
        net.run_ms(30_000);
        assert_eq!(
            waiting(&net, 3),
            "n3 has weight 801, more than 8 times the median weight of the data members, 100",
            "seed {seed}"
        );
        let logged = |e: &&Event| matches!(e, Event::NoCoordinator { why } if why.contains(WAITS));
        let process = net.process(3);
        assert_eq!(process.events.iter().filter(logged).count(), 1);
        assert_eq!(net.published, tables, "seed {seed}: tables change");
        assert_eq!(net.table(leader).members.len(), 3);
        let tells: Vec<usize> = (0..3).map(|slot| told(&net, slot)).collect();
        assert_eq!((tells[leader], tells.iter().sum::<usize>()), (1, 1));

        allow(&mut net, other, "n3", 800);
        net.run_ms(3000);
        assert!(
            waiting(&net, 3).ends_with("and only 800 is allowed for it"),
            "seed {seed}"
        );
        allow(&mut net, other, "n3", 801);
        net.until(3000, |net| {
            net.agreed().is_some_and(|t| t.members.len() == 4)
        });
        assert_eq!(net.at(3), Some(id), "seed {seed}: the same process");
        assert_eq!(told(&net, leader), 1, "seed {seed}");
        let says = |e: &Event| e.to_string().contains("weight 801 is allowed for n3");
        assert!(net.process(leader).events.iter().any(says), "seed {seed}");
    }
}

#[test]
fn a_newcomer_at_eight_times_the_median_joins_at_once() {
    for seed in 0..12 {
        let mut net = Net::cluster(seed, 3);
        net.until(3000, Net::healed);
        net.weights.insert(3, 800);
        net.start(3);
        let took = net.until(4000, |net| net.process(3).view.is_some());
        assert!(took < 1000, "seed {seed}: {took}");
        assert_eq!((0..3).map(|slot| told(&net, slot)).sum::<usize>(), 0);
    }
}

/// Its restart would wait for an operator.
#[test]
fn a_founder_far_above_the_others_comes_back_with_its_weight_and_with_no_more() {
    for seed in 0..6 {
        let mut net = Net::cluster_with(seed, 4, |net| _ = net.weights.insert(1, 900));
        net.until(3000, Net::healed);
        assert_eq!(net.table(0).access.weight("n1"), Some(900));
        for (weight, returns) in [(900, true), (901, false)] {
            net.kill(1);
            net.until(5000, |net| {
                net.agreed().is_some_and(|t| t.members.len() == 3)
            });
            net.weights.insert(1, weight);
            net.start(1);
            net.run_ms(5000);
            let members = net.table(0).members.len();
            assert_eq!(members == 4, returns, "seed {seed}: {weight}");
        }
        assert!(waiting(&net, 1).contains("n1 has weight 901"));
        let heard = net.leaders().into_iter().map(|slot| told(&net, slot));
        assert_eq!(heard.sum::<usize>(), 1, "seed {seed}");
    }
}

/// The silent member may answer again, and then it still has its name.
#[test]
fn a_silent_member_keeps_its_name_while_a_heavy_namesake_waits() {
    let mut net = Net::cluster_with(4, 3, |net| {
        net.backups = 0;
        net.on_loss = OnLoss::Wait;
    });
    net.until(3000, Net::healed);
    let silent = net.at(2).expect("it runs");
    net.kill(2);
    let state = |net: &Net| {
        let table = net.table(0);
        table
            .member(silent)
            .map(|m| (m.name.clone(), m.state == MemberState::Silent))
    };
    net.until(5000, |net| state(net).is_some_and(|(_, silent)| silent));
    net.names.insert(3, "n2".into());
    net.weights.insert(3, 5000);
    net.start(3);
    net.run_ms(5000);
    assert!(waiting(&net, 3).contains("n2 has weight 5000"));
    assert_eq!(state(&net), Some(("n2".into(), true)));
    allow(&mut net, 0, "n2", 5000);
    net.until(5000, |net| net.process(3).view.is_some());
    let (name, _) = state(&net).expect("it alone has data");
    assert!(name.starts_with("n2~"), "{name}");
}

/// Requests of people come from members, and a process that waits is none.
#[test]
fn a_newcomer_cannot_allow_its_own_weight() {
    let mut net = Net::cluster(8, 3);
    net.until(3000, Net::healed);
    let leader = net.leaders()[0];
    net.weights.insert(3, 5000);
    net.start(3);
    net.run_ms(2000);
    for (ticket, at) in (1..).zip(0..3) {
        let request = Message::Admin {
            cluster: net.table(leader).cluster,
            origin: net.at(at).expect("it runs"),
            ticket,
            request: allows("n3", None, 5000),
        };
        net.say(3, at, request);
        net.run_ms(1000);
    }
    assert!(waiting(&net, 3).contains("n3 has weight 5000"));
    assert!(net.table(leader).access.weights.is_empty());
    // The control: a member passes on what its operator wants.
    let request = Message::Admin {
        cluster: net.table(leader).cluster,
        origin: net.at((leader + 1) % 3).expect("it runs"),
        ticket: 9,
        request: allows("n3", None, 5000),
    };
    net.say((leader + 1) % 3, leader, request);
    net.until(3000, |net| net.process(3).view.is_some());
}
