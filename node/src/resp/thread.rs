//! What one data thread knows of its clients: its part of the answers about the whole node.

use super::RespContext;
use super::common::{Question, ToldThreads};
use super::counts::{self, FailedReply};
use super::info::InfoNeeds;
use super::totals::{ThreadCounts, Totals};
use super::{cluster, databases, scripts};
use doyen_engine::Stats;

impl RespContext {
    /// This thread's part of the answer to another one's question.
    pub(super) fn answer(&mut self, question: &Question) -> ToldThreads {
        match question {
            Question::Counts(needs) => ToldThreads::Counts(Box::new(self.counted(*needs))),
            Question::Clients(chosen) => ToldThreads::Clients(self.client_lines(chosen)),
            Question::Kill(chosen) => ToldThreads::Number(self.kill_clients(chosen)),
            Question::Unblock(id, how) => ToldThreads::Number(u64::from(self.unblock(*id, *how))),
            Question::Slow(count) => ToldThreads::Slow(self.front.slow.newest(*count)),
            Question::SlowLength => ToldThreads::Number(self.front.slow.len() as u64),
            Question::ResetSlow => {
                self.front.slow.clear();
                ToldThreads::Done
            }
            Question::ResetCounts => {
                self.reset_counts();
                ToldThreads::Done
            }
            Question::Pause(pause) => {
                self.pause(*pause);
                ToldThreads::Done
            }
            Question::Unpause => {
                self.unpause();
                ToldThreads::Done
            }
        }
    }

    /// This thread's counters for `INFO`, as far as they are needed.
    pub(crate) fn counted(&self, needs: InfoNeeds) -> ThreadCounts {
        if needs == InfoNeeds::Nothing {
            return ThreadCounts::default();
        }
        let stats = self.shard().stats();
        // Every key has one primary, so the numbers of all nodes add up to `DBSIZE`.
        let (databases, scripts, script_bytes) = match needs {
            InfoNeeds::Nothing | InfoNeeds::Counts => (Box::default(), 0, 0),
            InfoNeeds::Databases => {
                let [(stored, _)] = self
                    .shard()
                    .partitions()
                    .led(cluster::KEYSPACE, [scripts::MAP]);
                let stored_bytes = self
                    .shard()
                    .partitions()
                    .bytes_led(cluster::KEYSPACE, scripts::MAP);
                let (kept, kept_bytes) = self.front.scripts.held(self.me().thread_number() == 0);
                let databases = self
                    .shard()
                    .partitions()
                    .led(cluster::KEYSPACE, databases::all());
                let bytes = stored_bytes + kept_bytes;
                (Box::new(databases), stored + kept, bytes)
            }
        };
        let (input, answers) = self.front.budget.held();
        let output = answers + self.front.budget.spilled();
        ThreadCounts {
            connected_clients: self.front.connections.len() as u64,
            client_bytes: (input + output) as u64,
            client_output_bytes: output as u64,
            memory_bytes: stats.memory_bytes,
            memory_peak_bytes: self.front.sampling.memory_peak_bytes(stats.memory_bytes),
            parked: stats.parked + self.front.steps.waiting().get() + self.front.paused.clients(),
            tracking: self.front.hub.tracking.counts(),
            databases,
            scripts,
            script_bytes,
            keys_held: stats.keys,
            totals: self.totals(&stats).since(&self.front.sampling.totals_from),
            rates: self.front.sampling.per_second(),
            counts: self.front.counts.clone(),
        }
    }

    fn totals(&self, stats: &Stats) -> Totals {
        let front = self.front.counters;
        let (hits, misses) = stats.lookups.all();
        let of_output = front.output_limited + self.front.hub.limited;
        Totals {
            front,
            connections_expelled: front.connections_expelled + of_output,
            expired: stats.expired,
            evicted: stats.evicted,
            hits,
            misses,
        }
    }

    /// Lets `INFO` count from zero. (The counters of `/metrics` go on.)
    pub(crate) fn reset_counts(&mut self) {
        self.front.sampling.totals_from = self.totals(&self.shard().stats());
        self.front.counts = counts::CommandCounts::new();
    }

    /// Counts the error replies of a connection.
    pub(crate) fn count_errors(&mut self, failed: &mut Vec<FailedReply>) {
        for failed in failed.drain(..) {
            self.front.counters.errors += failed.times;
            self.front.counts.failed(&failed);
        }
    }

    /// Whether the present plain `GET` or `SET` is timed.
    #[inline]
    pub(super) fn times_plain(&self) -> bool {
        self.front.counters.commands.is_multiple_of(counts::SAMPLE)
            || self.front.common.settings.times_all()
    }
}
