//! Checks of who is a member and who leaves (rules 7, 10 and 12), and of how the first cluster forms.

use super::members::{Fate, Members, Setup, address, find, id};
use super::orders::every_course;
use doyen_gossip::Input;
use doyen_gossip::agreement::{InSyncChange, InSyncRequest};
use doyen_gossip::wire::Message;
use doyen_placement::planner::Pace;
use doyen_placement::{MemberState, OnLoss, PartitionRef};

/// First tables and promises of which a course chooses what becomes of them.
const CHOSEN_MAX: usize = 8;

/// A learner is withdrawn while the request to count it is on its way; that arrives when the learner has begun anew.
pub(super) fn a_withdrawn_learner_is_not_counted() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.start(4, &[1, 2, 3], None);
    let learns =
        |m: &Members, at: PartitionRef| m.table(1).is_ok_and(|t| t.partition(at).is_some_and(|p| p.learners().any(|l| l == id(4))));
    m.until(3000, "learner", |m| m.table(1).is_ok_and(|t| find(&t, |p| p.primary() == id(2) && p.learners().any(|l| l == id(4))).is_ok()))?;
    let table = m.table(1)?;
    let partition = find(&table, |p| p.primary() == id(2) && p.learners().any(|l| l == id(4)))?;
    let epoch = table.partition(partition).map(|p| p.epoch).unwrap_or_default();
    m.post(|letter| match &letter.message {
        Message::InSync { requests, .. } if requests.iter().any(|r| matches!(r.change, InSyncChange::Admit(_))) => Fate::Waits,
        _ => Fate::Arrives,
    });
    m.input(2, Input::InSync(vec![InSyncRequest { partition, epoch, change: InSyncChange::Admit(id(4)) }]));
    m.input(2, Input::InSync(vec![InSyncRequest { partition, epoch, change: InSyncChange::Withdraw(id(4)) }]));
    m.until(2000, "table without it", |m| !learns(m, partition))?;
    m.until(5000, "learner that begins anew", |m| learns(m, partition))?;
    m.let_go(|_| true);
    m.run(200);
    m.verdict()?;
    let counts = m.table(1)?.partition(partition).is_some_and(|p| p.in_sync().any(|m| m == id(4)));
    if counts { Err(format!("I13: n4 counts in {partition}, of which its primary has compared nothing")) } else { Ok(()) }
}

/// Who alone holds a partition stands still for a while.
pub(super) fn who_alone_holds_something_is_waited_for() -> Result<(), String> {
    let mut m = Members::of(Setup { backups: 0, on_loss: OnLoss::Reset { after_ms: 60_000 }, ..Setup::of(3) })?;
    let before = m.table(1)?;
    let partition = find(&before, |p| p.primary() == id(3))?;
    m.sleeps(3);
    m.run(2000);
    m.wakes(3);
    let live = |m: &Members| m.table(1).is_ok_and(|t| t.member(id(3)).is_some_and(|m| m.state == MemberState::Live));
    m.until(5000, "return", |m| live(m) || !m.lives(3))?;
    m.verdict()?;
    let lineage = |t: &doyen_placement::Table| t.partition(partition).map(|p| (p.lineage, p.primary()));
    if lineage(&before) == lineage(&*m.table(1)?) {
        Ok(())
    } else {
        Err(format!("what n3 alone holds is lost, and n3 lives: {}", m.summary()))
    }
}

/// Of two, one that alone holds something is silent, and the other is told to leave. (Seed 791 of the simulation: it went, and with it what it
/// alone knew and held.)
pub(super) fn who_leaves_waits_for_the_silent() -> Result<(), String> {
    let mut m = Members::of(Setup { backups: 0, on_loss: OnLoss::Reset { after_ms: 60_000 }, ..Setup::of(2) })?;
    m.sleeps(2);
    let silent = |m: &Members| m.table(1).is_ok_and(|t| t.member(id(2)).is_some_and(|m| m.state == MemberState::Silent));
    m.until(5000, "silence", silent)?;
    m.input(1, Input::Leave(Pace::Repair));
    m.run(5000);
    m.verdict()?;
    let goes = m.process(1).is_none_or(|p| p.handed_over);
    if goes { Err("I14: n1 goes with all that it holds, and n2 may come back".into()) } else { Ok(()) }
}

/// The coordinator leaves in order, before the other one of two has joined its term; that it is gone is told by pings alone.
pub(super) fn who_leaves_stays_until_that_is_known() -> Result<(), String> {
    let mut m = Members::of(Setup::of(2))?;
    m.hangs(1, true);
    m.until(3000, "end of its term", |m| !m.leads(1))?;
    m.post(|letter| if letter.goes(2, 1) { Fate::Lost } else { Fate::Arrives });
    m.hangs(1, false);
    m.until(1000, "term of its own", |m| m.leads(1))?;
    m.input(1, Input::Leave(Pace::Repair));
    m.until(400, "hand-over", |m| m.process(1).is_some_and(|p| p.handed_over))?;
    m.input(1, Input::Depart);
    m.run(10);
    m.post(|letter| if matches!(letter.message, Message::Commit(_)) { Fate::Lost } else { Fate::Arrives });
    m.until(3000, "departure", |m| !m.lives(1))?;
    m.until(5000, "cluster of the one that is left", Members::is_well)?;
    m.verdict()
}

/// A member's data thread stands still, its control thread does not.
pub(super) fn a_hung_data_thread_deposes_its_member() -> Result<(), String> {
    let mut m = Members::of(Setup::of(3))?;
    m.hangs(2, true);
    m.until(4000, "table without n2, whose data thread hangs", |m| m.table(1).is_ok_and(|t| t.member(id(2)).is_none()))?;
    m.verdict()
}

/// Two processes write a first table at the same time, each with both seeds in it and itself. First tables and promises arrive in
/// every order of a bound, or not at all. (Promises lapsed at once, by what had been heard of the writer before: there were two clusters.)
pub(super) fn two_write_a_first_table() -> Result<(), String> {
    every_course(3, |course| {
        let mut m = Members::none(Setup::of(4));
        let course = course.clone();
        m.post(move |letter| match &letter.message {
            Message::Found { .. } | Message::Promise(_) if course.point() < CHOSEN_MAX => {
                [Fate::Arrives, Fate::Late(40), Fate::Lost][course.pick(3)]
            }
            _ => Fate::Arrives,
        });
        (1..=4).for_each(|place| m.start(place, &[3, 4], Some(3)));
        m.run(1500);
        m.verdict()
    })
}

/// A used cluster of one meets another used one.
pub(super) fn who_is_used_gives_way_to_nobody() -> Result<(), String> {
    let mut m = Members::of(Setup { stranger: true, ..Setup::of(2) })?;
    m.start(3, &[], None);
    m.input(3, Input::Used);
    m.until(100, "mark", |m| m.process(3).is_some_and(|p| p.used_ok))?;
    let cluster = m.table(3)?.cluster;
    m.input(3, Input::Seeds(vec![address(1)]));
    m.run(4000);
    m.verdict()?;
    if m.table(3)?.cluster == cluster { Ok(()) } else { Err("a cluster in which a write was acknowledged is gone".into()) }
}
