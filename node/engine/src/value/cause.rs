//! Why something changed.

/// Why a key is gone.
///
/// Example: [`Change`](crate::Change).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A command deleted it.
    #[default]
    Command,
    /// It expired.
    Expired,
    /// It was evicted, because memory was short.
    Evicted,
}

/// What made a change, as a number that primaries tell.
///
/// Example: [`Change`](crate::Change).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By(pub(crate) u16);

/// From this number on, it is the number of a procedure.
const PROCEDURES_FROM: u16 = 256;
/// It is about several keys, and what it does to the first of them has another name.
const NAMES_TWO: u16 = 1 << 14;
/// The same, and the key is not the first of them.
const OF_OTHER_KEY: u16 = 1 << 15;

impl By {
    /// Nothing is known of it.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// A field expired.
    pub(crate) const FIELD_EXPIRED: Self = Self(1);
    pub(crate) const SET: Self = Self(2);
    pub(crate) const APPEND: Self = Self(3);
    pub(crate) const INCREASE: Self = Self(4);
    pub(crate) const INCREASE_FLOAT: Self = Self(5);
    pub(crate) const PERSIST: Self = Self(6);
    pub(crate) const EXPIRE: Self = Self(7);
    pub(crate) const SET_FOR: Self = Self(8);

    /// The procedure with this number.
    pub(crate) const fn procedure(number: u16) -> Self {
        Self(PROCEDURES_FROM + number)
    }

    /// The number of the procedure, if it was one.
    pub(crate) const fn procedure_number(self) -> Option<u16> {
        (self.0 & !(NAMES_TWO | OF_OTHER_KEY)).checked_sub(PROCEDURES_FROM)
    }

    /// The same if what it does to the first of its keys has another name.
    pub(crate) const fn naming_two(self) -> Self {
        Self(self.0 | NAMES_TWO)
    }

    /// The same for a key that is not the first.
    pub(crate) const fn of_other_key(self) -> Self {
        Self(self.0 | (self.0 & NAMES_TWO) << 1)
    }

    /// Whether the key is not the first, and that has another name.
    pub(crate) const fn is_of_other_key(self) -> bool {
        self.0 & OF_OTHER_KEY != 0
    }

    /// Whether it gives its key a deadline besides.
    #[must_use]
    pub fn expires(self) -> bool {
        self == Self::SET_FOR
    }
}
