//! Faults of clusters with directories: power cuts, slow and failing disks, directories and
//! machines that are lost, other addresses. A process that has its directory comes back, so more
//! may end at the same time than without directories, and no operator speaks (rule 14).

use super::disk::Ending;
use super::process::{ControlInput, ProcessId};
use super::schedule::{Event, MS, Nanos, SECOND};
use super::world::World;
use doyen_gossip::Input;
use doyen_gossip::wire::Message;
use rand::Rng;

/// The share of these faults in clusters with directories.
pub(crate) const SHARE: f64 = 0.4;

/// How late others hear from their seeds that an address has changed.
const RESOLVED_WITHIN: Nanos = SECOND;

impl World {
    /// Begins one of these faults. Returns its name.
    pub(crate) fn disturb_directories(&mut self) -> Option<&'static str> {
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|s| s.process).collect();
        let one = |rng: &mut rand_chacha::ChaCha8Rng| {
            (!running.is_empty()).then(|| running[rng.random_range(0..running.len())])
        };
        let slot = self.rng.random_range(0..self.slots.len());
        let (name, begun) = match self.rng.random_range(0..20) {
            0..4 => {
                let lost = self.lose_one();
                let begun = self.end_together(&running, Ending::Power);
                if let Some(slot) = lost.filter(|_| begun) {
                    self.slots[slot].directory.synced = None;
                }
                ("power cut", begun)
            }
            4..7 => {
                let some = running.iter().copied();
                let some: Vec<_> = some.filter(|_| self.rng.random_bool(0.5)).collect();
                ("power cut of some", self.end_together(&some, Ending::Power))
            }
            7..11 => {
                let p = one(&mut self.rng)?;
                ("power cut of one", self.end_together(&[p], Ending::Power))
            }
            11..14 => {
                let p = one(&mut self.rng)?;
                ("kill", self.end_together(&[p], Ending::Kill))
            }
            14..17 => {
                let until = self.schedule.now() + self.rng.random_range(SECOND..10 * SECOND);
                self.tell_fault(|_| format!("the disk of n{slot} is slow"));
                self.slots[slot].directory.slow_until = until;
                ("slow disk", true)
            }
            17 => {
                let until = self.schedule.now() + self.rng.random_range(SECOND..8 * SECOND);
                self.tell_fault(|_| "the power is unsteady".into());
                self.unsteady_until = until;
                ("unsteady power", true)
            }
            18 => {
                let until = self.schedule.now() + self.rng.random_range(SECOND..5 * SECOND);
                self.tell_fault(|_| format!("the disk of n{slot} fails"));
                self.slots[slot].directory.fails_until = until;
                ("failing disk", true)
            }
            _ => {
                let p = one(&mut self.rng)?;
                ("lost directory", self.lose_a_directory(p))
            }
        };
        begun.then_some(name)
    }

    /// Whether a process with an empty directory finds out that there is a cluster, if this slot is
    /// gone: an initial member of it comes back.
    fn is_remembered_without(&self, gone: Option<usize>) -> bool {
        let initial = |slot: usize| slot < self.mix.founders || self.mix.founders == 1;
        !self.oracle.any_committed()
            || (0..self.slots.len()).any(|slot| {
                Some(slot) != gone && initial(slot) && !self.slots[slot].lost && self.has_seat(slot)
            })
    }

    /// These processes end at the same time, and come back in any order.
    fn end_together(&mut self, victims: &[ProcessId], ending: Ending) -> bool {
        if victims.is_empty() || !self.is_remembered_without(None) {
            return false;
        }
        self.tell_fault(|w| {
            let names: Vec<String> = victims.iter().map(|p| w.name(*p)).collect();
            format!("{ending:?} of {}", names.join(" "))
        });
        let formed = self.oracle.any_committed();
        for &p in victims {
            let slot = self.processes[p].slot;
            self.close_directory(p, ending);
            self.end_process(p);
            if formed && self.rng.random_bool(0.2) {
                self.move_address(slot);
            }
            let most = [SECOND, SECOND, 3 * SECOND, 3 * SECOND, 12 * SECOND];
            let most = most[self.rng.random_range(0..most.len())];
            let later = self.rng.random_range(20 * MS..most);
            if !self.slots[slot].lost {
                self.schedule.after(later, Event::Start(slot));
            }
        }
        true
    }

    /// While the power is unsteady, it often fails just after a process has promised something.
    pub(crate) fn promises(&mut self, p: ProcessId, message: &Message) {
        let promise = match message {
            Message::VoteAnswer(answer, _) => answer.granted,
            Message::Vote(_) | Message::Ack(_) | Message::Promise(_) => true,
            _ => false,
        };
        if promise
            && !self.calm
            && self.schedule.now() < self.unsteady_until
            && self.disks.random_bool(0.1)
        {
            let soon = self.disks.random_range(0..5 * MS);
            self.schedule.after(soon, Event::PowerFails(p));
        }
    }

    pub(crate) fn power_fails(&mut self, p: ProcessId) {
        if !self.processes[p].gone && !self.calm && self.end_together(&[p], Ending::Power) {
            *self.faults.entry("power cut after a promise").or_default() += 1;
        }
    }

    /// The next process of a slot has another address. The seeds lead to it.
    fn move_address(&mut self, slot: usize) {
        let moved = &mut self.slots[slot].moved;
        *moved = moved.wrapping_add(1);
        self.tell(|w| format!("n{slot} moves to {}", w.control_address(slot)));
        let running: Vec<ProcessId> = self.slots.iter().filter_map(|s| s.process).collect();
        for p in running {
            let (me, of) = (self.processes[p].me, self.processes[p].slot);
            let seeds = Input::Seeds(self.seeds(of).into_iter().collect());
            self.schedule.after(
                RESOLVED_WITHIN,
                Event::Control(p, ControlInput::Of(me, seeds)),
            );
        }
    }

    /// Now and then, one machine does not come back from a power cut, or its directory is lost. The
    /// others are a majority. Returns the slot of the directory.
    fn lose_one(&mut self) -> Option<usize> {
        if !self.rng.random_bool(0.4) {
            return None;
        }
        let slot = self.rng.random_range(0..self.slots.len());
        let machine = self.rng.random_bool(0.5);
        let p = self.slots[slot].process?;
        let formed = self.oracle.any_committed();
        if !formed || !self.may_go(p) || !self.is_remembered_without(Some(slot)) {
            return None;
        }
        if machine && self.slots.iter().any(|s| s.lost) {
            return None;
        }
        self.tell(|_| {
            format!(
                "n{slot} is lost{}",
                if machine { "" } else { ": its directory" }
            )
        });
        self.slots[slot].lost = machine;
        (!machine).then_some(slot)
    }

    /// A process ends, and the next one of its slot has an empty directory.
    fn lose_a_directory(&mut self, p: ProcessId) -> bool {
        let slot = self.processes[p].slot;
        let formed = self.oracle.any_committed();
        if !formed || !self.may_go(p) || !self.is_remembered_without(Some(slot)) {
            return false;
        }
        self.tell_fault(|w| format!("{} ends, and its directory is lost", w.name(p)));
        self.end_process(p);
        self.slots[slot].directory.synced = None;
        let later = self.rng.random_range(20 * MS..6 * SECOND);
        self.schedule.after(later, Event::Start(slot));
        true
    }
}
