//! How values lie in frames laid out by hand. Each layout is stated once, and gives the writer and
//! the reader. The trait and the simple ones are here; `work`, `logged` and `told` have the others.

use super::*;

/// A value that lies in a frame.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Out);

    /// Takes it off the front.
    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self>;
}

/// A value that lies at the end of a frame and takes all that is left of it.
pub(super) trait LastField: Sized {
    /// Appends it.
    fn put_last(&self, out: &mut Out);

    /// Takes all that is left.
    fn read_last<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self>;
}

pub(super) type Decoded<T> = Result<T, Malformed>;

const SHORT: Malformed = Malformed("a frame that ends too early");

/// Takes fields off the front of contiguous bytes. Every read checks that its bytes are there.
pub(super) struct FrameReader<B>(pub(super) B);

impl<B: Buf> FrameReader<B> {
    /// The next field.
    pub(super) fn get<T: Field>(&mut self) -> Decoded<T> {
        T::read(self)
    }

    fn need(&self, bytes: usize) -> Decoded<()> {
        if self.0.remaining() < bytes {
            Err(SHORT)
        } else {
            Ok(())
        }
    }

    /// Looks at a run of bytes in place.
    fn look<T>(&mut self, look: impl FnOnce(&[u8]) -> T) -> Decoded<T> {
        let (bytes, _) = run(self.0.chunk())?;
        let (seen, length) = (look(bytes), bytes.len());
        self.0.advance(4 + length);
        Ok(seen)
    }

    /// Looks at two runs of bytes in place.
    pub(super) fn pair<T>(&mut self, look: impl FnOnce(&[u8], &[u8]) -> T) -> Decoded<T> {
        let (first, after) = run(self.0.chunk())?;
        let (second, _) = run(after)?;
        let (seen, length) = (look(first, second), first.len() + second.len());
        self.0.advance(8 + length);
        Ok(seen)
    }
}

/// A run of bytes after its length, and the rest.
fn run(bytes: &[u8]) -> Decoded<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(SHORT)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(SHORT)
}

/// Appends fields, in this order.
macro_rules! put {
    ($out:ident, $($field:expr),*) => {{ $($field.put($out);)* }};
}
pub(super) use put;

/// Numbers.
macro_rules! numbers {
    ($($number:ty: $put:ident $get:ident,)*) => {$(
        impl Field for $number {
            #[inline]
            fn put(&self, out: &mut Out) {
                out.bytes.$put(*self);
            }

            fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
                from.need(size_of::<Self>()).map(|()| from.0.$get())
            }
        }
    )*};
}

numbers! {
    u8: put_u8 get_u8,
    u16: put_u16_le get_u16_le,
    u32: put_u32_le get_u32_le,
    i32: put_i32_le get_i32_le,
    u64: put_u64_le get_u64_le,
    i64: put_i64_le get_i64_le,
    u128: put_u128_le get_u128_le,
}

/// Types that lie there as the number in them.
macro_rules! named_numbers {
    ($($name:ident)*) => {$(
        impl Field for $name {
            #[inline]
            fn put(&self, out: &mut Out) {
                self.0.put(out);
            }

            fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
                from.get().map(Self)
            }
        }
    )*};
}

named_numbers! { By ClusterId Epoch KeyspaceId Lineage MapId MemberId PartitionId Term Version }

/// Types with the fields that they have in a frame, in this order.
macro_rules! records {
    ($($record:ident { $($field:ident),* })*) => {$(
        impl Field for $record {
            #[inline]
            fn put(&self, out: &mut Out) {
                $(self.$field.put(out);)*
            }

            fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
                $(let $field = from.get()?;)*
                Ok(Self { $($field),* })
            }
        }
    )*};
}

records! {
    PartitionRef { keyspace, partition }
    TableName { cluster, term, version, hash }
    Forwarded { at, lineage, n, finished, attempt }
    Ack { at, epoch, session, seq }
    Headroom { left, kept, loose }
    OpId { origin, n, finished }
    Publication { sharded, channel, message }
    Operation { keyspace, map, key, action }
    PartitionOperation { keyspace, partition, map, action }
    RangeQuery { from, to, count, reverse, values }
    Watched { map, key, version }
    OperationBatch { keyspace, watched, steps }
    ScriptCall { keyspace, map, body, keys, args, read_only, resp3, grants }
}

/// Enums: the tag of each variant, and its fields in this order. `or` adds a variant that is
/// written as the other one.
macro_rules! choices {
    ($($choice:ident, $unknown:literal {$(
        $tag:literal $variant:ident $(or $also:ident)?
        $(($($value:ident),*))? $({ $($field:ident),* })?,
    )*})*) => {$(
        impl Field for $choice {
            fn put(&self, out: &mut Out) {
                match self {$(
                    Self::$variant $(($($value),*))? $({ $($field),* })? => {
                        out.bytes.put_u8($tag);
                        $($($value.put(out);)*)?
                        $($($field.put(out);)*)?
                    }
                    $(Self::$also => out.bytes.put_u8($tag),)?
                )*}
            }

            fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
                Ok(match from.get::<u8>()? {
                    $($tag => {
                        $($(let $value = from.get()?;)*)?
                        $($(let $field = from.get()?;)*)?
                        Self::$variant $(($($value),*))? $({ $($field),* })?
                    })*
                    _ => return Err(Malformed($unknown)),
                })
            }
        }
    )*};
}

choices! {
    Work, "unknown work" {
        0 Key(operation),
        1 Partition(operation),
        2 Transaction(transaction),
        3 Script(call),
    }
    OperationStep, "unknown step" {
        0 Key { map, key, action },
        1 Script(call),
    }
    Action, "unknown action" {
        0 Get,
        1 Strlen,
        2 Exists,
        3 PTtl,
        4 PExpireTime,
        5 Set { value, condition, expiry, get },
        6 CompareAndSwap { expected, value },
        7 GetEx { expiry },
        8 GetDel,
        9 Append { value },
        10 IncrBy(by),
        11 IncrByFloat(by),
        12 Delete,
        13 Expire { expiry, condition },
        14 Persist,
        15 Touch,
        16 Encoding,
        17 Footprint,
        18 Peek,
        19 PeekLength,
        20 Version,
        21 Call(call),
    }
    Condition, "unknown condition" {
        0 Always,
        1 IfAbsent,
        2 IfPresent,
    }
    ExpireCondition, "unknown expire condition" {
        0 Always,
        1 IfNone,
        2 IfSome,
        3 IfLater,
        4 IfEarlier,
        5 IfSomeEarlier,
    }
    Cause, "an unknown cause of a deletion" {
        0 Command,
        1 Expired,
        2 Evicted,
    }
    Failure, "unknown failure" {
        0 NotAnInteger,
        1 NotAFloat,
        2 Overflow,
        3 TooLarge,
        4 OutOfMemory,
        5 TooFewCopies,
        6 NoPartition,
        // Only callers of the process itself hear that it has stopped.
        7 Unavailable or Stopped,
        8 Unknown,
        9 Overloaded,
        10 Overtaken,
        11 Stale,
        12 CrossPartition,
        13 OldMembers,
        14 WrongType,
        15 NoScripts,
        16 MapFull,
        17 Dropped,
        18 TooMuchWork,
    }
}

impl Field for bool {
    fn put(&self, out: &mut Out) {
        out.bytes.put_u8(u8::from(*self));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        match from.get::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag that is neither 0 nor 1")),
        }
    }
}

impl Field for Kind {
    fn put(&self, out: &mut Out) {
        self.number().put(out);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Self::of_number(from.get()?).ok_or(Malformed("unknown kind of value"))
    }
}

impl Field for FrameHead {
    fn put(&self, out: &mut Out) {
        put!(
            out,
            self.at,
            self.epoch,
            self.session,
            self.committed,
            self.clock,
            self.first
        );
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let (at, epoch, session) = (from.get()?, from.get()?, from.get()?);
        let (committed, clock, first) = (from.get()?, from.get()?, from.get()?);
        // Sequences and clocks are added to, so values near the end of the range are refused.
        if committed > SEQ_MAX || clock > SEQ_MAX || first > SEQ_MAX || first == 0 {
            return Err(Malformed("a sequence or clock that is too large"));
        }
        Ok(Self {
            at,
            epoch,
            session,
            committed,
            clock,
            first,
        })
    }
}

#[inline]
pub(super) fn put_bytes(out: &mut Out, bytes: &[u8]) {
    out.bytes.put_u32_le(bytes.len() as u32);
    out.bytes.put_slice(bytes);
}

/// The same for bytes that may be as large as a value, and are shared with their other holders.
#[inline]
fn put_run(out: &mut Out, bytes: &[u8], share: impl FnOnce() -> Bytes) {
    out.bytes.put_u32_le(bytes.len() as u32);
    out.put_shared(bytes, share);
}

/// Bytes to keep. If the frame is `Bytes`, they are a slice of it.
impl Field for Bytes {
    fn put(&self, out: &mut Out) {
        put_run(out, self, || self.clone());
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let length = from.get::<u32>()? as usize;
        from.need(length).map(|()| from.0.copy_to_bytes(length))
    }
}

/// The key and the value. The deadline is set when it is applied.
impl Field for Entry {
    fn put(&self, out: &mut Out) {
        put_bytes(out, self.key());
        put_run(out, self.value(), || Bytes::from_owner(Value::of(self)));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        from.pair(|key, value| Self::new(key, value, 0, 0))
    }
}

impl Field for Key {
    fn put(&self, out: &mut Out) {
        put_bytes(out, self);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        from.look(|bytes| Self::from(bytes))
    }
}

impl Field for Value {
    fn put(&self, out: &mut Out) {
        put_run(out, self, || Bytes::from_owner(self.clone()));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        from.look(|bytes| Self::from(bytes))
    }
}

impl<T: Field> Field for Box<T> {
    fn put(&self, out: &mut Out) {
        (**self).put(out);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        from.get().map(Self::new)
    }
}

/// Whether it is there, and the value; an absent one as its default.
impl<T: Field + Default + PartialEq> Field for Option<T> {
    fn put(&self, out: &mut Out) {
        put!(out, self.is_some(), self.as_ref().unwrap_or(&T::default()));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let (is_some, value): (bool, T) = (from.get()?, from.get()?);
        if !is_some && value != T::default() {
            return Err(Malformed("an absent value that is not empty"));
        }
        Ok(is_some.then_some(value))
    }
}

impl<T: Field + Copy + Default, const N: usize> Field for [T; N] {
    fn put(&self, out: &mut Out) {
        self.iter().for_each(|one| one.put(out));
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let mut all = [T::default(); N];
        for one in &mut all {
            *one = from.get()?;
        }
        Ok(all)
    }
}

impl<T: Field, U: Field, V: Field> Field for (T, U, V) {
    fn put(&self, out: &mut Out) {
        put!(out, self.0, self.1, self.2);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok((from.get()?, from.get()?, from.get()?))
    }
}

/// Their number, and each of them.
impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Out) {
        (self.len() as u32).put(out);
        self.put_last(out);
    }

    fn read<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        let count: u32 = from.get()?;
        // Nothing is reserved on a peer's word.
        let mut all = Self::new();
        for _ in 0..count {
            all.push(from.get()?);
        }
        Ok(all)
    }
}

impl<T: Field> LastField for Vec<T> {
    fn put_last(&self, out: &mut Out) {
        self.iter().for_each(|one| one.put(out));
    }

    fn read_last<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        // There is mostly one.
        let mut all = Self::with_capacity(usize::from(from.0.has_remaining()));
        while from.0.has_remaining() {
            all.push(from.get()?);
        }
        Ok(all)
    }
}

impl LastField for Bytes {
    fn put_last(&self, out: &mut Out) {
        out.put_shared(self, || self.clone());
    }

    fn read_last<B: Buf>(from: &mut FrameReader<B>) -> Decoded<Self> {
        Ok(from.0.copy_to_bytes(from.0.remaining()))
    }
}
