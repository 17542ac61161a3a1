//! The commands that there are: one table for parsing, `COMMAND`, `COMMAND DOCS`, arity errors and
//! counters. It is made from the engine's descriptions of commands on data, and from those in the
//! files beside this one.
//!
//! A description whose name has a bar is that of a subcommand: `client|list` is `CLIENT LIST`. A
//! container with such subcommands takes no other words.

use super::{
    CommandCall, ParsedCommand, client, cluster, connection, generic, pubsub, scripting, server,
    transactions,
};
use doyen_engine::command::{self as data, CommandTable, Sorting, count, place_of};
pub(super) use doyen_engine::command::{Access, NO_KEYS, command};

/// Everything that is to be said of a command that is not on data.
pub(super) type RespDescription = data::Description<fn(CommandCall<'_>) -> ParsedCommand>;

/// A command in the table.
pub type RespSpec = data::Spec<Parse>;

/// How a command's arguments become a request.
#[derive(Debug, Clone, Copy)]
pub enum Parse {
    /// A command on data, which the engine describes.
    Data(data::ParseFn),
    /// Any other.
    Own(fn(CommandCall<'_>) -> ParsedCommand),
}

/// Every command and subcommand.
pub static COMMANDS: CommandTable<Parse> = CommandTable::of(&TABLE);

/// How many commands and subcommands there are.
pub const COUNT: usize = count(data::FAMILIES) + count(OWN);
/// The places of the commonest commands, which are not looked up.
pub const GET: u16 = place_of("get", &TABLE);
/// Likewise.
pub const SET: u16 = place_of("set", &TABLE);
/// The place of `MULTI`.
pub const MULTI: u16 = place_of("multi", &TABLE);

const OWN: &[&[RespDescription]] = &[
    client::ROWS,
    cluster::ROWS,
    connection::ROWS,
    generic::ROWS,
    pubsub::ROWS,
    scripting::ROWS,
    server::ROWS,
    transactions::ROWS,
];

static TABLE: [RespSpec; COUNT] = sorted();

const fn sorted() -> [RespSpec; COUNT] {
    let filler = &OWN[0][0];
    let mut sorting = Sorting::of(filler.parse(Parse::Own(filler.parse)));
    let mut family = 0;
    while family < data::FAMILIES.len() {
        let mut row = 0;
        while row < data::FAMILIES[family].len() {
            let description = &data::FAMILIES[family][row];
            sorting.add(description.parse(Parse::Data(description.parse)));
            row += 1;
        }
        family += 1;
    }
    let mut family = 0;
    while family < OWN.len() {
        let mut row = 0;
        while row < OWN[family].len() {
            let description = &OWN[family][row];
            sorting.add(description.parse(Parse::Own(description.parse)));
            row += 1;
        }
        family += 1;
    }
    sorting.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for (number, spec) in (0..).zip(COMMANDS.all()) {
            assert_eq!(
                COMMANDS
                    .named(spec.name.to_ascii_uppercase().as_bytes())
                    .map(|s| s.name),
                Some(spec.name)
            );
            assert_eq!(spec.number, number);
        }
        assert!(COMMANDS.all().is_sorted_by_key(|s| s.name));
        for name in ["", "ge", "gett", "a name that is longer than any command's"] {
            assert!(COMMANDS.named(name.as_bytes()).is_none());
        }
        assert_eq!(
            (
                COMMANDS.all()[usize::from(GET)].name,
                COMMANDS.all()[usize::from(SET)].name
            ),
            ("get", "set")
        );
    }

    /// The rows of `docs/commands.md`: by group, and by name within it.
    fn table_of_commands() -> String {
        let mut all: Vec<&RespSpec> = COMMANDS.all().iter().collect();
        all.retain(|spec| COMMANDS.subcommands(spec).is_empty());
        all.sort_by_key(|spec| (spec.group, spec.name));
        let rows = all.into_iter().map(|spec| {
            let name = spec.name.to_ascii_uppercase().replace('|', " ");
            let words = i64::try_from(name.split(' ').count()).expect("one or two");
            let arguments = match spec.arity {
                any if any < 0 && -any == words => "any".to_owned(),
                most if most < 0 => format!("{} or more", -most - words),
                exactly => (exactly - words).to_string(),
            };
            let (group, since, summary) = (spec.group, spec.since, spec.summary);
            format!("| {group} | `{name}` | {arguments} | {since} | {summary} |\n")
        });
        rows.collect()
    }

    /// To write the table of the page, run this with `DOYEN_WRITE_PAGES=1`.
    #[test]
    fn the_page_of_commands_is_what_nodes_take() {
        const HEAD: &str = "|---|---|---|---|---|\n";
        let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.md");
        let page = std::fs::read_to_string(at).expect("there is a page");
        let (words, table) = page.split_once(HEAD).expect("the page has a table");
        let wanted = table_of_commands();
        if std::env::var_os("DOYEN_WRITE_PAGES").is_some() {
            std::fs::write(at, [words, HEAD, &wanted].concat()).expect("the page is written");
        } else {
            assert!(
                table == wanted,
                "the table of docs/commands.md is outdated: run this test with DOYEN_WRITE_PAGES=1"
            );
        }
    }

    #[test]
    fn subcommands_belong_to_their_containers() {
        let client = COMMANDS.named(b"client").unwrap();
        let subcommand = |name: &[u8]| COMMANDS.subcommand(client, name);
        assert_eq!(subcommand(b"LIST").unwrap().name, "client|list");
        assert!(subcommand(b"nosuch").is_none() && subcommand(b"").is_none());
        let all = |name: &[u8]| COMMANDS.subcommands(COMMANDS.named(name).unwrap()).len();
        assert_eq!((all(b"get"), all(b"object")), (0, 5));
        let contained = COMMANDS
            .commands()
            .map(|c| COMMANDS.subcommands(c).len())
            .sum::<usize>();
        assert_eq!(
            COMMANDS.commands().count() + contained,
            COUNT,
            "each subcommand has its container"
        );
    }
}
