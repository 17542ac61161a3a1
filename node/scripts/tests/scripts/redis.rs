//! Runs the same scripts here and in redis-server, and compares the replies.
//!
//! If redis-server is not installed, or is not of version 7.0, the test says so and ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::run_with;
use doyen_scripts::{Interpreter, ScriptLimits, ScriptReply};

/// One script a line. `␤` is a line break.
const SCRIPTS: [&str; 4] = [
    include_str!("compare/api.txt"),
    include_str!("compare/lua.txt"),
    include_str!("compare/libraries.txt"),
    include_str!("compare/errors.txt"),
];

struct Server {
    process: Child,
    stream: BufReader<UnixStream>,
    _directory: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Option<Server> {
        let version = Command::new("redis-server")
            .arg("--version")
            .output()
            .ok()?;
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        if !version.contains("v=7.0.") {
            eprintln!("NOT COMPARED: this needs redis-server 7.0, not {version}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args([
                "--port",
                "0",
                "--save",
                "",
                "--appendonly",
                "no",
                "--unixsocket",
            ])
            .arg(&socket)
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let stream = connect(&socket);
        let mut server = Server {
            process,
            stream,
            _directory: directory,
        };
        server.call(&["HELLO", "3"]);
        Some(server)
    }

    fn call(&mut self, args: &[&str]) -> ScriptReply {
        let mut out = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            out.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
        }
        self.stream.get_mut().write_all(&out).unwrap();
        self.read()
    }

    fn read(&mut self) -> ScriptReply {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).unwrap();
        let bytes = line.strip_suffix(b"\r\n").expect("a whole line").to_vec();
        let line = String::from_utf8_lossy(&bytes).into_owned();
        let (kind, rest) = line.split_at(1);
        let many = |server: &mut Server, count: usize| -> Vec<ScriptReply> {
            (0..count).map(|_| server.read()).collect()
        };
        match kind {
            "+" => ScriptReply::Status(bytes[1..].to_vec().into()),
            "-" => ScriptReply::Error(bytes[1..].to_vec().into()),
            ":" => ScriptReply::Int(rest.parse().unwrap()),
            "_" => ScriptReply::Nil,
            "#" => ScriptReply::Bool(rest == "t"),
            "," => ScriptReply::Double(rest.parse().unwrap()),
            "(" => ScriptReply::BigNumber(rest.to_owned()),
            "*" => ScriptReply::Array(many(self, rest.parse().unwrap())),
            "~" => ScriptReply::Set(many(self, rest.parse().unwrap())),
            "%" => {
                let count: usize = rest.parse().unwrap();
                ScriptReply::Map((0..count).map(|_| (self.read(), self.read())).collect())
            }
            "$" | "=" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                if kind == "$" {
                    return ScriptReply::Bulk(bytes.into());
                }
                let format = String::from_utf8_lossy(&bytes[..3]).into_owned();
                ScriptReply::Verbatim {
                    format,
                    text: bytes.split_off(4).into(),
                }
            }
            _ => panic!("no reply: {line}"),
        }
    }
}

fn connect(socket: &Path) -> BufReader<UnixStream> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                return BufReader::new(stream);
            }
            Err(error) if Instant::now() > patience => panic!("redis-server: {error}"),
            Err(_) => std::thread::yield_now(),
        }
    }
}

#[test]
fn scripts_answer_as_in_redis() {
    let Some(mut server) = Server::start() else {
        eprintln!("NOT COMPARED: redis-server is not installed");
        return;
    };
    let mut interpreter = Interpreter::new();
    let (mut compared, mut differences) = (0, Vec::new());
    for line in SCRIPTS
        .iter()
        .flat_map(|file| file.lines())
        .filter(|line| !line.is_empty())
    {
        let body = line.replace('␤', "\n");
        let body = body.as_str();
        server.call(&["FLUSHALL"]);
        let theirs = server.call(&["EVAL", body, "2", "k1", "k2", "a1", "2", "3.5", "", "x y"]);
        let args = ["a1", "2", "3.5", "", "x y"];
        let ours = run_with(&mut interpreter, body, &args, &ScriptLimits::default());
        compared += 1;
        // No number is equal to itself if it is none.
        if format!("{ours:?}") != format!("{theirs:?}") {
            differences.push(format!("{body}\n  redis: {theirs:?}\n  here:  {ours:?}"));
        }
    }
    assert!(compared > 300, "only {compared} scripts were compared");
    let count = differences.len();
    assert!(
        count == 0,
        "{count} of {compared} differ:\n{}",
        differences.join("\n")
    );
}
