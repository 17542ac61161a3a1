//! No member has much more measured work than its share. Leads move first, because that copies
//! nothing, and then copies.

use super::Scheduling;
use crate::loads::Threshold;
use crate::planner::layout::Seats;

pub(super) struct Hot;

impl Scheduling for Hot {
    fn improve(&self, seats: &mut Seats<'_>) {
        if !seats.measured.uneven.work {
            return;
        }
        let work = |seats: &Seats<'_>| seats.burdens().iter().map(|burden| burden.work).collect();
        seats.exchange(Threshold::WORK, work, |seats, burdens, giver, taker| {
            seats.exchange_leads(burdens, giver, taker)
        });
        seats.exchange(Threshold::WORK, work, |seats, burdens, giver, taker| {
            seats.exchange_copies(burdens, (giver, taker), |seats, p, leads| {
                let weight = seats.measured.weights[p];
                weight.copy + if leads { weight.lead } else { 0 }
            })
        });
    }
}

impl Seats<'_> {
    /// Evens out the bytes that members hold: for the scheduler of copies.
    pub(super) fn even_bytes(&mut self) {
        if !self.measured.uneven.bytes {
            return;
        }
        let bytes = |seats: &Seats<'_>| seats.burdens().iter().map(|burden| burden.bytes).collect();
        self.exchange(Threshold::BYTES, bytes, |seats, burdens, giver, taker| {
            seats.exchange_copies(burdens, (giver, taker), |seats, p, _| {
                seats.measured.weights[p].bytes
            })
        });
    }
}
