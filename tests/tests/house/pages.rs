//! The pages of this repository: every relative link leads somewhere, and the program takes every
//! command that a page shows.
//!
//! Commands are not run: each `doyen` command gets `--help` as its last word. So the program reads
//! all words before it, refuses those that it does not know, and does nothing. Only what README
//! says about three nodes is run.

use doyen_tests::cluster::free_ports;
use doyen_tests::process::{PATIENCE, Process};
use doyen_tests::resp::{Client, Reply};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The prefix of links that must work outside of the repository too, as those of alerts.
const HOME: &str = "https://github.com/doyen-grid/doyen/blob/main/";

/// The parts of a Markdown page that matter here.
#[derive(Debug, Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// Blocks of code: their language, the line of their fence, their text.
    blocks: Vec<(String, usize, String)>,
}

impl Page {
    fn read(text: &str) -> Self {
        let (mut page, mut prose, mut fence) = (Self::default(), String::new(), None::<String>);
        for (number, line) in text.lines().enumerate() {
            let marks: String = line
                .trim_start()
                .chars()
                .take_while(|&c| c == '`')
                .collect();
            match &fence {
                Some(open) if marks.len() >= open.len() && line.trim() == marks => fence = None,
                Some(_) => {
                    let (_, _, code) = page.blocks.last_mut().expect("its fence was seen");
                    code.push_str(line);
                    code.push('\n');
                }
                None if marks.len() >= 3 => {
                    let language = line.trim_start().trim_start_matches('`').trim();
                    page.blocks
                        .push((language.to_owned(), number + 1, String::new()));
                    fence = Some(marks);
                }
                None => {
                    if let Some(heading) = line.strip_prefix('#') {
                        page.add_anchor(heading.trim_start_matches('#'));
                    }
                    prose.push_str(line);
                    prose.push('\n');
                }
            }
        }
        assert!(fence.is_none(), "a block of code is not closed");
        let prose = without_code(&prose);
        for (at, _) in prose.match_indices("](") {
            let target = prose[at + 2..].split([')', '"']).next().unwrap_or_default();
            page.links
                .push(target.trim().trim_matches(['<', '>']).to_owned());
        }
        for line in prose.lines() {
            if let Some((_, target)) = line
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("]: "))
            {
                page.links.push(target.trim().to_owned());
            }
        }
        page
    }

    /// As GitHub names headings: the second heading with one text gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let slug: String = kept
            .map(|c| if c == ' ' { '-' } else { c })
            .flat_map(char::to_lowercase)
            .collect();
        let mut name = slug.clone();
        for number in 1.. {
            if self.anchors.insert(name) {
                break;
            }
            name = format!("{slug}-{number}");
        }
    }
}

/// A line without its code spans. As many backticks end a span as began it. A span without an end
/// is none.
fn without_code(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('`') {
        let marks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let (mark, inner) = rest[at..].split_at(marks);
        kept.push_str(&rest[..at]);
        let ends = inner.match_indices(mark).map(|(i, _)| i);
        let mut ends =
            ends.filter(|&i| !inner[..i].ends_with('`') && !inner[i + marks..].starts_with('`'));
        match ends.next() {
            Some(end) => rest = &inner[end + marks..],
            None => {
                kept.push_str(mark);
                rest = inner;
            }
        }
    }
    kept + rest
}

/// All files below a directory for which this holds, by their relative paths. Build results and
/// hidden files are left out.
pub(super) fn files(root: &Path, wanted: impl Fn(&str) -> bool) -> BTreeMap<PathBuf, String> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)
            .expect("a directory of ours")
            .flatten()
        {
            let (path, name) = (
                entry.path(),
                entry.file_name().to_string_lossy().into_owned(),
            );
            if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
                directories.push(path);
            } else if path.is_file() && wanted(&name) {
                let text = std::fs::read_to_string(&path).expect("text");
                found.insert(
                    path.strip_prefix(root).expect("it is below").to_owned(),
                    text,
                );
            }
        }
    }
    found
}

/// The pages, by their paths.
fn pages(root: &Path) -> BTreeMap<PathBuf, Page> {
    files(root, |name| name.ends_with(".md"))
        .into_iter()
        .map(|(path, text)| (path, Page::read(&text)))
        .collect()
}

/// `a/./b/../c` becomes `a/c`; `None` if the path leads out of the repository.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for part in path {
        match part.to_str()? {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.into_iter().collect())
}

/// The links of a repository that lead nowhere.
fn broken_links(root: &Path) -> Vec<String> {
    let pages = pages(root);
    let mut links: Vec<(&Path, String)> = Vec::new();
    for (path, page) in &pages {
        links.extend(page.links.iter().map(|link| (path.as_path(), link.clone())));
    }
    let rules = files(root, |name| name.ends_with(".yml"));
    for (path, text) in &rules {
        let urls = text.match_indices(HOME).map(|(at, _)| {
            text[at..]
                .split(char::is_whitespace)
                .next()
                .unwrap_or_default()
        });
        links.extend(urls.map(|url| (path.as_path(), url.to_owned())));
    }
    let leads_somewhere = |from: &Path, link: &str| {
        let (base, link) = match link.strip_prefix(HOME) {
            Some(rest) => (Path::new(""), rest),
            None if link.contains("://") || link.starts_with("mailto:") => return true,
            None => (from.parent().unwrap_or(Path::new("")), link),
        };
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = if file.is_empty() {
            Some(from.to_owned())
        } else {
            resolved(&base.join(file))
        };
        path.is_some_and(|path| match pages.get(&path) {
            Some(page) => anchor.is_empty() || page.anchors.contains(anchor),
            None => anchor.is_empty() && root.join(path).exists(),
        })
    };
    links.retain(|(from, link)| !leads_somewhere(from, link));
    links
        .into_iter()
        .map(|(from, link)| format!("{}: {link}", from.display()))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let broken = broken_links(Path::new(ROOT));
    assert!(
        broken.is_empty(),
        "these links lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let root = tempfile::TempDir::new().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(root.path().join(name), text).expect("a file in our own directory")
    };
    std::fs::create_dir(root.path().join("docs")).expect("it is ours");
    write(
        "one.md",
        "# One `flag`, twice\n## Same\n## Same\n[a](docs/two.md#the-end) [b](#one-flag-twice) \
         [c](#same-1)\n",
    );
    write(
        "docs/two.md",
        "# The end\n[d](../one.md#same) [e](https://example.com/no.md) ``[f](no.md)`` \
         [g](../docs)\n",
    );
    write(
        "docs/rules.yml",
        &format!("url: {HOME}docs/two.md#the-end\n"),
    );
    assert_eq!(broken_links(root.path()), Vec::<String>::new());

    write(
        "one.md",
        "# One\n[a](docs/no.md) [b](docs/two.md#no) [c](../../etc) `x`\n```text\n\
         # No\n[d](no.md)\n```\n",
    );
    write("docs/rules.yml", &format!("url: {HOME}two.md#the-end\n"));
    let broken = [
        "docs/two.md: ../one.md#same",
        "one.md: docs/no.md",
        "one.md: docs/two.md#no",
        "one.md: ../../etc",
    ];
    let found: BTreeSet<String> = broken_links(root.path()).into_iter().collect();
    let rule = format!("docs/rules.yml: {HOME}two.md#the-end");
    assert_eq!(
        found,
        broken
            .map(str::to_owned)
            .into_iter()
            .chain([rule])
            .collect()
    );
}

/// Comments and recipes name pages, and pages move now and then.
#[test]
fn pages_that_sources_name_exist() {
    let root = Path::new(ROOT);
    let kinds = [".rs", ".toml", ".yml", ".sh", ".py", "Justfile"];
    let mut sources = files(root, |name| kinds.iter().any(|kind| name.ends_with(kind)));
    // Its examples name pages that do not exist.
    sources.remove(Path::new("tests/tests/house/pages.rs"));
    let mut missing = Vec::new();
    for (path, text) in &sources {
        let words =
            text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '/' | '-' | '_')));
        for word in words
            .map(|word| word.trim_matches('.'))
            .filter(|word| word.ends_with(".md") && !word.contains("//"))
        {
            let near = path
                .parent()
                .map(|directory| root.join(directory).join(word));
            if !root.join(word.trim_start_matches(['.', '/'])).exists()
                && !near.is_some_and(|near| near.exists())
            {
                missing.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "these pages do not exist:\n{}",
        missing.join("\n")
    );
}

/// Rust code of a page that is not compiled itself must be a part of an example, which is. Line
/// breaks may differ.
#[test]
fn code_that_is_not_compiled_is_part_of_an_example() {
    let packed = |text: &str| {
        text.chars()
            .filter(|c| !c.is_whitespace() && *c != ',')
            .collect::<String>()
    };
    let examples: Vec<String> = files(&Path::new(ROOT).join("examples"), |name| {
        name.ends_with(".rs")
    })
    .values()
    .map(|t| packed(t))
    .collect();
    let mut strange = Vec::new();
    for (path, page) in pages(Path::new(ROOT)) {
        for (_, line, code) in page
            .blocks
            .iter()
            .filter(|(language, ..)| language == "rust,ignore")
        {
            if !examples
                .iter()
                .any(|example| example.contains(&packed(code)))
            {
                strange.push(format!("{}, block at line {line}", path.display()));
            }
        }
    }
    assert!(
        strange.is_empty(),
        "no example has this code:\n{}",
        strange.join("\n")
    );
}

/// This stands before every block. The programs that a block names then do nothing, and what the
/// program under test or the repository does not know is written down. A block that would run for
/// ever is ended.
const AROUND: &str = r#"
ulimit -t 20
doyen() {
    "$PROGRAM" "$@" --help </dev/null >/dev/null 2>said ||
        echo "doyen $*: $(while read -r l; do echo "$l"; done <said)" >>wrong
}
just() {
    case " $RECIPES " in
    *" $1 "*) ;;
    *) echo "just $*: there is no such recipe" >>wrong ;;
    esac
}
cargo() {
    [ "$1" = run ] || return 0
    of=
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        if [ "$1" = --bin ]; then of=$2; fi
        shift
    done
    if [ $# -gt 0 ]; then shift; fi
    if [ -z "$of" ]; then
        doyen "$@"
    elif ! [ -e "$ROOT/examples/src/bin/$of.rs" ] && ! [ -e "$ROOT/tests/src/bin/$of.rs" ]; then
        echo "cargo run --bin $of: there is no such program" >>wrong
    fi
}
grep() { :; }
sleep() { :; }
"#;

/// The mistakes in the commands of a block.
fn wrong_commands(block: &str) -> String {
    let directory = tempfile::TempDir::new().expect("a directory");
    let recipes = std::fs::read_to_string(Path::new(ROOT).join("Justfile")).expect("the recipes");
    let names = recipes
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic));
    let names: Vec<&str> = names
        .filter_map(|line| line.split([' ', ':']).next())
        .collect();
    let mut shell = Command::new("/bin/sh");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DOYEN_"))
    {
        shell.env_remove(name);
    }
    let done = shell
        .args(["-c", &format!("{AROUND}\n{block}\nexit 0")])
        .current_dir(directory.path())
        .env("PATH", directory.path())
        .env("PROGRAM", BINARY)
        .env("ROOT", ROOT)
        .env("RECIPES", names.join(" "))
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}\n{block}", done.status);
    std::fs::read_to_string(directory.path().join("wrong")).unwrap_or_default()
}

#[test]
fn commands_of_pages_are_commands_of_the_program() {
    let (mut wrong, mut blocks) = (String::new(), 0);
    for (path, page) in pages(Path::new(ROOT)) {
        if path.starts_with("docs/notes") {
            continue; // the page is of its day
        }
        for (_, line, code) in page.blocks.iter().filter(|(language, ..)| language == "sh") {
            blocks += 1;
            for complaint in wrong_commands(code).lines() {
                wrong.push_str(&format!(
                    "{}, block at line {line}: {complaint}\n",
                    path.display()
                ));
            }
        }
    }
    assert!(
        blocks >= 20,
        "the pages have commands, and {blocks} blocks were found"
    );
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn unknown_commands_are_found() {
    assert_eq!(
        wrong_commands(
            "doyen status --json | grep -q x > out\ncurl -s no:1\n\
             until doyen moves | grep y; do sleep 1; done"
        ),
        ""
    );
    assert_eq!(
        wrong_commands(
            "cargo run --release -- demo --nodes 5\ncargo test --workspace\njust sim 5000"
        ),
        ""
    );
    for wrong in [
        "doyen status --no-such-flag",
        "doyen no-such-command",
        "(doyen keyspace create a --partitions many) | grep x",
        "n=x; doyen run --threads \"$n$n\"",
        "cargo run --release -- demo --no-such-flag",
        "cargo run -p doyen-examples --bin no-such-program",
        "just no-such-recipe",
    ] {
        assert_eq!(wrong_commands(wrong).lines().count(), 1, "{wrong}");
    }
}

/// Three nodes as README starts them, on other ports.
struct ByHand {
    /// By the port that README gives to their RESP.
    nodes: BTreeMap<u16, Process>,
    _logs: tempfile::TempDir,
}

impl ByHand {
    /// `None` if another process took a port that was free a moment ago.
    fn start(block: &str) -> Option<Self> {
        let logs = tempfile::TempDir::new().expect("a directory");
        let (_, seeds) = block.split_once("seeds=\"").expect("the seeds");
        let (seeds, _) = seeds.split_once('"').expect("they end");
        let written: Vec<&str> = seeds
            .split_whitespace()
            .filter(|word| *word != "--seed")
            .collect();
        let seeds: Vec<(&str, String)> = written
            .iter()
            .copied()
            .zip(free_ports(written.len()).iter().map(ToString::to_string))
            .collect();

        let mut nodes = BTreeMap::new();
        for line in block
            .lines()
            .filter(|line| line.starts_with("doyen run $seeds"))
        {
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .skip(3);
            let mut flags = BTreeMap::from([
                ("--listen", ":7400"),
                ("--resp", ":7379"),
                ("--resp-cluster", ":7380"),
                ("--http", ":7480"),
            ]);
            while let Some(flag) = words.next() {
                assert!(
                    flags.insert(flag, words.next().expect("a value")).is_some(),
                    "{flag} is new to this test"
                );
            }
            let listen = seeds
                .iter()
                .find(|(written, _)| written.ends_with(flags["--listen"]));
            let (_, listen) = listen.expect("each node is a seed");
            let log = logs.path().join(format!("{}.log", nodes.len()));
            let mut arguments = vec![
                "run",
                "--exit-with-stdin",
                "--listen",
                listen,
                "--data",
                ":0",
                "--partitions",
                "64",
            ];
            arguments.extend(["--resp", ":0", "--resp-cluster", ":0", "--http", ":0"]);
            arguments.extend(seeds.iter().flat_map(|(_, seed)| ["--seed", seed.as_str()]));
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            let resp = flags["--resp"]
                .trim_start_matches(':')
                .parse()
                .expect("a port");
            match Process::start(Path::new(BINARY), &arguments, None, log) {
                Ok(node) => assert!(
                    nodes.insert(resp, node).is_none(),
                    "two nodes at port {resp}"
                ),
                Err(refused) if refused.stderr.contains("in use") => return None,
                Err(refused) => panic!("{line}: {refused:?}"),
            }
        }
        Some(Self { nodes, _logs: logs })
    }

    fn eventually(&self, what: &str, holds: impl Fn(&Process) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.nodes.values().all(&holds) {
            let logs: Vec<String> = self.nodes.values().map(Process::log).collect();
            assert!(
                Instant::now() < deadline,
                "never happened: {what}\n{}",
                logs.join("\n")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs `redis-cli -p PORT WORDS` against the node that stands for the port.
    fn types(&self, line: &str) -> Reply {
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ["redis-cli", "-p", port, command @ ..] = words.as_slice() else {
            panic!("{line}")
        };
        let node = &self.nodes[&port.parse().expect("a port")];
        let mut client = Client::connect(node.ready.resp, PATIENCE).expect("it listens");
        client
            .command(
                &command
                    .iter()
                    .map(|word| word.as_bytes())
                    .collect::<Vec<_>>(),
            )
            .expect("a reply")
    }
}

#[test]
fn three_nodes_started_by_hand_outlive_one_of_them() {
    let page = Path::new(ROOT).join("docs/getting-started.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let page = Page::read(&text);
    let with = |words: &str| {
        page.blocks
            .iter()
            .find(|(_, _, code)| code.contains(words))
            .expect("the page has this block")
            .2
            .as_str()
    };
    let mut hand = (0..5)
        .find_map(|_| ByHand::start(with("doyen run $seeds")))
        .expect("free ports");
    assert_eq!(hand.nodes.len(), 3);

    let is_safe = |node: &Process, members: usize| {
        let said = Command::new(BINARY)
            .args(["status", "--json", "--http", &node.ready.http.to_string()])
            .output()
            .expect("it starts");
        let status: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        status["safe"] == true
            && status["members"]
                .as_array()
                .is_some_and(|all| all.len() == members)
    };
    hand.eventually("three members and safe", |node| is_safe(node, 3));
    let typed = |block: &str| -> Vec<Reply> {
        let lines = with(block).lines();
        let lines = lines.filter(|line| line.starts_with("redis-cli"));
        lines.map(|line| hand.types(line)).collect()
    };
    let bulk = |text: &str| Reply::Bulk(text.into());
    let (ok, hello) = (Reply::Simple("OK".into()), bulk("hello"));
    assert_eq!(typed("doyen status --watch"), [ok.clone(), hello.clone()]);
    // The tour types these at the nodes of `doyen dev`, which have the same ports.
    let user = ["name", "Ada", "city", "London"].map(bulk).to_vec();
    let answers = [ok, hello.clone(), Reply::Int(2), Reply::Array(user)];
    assert_eq!(typed("hset user:42"), answers);

    // The victim is not asked below. It dies as by `kill -9`.
    let (_, victim) = hand.nodes.pop_last().expect("there are three");
    victim.kill();
    hand.eventually("two members and safe", |node| is_safe(node, 2));
    assert_eq!(hand.types("redis-cli -p 8379 get greeting"), hello);
}

/// What a program awaits: where it is, its name, and its documentation.
#[derive(Debug, PartialEq)]
struct Awaited {
    place: String,
    name: String,
    docs: String,
}

/// The lines of documentation and of attributes above a line.
fn above(lines: &[&str]) -> (String, String) {
    let (mut docs, mut attributes) = (Vec::new(), Vec::new());
    for line in lines.iter().rev().map(|line| line.trim()) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim_start());
        } else if docs.is_empty() && !line.is_empty() && !line.ends_with(['{', '}', ';']) {
            attributes.push(line);
        } else {
            break;
        }
    }
    docs.reverse();
    (docs.join("\n"), attributes.concat())
}

/// The public functions of a file that return futures, and the public types that may be awaited.
fn awaited(place: &Path, text: &str) -> Vec<Awaited> {
    let lines: Vec<&str> = text.lines().collect();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name_of = |rest: &str| {
        rest.split(|c| !is_name(c))
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let mut found = Vec::new();
    for (number, line) in lines.iter().map(|line| line.trim_start()).enumerate() {
        let (name, at) = if let Some((_, rest)) = line.split_once("IntoFuture for ") {
            let name = name_of(rest);
            let is_it = |line: &&str| {
                let rest = line.strip_prefix("pub struct ");
                rest.is_some_and(|rest| name_of(rest) == name)
            };
            let Some(at) = lines.iter().position(is_it) else {
                continue;
            };
            (name, at)
        } else {
            let rest = line.strip_prefix("pub ").unwrap_or_default();
            let rest = rest.strip_prefix("const ").unwrap_or(rest);
            let plain = rest.strip_prefix("async ").unwrap_or(rest);
            let Some(name) = plain.strip_prefix("fn ") else {
                continue;
            };
            let head = lines[number..]
                .iter()
                .take_while(|line| !line.trim().is_empty());
            let head = head.copied().collect::<Vec<_>>().join(" ");
            let head = head.split(['{', ';']).next().unwrap_or_default();
            if plain == rest && !head.contains("-> impl Future") {
                continue;
            }
            (name_of(name), number)
        };
        let (docs, attributes) = above(&lines[..at]);
        if !attributes.contains("doc(hidden)") {
            found.push(Awaited {
                place: place.display().to_string(),
                name,
                docs,
            });
        }
    }
    found
}

/// The modules that are no part of the public interface.
fn hidden_modules(library: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = library.lines().collect();
    let modules = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("pub mod ")?.strip_suffix(';')?;
        let hidden = above(&lines[..at]).1.contains("doc(hidden)");
        hidden.then(|| name.to_owned())
    });
    modules.collect()
}

/// A caller who writes `select!` or a timeout must know what a future leaves behind.
#[test]
fn every_public_future_says_what_happens_if_it_is_dropped() {
    let root = Path::new(ROOT).join("node/src");
    let sources = files(&root, |name| name.ends_with(".rs"));
    let hidden = hidden_modules(&sources[Path::new("lib.rs")]);
    assert!(
        hidden.contains("data") && hidden.contains("control"),
        "{hidden:?}"
    );
    let all: Vec<Awaited> = sources
        .iter()
        .filter(|(path, _)| {
            let first = path.iter().next().expect("a name").to_string_lossy();
            !hidden.contains(first.trim_end_matches(".rs"))
        })
        .flat_map(|(path, text)| awaited(path, text))
        .collect();
    for (place, name) in [
        ("map.rs", "insert"),
        ("map/put.rs", "Put"),
        ("map/changes.rs", "Subscribe"),
        ("node.rs", "shutdown"),
        ("sync/permit.rs", "lost"),
        ("facade/moka.rs", "try_get_with"),
        ("admin/changes.rs", "create_keyspace"),
    ] {
        let is_it = |found: &Awaited| found.place == place && found.name == name;
        assert!(all.iter().any(is_it), "{name} of {place} is not found");
    }
    assert!(all.len() > 140, "{} is too few", all.len());
    let lacking = all.iter().filter(|found| {
        let said = found.docs.split_once("# Cancel safety\n");
        said.is_none_or(|(_, said)| said.trim().is_empty() || said.starts_with('#'))
    });
    let lacking: Vec<String> = lacking
        .map(|f| format!("{} of {}", f.name, f.place))
        .collect();
    assert!(
        lacking.is_empty(),
        "these lack a section `# Cancel safety`:\n{}",
        lacking.join("\n")
    );
}

#[test]
fn public_futures_are_found_with_their_documentation() {
    let text = "\
/// Builds.
///
/// # Cancel safety
/// Nothing happens.
#[must_use = \"await it\"]
pub struct Open<'a, K> {
}

impl Node {
    /// One.
    #[allow(
        dead_code,
        reason = \"a test\"
    )]
    pub async fn one(&self) -> bool {
        self.later(async { true }).await
    }

    /// Two.
    pub fn two<T>(
        &self,
    ) -> impl Future<Output = T> + Send {
    }

    pub async fn bare(&self) {}

    /// None.
    pub fn none(&self) -> bool {
    }

    /// Hidden.
    #[doc(hidden)]
    pub async fn hidden(&self) {}

    pub(crate) async fn private(&self) {}
}

impl<'a, K> IntoFuture for Open<'a, K> {
}
";
    let found = awaited(Path::new("a.rs"), text);
    let found: Vec<_> = found.iter().map(|f| (&*f.name, &*f.docs)).collect();
    let built = "Builds.\n\n# Cancel safety\nNothing happens.";
    let expected = [
        ("one", "One."),
        ("two", "Two."),
        ("bare", ""),
        ("Open", built),
    ];
    assert_eq!(found, expected);
    let library = "#[doc(hidden)]\npub mod data;\npub mod report;\n#[cfg(x)]\n#[doc(hidden)]\npub mod http;\n";
    assert_eq!(
        hidden_modules(library),
        BTreeSet::from(["data".into(), "http".into()])
    );
}

/// A public type, trait or function, and its documentation.
#[derive(Debug, PartialEq)]
struct Documented {
    place: String,
    /// The type, if it is a method.
    of: Option<String>,
    name: String,
    docs: String,
}

impl Documented {
    fn has_example(&self) -> bool {
        self.docs.lines().any(|line| line.starts_with("```"))
    }

    /// The item whose example shows this one, too: "Example: [`Map::subscribe`]."
    fn shown_by(&self) -> Option<&str> {
        let (_, link) = self.docs.split_once("Example: [`")?;
        link.split_once('`').map(|(path, _)| path)
    }

    /// Whether a path names this item.
    fn is(&self, path: &str) -> bool {
        match path.rsplit_once("::") {
            Some((of, name)) => self.of.as_deref() == Some(of) && self.name == name,
            None => self.of.is_none() && self.name == path,
        }
    }

    fn called(&self) -> String {
        let of = self.of.iter().map(|of| format!("{of}::"));
        format!("{}{} of {}", of.collect::<String>(), self.name, self.place)
    }
}

/// The type that an `impl` line is about.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let (mut depth, mut before) = (0, ' ');
        let end = rest.find(|c| {
            match c {
                '<' => depth += 1,
                '>' if before != '-' => depth -= 1,
                _ => {}
            }
            before = c;
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    let rest = rest.strip_prefix(' ')?;
    let rest = rest.rsplit_once(" for ").map_or(rest, |(_, of)| of);
    let path = rest.split(['<', ' ', '{']).next()?;
    path.rsplit("::").next().filter(|name| !name.is_empty())
}

/// The public types, traits and functions of a file.
fn documented(place: &Path, text: &str) -> Vec<Documented> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut block) = (Vec::new(), None::<(usize, &str)>);
    for (at, whole) in lines.iter().enumerate() {
        let line = whole.trim_start();
        let indent = whole.len() - line.len();
        if line == "}" && block.is_some_and(|(of, _)| of == indent) {
            block = None;
        }
        if let Some(name) = implemented(line) {
            block = Some((indent, name));
        }
        let rest = line.strip_prefix("pub ").unwrap_or_default();
        let rest = rest.strip_prefix("const ").unwrap_or(rest);
        let rest = rest.strip_prefix("async ").unwrap_or(rest);
        let kinds = ["fn ", "struct ", "enum ", "trait "];
        let Some(rest) = kinds.iter().find_map(|kind| rest.strip_prefix(kind)) else {
            continue;
        };
        let (docs, attributes) = above(&lines[..at]);
        if attributes.contains("doc(hidden)") {
            continue;
        }
        let name = rest
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let method = block.filter(|(of, _)| *of < indent);
        found.push(Documented {
            place: place.display().to_string(),
            of: method.map(|(_, name)| name.to_owned()),
            name: name.unwrap_or_default().to_owned(),
            docs,
        });
    }
    found
}

/// What `lib.rs` exports of our other crates: the crate, the name, and the documentation there.
fn exported(library: &str) -> Vec<(String, String, String)> {
    let lines: Vec<&str> = library.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("pub use doyen_") else {
            continue;
        };
        let (of, _) = rest.split_once("::").expect("a path");
        let whole: String = lines[at..].iter().flat_map(|line| [line, " "]).collect();
        let whole = whole.split(';').next().expect("it ends");
        let (_, names) = whole.rsplit_once("::").expect("a path");
        let names = names.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in names.filter(|name| !name.is_empty()) {
            let docs = above(&lines[..at]).0;
            found.push((of.to_owned(), name.to_owned(), docs));
        }
    }
    found
}

/// The code of all examples.
fn code_of(items: &[Documented]) -> String {
    let mut code = String::new();
    for item in items {
        let blocks = item.docs.split("```").skip(1).step_by(2);
        blocks.for_each(|block| code.push_str(block));
    }
    code
}

/// A reader of the documentation sees how each type and function is used. An item has an example of
/// its own, names the item whose example shows it, or is a method of a type with either.
#[test]
fn every_public_item_has_an_example() {
    let of_crate = |root: &str| files(&Path::new(ROOT).join(root), |name| name.ends_with(".rs"));
    let sources = of_crate("node/src");
    let library = &sources[Path::new("lib.rs")];
    let hidden = hidden_modules(library);
    let items: Vec<Documented> = sources
        .iter()
        .filter(|(path, _)| {
            let first = path.iter().next().expect("a name").to_string_lossy();
            !hidden.contains(first.trim_end_matches(".rs"))
        })
        .flat_map(|(path, text)| documented(path, text))
        .collect();
    for path in [
        "Map",
        "Map::insert",
        "Builder::start",
        "check",
        "Options",
        "Options::or",
        "Local",
    ] {
        assert!(
            items.iter().any(|item| item.is(path)),
            "{path} is not found"
        );
    }
    assert!(items.len() > 500, "{} is too few", items.len());

    let is_shown = |item: &Documented, all: &[Documented]| {
        let by = item.shown_by();
        let is_by = |other: &Documented| other.has_example() && by.is_some_and(|by| other.is(by));
        item.has_example() || all.iter().any(is_by)
    };
    let mut lacking: Vec<String> = items
        .iter()
        .filter(|item| {
            let of = items
                .iter()
                .filter(|of| item.of.as_deref().is_some_and(|name| of.is(name)));
            !is_shown(item, &items) && !of.into_iter().any(|of| is_shown(of, &items))
        })
        .map(Documented::called)
        .collect();

    // Types of our other crates, which have no examples with a node.
    let code = code_of(&items);
    let words: BTreeSet<&str> = code.split(|c: char| !c.is_alphanumeric()).collect();
    let exports = exported(library);
    assert!(exports.len() > 20, "{exports:?}");
    for (of, name, docs) in exports {
        let root = match &*of {
            "engine" => "node/engine/src",
            "gossip" => "gossip/src",
            "macros" => "node/macros/src",
            "placement" => "placement/src",
            other => panic!("where is doyen_{other}?"),
        };
        let there = of_crate(root);
        let there: Vec<_> = there
            .iter()
            .flat_map(|(path, text)| documented(path, text))
            .collect();
        let mut found = there.iter().filter(|item| item.is(&name)).peekable();
        assert!(found.peek().is_some(), "{name} is not found in {root}");
        let is_used = words.contains(&*name) || docs.contains("\n```");
        if !is_used && !found.any(|item| is_shown(item, &there)) {
            lacking.push(format!("{name} of {root}"));
        }
    }
    assert!(
        lacking.is_empty(),
        "these have no example, nor has their type. Write one, or name the item whose example \
         shows them (Example: [`Item`].):\n{}",
        lacking.join("\n")
    );
}

#[test]
fn public_items_are_found_with_their_examples() {
    let text = "\
/// One.
///
/// ```
/// one();
/// ```
#[derive(Debug)]
pub struct One<T>(T);

impl<F: Fn() -> bool> super::One<F> {
    /// Example: [`Two::go`](crate::Two::go).
    pub const fn ask(&self) {
    }
}

impl fmt::Debug for Two {}

/// Free.
pub fn free() {}

impl Two {
    pub async fn go(&self) {}

    #[doc(hidden)]
    pub fn hidden(&self) {}

    pub(crate) fn private(&self) {}
}
";
    let found = documented(Path::new("a.rs"), text);
    let paths = ["One", "One::ask", "free", "Two::go"];
    assert_eq!(found.len(), paths.len(), "{found:?}");
    for (item, path) in found.iter().zip(paths) {
        assert!(item.is(path), "{item:?}");
    }
    assert!(found[0].has_example() && !found[1].has_example());
    assert_eq!(found[1].shown_by(), Some("Two::go"));
    assert!(code_of(&found).contains("one();"));
    let library =
        "/// Docs.\n#[doc(inline)]\npub use doyen_a::b::{\n    C, D,\n};\npub use doyen_e::f;\n";
    let names: Vec<String> = exported(library)
        .into_iter()
        .map(|(of, name, docs)| format!("{of} {name} {docs}"))
        .collect();
    assert_eq!(names, ["a C Docs.", "a D Docs.", "e f "]);
}
