//! What a command on keys of several partitions does instead of one operation, where that can be
//! done in steps.

use super::gather::Gathering;
use super::member_move::MemberMove;
use super::pops::BlockingPop;
use super::{lists, sorted_joints, stream_reads};
use crate::command::operation::Action;
use bytes::Bytes;
use doyen_placement::MapId;

/// A command on keys of several partitions, in steps.
#[derive(Debug)]
pub enum Apart {
    /// It reads all keys, and combines what they hold.
    Gather(Gathering),
    /// It moves a member of a set.
    Move(MemberMove),
    /// It takes from the first key that is not empty, or reads all of them, and does not wait.
    Pop(BlockingPop),
}

impl Action {
    /// The steps of this action on this key and others, if they may be in several partitions.
    /// `None`: it is one operation, or none at all.
    #[must_use]
    pub fn apart(&self, map: MapId, key: &Bytes) -> Option<Apart> {
        let Self::Call(call) = self else {
            return None;
        };
        let moves = || MemberMove::of(call, key).map(Apart::Move);
        let of_list = || lists::pop_of(call, key);
        let of_streams = || stream_reads::read_of(call, key);
        let pops = || {
            sorted_joints::pop_of(call, key)
                .or_else(of_list)
                .or_else(of_streams)
                .map(Apart::Pop)
        };
        let gathers = Gathering::of(call, map, key).map(Apart::Gather);
        gathers.or_else(moves).or_else(pops)
    }
}
