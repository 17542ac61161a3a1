//! What the server says of its commands (`COMMAND`, and `HELP` of each container) and of its one
//! user (`ACL`).

use super::command::table::{self, Spec};
use super::command::{Acl, Listed};
use super::encode::Encoder;
use super::glob;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;

/// `COMMAND`, and `COMMAND INFO` of these names.
pub fn command_info(encoder: &mut Encoder<'_>, names: Option<&[Bytes]>) {
    match names {
        None => {
            encoder.array(table::commands().count());
            table::commands().for_each(|spec| command(encoder, spec));
        }
        Some(names) => {
            encoder.array(names.len());
            for name in names {
                match Spec::find(name) {
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
    encoder.set(spec.categories().count());
    spec.categories()
        .for_each(|category| encoder.simple(category));
    encoder.set(0);
    encoder.set(usize::from(first > 0));
    if first > 0 {
        key_specification(encoder, spec);
    }
    let subcommands = spec.subcommands();
    if subcommands.is_empty() {
        encoder.set(0);
    } else {
        encoder.array(subcommands.len());
        subcommands
            .iter()
            .for_each(|subcommand| command(encoder, subcommand));
    }
}

fn key_specification(encoder: &mut Encoder<'_>, spec: &Spec) {
    let (first, last, step) = spec.keys;
    encoder.map(3);
    encoder.bulk(b"flags");
    encoder.set(1);
    encoder.simple(if spec.flags.contains(&"readonly") {
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
        None => table::commands().collect(),
        Some(names) => names.iter().filter_map(|name| Spec::find(name)).collect(),
    };
    encoder.map(specs.len());
    specs.into_iter().for_each(|spec| docs(encoder, spec));
}

fn docs(encoder: &mut Encoder<'_>, spec: &Spec) {
    let subcommands = spec.subcommands();
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
        Listed::Category(name) => spec.categories().any(|c| c[1..] == **name),
        Listed::Pattern(pattern) => {
            glob::matches(&pattern.to_ascii_lowercase(), spec.name.as_bytes())
        }
    };
    names(
        encoder,
        table::all().iter().filter(wanted).map(|spec| spec.name),
    );
}

fn names<'a>(encoder: &mut Encoder<'_>, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    encoder.array(names.len());
    names.iter().for_each(|name| encoder.bulk(name.as_bytes()));
}

/// `COMMAND GETKEYS` of this command.
pub fn command_keys(encoder: &mut Encoder<'_>, args: &[Bytes]) {
    let command = args.first().and_then(|name| Spec::find(name));
    let subcommand = || command.and_then(|c| c.subcommand(args.get(1)?));
    let Some(spec) = subcommand().or(command) else {
        return encoder.error("ERR Invalid command specified");
    };
    let (first, last, step) = spec.keys;
    if first == 0 {
        return encoder.error("ERR The command has no key arguments");
    }
    if !spec.takes(args.len()) {
        return encoder.error("ERR Invalid number of arguments specified for command");
    }
    let (first, step) = (
        usize::try_from(first).unwrap_or(1),
        usize::try_from(step).unwrap_or(1).max(1),
    );
    let end = if last < 0 {
        args.len()
    } else {
        (first + 1).min(args.len())
    };
    let keys: Vec<&Bytes> = args
        .get(first..end)
        .unwrap_or_default()
        .iter()
        .step_by(step)
        .collect();
    encoder.array(keys.len());
    keys.iter().for_each(|key| encoder.bulk(key));
}

/// `HELP` of a container.
pub fn help(encoder: &mut Encoder<'_>, container: &str) {
    let subcommands = Spec::find(container.as_bytes())
        .map(Spec::subcommands)
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
        Acl::Categories => names(encoder, categories().into_iter()),
        Acl::Category(name) if !categories().contains(name.as_str()) => {
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
fn categories() -> BTreeSet<&'static str> {
    table::all()
        .iter()
        .flat_map(Spec::categories)
        .map(|name| &name[1..])
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
