//! What the server says of its commands: `COMMAND`, and `HELP` of each container.

use super::command::Listed;
use super::command::table::{COMMANDS, RespSpec};
use super::encode::Encoder;
use bytes::Bytes;
use doyen_engine::command::{CATEGORIES, KeyIndexes, NO_KEYS, ONE_KEY};
use doyen_engine::glob;
use doyen_engine::integer;

/// `COMMAND`, and `COMMAND INFO` of these names.
pub fn command_info(encoder: &mut Encoder<'_>, names: Option<&[Bytes]>) {
    match names {
        None => {
            encoder.array(COMMANDS.commands().count());
            COMMANDS.commands().for_each(|spec| command(encoder, spec));
        }
        Some(names) => {
            encoder.array(names.len());
            for name in names {
                match COMMANDS.named(name) {
                    Some(spec) => command(encoder, spec),
                    None => encoder.nil(),
                }
            }
        }
    }
}

fn command(encoder: &mut Encoder<'_>, spec: &RespSpec) {
    encoder.array(10);
    encoder.bulk(spec.name.as_bytes());
    encoder.integer(spec.arity);
    encoder.set(spec.flags().count());
    spec.flags().for_each(|flag| encoder.simple(flag));
    let (first, last, step) = plain_keys(spec);
    encoder.integer(first);
    encoder.integer(last);
    encoder.integer(step);
    encoder.set(categories(spec).count());
    categories(spec).for_each(|category| encoder.simple(&format!("@{category}")));
    encoder.set(0);
    encoder.set(usize::from(first > 0));
    if first > 0 {
        key_specification(encoder, spec);
    }
    let subcommands = COMMANDS.subcommands(spec);
    if subcommands.is_empty() {
        encoder.set(0);
    } else {
        encoder.array(subcommands.len());
        subcommands
            .iter()
            .for_each(|subcommand| command(encoder, subcommand));
    }
}

/// The places of keys, apart from those that another argument counts.
fn plain_keys(spec: &RespSpec) -> KeyIndexes {
    match spec.keys {
        (0, ..) => NO_KEYS,
        (..0, ..) | (_, _, ..0) => ONE_KEY,
        keys => keys,
    }
}

/// The categories of a command, as access lists call them.
fn categories(spec: &RespSpec) -> impl Iterator<Item = &'static str> + Clone + use<> {
    let spec = *spec;
    let all = CATEGORIES.into_iter();
    all.filter(move |category| spec.is_in(category))
}

fn key_specification(encoder: &mut Encoder<'_>, spec: &RespSpec) {
    let (first, last, step) = plain_keys(spec);
    encoder.map(3);
    encoder.bulk(b"flags");
    encoder.set(1);
    encoder.simple(if spec.has_flag("readonly") {
        "RO"
    } else {
        "RW"
    });
    for (part, kind, numbers) in [
        ("begin_search", "index", &[("index", first)][..]),
        (
            "find_keys",
            "range",
            &[
                ("lastkey", if last < 0 { last } else { last - first }),
                ("keystep", step),
                ("limit", 0),
            ],
        ),
    ] {
        encoder.bulk(part.as_bytes());
        encoder.map(2);
        encoder.bulk(b"type");
        encoder.bulk(kind.as_bytes());
        encoder.bulk(b"spec");
        encoder.map(numbers.len());
        for (name, number) in numbers {
            encoder.bulk(name.as_bytes());
            encoder.integer(*number);
        }
    }
}

/// `COMMAND DOCS`, of these names.
pub fn command_docs(encoder: &mut Encoder<'_>, names: Option<&[Bytes]>) {
    let specs: Vec<&RespSpec> = match names {
        None => COMMANDS.commands().collect(),
        Some(names) => names
            .iter()
            .filter_map(|name| COMMANDS.named(name))
            .collect(),
    };
    encoder.map(specs.len());
    specs.into_iter().for_each(|spec| docs(encoder, spec));
}

fn docs(encoder: &mut Encoder<'_>, spec: &RespSpec) {
    let subcommands = COMMANDS.subcommands(spec);
    encoder.bulk(spec.name.as_bytes());
    encoder.map(if subcommands.is_empty() { 3 } else { 4 });
    for (name, value) in [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group),
    ] {
        encoder.bulk(name.as_bytes());
        encoder.bulk(value.as_bytes());
    }
    if !subcommands.is_empty() {
        encoder.bulk(b"subcommands");
        encoder.map(subcommands.len());
        subcommands
            .iter()
            .for_each(|subcommand| docs(encoder, subcommand));
    }
}

/// `COMMAND LIST`.
pub fn command_list(encoder: &mut Encoder<'_>, listed: &Listed) {
    let wanted = |spec: &&RespSpec| match listed {
        Listed::All => true,
        Listed::None => false,
        Listed::Category(name) => spec.is_in(name),
        Listed::Pattern(pattern) => {
            glob::matches(&pattern.to_ascii_lowercase(), spec.name.as_bytes())
        }
    };
    names(
        encoder,
        COMMANDS.all().iter().filter(wanted).map(|spec| spec.name),
    );
}

fn names<'a>(encoder: &mut Encoder<'_>, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    encoder.array(names.len());
    names.iter().for_each(|name| encoder.bulk(name.as_bytes()));
}

/// `COMMAND GETKEYS` of this command.
pub fn command_keys(encoder: &mut Encoder<'_>, args: &[Bytes]) {
    let command = args.first().and_then(|name| COMMANDS.named(name));
    let subcommand = || command.and_then(|c| COMMANDS.subcommand(c, args.get(1)?));
    let Some(spec) = subcommand().or(command) else {
        return encoder.error("ERR Invalid command specified");
    };
    let counted = spec.keys == NO_KEYS && spec.has_flag("movablekeys");
    if spec.keys == NO_KEYS && !counted {
        return encoder.error("ERR The command has no key arguments");
    }
    if !spec.takes(args.len()) {
        return encoder.error("ERR Invalid number of arguments specified for command");
    }
    let keys: Vec<&Bytes> = if counted {
        // The argument before the keys says how many there are.
        let count = integer(&args[2]).and_then(|count| usize::try_from(count).ok());
        match count.and_then(|count| args[3..].get(..count)) {
            Some(keys) => keys.iter().collect(),
            None => return encoder.error("ERR Invalid arguments specified for command"),
        }
    } else {
        spec.key_indexes(&args).map(|at| &args[at]).collect()
    };
    encoder.array(keys.len());
    keys.iter().for_each(|key| encoder.bulk(key));
}

/// `HELP` of a container.
pub fn help(encoder: &mut Encoder<'_>, container: &str) {
    let subcommands = COMMANDS
        .named(container.as_bytes())
        .map(|spec| COMMANDS.subcommands(spec))
        .unwrap_or_default();
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.to_uppercase()
    )];
    let (help, others): (Vec<&RespSpec>, Vec<&RespSpec>) =
        subcommands.iter().partition(|s| s.name.ends_with("|help"));
    for subcommand in others.into_iter().chain(help) {
        lines.push(subcommand.name[container.len() + 1..].to_uppercase());
        lines.push(format!("    {}.", subcommand.summary));
    }
    encoder.array(lines.len());
    lines.iter().for_each(|line| encoder.simple(line));
}
