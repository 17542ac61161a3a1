//! An operator's word splits a cluster, and the halves meet (rule 13).

use super::members::{Fate, Members, Place, Setup, at, id};
use doyen_gossip::Input;
use doyen_gossip::Signature;
use doyen_gossip::agreement::{AdminRequest, VotersGone};
use doyen_gossip::wire::{Descent, Message};
use doyen_placement::Version;

/// The member that is cut off.
const CUT_OFF: Place = 4;

/// One of four members is cut off, and an operator says there that the others are dead. It goes on,
/// and so do they.
fn split() -> Result<Members, String> {
    let mut m = Members::of(Setup {
        backups: 3,
        split: true,
        ..Setup::of(4)
    })?;
    m.post(|letter| {
        if letter.touches(CUT_OFF) {
            Fate::Lost
        } else {
            Fate::Arrives
        }
    });
    m.run(4000);
    m.input(
        CUT_OFF,
        Input::Recover {
            dead: vec!["n1".into(), "n2".into(), "n3".into()],
            gone: VotersGone { gone: 3, voters: 4 },
            ticket: 1,
        },
    );
    m.until(4000, "two halves that serve", |m| m.serve(at(0)).len() == 2)?;
    Ok(m)
}

/// The halves meet. The one that was recovered serves nothing from then on, and the other serves.
pub(super) fn a_recovered_half_serves_nothing_once_a_named_member_lives() -> Result<(), String> {
    let mut m = split()?;
    m.post(|_| Fate::Arrives);
    m.run(3000);
    for _ in 0..50 {
        let serve = m.serve(at(0));
        if serve.contains(&CUT_OFF) || serve.len() != 1 {
            return Err(format!("rule 13: {serve:?} serve: {}", m.summary()));
        }
        m.run(100);
    }
    m.verdict()
}

/// The recovered half stopped, and was kept once the others seemed to be gone. They come back.
pub(super) fn a_half_that_was_kept_gives_way_to_members_that_went_on() -> Result<(), String> {
    let mut m = split()?;
    m.post(|_| Fate::Arrives);
    m.until(4000, "one half that serves", |m| m.serve(at(0)).len() == 1)?;
    m.post(|letter| match letter.touches(CUT_OFF) {
        true => Fate::Lost,
        false => Fate::Arrives,
    });
    m.run(2000);
    let branch = m.table(CUT_OFF)?.annex.branches[0].id;
    let request = AdminRequest::KeepHalf(branch);
    m.input(CUT_OFF, Input::Admin { ticket: 2, request });
    m.until(4000, "the half that was kept serves", |m| {
        m.serve(at(0)).contains(&CUT_OFF)
    })?;
    m.post(|_| Fate::Arrives);
    m.run(8000);
    let serve = m.serve(at(0));
    if serve.contains(&CUT_OFF) || serve.len() != 1 {
        return Err(format!("rule 13: {serve:?} serve: {}", m.summary()));
    }
    m.verdict()
}

/// A process says that it is a member that was asserted dead, and has another table. It has not the
/// key of that member.
pub(super) fn a_recovered_half_is_stopped_by_named_members_alone() -> Result<(), String> {
    let mut m = split()?;
    let table = m.table(1)?;
    let mut committed = table.name();
    committed.version = Version(committed.version.0 + 9);
    for speaker in [1, 2, 9, CUT_OFF] {
        let said = Descent {
            cluster: table.cluster,
            member: id(speaker),
            committed,
            led: true,
            branches: Vec::new(),
            signature: Signature::new([[7; 32]; 2]),
        };
        for from in [1, 9] {
            m.says(from, CUT_OFF, Message::Descent(Box::new(said.clone())));
        }
    }
    for _ in 0..20 {
        m.run(100);
        if !m.serve(at(0)).contains(&CUT_OFF) {
            return Err(format!(
                "rule 13: a statement that no named member signed stopped a half: {}",
                m.summary()
            ));
        }
    }
    m.verdict()
}
