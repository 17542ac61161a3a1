//! What the acts of a shard may touch besides a partition: the host of the roles, and what belongs
//! to the shell.

use super::clients::Pulling;
use super::publishing::{Channels, Publishing};
use crate::command::scripts::{ScriptRefusals, Scripts};
use crate::role::host::Host;
use crate::shard::paging::PageCursors;
use crate::store::budget::Budgets;
use crate::wire::api::Limits;
use doyen_gossip::Time;
use doyen_placement::MemberId;

/// Everything that belongs to no partition.
#[derive(Debug)]
pub(crate) struct ShardContext {
    /// What roles act on.
    pub(crate) host: Host,
    pub(crate) pulling: Pulling,
    pub(crate) publishing: Publishing,
    pub(crate) scripts: Scripts,
    pub(crate) refusals: ScriptRefusals,
    pub(crate) cursors: PageCursors,
    /// What operations may do.
    pub(crate) budgets: Budgets,
}

impl ShardContext {
    pub(crate) fn new(me: MemberId, limits: Limits, rng_seed: u64, now: Time) -> Self {
        Self {
            host: Host::new(me, limits, rng_seed, now),
            pulling: Pulling::default(),
            publishing: Publishing::default(),
            scripts: Scripts::new(rng_seed),
            refusals: ScriptRefusals::default(),
            cursors: PageCursors::new(),
            budgets: Budgets::default(),
        }
    }

    /// The channels of this thread.
    pub(crate) fn channels(&mut self) -> Channels<'_> {
        Channels {
            publishing: &mut self.publishing,
            host: &mut self.host,
        }
    }
}
