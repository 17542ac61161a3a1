//! Members that are silent, proved dead or replaced by a namesake, and what happens to their data.

use super::super::net::{Net, Slot};
use super::super::{AdminRequest, Input};
use doyen_placement::planner::{self, NewKeyspace};
use doyen_placement::{Division, Eviction, MemberId, MemberState, Mode, OnLoss, Table};

pub(super) const LONG: OnLoss = OnLoss::Reset { after_ms: 600_000 };

/// How often partitions of this table began empty after a loss.
pub(super) fn losses(table: &Table) -> u32 {
    table.partitions().map(|(_, p)| p.lineage.0 - 1).sum()
}

fn lost(table: &Table) -> usize {
    planner::lost(table).count()
}

/// Two members that do not coordinate, and that are the only holders of a partition, by slot.
fn pair(net: &Net) -> [Slot; 2] {
    let leader = net.leaders()[0];
    let table = net.table(leader);
    let slot = |m: MemberId| net.processes[&m].slot;
    let found = table.partitions().find_map(|(_, p)| {
        let holders: Vec<Slot> = p.in_sync().map(slot).collect();
        (!holders.contains(&leader)).then_some(holders)
    });
    found
        .and_then(|holders| holders.try_into().ok())
        .expect("a partition of two others")
}

/// A cluster of five with this loss policy. The two holders of a partition are killed at once.
fn killed(seed: u64, on_loss: OnLoss) -> (Net, [Slot; 2]) {
    let mut net = Net::cluster_with(seed, 5, |net| {
        net.on_loss = on_loss;
        net.partitions = 32;
    });
    net.until(3000, Net::healed);
    let victims = pair(&net);
    victims.iter().for_each(|victim| net.kill(*victim));
    let leader = net.leaders()[0];
    net.until(5000, |net| lost(&net.table(leader)) > 0);
    (net, victims)
}

#[test]
fn partitions_whose_holders_are_all_proved_dead_begin_empty_at_once() {
    for seed in 0..5 {
        let (mut net, victims) = killed(seed, LONG);
        let leader = net.leaders()[0];
        net.run_ms(5000);
        assert_eq!(losses(&net.table(leader)), 0, "nothing is proved yet");
        net.start(victims[0]);
        net.until(8000, |net| {
            net.table(leader)
                .members
                .iter()
                .filter(|m| m.state == MemberState::Live)
                .count()
                == 4
        });
        net.run_ms(2000);
        assert!(
            lost(&net.table(leader)) > 0,
            "the other holder may come back"
        );
        assert_eq!(losses(&net.table(leader)), 0);
        net.start(victims[1]);
        net.until(8000, Net::healed);
        assert!(losses(&net.table(leader)) > 0);
    }
}

#[test]
fn where_a_keyspace_waits_a_proof_changes_nothing() {
    let (mut net, victims) = killed(1, OnLoss::Wait);
    let leader = net.leaders()[0];
    let before = lost(&net.table(leader));
    for victim in victims {
        net.start(victim);
    }
    net.until(8000, |net| {
        net.table(leader)
            .members
            .iter()
            .filter(|m| m.state == MemberState::Live)
            .count()
            == 5
    });
    net.run_ms(3000);
    assert_eq!(
        (lost(&net.table(leader)), losses(&net.table(leader))),
        (before, 0)
    );
}

/// All data of a silent member was kept for as long as the most patient of its keyspaces says.
#[test]
fn each_keyspace_waits_for_its_own_time() {
    let mut net = Net::cluster_with(2, 3, |net| (net.backups, net.on_loss) = (0, LONG));
    net.until(3000, Net::healed);
    let leader = net.leaders()[0];
    let hasty = NewKeyspace {
        name: "hasty".into(),
        mode: Mode::Fixed { partitions: 16 },
        division: Division::Slots,
        backups: 0,
        min_in_sync: 1,
        on_loss: OnLoss::Reset { after_ms: 2000 },
        default_ttl_ms: None,
        eviction: Eviction::None,
        ordered: false,
        rules: Vec::new(),
        durability: None,
    };
    net.input(
        leader,
        Input::Admin {
            ticket: 1,
            request: AdminRequest::CreateKeyspace(hasty),
        },
    );
    net.until(3000, |net| {
        net.healed() && net.table(leader).keyspaces.len() == 2
    });
    net.kill((leader + 1) % 3);
    net.until(5000, |net| lost(&net.table(leader)) > 0);
    let all = lost(&net.table(leader));
    net.run_ms(1000);
    assert_eq!(lost(&net.table(leader)), all, "not before its time");
    net.until(3000, |net| losses(&net.table(leader)) > 0);
    let table = net.table(leader);
    assert!(planner::lost(&table).all(|(k, _)| k.name == "default") && lost(&table) > 0);
}

/// Three members without backups. One of them is cut off from the others until it is silent, with
/// the data that it alone holds.
fn silent(seed: u64) -> (Net, Slot) {
    let mut net = Net::cluster_with(seed, 3, |net| (net.backups, net.on_loss) = (0, LONG));
    net.until(3000, Net::healed);
    let leader = net.leaders()[0];
    let away = (leader + 1) % 3;
    (0..4)
        .filter(|slot| *slot != away)
        .for_each(|other| net.cut(away, other));
    net.until(5000, |net| lost(&net.table(leader)) > 0);
    (net, away)
}

/// The newcomer was refused for a minute, and ended.
#[test]
fn a_name_may_come_back_at_another_address_while_its_former_process_is_silent() {
    for seed in 0..5 {
        let (mut net, away) = silent(seed);
        let (former, name) = (net.at(away).unwrap(), format!("n{away}"));
        let leader = net.leaders()[0];
        net.names.insert(3, name.clone());
        let newcomer = net.start(3);
        net.until(5000, |net| {
            net.table(leader)
                .member(newcomer)
                .is_some_and(|m| m.name == name)
        });
        let table = net.table(leader);
        let waits = table
            .member(former)
            .expect("what it alone holds is waited for");
        assert_eq!(
            (waits.state, &waits.name),
            (MemberState::Silent, &format!("{name}~{}", waits.age))
        );
        let note = format!(
            "{name} is another process now; the silent process that had this name before is \
             called {}",
            waits.name
        );
        assert!(
            net.process(leader)
                .events
                .iter()
                .any(|e| e.to_string() == note),
            "{note}"
        );
        net.run_ms(3000);
        assert_eq!(
            losses(&net.table(leader)),
            0,
            "a name at another address proves nothing"
        );

        // It comes back, hands over the data that it alone held, and begins again as a new member.
        // Then its name is taken.
        net.cuts.clear();
        net.until(15_000, |net| net.table(leader).member(former).is_none());
        let table = net.table(leader);
        assert_eq!((losses(&table), lost(&table)), (0, 0), "nothing is lost");
        net.until(20_000, |net| net.process(away).fatal.is_some());
        let why = net.process(away).fatal.clone().unwrap_or_default();
        assert!(why.contains(&format!("the name {name} is taken")), "{why}");
        assert_eq!(net.table(leader).members.len(), 3);
    }
}

/// The newcomer elsewhere took the name. Then a process began at the former one's address, which
/// proves the former one dead.
#[test]
fn a_process_at_its_address_proves_it_dead_also_where_another_one_has_its_name() {
    let (mut net, away) = silent(3);
    let leader = net.leaders()[0];
    net.names.insert(3, format!("n{away}"));
    let newcomer = net.start(3);
    net.until(5000, |net| net.table(leader).member(newcomer).is_some());
    net.kill(away);
    net.cuts.clear();
    net.start(away);
    net.until(5000, |net| {
        losses(&net.table(leader)) > 0 && lost(&net.table(leader)) == 0
    });
    assert_eq!(
        net.table(leader).members.len(),
        3,
        "its name is taken all the same"
    );
}

/// A member that answers keeps its name, even if another process asks for it.
#[test]
fn a_member_that_answers_keeps_its_name() {
    let mut net = Net::cluster_with(4, 3, |net| net.on_loss = LONG);
    net.until(3000, Net::healed);
    let leader = net.leaders()[0];
    let other = (leader + 1) % 3;
    let id = net.at(other).unwrap();
    net.names.insert(3, format!("n{other}"));
    net.start(3);
    net.until(15_000, |net| net.process(3).fatal.is_some());
    assert_eq!(
        net.table(leader).member(id).map(|m| m.name.clone()),
        Some(format!("n{other}"))
    );
}

/// Such names are for members whose names newcomers took.
#[test]
fn a_name_that_could_be_a_former_one_is_refused() {
    let mut net = Net::cluster(5, 3);
    let leader = net.leaders()[0];
    net.names.insert(3, "n1~2".into());
    net.start(3);
    net.until(15_000, |net| net.process(3).fatal.is_some());
    let why = net.process(3).fatal.clone().unwrap_or_default();
    assert!(why.contains("must not contain `~`"), "{why}");
    assert_eq!(net.table(leader).members.len(), 3);
}
