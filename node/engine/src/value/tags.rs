//! Tags of cached values: how values say which groups they belong to.
//!
//! A cache drops all values of a group at once, for example those that were made from one row of a
//! database. So the library writes the tags of a value in front of it, and a query for a tag
//! ([`FindQuery::holding`](crate::command::operation::FindQuery::holding)) looks at these bytes
//! alone:
//! ```text
//!   E0   n: u16, little-endian   n bytes of tags: (length: u8, bytes)*   what is cached
//!   E1                                                                   a load is under way
//! ```
//! A value that begins otherwise, or whose tags do not fit into it, has no tags. Other writers may
//! store any bytes, so the decoder trusts none of them. These tags have nothing to do with the
//! `{tags}` of keys, which choose partitions.

/// The first byte of a value with tags.
pub const TAGGED: u8 = 0xE0;
/// The first byte of a value that is still being loaded. Its tags are not known yet, so a query for
/// any tag finds it.
pub const LOADING: u8 = 0xE1;
/// The most bytes of one tag.
pub const TAG_BYTES_MAX: usize = u8::MAX as usize;
/// The most bytes of all tags of a value, each with its length.
pub const TAGS_BYTES_MAX: usize = u16::MAX as usize;

/// The first byte and the length of the tags.
const HEAD: usize = 3;

/// The tags do not fit: one has more than [`TAG_BYTES_MAX`] bytes, or all have more than
/// [`TAGS_BYTES_MAX`]. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tag has more than 255 bytes, or all have more than 65,535: use fewer or shorter tags")]
pub struct TagsTooLong;

/// A value with tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tagged<'a> {
    /// Each tag behind its length. All lengths were checked.
    tags: &'a [u8],
    content: &'a [u8],
}

impl<'a> Tagged<'a> {
    /// Reads a value. `None`: it has no tags, or they do not fit into it.
    #[must_use]
    pub fn read(value: &'a [u8]) -> Option<Self> {
        let (head, behind) = value.split_first_chunk::<HEAD>()?;
        let [TAGGED, low, high] = *head else {
            return None;
        };
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (tags, content) = behind.split_at_checked(length)?;
        let mut rest = tags;
        while !rest.is_empty() {
            (_, rest) = first(rest)?;
        }
        Some(Self { tags, content })
    }

    /// Its tags, in the order in which they were written.
    pub fn tags(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.tags;
        std::iter::from_fn(move || {
            let (tag, behind) = first(rest)?;
            rest = behind;
            Some(tag)
        })
    }

    /// What is behind the tags.
    #[must_use]
    pub const fn content(&self) -> &'a [u8] {
        self.content
    }
}

/// The first tag of a list, and what is behind it.
fn first(tags: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = tags.split_first()?;
    behind.split_at_checked(usize::from(*length))
}

/// Appends the head of a value with these tags. What is cached follows it.
///
/// # Errors
/// The tags do not fit.
pub fn put_head<T: AsRef<[u8]>>(
    out: &mut Vec<u8>,
    tags: impl IntoIterator<Item = T>,
) -> Result<(), TagsTooLong> {
    let mut list = Vec::new();
    for tag in tags {
        let tag = tag.as_ref();
        list.push(u8::try_from(tag.len()).map_err(|_| TagsTooLong)?);
        list.extend_from_slice(tag);
        if list.len() > TAGS_BYTES_MAX {
            return Err(TagsTooLong);
        }
    }
    let length = u16::try_from(list.len()).map_err(|_| TagsTooLong)?;
    out.push(TAGGED);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&list);
    Ok(())
}

/// Whether a value has this tag, or is still being loaded.
#[must_use]
pub fn holds(value: &[u8], tag: &[u8]) -> bool {
    value.first() == Some(&LOADING)
        || Tagged::read(value).is_some_and(|tagged| tagged.tags().any(|one| one == tag))
}

/// The most bytes that [`holds`] reads of a value.
pub(crate) fn head_bytes_max(value: &[u8]) -> usize {
    match value {
        [TAGGED, low, high, ..] => {
            (HEAD + usize::from(u16::from_le_bytes([*low, *high]))).min(value.len())
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tagged(tags: &[&[u8]], content: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        put_head(&mut value, tags).unwrap();
        value.extend_from_slice(content);
        value
    }

    #[test]
    fn the_layout_is_as_it_is_written_down() {
        assert_eq!(
            tagged(&[b"ab", b"c"], b"xyz"),
            b"\xE0\x05\x00\x02ab\x01cxyz"
        );
        assert_eq!(tagged(&[], b"xyz"), b"\xE0\x00\x00xyz");
    }

    #[test]
    fn a_value_holds_whole_tags_of_its_own_only() {
        let value = tagged(&[b"row-17", b"users"], b"row-1");
        assert!(holds(&value, b"row-17") && holds(&value, b"users"));
        // A part of a tag, what is cached, and bytes across two tags are no tags.
        for other in [&b"row-1"[..], b"row-177", b"17", b"row-17\x05users", b""] {
            assert!(!holds(&value, other), "{other:?}");
        }
        assert!(holds(&tagged(&[b""], b""), b""));
    }

    #[test]
    fn a_load_under_way_holds_every_tag_and_plain_bytes_hold_none() {
        assert!(holds(&[LOADING], b"users") && holds(b"\xE1users", b"other"));
        for plain in [&b""[..], b"users", b"\x05users", b"\xE2\x06\x00\x05users"] {
            assert!(!holds(plain, b"users"), "{plain:?}");
        }
    }

    #[test]
    fn tags_that_do_not_fit_into_their_value_are_none() {
        let value = tagged(&[b"users", b"b"], b"");
        for end in 0..value.len() {
            assert_eq!(Tagged::read(&value[..end]), None, "cut at {end}");
            assert!(!holds(&value[..end], b"users"), "cut at {end}");
        }
        // The last tag ends behind the list, though the value goes on.
        let longer = b"\xE0\x08\x00\x05users\x02bb";
        assert_eq!(Tagged::read(longer), None);
        assert!(!holds(longer, b"users"));
    }

    #[test]
    fn too_many_or_too_long_tags_are_refused_and_write_nothing() {
        let mut out = vec![7];
        assert_eq!(put_head(&mut out, [vec![0; 256]]), Err(TagsTooLong));
        // 256 times 256 bytes is one more than fits.
        assert_eq!(
            put_head(&mut out, vec![vec![0; 255]; 256]),
            Err(TagsTooLong)
        );
        assert_eq!(out, [7]);
        assert_eq!(put_head(&mut out, vec![vec![0; 255]; 255]), Ok(()));
        let read = Tagged::read(&out[1..]).unwrap();
        assert_eq!((read.tags().count(), read.content()), (255, &b""[..]));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            tags in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..8),
            content in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut value = Vec::new();
            put_head(&mut value, &tags).unwrap();
            let head = value.len();
            value.extend_from_slice(&content);
            let read = Tagged::read(&value).unwrap();
            prop_assert!(read.tags().eq(tags.iter().map(Vec::as_slice)));
            prop_assert_eq!(read.content(), &content[..]);
            prop_assert_eq!(head_bytes_max(&value), head);
            prop_assert!(tags.iter().all(|tag| holds(&value, tag)));
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            first in prop::sample::select(vec![TAGGED, LOADING, 0]),
            rest in prop::collection::vec(0_u8..8, 0..24),
        ) {
            let value = [&[first], &rest[..]].concat();
            prop_assert!(head_bytes_max(&value) <= value.len());
            if let Some(read) = Tagged::read(&value) {
                let mut again = Vec::new();
                put_head(&mut again, read.tags()).unwrap();
                again.extend_from_slice(read.content());
                prop_assert_eq!(again, value);
            }
        }
    }
}
