use super::*;
use crate::command::operation::{Action, Condition, Expiry};
use bytes::Bytes;

const NOW: u64 = 1_800_000_000_000;

/// As a script calls a command.
fn ask(line: &str) -> Result<ParsedRequest, String> {
    let args: Vec<Bytes> = line
        .split_ascii_whitespace()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect();
    let args: &dyn Arguments = &args.as_slice();
    COMMANDS
        .find(args)
        .and_then(|spec| spec.request(args, NOW))
        .map_err(|why| why.0.into_owned())
}

#[test]
fn every_command_belongs_to_a_container_or_is_one_of_its_own() {
    let contained = COMMANDS
        .commands()
        .map(|spec| COMMANDS.subcommands(spec).len())
        .sum::<usize>();
    assert_eq!(COMMANDS.commands().count() + contained, count(FAMILIES));
    let subcommands = |name: &[u8]| {
        let spec = COMMANDS.named(name).expect("it is a command");
        let subcommands = COMMANDS.subcommands(spec).iter();
        subcommands.map(|spec| spec.name).collect::<Vec<_>>()
    };
    assert_eq!(subcommands(b"get"), [""; 0]);
    assert_eq!(subcommands(b"MEMORY"), ["memory|usage"]);
}

#[test]
fn mistakes_get_the_texts_of_redis() {
    for (line, text) in [
        (
            "nosuch a b",
            "ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ",
        ),
        (
            "object",
            "ERR wrong number of arguments for 'object' command",
        ),
        (
            "object|freq k",
            "ERR unknown command 'object|freq', with args beginning with: 'k' ",
        ),
        (
            "object nosuch k",
            "ERR unknown subcommand 'nosuch'. Try OBJECT HELP.",
        ),
        (
            "object freq",
            "ERR wrong number of arguments for 'object|freq' command",
        ),
        (
            "mset a 1 b",
            "ERR wrong number of arguments for 'mset' command",
        ),
        ("set a b EX", SYNTAX),
        ("set a b EX x", NOT_AN_INTEGER),
        ("set a b EX 0", "ERR invalid expire time in 'set' command"),
        ("incrbyfloat a x", NOT_A_FLOAT),
    ] {
        assert_eq!(ask(line), Err(text.to_owned()), "{line}");
    }
}

#[test]
fn options_of_set_are_understood_in_any_order() {
    let action = |line| match ask(line) {
        Ok(ParsedRequest::One {
            action:
                Action::Set {
                    condition,
                    expiry,
                    get,
                    ..
                },
            ..
        }) => (condition, expiry, get),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(action("set a b"), (Condition::Always, Expiry::None, false));
    assert_eq!(
        action("SET a b PX 5 NX GET"),
        (Condition::IfAbsent, Expiry::In(5), true)
    );
    assert_eq!(
        action("SET a b get XX EX 5"),
        (Condition::IfPresent, Expiry::In(5000), true)
    );
    assert_eq!(
        action("SET a b EXAT 5"),
        (Condition::Always, Expiry::At(5000), false)
    );
    assert_eq!(
        action("SET a b PXAT 5"),
        (Condition::Always, Expiry::At(5), false)
    );
    assert_eq!(
        action("SET a b KEEPTTL"),
        (Condition::Always, Expiry::Keep, false)
    );
}

/// `GET` and plain `SET` have fast paths that do not ask their descriptions.
#[test]
fn plain_reads_and_writes_are_what_their_fast_paths_do() {
    let one = |action| {
        Ok(ParsedRequest::One {
            key: "a".into(),
            action,
            shape: Shape::Plain,
        })
    };
    assert_eq!(ask("GET a"), one(Action::Get));
    assert_eq!(ask("SET a b"), one(Action::set("b".into())));
}

#[test]
fn several_keys_of_one_command_are_several_operations() {
    assert_eq!(ask("DEL a b"), Ok(ParsedRequest::Many(Many::Delete)));
    assert_eq!(ask("UNLINK a b"), Ok(ParsedRequest::Many(Many::Delete)));
    assert_eq!(ask("EXISTS a a"), Ok(ParsedRequest::Many(Many::Exists)));
    assert_eq!(ask("MSET a 1 b 2"), Ok(ParsedRequest::Many(Many::Set)));
    assert_eq!(
        ask("DEL a"),
        Ok(ParsedRequest::One {
            key: Bytes::from_static(b"a"),
            action: Action::Delete,
            shape: Shape::Plain
        })
    );
}

#[test]
fn keys_stand_where_the_description_says() {
    let places = |name: &[u8], args: usize| {
        let spec = COMMANDS.named(name).expect("it is a command");
        let words = vec![Bytes::from_static(b"2"); args];
        spec.key_indexes(&words.as_slice()).collect::<Vec<_>>()
    };
    assert_eq!(places(b"get", 2), [1]);
    assert_eq!(places(b"set", 6), [1]);
    assert_eq!(places(b"del", 4), [1, 2, 3]);
    assert_eq!(places(b"mset", 5), [1, 3]);
    assert_eq!(places(b"rename", 3), [1, 2]);
    assert_eq!(places(b"copy", 6), [1, 2]);
    assert_eq!(places(b"msetex", 8), [2, 4]);
    assert_eq!(places(b"msetex", 4), [2]);
    assert_eq!(places(b"object|freq", 3), [2]);
    assert_eq!(places(b"object", 3), [0; 0]);
    for args in 0..2 {
        assert_eq!(places(b"object|freq", args), [0; 0]);
        assert_eq!(places(b"del", args), [0; 0]);
    }
}
