//! What the server says of its commands (`COMMAND`, and `HELP` of each container) and of its one
//! user (`ACL`).

use super::command::table::{COMMANDS, Spec};
use super::command::{Acl, Listed};
use super::encode::Encoder;
use bytes::Bytes;
use doyen_engine::command::NO_KEYS;
use doyen_engine::glob;
use doyen_engine::integer;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;

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

fn command(encoder: &mut Encoder<'_>, spec: &Spec) {
    encoder.array(10);
    encoder.bulk(spec.name.as_bytes());
    encoder.integer(spec.arity);
    encoder.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| encoder.simple(flag));
    let (first, last, step) = spec.keys;
    encoder.integer(first);
    encoder.integer(last);
    encoder.integer(step);
    encoder.set(categories(spec).count());
    categories(spec).for_each(|category| encoder.simple(category));
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

/// What access lists would call a command.
fn categories(spec: &Spec) -> impl Iterator<Item = &'static str> + use<> {
    let group = match spec.group {
        "generic" if spec.name == "wait" => Some("@connection"),
        "generic" if spec.name != "object" => Some("@keyspace"),
        "string" => Some("@string"),
        "bitmap" => Some("@bitmap"),
        "connection" if spec.name != "client" => Some("@connection"),
        "cluster" if matches!(spec.name, "asking" | "readonly" | "readwrite") => {
            Some("@connection")
        }
        "transactions" => Some("@transaction"),
        "scripting" if !matches!(spec.name, "script" | "function") => Some("@scripting"),
        "server" if matches!(spec.name, "flushall" | "flushdb" | "dbsize") => Some("@keyspace"),
        "server" if spec.name.split('|').next() == Some("command") => Some("@connection"),
        _ => None,
    };
    let access = if spec.has_flag("write") {
        Some("@write")
    } else {
        spec.has_flag("readonly").then_some("@read")
    };
    let admin = spec.has_flag("admin") || matches!(spec.name, "role" | "lastsave");
    let dangerous = admin || matches!(spec.name, "flushall" | "flushdb" | "keys" | "info");
    let speed = if spec.has_flag("fast") {
        "@fast"
    } else {
        "@slow"
    };
    let pubsub = spec.has_flag("pubsub").then_some("@pubsub");
    let further = [
        pubsub,
        admin.then_some("@admin"),
        Some(speed),
        dangerous.then_some("@dangerous"),
    ];
    group
        .into_iter()
        .chain(access)
        .chain(further.into_iter().flatten())
}

fn key_specification(encoder: &mut Encoder<'_>, spec: &Spec) {
    let (first, last, step) = spec.keys;
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
    let specs: Vec<&Spec> = match names {
        None => COMMANDS.commands().collect(),
        Some(names) => names
            .iter()
            .filter_map(|name| COMMANDS.named(name))
            .collect(),
    };
    encoder.map(specs.len());
    specs.into_iter().for_each(|spec| docs(encoder, spec));
}

fn docs(encoder: &mut Encoder<'_>, spec: &Spec) {
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
    let wanted = |spec: &&Spec| match listed {
        Listed::All => true,
        Listed::None => false,
        Listed::Category(name) => categories(spec).any(|c| c[1..] == **name),
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
    let counted = spec.has_flag("movablekeys");
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
        spec.key_places(args.len()).map(|at| &args[at]).collect()
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
    let (help, others): (Vec<&Spec>, Vec<&Spec>) =
        subcommands.iter().partition(|s| s.name.ends_with("|help"));
    for subcommand in others.into_iter().chain(help) {
        lines.push(subcommand.name[container.len() + 1..].to_uppercase());
        lines.push(format!("    {}.", subcommand.summary));
    }
    encoder.array(lines.len());
    lines.iter().for_each(|line| encoder.simple(line));
}

/// `ACL`: the one user is `default`, which may do everything.
pub(crate) fn acl(encoder: &mut Encoder<'_>, asked: Acl, password: Option<&str>) {
    let hash = password.map(|password| hex(digest(&SHA256, password.as_bytes()).as_ref()));
    match asked {
        Acl::Users => names(encoder, ["default"].into_iter()),
        Acl::List => {
            let secret = hash.map_or_else(|| "nopass".to_owned(), |hash| format!("#{hash}"));
            names(
                encoder,
                [format!("user default on {secret} ~* &* +@all").as_str()].into_iter(),
            );
        }
        Acl::GetUser(name) if name != "default" => encoder.nil(),
        Acl::GetUser(_) => {
            encoder.map(6);
            encoder.bulk(b"flags");
            let flags = ["on", "nopass"];
            let flags = if hash.is_some() {
                &flags[..1]
            } else {
                &flags[..]
            };
            encoder.set(flags.len());
            flags.iter().for_each(|flag| encoder.bulk(flag.as_bytes()));
            encoder.bulk(b"passwords");
            names(encoder, hash.iter().map(String::as_str));
            for (name, rule) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
                encoder.bulk(name.as_bytes());
                encoder.bulk(rule.as_bytes());
            }
            encoder.bulk(b"selectors");
            encoder.array(0);
        }
        Acl::Categories => names(encoder, all_categories().into_iter()),
        Acl::Category(name) if !all_categories().contains(name.as_str()) => {
            encoder.error(&format!("ERR Unknown category '{name}'"))
        }
        Acl::Category(name) => command_list(encoder, &Listed::Category(name)),
        Acl::GenPass(bits) => {
            let random: [u8; 512] = rand::random();
            let digits = usize::from(bits).div_ceil(4);
            encoder.bulk(&hex(&random).as_bytes()[..digits]);
        }
    }
}

/// The categories of the commands of this server.
fn all_categories() -> BTreeSet<&'static str> {
    COMMANDS
        .all()
        .iter()
        .flat_map(categories)
        .map(|name| &name[1..])
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
