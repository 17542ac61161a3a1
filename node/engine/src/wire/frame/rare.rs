//! Rare frames, encoded by serde.
//!
//! Frames of operations, log entries and large values stay encoded by hand: their speed is
//! measured, and values are sent from where they are stored.

use super::*;
use doyen_placement::codec;

/// The longest name of a map, or reason for a refusal.
const TEXT_BYTES_MAX: usize = 4096;

/// Frames with their fields, in the order in which the fields are sent.
macro_rules! rare {
    ($($kind:ident => $frame:ident $fields:tt,)*) => {
        /// Appends a rare frame.
        pub(super) fn put(out: &mut Out, frame: &Frame) {
            match frame {
                $(Frame::$frame $fields => lay_out(out, $kind, &rare!(@tuple $fields)),)*
                other => debug_assert!(false, "a frame without an encoding: {other:?}"),
            }
        }

        /// Reads what follows the kind of a frame. `None` if the kind is not a rare one.
        pub(super) fn read(kind: u8, fields: &[u8]) -> Result<Option<Frame>, Malformed> {
            let frame = match kind {
                $($kind => {
                    let rare!(@tuple $fields) = decode(fields)?;
                    Frame::$frame $fields
                })*
                _ => return Ok(None),
            };
            sound(frame).map(Some)
        }
    };
    (@tuple ($($field:ident),*)) => { ($($field,)*) };
    (@tuple {$($field:ident),*}) => { ($($field,)*) };
}

rare! {
    VIEW => View(name),
    NOT_SERVING => NotServing { at, n, attempt },
    WANT => Want { at, epoch, session, next },
    BEGIN => Begin { at, epoch, lineage, session, kept, seq, bytes },
    NO_ROOM => NoRoom { at, session },
    LATER => Later { at, session, ms },
    HOLDS => Holds { at, session, committed },
    CHUNK_ACK => ChunkAck { at, session, index },
    CONTINUE => Continue { at, epoch, session, next },
    ARRIVED => Arrived { at, session, chunks, seq, holds, finished },
    FINISH => Finish { at, session, chunks, seq },
    FINISHED => Finished { at, session },
    COMPARE => Compare { at, session, seq, sum, clock },
    VERDICT => Verdict { at, session, equal },
    TICK => Tick { clock, value_bytes_max, table },
    HEARD => Heard { clock },
    PULL => Pull { have },
    MAKE_MAP => MakeMap { ticket, keyspace, name },
    MAP_MADE => MapMade { ticket, made },
    INTEREST => Interest { round, wanted },
    INTERESTED => Interested { round },
    COUNT => Count { ticket, sharded, names },
    COUNTED => Counted { ticket, counts },
    ASK => Ask { ticket, asked },
    NAMED => Named { ticket, names, next },
    SUBSCRIBE => Subscribe { at, ticket, filter, had },
    SUBSCRIBED => Subscribed { at, ticket, seq, missing },
    TAKEN => Taken { at, ticket, bytes },
    UNSUBSCRIBE => Unsubscribe { at, ticket },
    READS => Reads { keyspaces },
    CONFIRM => Confirm { round },
    CONFIRMED => Confirmed { round, tickets },
    WANT_MAP => WantMap { ticket, wanted },
    TRACED => Traced { at, n, context },
    CLOCKS => Clocks { clocks },
    LATE => Late { ms },
    UNWAIT => Unwait { at, n },
    STAMP => Stamp { stamp },
}

fn lay_out<T: serde::Serialize>(out: &mut Out, kind: u8, fields: &T) {
    // Numbers, names and short texts always fit.
    let bytes = codec::encode(fields, codec::BYTES_MAX).unwrap_or_default();
    framed(out, kind, |out| out.bytes.put_slice(&bytes));
}

fn decode<T: serde::de::DeserializeOwned>(fields: &[u8]) -> Result<T, Malformed> {
    codec::decode(fields, codec::BYTES_MAX).map_err(|_| Malformed("fields that cannot be decoded"))
}

/// Refuses values that no node sends.
fn sound(frame: Frame) -> Result<Frame, Malformed> {
    let texts = match &frame {
        Frame::Compare { clock, .. } if *clock > SEQ_MAX => {
            return Err(Malformed("a clock that is too large"));
        }
        Frame::Clocks { clocks } if clocks.iter().any(|(.., ms)| *ms > SEQ_MAX) => {
            return Err(Malformed("a clock that is too large"));
        }
        Frame::MakeMap { keyspace, name, .. } => keyspace.len().max(name.len()),
        Frame::WantMap { wanted, .. } => wanted.keyspace.len().max(wanted.name.len()),
        Frame::MapMade { made: Ok(map), .. } => map.name.len(),
        Frame::MapMade { made: Err(why), .. } => why.len(),
        _ => 0,
    };
    if texts > TEXT_BYTES_MAX {
        return Err(Malformed("a text that is too long"));
    }
    Ok(frame)
}
