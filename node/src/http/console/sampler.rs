//! Takes a sample of this node in each interval, for the curves of the console.

use super::super::HttpState;
use crate::data::DataStats;
use crate::history::{INTERVAL, Sample};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};

/// What a node has counted up to a moment.
struct CountersNow {
    at: Instant,
    data: DataStats,
    peer_bytes: u64,
}

impl CountersNow {
    async fn look(state: &HttpState) -> Self {
        let data = state.data.stats().await;
        Self {
            at: Instant::now(),
            data,
            peer_bytes: state
                .identity
                .send_errors()
                .bytes()
                .map(|(_, sent)| sent)
                .sum(),
        }
    }

    /// What happened since then.
    fn since(&self, before: &Self) -> Sample {
        let took = (self.at - before.at).max(Duration::from_millis(1));
        let rate = |of: fn(&Self) -> u64| {
            let count = u128::from(of(self).saturating_sub(of(before)));
            u64::try_from(count * 1_000_000 / took.as_micros().max(1)).unwrap_or(u64::MAX)
        };
        let latency = self.data.command_latency.all();
        let latency = latency.since(&before.data.command_latency.all());
        let within = |part| {
            let time = latency.quantile(part)?;
            Some(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
        };
        Sample {
            commands: rate(|c| c.data.front.commands),
            operations: rate(|c| c.data.shard.executed),
            errors: rate(|c| c.data.front.errors),
            p50_us: within(0.5),
            p99_us: within(0.99),
            hits: rate(|c| c.data.shard.lookups.all().0),
            misses: rate(|c| c.data.shard.lookups.all().1),
            client_bytes: rate(|c| c.data.front.input_bytes + c.data.front.output_bytes),
            peer_bytes: rate(|c| c.peer_bytes),
            memory: self.data.shard.memory_bytes,
            memory_max: self.data.shard.memory_bytes_max,
            clients: self.data.connections + self.data.clients,
        }
    }
}

/// Takes samples until the node stops.
pub(in super::super) async fn sample(state: Arc<HttpState>) {
    let mut stopped = state.stopped.clone();
    let mut ticks = tokio::time::interval(INTERVAL);
    // After a pause there is one sample of all of it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = CountersNow::look(&state).await;
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = super::super::wait(&mut stopped) => return,
        }
        let now = CountersNow::look(&state).await;
        state.control.counted().history.push(now.since(&before));
        before = now;
    }
}
