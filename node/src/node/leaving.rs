//! How a node leaves: in order, or at once.
//!
//! ```text
//!   shutdown ──> a thread: hand over, answer what was received, depart ── stop, join ──> closed
//!   kill     ──> a thread:                                                stop, join ──> closed
//! ```
//! It happens on a thread of its own, so that it neither needs the runtime of the caller nor ends
//! with a future that is dropped.

use super::NodeInner;
#[cfg(feature = "http")]
use super::Threads;
use crate::error::Error;
use doyen_placement::planner::{self, HandOverUrgency};
use doyen_placement::{MemberId, MemberState, Partition, Table};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After `leave_timeout`, copies that other members hold as well are dropped. This is how long that
/// may take.
const HASTE_MAX: Duration = Duration::from_secs(2);
/// A node ends at the latest this long after `leave_timeout`. With the default of 25 s that is
/// within the 30 s which orchestrators give a process before they kill it.
const OVERTIME_MAX: Duration = Duration::from_secs(4);
/// How long a node that gives up leaving in order asks each of its own threads what may be lost.
const STATUS_MAX: Duration = Duration::from_secs(1);
/// How long the last step of leaving may take: a majority installs the table without this node.
const DEPART_MAX: Duration = Duration::from_secs(5);
/// How long answers to requests that were received may take, when leaving: an operation is parked
/// for 5 s at most.
const DRAIN_MAX: Duration = Duration::from_secs(6);

/// How a node left.
///
/// ```no_run
/// use doyen::Departure;
///
/// # async fn example(node: doyen::Node) {
/// match node.shutdown().await {
///     Departure::Complete => {}
///     Departure::Last { keys } => eprintln!("the last node took {keys} keys with it"),
///     other => eprintln!("left with {other:?}; data was lost: {}", other.loses()),
/// }
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// Everything was handed over (or there was nothing to hand over), and a majority knows that
    /// this node is gone.
    Complete,
    /// As `Complete`, but after `leave_timeout`: other members hold everything, some of it in fewer
    /// copies than it should have.
    Unrepaired,
    /// It was no member of a cluster.
    Outside,
    /// It never had another member to hand over to. Its data is gone; by design, no other copy of
    /// it exists.
    Alone,
    /// No other member stayed or came to take over. Its data is gone.
    Last {
        /// This many keys.
        keys: u64,
    },
    /// It took longer than `leave_timeout`. Data that only this node held is gone.
    TimedOut {
        /// This many partitions with data. By the last table that this node knows, no other member
        /// that answers and stays has a copy of them.
        partitions: usize,
    },
}

impl Departure {
    /// Whether this node, or the cluster with it, lost what it had promised to keep.
    #[must_use]
    pub const fn loses(self) -> bool {
        matches!(self, Self::Last { .. } | Self::TimedOut { partitions: 1.. })
    }
}

impl NodeInner {
    /// Begins to leave in order, if that has not begun.
    pub(super) fn begin_to_leave(self: &Arc<Self>) {
        if self.ending.swap(true, Ordering::SeqCst) {
            return;
        }
        self.on_a_thread(|node| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            match runtime {
                Ok(runtime) => Ok(runtime.block_on(node.leave())),
                Err(why) => {
                    tracing::error!("the node stops without leaving in order: {why}");
                    Ok(Departure::TimedOut { partitions: 0 })
                }
            }
        });
    }

    /// Stops at once, if it has not begun to leave; if it has, it stops now.
    pub(super) fn begin_to_stop(self: &Arc<Self>) {
        let began = self.ending.swap(true, Ordering::SeqCst);
        self.stop();
        if !began {
            self.on_a_thread(|_| Err(Error::Closed));
        }
    }

    /// Ends the node on a thread of its own, after `last`, and says how it ended.
    fn on_a_thread(
        self: &Arc<Self>,
        last: impl FnOnce(&Self) -> Result<Departure, Error> + Send + 'static,
    ) {
        let node = self.clone();
        let ending = move || {
            // If the node breaks one of its rules now, callers still have to be told its end.
            let end = catch_unwind(AssertUnwindSafe(|| last(&node)));
            node.stop();
            if catch_unwind(AssertUnwindSafe(|| node.join())).is_err() {
                tracing::error!("a thread of this node panicked, which is a defect");
            }
            let end = end.unwrap_or_else(|_| {
                Err(Error::Fatal("the node failed while it was leaving".into()))
            });
            node.end.send_replace(Some(end));
        };
        let thread = std::thread::Builder::new().name("doyen-leave".into());
        if let Err(why) = thread.spawn(ending) {
            // Without a thread there is nothing to wait with: the other members notice.
            self.stop();
            let why = format!("the node stopped at once, because it got no thread: {why}");
            self.end.send_replace(Some(Err(Error::Fatal(why))));
        }
    }

    async fn leave(&self) -> Departure {
        if self.is_client() {
            return Departure::Complete;
        }
        if !self.is_member() {
            return Departure::Outside;
        }
        #[cfg(feature = "http")]
        if let Some(Threads {
            http: Some(http), ..
        }) = &*self.threads()
        {
            http.leaving();
        }
        if self.data.has_ended() {
            // The data of that thread is gone with it: there is nothing to hand over.
            return Departure::TimedOut {
                partitions: self.holds_alone().await,
            };
        }
        let end = Instant::now() + self.leave_timeout + OVERTIME_MAX;
        let left = |limit: Duration| limit.min(end.saturating_duration_since(Instant::now()));
        let within = |limit, pace| tokio::time::timeout(limit, self.control.hand_over(pace));
        let departure = if matches!(
            within(self.leave_timeout, HandOverUrgency::Repair).await,
            Ok(Ok(()))
        ) {
            // Copies of empty partitions are no loss.
            let keys = if self.table_says(planner::holds_anything) {
                self.data.stats().await.shard.keys
            } else {
                0
            };
            match keys {
                0 => Departure::Complete,
                _ if self.table_says(|table, _| table.always_alone()) => Departure::Alone,
                keys => Departure::Last { keys },
            }
        } else if matches!(within(HASTE_MAX, HandOverUrgency::AtOnce).await, Ok(Ok(())))
            && !self.table_says(planner::holds_anything)
        {
            Departure::Unrepaired
        } else {
            // Copies of empty partitions are no loss. If the data threads do not answer, assume
            // that there are keys.
            let stats = tokio::time::timeout(STATUS_MAX, self.data.stats()).await;
            let empty = stats.is_ok_and(|stats| stats.shard.keys == 0);
            Departure::TimedOut {
                partitions: if empty { 0 } else { self.holds_alone().await },
            }
        };
        let drain_max = left(DRAIN_MAX);
        if tokio::time::timeout(drain_max, self.data.drain())
            .await
            .is_err()
        {
            tracing::warn!(
                "some requests were not answered within {drain_max:.1?}: their connections are \
                 closed"
            );
        }
        if matches!(departure, Departure::TimedOut { .. }) {
            return departure;
        }
        // The other members have its data, or the data is lost. They know that this node is gone,
        // or notice it.
        let depart_max = left(DEPART_MAX);
        if !matches!(
            tokio::time::timeout(depart_max, self.control.depart()).await,
            Ok(Ok(()))
        ) {
            tracing::warn!(
                "no majority has confirmed within {depart_max:.1?} that this node is gone: it \
                 stops anyway"
            );
        }
        departure
    }

    /// Whether it is part of a cluster, as far as it knows itself.
    pub(super) fn is_member(&self) -> bool {
        self.shared.local().view.is_some()
    }

    /// What the table in force says of this node; `false` if there is no table.
    fn table_says(&self, what: impl Fn(&Table, MemberId) -> bool) -> bool {
        let local = self.shared.local();
        local
            .view
            .as_ref()
            .is_some_and(|view| what(&view.installed, local.me))
    }

    /// Partitions without a copy that counts at another member that answers and stays.
    async fn holds_alone(&self) -> usize {
        // Takes some 300 ms, and longer only if the control thread hangs.
        let status = tokio::time::timeout(STATUS_MAX, self.control.status()).await;
        let unanswered = status
            .ok()
            .and_then(Result::ok)
            .map(|status| status.status.unanswered)
            .unwrap_or_default();
        let local = self.shared.local();
        let Some(view) = &local.view else { return 0 };
        let table = &view.installed;
        let leaving = planner::leaving(table);
        let silent = |m: MemberId| {
            table
                .member(m)
                .is_none_or(|m| m.state == MemberState::Silent)
                || unanswered.contains(&m)
        };
        let keeps = |m: MemberId| m != local.me && !leaving.contains(&m) && !silent(m);
        let holds = |p: &Partition| p.in_sync().any(|m| m == local.me);
        table
            .partitions()
            .filter(|(_, p)| holds(p) && !p.in_sync().any(keeps))
            .count()
    }
}
