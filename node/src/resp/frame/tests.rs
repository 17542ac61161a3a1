use super::*;
use bytes::{Buf, BytesMut};
use proptest::prelude::*;

/// Feeds pieces and collects the commands. An error ends it.
fn feed<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut parser = Parser::new(1 << 20);
    let mut buffer = BytesMut::new();
    let mut commands = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let (taken, result) = parser.parse(&buffer, true, 3);
            let chunk = buffer.split_to(taken).freeze();
            let found: Vec<Vec<Vec<u8>>> = parser
                .commands(&chunk)
                .map(|args| args.iter_from(0).map(<[u8]>::to_vec).collect())
                .collect();
            parser.clear();
            commands.extend(found);
            if let Err(why) = result {
                return (commands, Some(why));
            }
            if taken == 0 {
                break;
            }
        }
    }
    buffer.advance(buffer.len());
    (commands, None)
}

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        out.extend(format!("${}\r\n", arg.len()).bytes());
        out.extend(arg);
        out.extend(b"\r\n");
    }
    out
}

fn failure(bytes: &[u8]) -> String {
    feed([bytes]).1.map(|e| e.to_string()).unwrap_or_default()
}

#[test]
fn protocol_errors_read_as_redis_says_them() {
    let long = [b'1'; LINE_BYTES_MAX + 10];
    let cases: &[(Vec<u8>, &str)] = &[
        (b"*1\r\n$-1\r\n".to_vec(), "invalid bulk length"),
        (b"*1\r\n$x\r\n".to_vec(), "invalid bulk length"),
        (
            b"*1\r\n$536870913\r\n".to_vec(),
            "invalid bulk length: at most 1048576 bytes (--value-max)",
        ),
        (b"*1\r\n:4\r\n".to_vec(), "expected '$', got ':'"),
        (b"*x\r\n".to_vec(), "invalid multibulk length"),
        (b"*+1\r\n".to_vec(), "invalid multibulk length"),
        (b"*1048577\r\n".to_vec(), "invalid multibulk length"),
        (
            b"*99999999999999999999\r\n".to_vec(),
            "invalid multibulk length",
        ),
        (b"set a \"x\r\n".to_vec(), "unbalanced quotes in request"),
        (b"get 'a'b\r\n".to_vec(), "unbalanced quotes in request"),
        (
            b"\x16\x03\x01\x00\xc8".to_vec(),
            "this port does not speak TLS: connect without it",
        ),
        (
            b"POST / HTTP/1.1\r\n".to_vec(),
            "this port speaks RESP; for HTTP, use the port of --http",
        ),
        (
            b"GET / HTTP/1.1\r\nhost: a\r\n".to_vec(),
            "this port speaks RESP; for HTTP, use the port of --http",
        ),
        (
            [b"*".as_slice(), &long].concat(),
            "too big mbulk count string",
        ),
        (
            [b"*1\r\n$".as_slice(), &long].concat(),
            "too big bulk count string",
        ),
        (long.to_vec(), "too big inline request"),
    ];
    for (bytes, text) in cases {
        assert_eq!(
            failure(bytes),
            format!("ERR Protocol error: {text}"),
            "{:?}",
            &bytes[..bytes.len().min(20)]
        );
    }
}

/// Regression: a value above the limit cost the connection, with an error that did not name the
/// limit.
#[test]
fn a_command_above_the_limits_is_skipped_in_bounded_memory() {
    let mut parser = Parser::new(1 << 20);
    let mut bytes = b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3000000\r\n".to_vec();
    bytes.extend(vec![b'x'; 3_000_000]);
    bytes.extend_from_slice(b"\r\n*1\r\n$4\r\nECHO\r\n");
    bytes.extend_from_slice(b"*6\r\n");
    for _ in 0..6 {
        bytes.extend_from_slice(b"$1000000\r\n");
        bytes.extend(vec![b'y'; 1_000_000]);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"QUIT\r\n");
    let mut buffer = BytesMut::new();
    let (mut found, mut most) = (Vec::new(), 0);
    for piece in bytes.chunks(70_001) {
        buffer.extend_from_slice(piece);
        most = most.max(buffer.len());
        loop {
            let (taken, result) = parser.parse(&buffer, true, 3);
            result.unwrap();
            let chunk = buffer.split_to(taken).freeze();
            found.extend(
                parser
                    .commands(&chunk)
                    .map(|args| (args.len(), args.too_large(), args.get(0).to_vec())),
            );
            parser.clear();
            if taken == 0 {
                break;
            }
        }
    }
    let whole = |name: &[u8]| (1, None, name.to_vec());
    let skipped = |why| (0, Some(why), Vec::new());
    let expected = [
        whole(b"PING"),
        skipped(TooLarge::Argument),
        whole(b"ECHO"),
        skipped(TooLarge::Command),
        whole(b"QUIT"),
    ];
    assert_eq!(found, expected);
    assert!(most < 4_300_000, "{most} bytes were kept");
}

#[test]
fn an_unauthenticated_client_may_send_little() {
    let parse = |bytes: &[u8]| {
        Parser::new(1 << 20)
            .parse(bytes, false, 1)
            .1
            .map_err(|e| e.0)
    };
    assert_eq!(
        parse(b"*11\r\n"),
        Err("unauthenticated multibulk length".to_owned())
    );
    assert_eq!(
        parse(b"*1\r\n$16385\r\n"),
        Err("unauthenticated bulk length".to_owned())
    );
    // Ten arguments of the longest kind were 160 KiB, and an unfinished line 64 KiB.
    let longest = [&b"*2\r\n$16384\r\n"[..], &[b'x'; 16384], b"\r\n$16384\r\n"].concat();
    assert_eq!(
        parse(&longest),
        Err("unauthenticated bulk length".to_owned())
    );
    assert_eq!(
        parse(&[b'x'; 16385]),
        Err("too big inline request".to_owned())
    );
    assert_eq!(
        parse(&[&b"*"[..], &[b'1'; 16385]].concat()),
        Err("too big mbulk count string".to_owned())
    );
    assert_eq!(parse(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n"), Ok(()));
}

#[test]
fn inline_commands_take_quotes_and_escapes() {
    let (commands, error) = feed([
        b"\r\nSET  a \"x\\x41\\n\\\"\" \r\nget 'it\\'s'\n*0\r\n*-1\r\nPING ''\r\n".as_slice(),
    ]);
    assert_eq!(error, None);
    let words = |w: &[&[u8]]| w.iter().map(|w| w.to_vec()).collect::<Vec<_>>();
    assert_eq!(
        commands,
        [
            words(&[b"SET", b"a", b"xA\n\""]),
            words(&[b"get", b"it's"]),
            words(&[b"PING", b""])
        ]
    );
}

proptest! {
    #[test]
    fn reads_may_split_commands_anywhere(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            0..8,
        ),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|c| encode(c)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(bytes.len());
        let mut from = 0;
        let pieces = cuts.iter().map(|&to| { let piece = &bytes[from..to]; from = to; piece });
        let pieces: Vec<&[u8]> = pieces.collect();
        prop_assert_eq!(feed(pieces), (commands, None));
    }

    #[test]
    fn any_bytes_are_commands_or_an_error(
        pieces in prop::collection::vec("[*$0-9\r\n\"'\\\\a -]{0,30}", 0..8),
        raw in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        feed(pieces.iter().map(|p| p.as_bytes()).chain([raw.as_slice()]));
    }
}
