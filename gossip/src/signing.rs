//! What processes sign, and how it is checked: Ed25519 (RFC 8032).
//!
//! | signed | shows |
//! |---|---|
//! | [`Vote`] | that this voter votes for this candidate (rule 1) |
//! | [`Presence`] | that the process with this id is at the other end of this connection |
//! | [`Descent`](crate::wire::Descent) | which tables the process with this id follows (rule 13) |
//!
//! A signature is made over bytes that begin with a label of their own and have one length. So none
//! can be taken for a signature of something else.

use crate::wire::Descent;
use doyen_placement::{ClusterId, MemberId, TableName, Term, VoteKey};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Begins what a voter signs.
const VOTE: [u8; 16] = *b"doyen/vote/1\0\0\0\0";
/// Begins what a process signs about the tables that it follows.
const DESCENT: [u8; 16] = *b"doyen/descent/1\0";
/// Begins what an end of a connection signs.
const PRESENCE: [u8; 16] = *b"doyen/presence/1";

/// The seed of the key with which a process signs: 32 bytes from a generator that outsiders cannot
/// foresee, drawn at each start. It is never shown.
#[derive(Clone, Copy)]
pub struct SigningSeed([u8; 32]);

impl SigningSeed {
    /// A seed of these bytes.
    #[must_use]
    pub const fn new(seed: [u8; 32]) -> Self {
        Self(seed)
    }

    /// A seed that everyone can work out from a number: for simulations and tests, which must
    /// replay exactly.
    #[doc(hidden)]
    #[must_use]
    pub fn of_test(number: u64) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Self(seed)
    }

    /// The public part of the key.
    #[must_use]
    pub fn vote_key(&self) -> VoteKey {
        SigningKey::new(self).vote_key()
    }
}

impl fmt::Debug for SigningSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSeed(..)")
    }
}

/// A vote that can be checked: this voter would follow this candidate in this term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The cluster.
    pub cluster: ClusterId,
    /// The term.
    pub term: Term,
    /// The candidate.
    pub candidate: MemberId,
}

impl Vote {
    fn bytes(&self) -> [u8; 48] {
        let mut bytes = [0; 48];
        bytes[..16].copy_from_slice(&VOTE);
        bytes[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.term.0.to_le_bytes());
        bytes[40..].copy_from_slice(&self.candidate.0.to_le_bytes());
        bytes
    }
}

/// A process is at this end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// The process, or its data thread.
    pub id: MemberId,
    /// A number that only the two ends know, that differs for each connection and for its two ends.
    pub connection: [u8; 32],
}

impl Presence {
    fn bytes(&self) -> [u8; 56] {
        let mut bytes = [0; 56];
        bytes[..16].copy_from_slice(&PRESENCE);
        bytes[16..24].copy_from_slice(&self.id.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.connection);
        bytes
    }
}

impl Descent {
    fn bytes(&self) -> [u8; 80] {
        let mut branches = Vec::new();
        for (id, base, kept) in &self.branches {
            branches.extend(id.0.to_le_bytes());
            branches.extend(name_bytes(base));
            branches.extend(kept.to_le_bytes());
        }
        let mut bytes = [0; 80];
        bytes[..16].copy_from_slice(&DESCENT);
        bytes[16..24].copy_from_slice(&self.member.0.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.cluster.0.to_le_bytes());
        let name = name_bytes(&self.committed);
        let whole = [&name[..], &[u8::from(self.led)], &branches].concat();
        bytes[40..72].copy_from_slice(digest(&SHA256, &whole).as_ref());
        bytes[72..].copy_from_slice(&(self.branches.len() as u64).to_le_bytes());
        bytes
    }
}

fn name_bytes(name: &TableName) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..16].copy_from_slice(&name.cluster.0.to_le_bytes());
    bytes[16..24].copy_from_slice(&name.term.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&name.version.0.to_le_bytes());
    bytes[32..].copy_from_slice(&name.hash.to_le_bytes());
    bytes
}

/// A signature: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature([[u8; 32]; 2]);

impl Signature {
    /// A signature of these bytes, right or wrong.
    #[must_use]
    pub const fn new(halves: [[u8; 32]; 2]) -> Self {
        Self(halves)
    }

    /// Its bytes.
    #[must_use]
    pub const fn halves(&self) -> &[[u8; 32]; 2] {
        &self.0
    }

    /// Whether the owner of this key signed this vote.
    #[must_use]
    pub fn is_of(&self, key: &VoteKey, vote: &Vote) -> bool {
        self.is_over(key, &vote.bytes())
    }

    /// Whether the owner of this key said this about the tables that it follows.
    #[must_use]
    pub fn vouches(&self, key: &VoteKey, said: &Descent) -> bool {
        self.is_over(key, &said.bytes())
    }

    /// Whether the owner of this key is at that end of that connection.
    #[must_use]
    pub fn shows(&self, key: &VoteKey, presence: &Presence) -> bool {
        self.is_over(key, &presence.bytes())
    }

    fn is_over(&self, key: &VoteKey, bytes: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, key.0)
            .verify(bytes, self.0.as_flattened())
            .is_ok()
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signature(..)")
    }
}

/// The key with which a process signs.
#[derive(Debug)]
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// The key of this seed.
    #[must_use]
    pub fn new(seed: &SigningSeed) -> Self {
        // Only the length could be wrong, and it is a type's.
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed.0);
        Self(pair.expect("an Ed25519 seed has 32 bytes"))
    }

    /// The public part.
    #[must_use]
    pub fn vote_key(&self) -> VoteKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        VoteKey(key)
    }

    pub(crate) fn sign(&self, vote: &Vote) -> Signature {
        self.over(&vote.bytes())
    }

    /// Signs what this process says about the tables that it follows.
    pub(crate) fn state(&self, said: &Descent) -> Signature {
        self.over(&said.bytes())
    }

    /// Shows that the process with this key is at this end of a connection.
    #[must_use]
    pub fn show(&self, presence: &Presence) -> Signature {
        self.over(&presence.bytes())
    }

    fn over(&self, bytes: &[u8]) -> Signature {
        let signed = self.0.sign(bytes);
        let mut halves = [[0; 32]; 2];
        halves.as_flattened_mut().copy_from_slice(signed.as_ref());
        Signature(halves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_placement::{BranchId, Version};

    const VOTE: Vote = Vote {
        cluster: ClusterId(7),
        term: Term(3),
        candidate: MemberId(16),
    };

    #[test]
    fn a_signature_is_of_one_key_and_one_vote() {
        let key = SigningKey::new(&SigningSeed::of_test(1));
        let signature = key.sign(&VOTE);
        assert!(signature.is_of(&key.vote_key(), &VOTE));
        let cluster = ClusterId(8);
        let (term, candidate) = (Term(4), MemberId(32));
        for other in [
            Vote { cluster, ..VOTE },
            Vote { term, ..VOTE },
            Vote { candidate, ..VOTE },
        ] {
            assert!(!signature.is_of(&key.vote_key(), &other), "{other:?}");
        }
        let other = SigningKey::new(&SigningSeed::of_test(2)).vote_key();
        assert!(!signature.is_of(&other, &VOTE));
        for bit in 0..512 {
            let mut forged = signature;
            forged.0[bit / 256][bit / 8 % 32] ^= 1 << (bit % 8);
            assert!(!forged.is_of(&key.vote_key(), &VOTE), "bit {bit}");
        }
    }

    #[test]
    fn a_presence_is_of_one_process_on_one_connection() {
        let key = SigningKey::new(&SigningSeed::of_test(1));
        let presence = Presence {
            id: MemberId(16),
            connection: [5; 32],
        };
        let signature = key.show(&presence);
        assert!(signature.shows(&key.vote_key(), &presence));
        let (id, connection) = (MemberId(17), [6; 32]);
        for other in [
            Presence { id, ..presence },
            Presence {
                connection,
                ..presence
            },
        ] {
            assert!(!signature.shows(&key.vote_key(), &other), "{other:?}");
        }
        assert!(!signature.is_of(&key.vote_key(), &VOTE));
    }

    #[test]
    fn what_a_process_says_of_its_tables_cannot_be_changed() {
        let key = SigningKey::new(&SigningSeed::of_test(1));
        let name = |version| TableName {
            cluster: ClusterId(7),
            term: Term(3),
            version: Version(version),
            hash: 5,
        };
        let mut said = Descent {
            cluster: ClusterId(7),
            member: MemberId(16),
            committed: name(9),
            led: true,
            branches: vec![(BranchId(4), name(8), 0)],
            signature: Signature::new([[0; 32]; 2]),
        };
        said.signature = key.state(&said);
        let vouched = |said: &Descent| said.signature.vouches(&key.vote_key(), said);
        assert!(vouched(&said));
        let changes: [fn(&mut Descent); 9] = [
            |said| said.cluster = ClusterId(8),
            |said| said.member = MemberId(32),
            |said| said.committed.version = Version(10),
            |said| said.committed.hash = 6,
            |said| said.led = false,
            |said| said.branches.clear(),
            |said| said.branches[0].0 = BranchId(5),
            |said| said.branches[0].1.term = Term(4),
            |said| said.branches[0].2 = 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = said.clone();
            change(&mut other);
            assert!(!vouched(&other), "{number}");
        }
        let other = SigningKey::new(&SigningSeed::of_test(2)).vote_key();
        assert!(!said.signature.vouches(&other, &said));
    }

    #[test]
    fn no_signature_is_of_a_key_that_is_none() {
        let signature = SigningKey::new(&SigningSeed::of_test(1)).sign(&VOTE);
        for wrong in [[0; 32], [0xff; 32], [1; 32]] {
            assert!(!signature.is_of(&VoteKey(wrong), &VOTE));
        }
    }

    #[test]
    fn a_seed_gives_the_key_of_the_standard() {
        // The first test of RFC 8032, section 7.1.
        let hex = |text: &str| -> [u8; 32] {
            std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        };
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let key = SigningKey::new(&SigningSeed::new(seed));
        assert_eq!(key.vote_key(), VoteKey(public));
    }
}
