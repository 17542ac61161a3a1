//! Tables of commands, sorted by name when the program is compiled. The engine's own table has the
//! commands on data. RESP adds the commands on connections, the server and the cluster.

use super::error::{ErrorText, unknown_command, unknown_subcommand, wrong_arity};
use super::{Arguments, Description};
use std::ops::Deref;

/// No command's name is longer.
const NAME_BYTES_MAX: usize = 32;

/// A command in a table.
#[derive(Debug, Clone, Copy)]
pub struct Spec<P> {
    description: Description<P>,
    /// How its name begins, as a number. A search compares names only if that is equal.
    begins: u64,
    /// Its place in the table, for counters.
    pub number: u16,
}

impl<P> Deref for Spec<P> {
    type Target = Description<P>;

    fn deref(&self) -> &Description<P> {
        &self.description
    }
}

/// All commands and subcommands that a caller may name, in order of name.
#[derive(Debug)]
pub struct CommandTable<P: 'static>(&'static [Spec<P>]);

impl<P> CommandTable<P> {
    /// The table of these commands (see [`Sorting`]).
    #[must_use]
    pub const fn of(specs: &'static [Spec<P>]) -> Self {
        Self(specs)
    }

    /// Every command and subcommand.
    #[must_use]
    pub const fn all(&self) -> &'static [Spec<P>] {
        self.0
    }

    /// Every command, without the subcommands.
    pub fn commands(&self) -> impl Iterator<Item = &'static Spec<P>> + Clone + use<P> {
        self.0.iter().filter(|spec| spec.container().is_none())
    }

    /// The command of this name, in letters of any size; `client|list` for a subcommand.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<&'static Spec<P>> {
        self.of_parts([name, b"", b""])
    }

    /// The subcommand of a container, by its name in letters of any size.
    #[must_use]
    pub fn subcommand(&self, of: &Spec<P>, name: &[u8]) -> Option<&'static Spec<P>> {
        self.of_parts([of.name.as_bytes(), b"|", name])
    }

    fn of_parts(&self, parts: [&[u8]; 3]) -> Option<&'static Spec<P>> {
        let mut small = [0; NAME_BYTES_MAX];
        let mut length = 0;
        for part in parts {
            small
                .get_mut(length..length + part.len())?
                .copy_from_slice(part);
            length += part.len();
        }
        let small = &mut small[..length];
        small.make_ascii_lowercase();
        let begins = begin_of(small);
        self.0
            .binary_search_by(|spec| {
                let order = spec.begins.cmp(&begins);
                order.then_with(|| spec.name.as_bytes().cmp(small))
            })
            .ok()
            .map(|at| &self.0[at])
    }

    /// Whether a command neither is a subcommand nor has any: its name alone says it.
    #[must_use]
    pub fn is_single(&self, spec: &Spec<P>) -> bool {
        spec.container().is_none() && self.subcommands(spec).is_empty()
    }

    /// The subcommands of a command: none, if it is no container.
    #[must_use]
    pub fn subcommands(&self, of: &Spec<P>) -> &'static [Spec<P>] {
        let from = usize::from(of.number) + 1;
        let rest = self.0.get(from..).unwrap_or_default();
        let belongs = |spec: &Spec<P>| spec.container() == Some(of.name);
        &rest[..rest.iter().take_while(|spec| belongs(spec)).count()]
    }

    /// The command of these arguments, if it exists and takes their number.
    ///
    /// # Errors
    /// Redis's texts for an unknown command or subcommand, and for a wrong number of arguments.
    pub fn find(&self, args: &dyn Arguments) -> Result<&'static Spec<P>, ErrorText> {
        // A name with a bar belongs to a container and its subcommand.
        let named = self.named(args.get(0));
        let Some(spec) = named.filter(|spec| spec.container().is_none()) else {
            return Err(unknown_command(args));
        };
        // The container's own arity comes first.
        if !spec.takes(args.len()) {
            return Err(wrong_arity(spec.name));
        }
        if args.len() > 1 && !self.subcommands(spec).is_empty() {
            let Some(subcommand) = self.subcommand(spec, args.get(1)) else {
                return Err(unknown_subcommand(spec.name, args));
            };
            return if subcommand.takes(args.len()) {
                Ok(subcommand)
            } else {
                Err(wrong_arity(subcommand.name))
            };
        }
        Ok(spec)
    }
}

/// Sorts descriptions by name, when the program is compiled. Two commands with one name do not
/// compile.
#[derive(Debug)]
pub struct Sorting<P, const N: usize> {
    specs: [Spec<P>; N],
    filled: usize,
}

impl<P: Copy, const N: usize> Sorting<P, N> {
    /// Room for `N` commands. The given one stands in places that are not taken yet.
    #[must_use]
    pub const fn of(filler: Description<P>) -> Self {
        let spec = Spec {
            description: filler,
            begins: 0,
            number: 0,
        };
        Self {
            specs: [spec; N],
            filled: 0,
        }
    }

    /// Adds a command.
    ///
    /// # Panics
    /// Another command has its name, its name is too long, or there is no room.
    pub const fn add(&mut self, description: Description<P>) {
        assert!(
            description.name.len() <= NAME_BYTES_MAX,
            "the name of a command is too long"
        );
        // Those with later names make room.
        let mut at = self.filled;
        while at > 0 && is_before(description.name, self.specs[at - 1].description.name) {
            self.specs[at] = self.specs[at - 1];
            at -= 1;
        }
        assert!(
            at == 0 || is_before(self.specs[at - 1].description.name, description.name),
            "two commands have the same name"
        );
        self.specs[at] = Spec {
            begins: begin_of(description.name.as_bytes()),
            description,
            number: 0,
        };
        self.filled += 1;
    }

    /// All commands, each with its place.
    ///
    /// # Panics
    /// There are fewer than `N`.
    #[must_use]
    pub const fn finish(self) -> [Spec<P>; N] {
        assert!(self.filled == N, "there are fewer commands than places");
        let mut specs = self.specs;
        let mut at = 0;
        while at < N {
            specs[at].number = at as u16;
            at += 1;
        }
        specs
    }
}

/// The place of a command in a table.
///
/// # Panics
/// There is no such command.
#[must_use]
pub const fn place_of<P>(name: &str, specs: &[Spec<P>]) -> u16 {
    let mut at = 0;
    while is_before(specs[at].description.name, name) {
        at += 1;
    }
    assert!(
        !is_before(name, specs[at].description.name),
        "there is no such command"
    );
    specs[at].number
}

/// The first eight bytes of a name as a number. It is not less than that of a name before.
const fn begin_of(name: &[u8]) -> u64 {
    let (mut begin, mut at) = (0, 0);
    while at < size_of::<u64>() {
        let byte = if at < name.len() { name[at] } else { 0 };
        begin = begin << 8 | byte as u64;
        at += 1;
    }
    begin
}

const fn is_before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i < b.len() && (i == a.len() || a[i] < b[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::command;

    const fn named(name: &'static str) -> Description<()> {
        command(name, "1.0.0", -1, "generic", "")
    }

    #[test]
    fn commands_are_sorted_and_numbered() {
        let mut sorting = Sorting::<(), 4>::of(named("z"));
        for name in ["c", "a|b", "b", "a"] {
            sorting.add(named(name));
        }
        let specs = sorting.finish();
        assert_eq!(
            specs.map(|spec| (spec.name, spec.number)),
            [("a", 0), ("a|b", 1), ("b", 2), ("c", 3)]
        );
        assert_eq!(place_of("b", &specs), 2);
    }

    #[test]
    fn a_container_and_its_subcommands_are_not_single() {
        const SPECS: [Spec<()>; 3] = {
            let mut sorting = Sorting::of(named("z"));
            sorting.add(named("a"));
            sorting.add(named("a|b"));
            sorting.add(named("c"));
            sorting.finish()
        };
        let table = CommandTable::of(&SPECS);
        let single = table.all().iter().map(|spec| table.is_single(spec));
        assert!(single.eq([false, false, true]));
    }

    #[test]
    #[should_panic(expected = "two commands have the same name")]
    fn two_commands_of_one_name_are_refused() {
        let mut sorting = Sorting::<(), 3>::of(named("z"));
        for name in ["b", "a", "b"] {
            sorting.add(named(name));
        }
    }

    #[test]
    #[should_panic(expected = "there is no such command")]
    fn a_missing_command_has_no_place() {
        let mut sorting = Sorting::<(), 1>::of(named("z"));
        sorting.add(named("b"));
        let _ = place_of("aa", &sorting.finish());
    }
}
