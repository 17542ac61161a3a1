//! What travels between shards, as functions of bytes: for the fuzz targets and the stored bytes of
//! each wire version in `tests`.

use crate::command::operation::Work;
use crate::store::Piece;
use crate::wire::api::Malformed;
use crate::wire::frame::{self, Frame, Out};
use crate::wire::published;
use bytes::{Bytes, BytesMut};
use doyen_placement::{Table, TableDelta};

/// The longest frame of these tests.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The name of the variant, and of what it carries.
pub(crate) fn called(frame: &Frame) -> String {
    let variant = |text: String| -> String {
        text.chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect()
    };
    let name = variant(format!("{frame:?}"));
    match frame {
        Frame::Forward { work, .. } => {
            let action = match work {
                Work::Key(op) => format!("{:?}", op.action),
                Work::Partition(op) => format!("{:?}", op.action),
                other => format!("{other:?}"),
            };
            format!("{name}/{}", variant(action))
        }
        Frame::Reply { outcome, .. } => format!("{name}/{}", variant(format!("{outcome:?}"))),
        _ => name,
    }
}

/// The kinds of all frames: the byte after the length.
#[must_use]
pub fn kinds() -> Vec<u8> {
    let unknown = Err(Malformed("unknown kind of frame"));
    (0..=u8::MAX)
        .filter(|kind| Frame::read(Bytes::copy_from_slice(&[*kind])) != unknown)
        .collect()
}

/// The shortest frame with the kind and the first fields of these bytes, whatever length they
/// state: its name, its bytes, and its content as a text.
#[must_use]
pub fn begun(bytes: &[u8]) -> Option<(String, Vec<u8>, String)> {
    let fields = bytes.get(4..)?;
    let read = |length| Frame::read(Bytes::copy_from_slice(&fields[..length])).ok();
    let frame = (1..=fields.len()).find_map(read)?;
    Some((called(&frame), frame.wire().to_vec(), format!("{frame:?}")))
}

/// Decodes a frame, and encodes it again.
///
/// # Errors
/// This is not one frame.
pub fn again(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut rest = BytesMut::from(bytes);
    match frame::take(&mut rest, FRAME_BYTES_MAX) {
        Ok(Some((frame, length))) if length == bytes.len() => Ok(frame.wire().to_vec()),
        Ok(_) => Err("this is not one frame".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// Reads frames until no whole one is left. A decoded frame must be the same after encoding and
/// decoding it again.
pub fn frame(bytes: &[u8]) {
    let mut rest = BytesMut::from(bytes);
    while let Ok(Some((frame, _))) = frame::take(&mut rest, FRAME_BYTES_MAX) {
        let wire = frame.wire();
        let mut again = wire.clone();
        let (again, _) = frame::take(&mut again, FRAME_BYTES_MAX)
            .expect("it was read before")
            .expect("all of it is there");
        // Compared as bytes: a NaN is not equal to itself.
        assert_eq!(again.wire(), wire);
    }
    let _ = frame::entries(Bytes::copy_from_slice(bytes));
}

/// The shortest part of a snapshot with which these bytes begin, as [`begun`].
#[must_use]
pub fn chunk_begun(bytes: &[u8]) -> Option<(String, Vec<u8>, String)> {
    let mut parts = (1..=bytes.len()).map(|length| &bytes[..length]);
    let is_part = |part: &&[u8]| chunk_again(part).is_ok_and(|again| again == *part);
    let part = parts.find(is_part)?;
    let entries = frame::entries(Bytes::copy_from_slice(part));
    Some(("entries".into(), part.to_vec(), format!("{entries:?}")))
}

/// Decodes a part of a snapshot, and encodes it again.
///
/// # Errors
/// This is not a part of a snapshot.
pub fn chunk_again(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let entries = frame::entries(Bytes::copy_from_slice(bytes)).map_err(|e| e.to_string())?;
    let (mut out, mut before) = (Out::default(), None);
    for (map, of, entry) in &entries {
        let piece = Piece {
            map: *map,
            of: of.as_deref(),
            entry,
        };
        frame::put_piece(&mut out, piece, before);
        before = Some(piece);
    }
    Ok(out.take().flatten().collect())
}

/// A table, as a member sends it to a client.
#[must_use]
pub fn for_clients(table: &Table) -> Vec<u8> {
    published::whole(table).to_vec()
}

/// The changes of a table, as a member sends them to a client.
#[must_use]
pub fn news_for_clients(delta: &TableDelta) -> Vec<u8> {
    published::news(delta).to_vec()
}

/// Decodes a table or its changes that were sent to a client, and encodes them again.
///
/// # Errors
/// These are neither.
pub fn for_clients_again(bytes: &[u8]) -> Result<Vec<u8>, String> {
    published::again(bytes).map(|bytes| bytes.to_vec())
}
