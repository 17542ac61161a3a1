use super::*;
use doyen_rdb::{RdbValue, RdbWriter};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;

const MARK: &str = "0123456789012345678901234567890123456789";

fn stream(bytes: &[u8]) -> CommandStream<BufReader<&[u8]>> {
    CommandStream::new(BufReader::new(bytes), 100)
}

fn commands(all: &[&[&str]]) -> Vec<u8> {
    all.iter().flat_map(|command| encoded(command)).collect()
}

/// A batch had the command that repeats a word at its end. If a node refused the earlier one for
/// the moment, the later one was executed before it.
#[test]
fn writes_of_a_source_come_in_batches_without_a_word_twice() {
    let bytes = commands(&[
        &["PING"],
        &["SELECT", "3"],
        &["MULTI"],
        &["SET", "a", "1"],
        &["INCR", "b"],
        &["EXEC"],
        &["INCR", "b"],
        &["DEL", "a"],
    ]);
    let mut stream = stream(&bytes);
    let (mut batches, mut offsets) = (Vec::new(), Vec::new());
    while let Ok((database, batch)) = stream.batch() {
        batches.push((database, batch));
        offsets.push(stream.offset);
    }
    let incr = || words([b"INCR", b"b"]);
    assert_eq!(
        batches,
        [
            (0, vec![]),
            (3, vec![words([b"SET", b"a", b"1"]), incr()]),
            (3, vec![incr(), words([b"DEL", b"a"])]),
        ]
    );
    // What is not executed yet is not acknowledged.
    let behind = commands(&[&["INCR", "b"], &["DEL", "a"]]).len() as u64;
    let end = 100 + bytes.len() as u64;
    assert_eq!(offsets[1..], [end - behind, end]);
}

#[test]
fn malformed_writes_end_the_stream() {
    for bytes in [
        &b"*1\r\n$99\r\nSET\r\n"[..],
        b"*0\r\n",
        b"*99999999999\r\n",
        b"*1\r\n$-1\r\n",
        b"SET a 1\r\n",
        b"*2\r\n$6\r\nSELECT\r\n$1\r\nx\r\n",
        b"*1\r\n$4",
    ] {
        assert!(stream(bytes).batch().is_err(), "{}", bytes.escape_ascii());
    }
}

/// Answers each command of each connection, by this function.
fn serve(answer: impl Fn(&Words, &mut TcpStream) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut out = connection.expect("it is accepted");
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let reader = BufReader::new(out.try_clone().expect("a socket"));
                let mut commands = CommandStream::new(reader, 0);
                while let Ok(command) = commands.command() {
                    answer(&command, &mut out);
                }
            });
        }
    });
    Server::of(&address.to_string()).expect("it is an address")
}

fn file() -> Vec<u8> {
    let mut writer = RdbWriter::new(Vec::new(), 9).expect("a version");
    for (database, key) in [(0, "a"), (0, "b"), (2, "c")] {
        let value = RdbValue::String("v");
        let written = writer.key(database, key.as_bytes(), None, &value);
        written.expect("a Vec takes all");
    }
    writer.finish().expect("a Vec takes all")
}

/// A source that sends this before, with and behind its file.
fn source(before: String, file: Vec<u8>, behind: Vec<u8>) -> Server {
    let offset = 1_000 + behind.len() as u64 - MARK.len() as u64;
    serve(move |command, out| {
        let said = match &command[0][..] {
            b"PING" => b"+PONG\r\n".to_vec(),
            b"PSYNC" => [before.as_bytes(), &file, &behind].concat(),
            b"INFO" => {
                let text = format!("role:master\r\nmaster_repl_offset:{offset}\r\n");
                format!("${}\r\n{text}\r\n", text.len()).into_bytes()
            }
            b"REPLCONF" if command[1] == b"ACK" => return,
            _ => b"-ERR unknown\r\n".to_vec(),
        };
        // A replica that has what it wanted is gone.
        let _ = out.write_all(&said);
    })
}

/// A node that keeps the commands that it gets, and refuses one of them once.
fn node() -> (Server, Arc<Mutex<Vec<Words>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (kept, is_first) = (Arc::clone(&told), AtomicBool::new(true));
    let server = serve(move |command, out| {
        let refuses = command[0] == b"INCR" && is_first.swap(false, Ordering::Relaxed);
        let said: &[u8] = if refuses {
            b"-TRYAGAIN later\r\n"
        } else {
            kept.lock()
                .expect("no test panics here")
                .push(command.clone());
            if command[0] == b"LPUSH" {
                b"-ERR unknown command 'LPUSH', with args beginning with: 'l' \r\n"
            } else {
                b"+OK\r\n"
            }
        };
        let _ = out.write_all(said);
    });
    (server, told)
}

const FULL: &str = "+FULLRESYNC 8de1787ba490483314a4d30f1c628bc5025eb761 1000\r\n\n\n";

#[test]
fn a_replica_gets_all_keys_and_then_each_write_once() {
    let writes = commands(&[
        &["SELECT", "0"],
        &["INCR", "n"],
        &["INCR", "n"],
        &["LPUSH", "l", "x"],
        &["FLUSHALL"],
        &["FUNCTION", "LOAD", "#!lua name=f\n"],
        &["FUNCTION", "DELETE", "f"],
        &["SET", "last", "1"],
    ]);
    let behind = [MARK.as_bytes(), &writes].concat();
    let source = source(format!("{FULL}$EOF:{MARK}\r\n"), file(), behind);
    let (node, told) = node();
    let replica = begin(&source).expect("it answers").expect("it agrees");
    let (tally, done) = follow(replica, &source, &[node], (true, 2)).expect("it begins");
    done.expect("all came");
    assert_eq!((tally.keys, tally.commands, tally.functions), (3, 3, 1));
    let refused: Vec<&str> = tally.refused.keys().map(|(what, _)| &**what).collect();
    assert_eq!(refused, ["FLUSHALL", "LPUSH"]);
    let told = told.lock().expect("no test panics here");
    let has = |command: &Words| told.iter().filter(|it| *it == command).count();
    for (command, times) in [
        (words([b"SET", b"a", b"v"]), 1),
        (words([b"SET", b"b", b"v"]), 1),
        (words([b"SET", b"c", b"v"]), 1),
        (words([b"SELECT", b"2"]), 1),
        (words([b"INCR", b"n"]), 2),
        (words([b"SET", b"last", b"1"]), 1),
        (words([b"FLUSHALL"]), 0),
    ] {
        assert_eq!(has(&command), times, "{command:?}");
    }
}

/// The import ended with the node that it used.
#[test]
fn if_a_node_ends_the_next_one_is_asked() {
    let is_gone = AtomicBool::new(false);
    let first = serve(move |command, out| {
        if is_gone.load(Ordering::Relaxed) || command[0] == b"INCR" {
            is_gone.store(true, Ordering::Relaxed);
            let _ = out.shutdown(Shutdown::Both);
        }
        let _ = out.write_all(b"+OK\r\n");
    });
    let (second, told) = node();
    let mut tally = MigrationTally::new();
    let mut nodes = NodeLink::connect(&[first, second]).expect("one answers");
    let batch = vec![
        words([b"SET", b"a", b"1"]),
        words([b"INCR", b"n"]),
        words([b"SADD", b"s", b"m"]),
        words([b"FUNCTION", b"FLUSH"]),
    ];
    execute(&mut nodes, 0, batch, &mut tally).expect("another node is there");
    assert_eq!(tally.commands, 2);
    // It may have been done.
    let refused: Vec<_> = tally.refused.keys().collect();
    assert!(
        matches!(&refused[..], [(what, why)] if what == "INCR" && why.contains("is not known")),
        "{refused:?}"
    );
    let told = told.lock().expect("no test panics here");
    assert!(told.contains(&words([b"SADD", b"s", b"m"])));
    assert!(!told.contains(&words([b"INCR", b"n"])));
}

#[test]
fn what_adds_is_not_done_twice() {
    let may = |command: &str| {
        let words = command.split(' ').map(|word| word.as_bytes().to_vec());
        is_repeatable(&words.collect())
    };
    for repeatable in [
        "SET a 1",
        "set a 1 nx",
        "HSET h f v",
        "ZADD z 1 m",
        "DEL a b",
    ] {
        assert!(may(repeatable), "{repeatable}");
    }
    for adding in [
        "INCR a",
        "RPUSH l x",
        "APPEND a x",
        "ZADD z incr 1 m",
        "LPOP l",
        "XADD s 1-1 f v",
    ] {
        assert!(!may(adding), "{adding}");
    }
}

/// The import of a user without the right to INFO ended.
#[test]
fn without_info_databases_are_tried() {
    let server = serve(|command, out| {
        let said: &[u8] = match &command[0][..] {
            b"INFO" | b"CONFIG" => b"-NOPERM this user has no permissions\r\n",
            b"SELECT" if command[1] >= b"3".to_vec() => b"-ERR DB index is out of range\r\n",
            _ => b"+OK\r\n",
        };
        let _ = out.write_all(said);
    });
    let mut link = SourceLink::connect(&server).expect("it answers");
    assert_eq!(link.databases().expect("it answers"), [0, 1, 2]);
}

#[test]
fn a_source_that_refuses_replicas_is_read_in_another_way() {
    let refusing = source(
        "-ERR no replicas here\r\n".to_owned(),
        vec![],
        vec![b'x'; 40],
    );
    assert!(begin(&refusing).expect("it answers").is_none());
}

#[test]
fn a_file_that_ends_early_or_late_is_an_error() {
    let whole = file();
    let length = whole.len();
    for (head, file, behind, why) in [
        (
            format!("${}\r\n", length + 1),
            &whole[..],
            "x",
            "its file has",
        ),
        (
            format!("$EOF:{MARK}\r\n"),
            &whole,
            &MARK.replace('9', "x"),
            "with its mark",
        ),
        ("$-\r\n".to_owned(), &whole, "", "a file was expected"),
        (
            format!("${length}\r\n"),
            b"REDIS0009\xfe\x00\x1d",
            MARK,
            "is not known here",
        ),
    ] {
        let behind = [behind.as_bytes(), &[b'x'; 40]].concat();
        let source = source(format!("{FULL}{head}"), file.to_vec(), behind);
        let (node, _) = node();
        let replica = begin(&source).expect("it answers").expect("it agrees");
        let (_, done) = follow(replica, &source, &[node], (true, 1)).expect("it begins");
        let message = done.expect_err("the file is wrong").message;
        assert!(message.contains(why), "{message}");
    }
}
