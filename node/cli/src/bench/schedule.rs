//! When operations start. In the closed loop, an operation starts as soon as there is room. In the
//! open loop, operations start at a constant rate, even if the servers are slow.
//!
//! Operations of the open loop have intended starts. The lanes (connections) get them in turn: of
//! three lanes, lane 0 has starts 0, 3, 6, .. A lane that may not send keeps its starts and sends
//! them late. Latency counts from the intended start, so the time that an operation waits here is
//! included (no coordinated omission). Times are in nanoseconds since the generator began.

use std::time::Instant;

const SECOND: f64 = 1e9;

/// The zero of all times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the start; they do not overflow for centuries.
    pub(super) fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// When the operations of one thread start.
#[derive(Debug)]
pub(super) struct Schedule {
    ends_at: u64,
    open: Option<OpenLoop>,
}

#[derive(Debug)]
struct OpenLoop {
    starts_at: u64,
    /// Nanoseconds between two starts.
    interval: f64,
    /// How many starts each lane has taken.
    taken: Vec<u64>,
    /// How many starts `due_lane` has returned.
    told: u64,
}

impl Schedule {
    /// An operation may start whenever there is room, until `ends_at`.
    pub(super) fn closed(ends_at: u64) -> Self {
        Self {
            ends_at,
            open: None,
        }
    }

    /// `rate` operations a second over all `lanes`, from `starts_at` to `ends_at`.
    pub(super) fn open(rate: f64, lanes: usize, starts_at: u64, ends_at: u64) -> Self {
        Self {
            ends_at,
            open: Some(OpenLoop {
                starts_at,
                interval: SECOND / rate,
                taken: vec![0; lanes],
                told: 0,
            }),
        }
    }

    /// From this time on no operation starts.
    pub(super) fn ends_at(&self) -> u64 {
        self.ends_at
    }

    /// The intended start of the lane's next operation, if it may be sent now.
    pub(super) fn take(&mut self, lane: usize, now: u64) -> Option<u64> {
        if now >= self.ends_at {
            return None;
        }
        let Some(open) = &mut self.open else {
            return Some(now);
        };
        let start = open.start(open.taken[lane] * open.taken.len() as u64 + lane as u64);
        if start > now || start >= self.ends_at {
            return None;
        }
        open.taken[lane] += 1;
        Some(start)
    }

    /// Returns the start that the lane took last: the lane had no operation for it.
    pub(super) fn give_back(&mut self, lane: usize) {
        if let Some(open) = &mut self.open {
            open.taken[lane] -= 1;
        }
    }

    /// A lane whose next start has become due; call it until it returns `None`. Always `None` in
    /// the closed loop.
    pub(super) fn due_lane(&mut self, now: u64) -> Option<usize> {
        let open = self.open.as_mut()?;
        let start = open.start(open.told);
        if start > now || start >= self.ends_at {
            return None;
        }
        open.told += 1;
        Some(((open.told - 1) % open.taken.len() as u64) as usize)
    }

    /// When `due_lane` returns a lane again.
    pub(super) fn next_start(&self) -> Option<u64> {
        let open = self.open.as_ref()?;
        Some(open.start(open.told)).filter(|start| *start < self.ends_at)
    }

    /// Starts before the end that no lane took.
    pub(super) fn behind(&self) -> u64 {
        let Some(open) = &self.open else { return 0 };
        // The division may be off by one, so `start` decides which starts lie before the end.
        let mut starts =
            (self.ends_at.saturating_sub(open.starts_at) as f64 / open.interval) as u64;
        while open.start(starts) < self.ends_at {
            starts += 1;
        }
        while starts > 0 && open.start(starts - 1) >= self.ends_at {
            starts -= 1;
        }
        starts - open.taken.iter().sum::<u64>()
    }
}

impl OpenLoop {
    fn start(&self, nth: u64) -> u64 {
        self.starts_at + (nth as f64 * self.interval) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::OperationKind;
    use super::super::recorder::Recorder;
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_closed_loop_starts_whenever_there_is_room() {
        let mut schedule = Schedule::closed(10 * MS);
        assert_eq!(schedule.take(0, 3), Some(3));
        assert_eq!(schedule.take(0, 10 * MS - 1), Some(10 * MS - 1));
        assert_eq!(schedule.take(0, 10 * MS), None);
        assert_eq!(
            (
                schedule.due_lane(5),
                schedule.next_start(),
                schedule.behind()
            ),
            (None, None, 0)
        );
    }

    #[test]
    fn lanes_get_starts_in_turn() {
        let mut schedule = Schedule::open(1000.0, 3, 100, 100 + 6 * MS);
        assert_eq!(schedule.due_lane(99), None);
        assert_eq!(schedule.next_start(), Some(100));
        let lanes: Vec<_> = std::iter::from_fn(|| schedule.due_lane(100 + 4 * MS)).collect();
        assert_eq!(lanes, [0, 1, 2, 0, 1]);
        assert_eq!(schedule.next_start(), Some(100 + 5 * MS));
        assert_eq!(schedule.take(1, 100 + 4 * MS), Some(100 + MS));
        assert_eq!(schedule.take(1, 100 + 4 * MS), Some(100 + 4 * MS));
        assert_eq!(schedule.take(1, 100 + 4 * MS), None);
        // No operation starts at the end or later: of six starts, two were taken.
        assert_eq!(schedule.due_lane(u64::MAX), Some(2));
        assert_eq!(
            (schedule.due_lane(u64::MAX), schedule.next_start()),
            (None, None)
        );
        assert_eq!(
            (schedule.take(0, 100 + 6 * MS), schedule.behind()),
            (None, 4)
        );
        schedule.give_back(1);
        assert_eq!(
            (schedule.take(1, 100 + 5 * MS), schedule.behind()),
            (Some(100 + 4 * MS), 4)
        );
    }

    #[test]
    fn the_number_of_starts_follows_the_rate() {
        for (rate, seconds) in [(1.0, 3), (333.3, 3), (99_999.0, 2), (1_000_000.0, 1)] {
            let schedule = Schedule::open(rate, 7, 5, 5 + seconds * 1000 * MS);
            let expected = rate * seconds as f64;
            assert!(
                (schedule.behind() as f64 - expected).abs() <= 1.0,
                "{rate} over {seconds} s: {}",
                schedule.behind()
            );
        }
    }

    /// A server answers at once, but pauses for 100 ms of one second. A tenth of the operations
    /// waited, the longest for the whole pause. A generator that counts from the actual sending
    /// would see only one slow operation for each lane.
    #[test]
    fn a_pause_of_the_server_counts_for_every_operation_that_it_delays() {
        let end = 1000 * MS;
        let (mut schedule, mut recorder) = (Schedule::open(1000.0, 1, 0, end), Recorder::new());
        recorder.measure_from(0);
        let mut now = 0;
        while now < end {
            if let Some(intended) = schedule.take(0, now) {
                recorder.sent(now);
                if (500 * MS..600 * MS).contains(&now) {
                    now = 600 * MS;
                }
                recorder.heard(now);
                recorder.answered(OperationKind::Set, false, intended, now);
            } else {
                now += MS / 10;
            }
        }
        assert_eq!((recorder.operations(), schedule.behind()), (1000, 0));
        let late = recorder
            .latencies()
            .iter_recorded()
            .filter(|v| v.value_iterated_to() >= 10 * MS)
            .map(|v| v.count_at_value())
            .sum::<u64>();
        assert!(
            (88..=92).contains(&late),
            "{late} waited for 10 ms or longer"
        );
        assert!(
            (99 * MS..101 * MS).contains(&recorder.latencies().max()),
            "{}",
            recorder.latencies().max()
        );
        assert_eq!(recorder.longest_stall(), 100 * MS);
    }
}
