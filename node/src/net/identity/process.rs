//! Which process this is, and which keys the members have.
//!
//! Certificates say that a process belongs to the cluster. With one secret, each member could make
//! a certificate with the name of another. So both hellos of a connection show the key of the
//! sender's votes, and a signature over its id and over a number that only the two ends of this
//! connection know ([`Presence`]). If the table says the key of that member, it must be this one.

use doyen_gossip::{Presence, Signature, SigningKey, SigningSeed};
use doyen_placement::{MemberId, VoteKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The key in a hello, and the signature that shows that its owner sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The key of the sender's votes.
    pub key: VoteKey,
    /// Its signature over [`Presence`].
    pub signature: Signature,
}

/// The key of this process, and those of the members.
#[derive(Debug, Default)]
pub(super) struct Processes(Mutex<KnownProcesses>);

#[derive(Debug, Default)]
struct KnownProcesses {
    /// `None`: a client, or a process that only asks.
    own: Option<Arc<SigningKey>>,
    members: BTreeMap<MemberId, VoteKey>,
}

impl Processes {
    /// A lock is held for a copy or a comparison. A poisoned one means that a thread panicked; the
    /// content is replaced as a whole, so it is still good.
    fn known(&self) -> MutexGuard<'_, KnownProcesses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_own(&self, seed: &SigningSeed) {
        self.known().own = Some(Arc::new(SigningKey::new(seed)));
    }

    /// Returns whether they are others than before.
    pub(super) fn set_members(&self, members: BTreeMap<MemberId, VoteKey>) -> bool {
        let known = &mut self.known().members;
        let changed = *known != members;
        *known = members;
        changed
    }

    pub(super) fn prove(&self, presence: &Presence) -> Option<Proof> {
        let own = self.known().own.clone()?;
        Some(Proof {
            key: own.vote_key(),
            signature: own.show(presence),
        })
    }

    /// Whether a process that showed this key may say that it has this id.
    pub(super) fn may_be(&self, id: MemberId, shown: Option<VoteKey>) -> bool {
        let known = self.known();
        let needed = known.members.get(&id.member());
        needed.is_none_or(|needed| shown == Some(*needed))
    }
}
