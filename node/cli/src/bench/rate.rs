//! How long a thread of the generator runs, and how long it may sleep. It is the same for all
//! targets.

use super::CommandFailed;
use super::plan::BenchPlan;
use super::recorder::Recorder;
use super::schedule::{Clock, Schedule};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long the generator waits for replies after the end. A Doyen node parks a request for 5 s at
/// most.
const DRAIN_MAX: u64 = 6_000_000_000;
/// How long filling, or deleting in the end, may go on without any reply.
const FILL_STALL_MAX: u64 = 30_000_000_000;
/// The longest sleep: a thread then notices that another one has failed.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The system sleeps for whole milliseconds, and up to one more. For nearer starts the thread stays
/// awake.
const SLEEP_MARGIN: u64 = 2_000_000;

/// Whether the plan or the schedule has ended, and every operation that was sent is answered.
pub(super) fn is_over(
    clock: Clock,
    plan: &BenchPlan,
    schedule: &Schedule,
    recorder: &Recorder,
) -> Result<bool, CommandFailed> {
    let now = clock.now();
    if plan.is_finite() {
        if recorder.outstanding() > 0 && now.saturating_sub(recorder.quiet_since()) > FILL_STALL_MAX
        {
            return Err(CommandFailed::new(format!(
                "filling or deleting makes no progress: no reply for {} s; --keep deletes nothing",
                FILL_STALL_MAX / 1_000_000_000
            )));
        }
        return Ok(recorder.outstanding() == 0);
    }
    Ok(now >= schedule.ends_at()
        && (recorder.outstanding() == 0 || now - schedule.ends_at() > DRAIN_MAX))
}

/// How long the thread may sleep until the next start is due.
pub(super) fn sleep(clock: Clock, schedule: &Schedule) -> Duration {
    let now = clock.now();
    match schedule.next_start() {
        Some(start) => Duration::from_nanos(start.saturating_sub(now).saturating_sub(SLEEP_MARGIN))
            .min(SLEEP_MAX),
        None if now < schedule.ends_at() => {
            Duration::from_nanos(schedule.ends_at() - now).min(SLEEP_MAX)
        }
        None => SLEEP_MAX,
    }
}

/// Runs every worker on a thread of its own. The first failure ends all of them.
pub(super) fn on_threads<W: Send>(
    workers: &mut [W],
    run: impl Fn(&mut W, &AtomicBool) -> Result<(), CommandFailed> + Sync,
) -> Result<(), CommandFailed> {
    let failed = AtomicBool::new(false);
    let run = |worker: &mut W| {
        run(worker, &failed).inspect_err(|_| failed.store(true, Ordering::Relaxed))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(|| run(worker)))
            .collect();
        let ended: Vec<_> = threads
            .into_iter()
            .map(|t| {
                t.join().unwrap_or_else(|_| {
                    Err(CommandFailed::new("a thread of the generator panicked"))
                })
            })
            .collect();
        ended.into_iter().collect()
    })
}
