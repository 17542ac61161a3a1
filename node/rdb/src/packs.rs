//! Collections that lie packed in one string: listpacks, ziplists, zipmaps and intsets.

use std::ops::ControlFlow;

/// An item of a packed collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackedItem<'a> {
    Bytes(&'a [u8]),
    Integer(i64),
}

impl PackedItem<'_> {
    pub(crate) fn to_vec(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Integer(number) => itoa::Buffer::new().format(number).as_bytes().to_vec(),
        }
    }
}

/// How items lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackedForm {
    Listpack,
    Ziplist,
    Zipmap,
    Intset,
}

impl PackedForm {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::Ziplist => "ziplist",
            Self::Zipmap => "zipmap",
            Self::Intset => "intset",
        }
    }

    /// Hands each item out, in their order, until one is refused with an error. The inner error is
    /// a byte of the collection at which there is no whole item.
    pub(crate) fn each<E>(
        self,
        bytes: &[u8],
        mut take: impl FnMut(PackedItem<'_>) -> Result<(), E>,
    ) -> Result<Result<(), usize>, E> {
        let mut rest = Rest {
            whole: bytes,
            left: bytes,
        };
        let mut refused = None;
        let done = self.walk(&mut rest, &mut |item| match take(item) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                refused = Some(e);
                ControlFlow::Break(())
            }
        });
        match refused {
            Some(e) => Err(e),
            None => Ok(done.ok_or(rest.whole.len() - rest.left.len())),
        }
    }

    fn walk<'a>(self, rest: &mut Rest<'a>, take: &mut Take<'_, 'a>) -> Option<()> {
        match self {
            Self::Listpack => listpack(rest, take),
            Self::Ziplist => ziplist(rest, take),
            Self::Zipmap => zipmap(rest, take),
            Self::Intset => intset(rest, take),
        }
    }
}

const LISTPACK_END: u8 = 0xFF;

type Take<'t, 'a> = dyn FnMut(PackedItem<'a>) -> ControlFlow<()> + 't;

/// The bytes that were not read yet.
#[derive(Clone)]
struct Rest<'a> {
    whole: &'a [u8],
    left: &'a [u8],
}

impl<'a> Rest<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, left) = self.left.split_at_checked(count)?;
        self.left = left;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn text(&mut self, length: usize) -> Option<PackedItem<'a>> {
        Some(PackedItem::Bytes(self.bytes(length)?))
    }

    /// An integer of this many bytes. Its last byte has its sign.
    fn integer(&mut self, width: usize) -> Option<PackedItem<'a>> {
        let bytes = self.bytes(width)?;
        let negative = bytes.last()? & 0x80 != 0;
        let mut whole = [if negative { 0xFF } else { 0 }; 8];
        whole[..width].copy_from_slice(bytes);
        Some(PackedItem::Integer(i64::from_le_bytes(whole)))
    }

    /// The first four bytes are the length of the whole.
    fn has_own_length(&mut self) -> Option<()> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        (length == self.whole.len()).then_some(())
    }

    /// Whether all was read.
    fn is_at_end(&self) -> Option<()> {
        self.left.is_empty().then_some(())
    }
}

const fn wide(count: u32) -> usize {
    count as usize
}

/// Its length, a count, items that end with their own length (to be read backwards), and 0xFF.
fn listpack<'a>(rest: &mut Rest<'a>, take: &mut Take<'_, 'a>) -> Option<()> {
    rest.has_own_length()?;
    rest.bytes(2)?;
    while rest.left != [LISTPACK_END] {
        if take(listpack_item(rest)?).is_break() {
            break;
        }
    }
    Some(())
}

/// The next item of a listpack.
fn listpack_item<'a>(rest: &mut Rest<'a>) -> Option<PackedItem<'a>> {
    let before = rest.left;
    let first = rest.byte()?;
    let low = usize::from(first);
    let item = match first {
        0..=0x7F => PackedItem::Integer(first.into()),
        0x80..=0xBF => rest.text(low & 0x3F)?,
        0xC0..=0xDF => {
            let number = i64::from(first & 0x1F) << 8 | i64::from(rest.byte()?);
            PackedItem::Integer(if number >= 1 << 12 {
                number - (1 << 13)
            } else {
                number
            })
        }
        0xE0..=0xEF => {
            let length = (low & 0x0F) << 8 | usize::from(rest.byte()?);
            rest.text(length)?
        }
        0xF0 => {
            let length = wide(u32::from_le_bytes(rest.array()?));
            rest.text(length)?
        }
        0xF1..=0xF3 => rest.integer(usize::from(first - 0xEF))?,
        0xF4 => rest.integer(8)?,
        0xF5..=0xFF => return None,
    };
    let behind = length_behind(before.len() - rest.left.len());
    rest.bytes(behind)?;
    Some(item)
}

/// How many bytes the length behind an item of a listpack takes. Redis takes one more than the last
/// length of a width needs.
const fn length_behind(item: usize) -> usize {
    match item {
        0..0x80 => 1,
        0x80..0x3FFF => 2,
        0x3FFF..0x1F_FFFF => 3,
        0x1F_FFFF..0xFFF_FFFF => 4,
        _ => 5,
    }
}

/// The items of a listpack, one after the other.
#[derive(Clone)]
pub(crate) struct ListpackItems<'a>(Rest<'a>);

impl<'a> ListpackItems<'a> {
    /// Those of these bytes. `None`: they are no listpack.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Rest {
            whole: bytes,
            left: bytes,
        };
        rest.has_own_length()?;
        rest.bytes(2)?;
        Some(Self(rest))
    }

    /// The next one. `None`: there is no whole one.
    pub(crate) fn item(&mut self) -> Option<PackedItem<'a>> {
        listpack_item(&mut self.0)
    }

    /// The next one, which is an integer.
    pub(crate) fn integer(&mut self) -> Option<i64> {
        match self.item()? {
            PackedItem::Integer(number) => Some(number),
            PackedItem::Bytes(text) => str::from_utf8(text).ok()?.parse().ok(),
        }
    }

    /// Whether all were taken, and the listpack ends there.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.left == [LISTPACK_END]
    }

    /// How many bytes were read.
    pub(crate) const fn at(&self) -> usize {
        self.0.whole.len() - self.0.left.len()
    }
}

/// Appends an item of a listpack.
#[expect(
    clippy::cast_possible_truncation,
    reason = "each arm has the range that fits; Redis has no longer strings in listpacks"
)]
pub(crate) fn put_listpack_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let begin = out.len();
    let length = bytes.len();
    match length {
        0..0x40 => out.push(0x80 | length as u8),
        0x40..0x1000 => out.extend_from_slice(&(0xE000 | length as u16).to_be_bytes()),
        _ => {
            out.push(0xF0);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(bytes);
    put_length_behind(out, begin);
}

/// Appends an item of a listpack that is an integer.
pub(crate) fn put_listpack_integer(out: &mut Vec<u8>, number: i64) {
    let begin = out.len();
    let bytes = number.to_le_bytes();
    match (u8::try_from(number), number) {
        (Ok(small @ 0..0x80), _) => out.push(small),
        (_, -0x8000..0x8000) => {
            out.push(0xF1);
            out.extend_from_slice(&bytes[..2]);
        }
        (_, -0x8000_0000..0x8000_0000) => {
            out.push(0xF3);
            out.extend_from_slice(&bytes[..4]);
        }
        _ => {
            out.push(0xF4);
            out.extend_from_slice(&bytes);
        }
    }
    put_length_behind(out, begin);
}

/// Appends the length of the item that begins there: 7 bits a byte, so that it is read backwards.
fn put_length_behind(out: &mut Vec<u8>, begin: usize) {
    let item = out.len() - begin;
    let width = length_behind(item);
    for at in (0..width).rev() {
        let more = if at + 1 < width { 0x80 } else { 0 };
        out.push(more | (item >> (7 * at) & 0x7F) as u8);
    }
}

/// The listpack of these many items.
pub(crate) fn whole_listpack(items: &[u8], count: usize) -> Vec<u8> {
    let bytes = 4 + 2 + items.len() + 1;
    let mut out = Vec::with_capacity(bytes);
    out.extend_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    // If it does not fit, Redis counts them.
    out.extend_from_slice(&u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(items);
    out.push(LISTPACK_END);
    out
}

/// Its length, the place of its last item, a count, items that begin with the length of the one
/// before, and 0xFF.
fn ziplist<'a>(rest: &mut Rest<'a>, take: &mut Take<'_, 'a>) -> Option<()> {
    rest.has_own_length()?;
    rest.bytes(4 + 2)?;
    loop {
        match rest.byte()? {
            0xFF => return rest.is_at_end(),
            0xFE => _ = rest.bytes(4)?,
            _ => {}
        }
        let first = rest.byte()?;
        let low = usize::from(first & 0x3F);
        let item = match first {
            0..=0x3F => rest.text(low)?,
            0x40..=0x7F => {
                let length = low << 8 | usize::from(rest.byte()?);
                rest.text(length)?
            }
            0x80 => {
                let length = wide(u32::from_be_bytes(rest.array()?));
                rest.text(length)?
            }
            0xC0 => rest.integer(2)?,
            0xD0 => rest.integer(4)?,
            0xE0 => rest.integer(8)?,
            0xF0 => rest.integer(3)?,
            0xFE => rest.integer(1)?,
            0xF1..=0xFD => PackedItem::Integer(i64::from(first & 0x0F) - 1),
            _ => return None,
        };
        if take(item).is_break() {
            return Some(());
        }
    }
}

/// A count, fields and values with their lengths, and 0xFF. Values have unused bytes behind them.
fn zipmap<'a>(rest: &mut Rest<'a>, take: &mut Take<'_, 'a>) -> Option<()> {
    fn length(rest: &mut Rest<'_>, first: u8) -> Option<usize> {
        match first {
            0xFF => None,
            0xFE => Some(wide(u32::from_le_bytes(rest.array()?))),
            _ => Some(first.into()),
        }
    }
    rest.byte()?;
    loop {
        let first = rest.byte()?;
        if first == 0xFF {
            return rest.is_at_end();
        }
        let field = length(rest, first)?;
        let field = rest.text(field)?;
        let first = rest.byte()?;
        let value = length(rest, first)?;
        let unused = rest.byte()?;
        let value = rest.text(value)?;
        rest.bytes(unused.into())?;
        if take(field).is_break() || take(value).is_break() {
            return Some(());
        }
    }
}

/// The width of its integers, a count, and the integers.
fn intset<'a>(rest: &mut Rest<'a>, take: &mut Take<'_, 'a>) -> Option<()> {
    let width = wide(u32::from_le_bytes(rest.array()?));
    let count = wide(u32::from_le_bytes(rest.array()?));
    if ![2, 4, 8].contains(&width) || count.checked_mul(width)? != rest.left.len() {
        return None;
    }
    for _ in 0..count {
        let item = rest.integer(width)?;
        if take(item).is_break() {
            return Some(());
        }
    }
    Some(())
}
