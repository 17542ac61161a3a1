#!/usr/bin/env python3
"""Job queues, locks and other frameworks, each with its real package, against a cluster of three
nodes, one of which is killed in the middle of each program.

    tests/scripts/frameworks.py target/debug/doyen [--modes redis,one,many] [--only NAME,..]

The modes, one after the other:

    redis   redis-server, as the control, which stands still for a while instead of being
            killed: what fails there too proves nothing
    one     one partition (`--preset one-server`); its primary is killed
    many    1,024 partitions; the coordinator is killed

`--packages DIR` says where packages are put (target/frameworks), `--installed` leaves them as they
are, and `--logs DIR` keeps the logs there. The programs are those of frameworks/list. They need
python3, node with npm, go, and mvn with a JDK; ruby, php and their packages come from the system
(ruby-sidekiq, php-redis, php-illuminate-queue, php-illuminate-redis, php-illuminate-cache,
php-symfony-cache, php-symfony-lock). A program whose language is not there is left out.

A program is given REDIS_PORT, the plain port of a node that stays, and DIR, an empty folder. With
1,024 partitions, TAGGED is not empty: the program sets a {tag} as prefix of its keys, if its
framework has such an option, as it would for Redis Cluster. It prints lines that begin with one of
these words, and the runner reads nothing else:

    kill                           it is in the middle of its work: kill the node now
    case NAME ok|failed TEXT       a case, and why it failed
    jobs SENT EXECUTED TWICE       of a queue: how many were executed, and how many more than once

frameworks/expected has the cases that are known to fail, each with its reason. The status is 1 if
another one fails.
"""

import argparse
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frameworks")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
LONGEST_S = 150


def ask(port, *words):
    """One command, whose reply is a line."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as it:
        it.sendall(b"*%d\r\n" % len(words)
                   + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        return it.makefile("rb").readline().strip()


def wait_until(what, true, limit_s=90):
    end = time.monotonic() + limit_s
    while True:
        try:
            if true():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {limit_s} s")
        time.sleep(0.05)


class Redis:
    tagged = ""

    def __init__(self, directory):
        with socket.socket() as it:
            it.bind(("127.0.0.1", 0))
            self.port = it.getsockname()[1]
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--save", "", "--dir", directory],
            stdout=subprocess.DEVNULL)
        wait_until("redis-server answers", lambda: ask(self.port, "PING") == b"+PONG")

    def choose(self):
        return self.port

    def kill(self):
        """As long as a failover takes, and as sudden."""
        ask(self.port, "CLIENT", "PAUSE", "600", "ALL")

    def end(self):
        self.process.kill()
        self.process.wait()


class Doyen:
    """Three nodes. Before each program, one is chosen for the clients and one to be killed."""

    def __init__(self, program, directory, one_server):
        self.program, self.directory, self.one_server = program, directory, one_server
        self.tagged = "" if one_server else "yes"
        self.nodes, self.started = {}, 0
        for _ in range(3):
            self.start()

    def start(self):
        self.started += 1
        words = [self.program, "run", "--log", "warn", "--memory-max", "256mb"]
        for flag in ("--listen", "--data", "--resp", "--resp-cluster", "--http"):
            words += [flag, "127.0.0.1:0"]
        words += ["--preset", "one-server"] if self.one_server else []
        for name in self.nodes:
            words += ["--seed", name]
        log = open(os.path.join(self.directory, f"node-{self.started}.log"), "w")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        ready = process.stdout.readline().split()
        if not ready:
            sys.exit(f"a node does not start: see {log.name}")
        self.nodes[dict(w.split("=", 1) for w in ready[1:])["name"]] = (
            process, dict(w.split("=", 1) for w in ready[1:]))

    def get(self, name, path):
        url = f"http://{self.nodes[name][1]['http']}/{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)

    def is_whole(self):
        for name in self.nodes:
            status = self.get(name, "status")
            live = [m for m in status["members"] if m["state"] == "live"]
            if not status["safe"] or len(live) != 3 or status["moves"]:
                return False
        return True

    def choose(self):
        wait_until("the cluster is whole", self.is_whole)
        some = next(iter(self.nodes))
        if self.one_server:
            self.victim = self.get(some, "table")["keyspaces"][0]["partitions"][0]["primary"]
        else:
            self.victim = self.get(some, "status")["coordinator"]
        kept = [name for name in self.nodes if name != self.victim]
        return int(self.nodes[kept[-1]][1]["resp"].rsplit(":", 1)[1])

    def kill(self):
        process, _ = self.nodes.pop(self.victim)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.start()

    def end(self):
        for process, _ in self.nodes.values():
            process.kill()
            process.wait()


class Packages:
    """Makes the command of a program, and first what it needs: packages with pinned versions, from
    a line `needs: ...` at its head (Python, Node), go.mod, or pom.xml."""

    def __init__(self, directory, installed):
        self.directory, self.installed = os.path.abspath(directory), installed

    def command(self, language, name, path):
        return getattr(self, language)(name, path)

    def python(self, name, path):
        home = os.path.join(self.directory, "python", name)
        if self.is_new(home, needs(path)):
            run("python3", "-m", "venv", "--clear", home)
            pip = [os.path.join(home, "bin/pip"), "install", "--quiet",
                   "--disable-pip-version-check"]
            # walrus asks for redis-py before it is built.
            for words in needs(path).split(";"):
                run(*pip, *words.split())
            self.made(home, needs(path))
        return [os.path.join(home, "bin/python"), path]

    def node(self, name, path):
        home = os.path.join(self.directory, "node", name)
        if self.is_new(home, needs(path)):
            shutil.rmtree(home, ignore_errors=True)
            os.makedirs(home)
            with open(os.path.join(home, "package.json"), "w") as file:
                file.write('{"private": true}')
            run("npm", "install", "--silent", "--no-audit", "--no-fund", *needs(path).split(),
                cwd=home)
            self.made(home, needs(path))
        # Node looks for packages beside the program.
        for file in os.listdir(os.path.dirname(path)):
            shutil.copy(os.path.join(os.path.dirname(path), file), home)
        return ["node", os.path.join(home, os.path.basename(path))]

    def go(self, name, path):
        binary = os.path.join(self.directory, "go", name)
        if not (self.installed and os.path.exists(binary)):
            run("go", "build", "-o", binary, "./" + name, cwd=os.path.join(HERE, "go"))
        return [binary]

    def java(self, name, path):
        home = os.path.join(self.directory, "java")
        if not (self.installed and os.path.exists(os.path.join(home, "classpath"))):
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(os.path.join(HERE, "java"), home)
            run("mvn", "--quiet", "compile", "dependency:build-classpath",
                "-Dmdep.outputFile=classpath", cwd=home)
        with open(os.path.join(home, "classpath")) as file:
            classes = os.path.join(home, "target/classes") + ":" + file.read().strip()
        return ["java", "-cp", classes, name]

    def ruby(self, _, path):
        return ["ruby", path]

    def php(self, _, path):
        return ["php", "-d", "display_errors=stderr", path]

    def is_new(self, home, what):
        try:
            with open(os.path.join(home, "needs")) as file:
                return file.read() != what and not self.installed
        except OSError:
            return True

    def made(self, home, what):
        with open(os.path.join(home, "needs"), "w") as file:
            file.write(what)


def needs(path):
    with open(path) as file:
        found = re.search(r"^(?:#|//) needs: (.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else ""


def run(*words, cwd=None):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-600:]}")


TOOLS = {"python": "python3", "node": "npm", "go": "go", "ruby": "ruby", "php": "php",
         "java": "mvn"}


def programs():
    """(name, language, path), in the order of the list."""
    with open(os.path.join(HERE, "list")) as file:
        for line in file:
            words = line.split()
            if words and words[0] != "#":
                yield words[0], words[1], os.path.join(HERE, words[2])


def try_program(server, command, name, directory):
    """Runs a program, kills the node when it says so, and returns its cases and what queues did."""
    scratch = os.path.join(directory, name)
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    port = server.choose()
    assert ask(port, "FLUSHALL") == b"+OK"
    log = os.path.join(directory, name + ".log")
    with open(log, "w") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=scratch,
            start_new_session=True, env={**os.environ, "REDIS_PORT": str(port), "DIR": scratch,
                                         "TAGGED": server.tagged,
                                         "PYTHONPATH": os.path.join(HERE, "python")})
    try:
        cases, jobs = follow(server, process)
    finally:
        # Workers are in the group of the program.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = process.wait()
    if status > 0:
        cases.append(("the program", False, f"ended with status {status}: {log}"))
    return cases, jobs


def follow(server, process):
    """Reads what a program says, until it ends."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    cases, jobs, was_killed, end = [], [], False, time.monotonic() + LONGEST_S
    while True:
        try:
            line = lines.get(timeout=max(0, end - time.monotonic()))
        except queue.Empty:
            cases.append(("the program", False, f"did not end within {LONGEST_S} s"))
            break
        if line is None:
            break
        words = line.split()
        if words == ["kill"] and not was_killed:
            was_killed = True
            server.kill()
        elif words[:1] == ["case"]:
            cases.append((words[1], words[2] == "ok", " ".join(words[3:])))
        elif words[:1] == ["jobs"]:
            jobs.append(words[1:4])
    if not was_killed:
        cases.append(("kill", False, "the program did not come to its middle"))
    return cases, jobs


def expected():
    """(mode, name, case) -> reason. A `*` stands for all cases."""
    found = {}
    with open(os.path.join(HERE, "expected")) as file:
        for line in file:
            words = line.split(maxsplit=3)
            if words and words[0] != "#":
                found[tuple(words[:3])] = words[3].strip()
    return found


def try_all(server, packages, only, directory):
    """name -> (cases, jobs, why it was left out)."""
    found = {}
    for name, language, path in programs():
        if only and name not in only:
            continue
        if shutil.which(TOOLS[language]) is None:
            found[name] = ([], [], f"no {TOOLS[language]} is here")
            continue
        file = os.path.splitext(os.path.basename(path))[0]
        try:
            command = packages.command(language, name if language == "go" else file, path)
        except RuntimeError as refused:
            found[name] = ([], [], str(refused))
            continue
        began = time.monotonic()
        cases, jobs = try_program(server, command, name, directory)
        found[name] = (cases, jobs, "")
        passed = sum(good for _, good, _ in cases)
        done = "; ".join(", ".join(job) for job in jobs)
        print(f"  {name:18}{passed:3}/{len(cases):<4}{time.monotonic() - began:5.1f} s  {done}",
              flush=True)
        for case, good, why in cases:
            if not good:
                print(f"      {case}: {why}", flush=True)
    return found


def table(results, known):
    """Prints what each framework did in each mode, and what failed. Returns how much of it was not
    expected."""
    print("\njobs: sent, executed, executed more than once")
    print("framework".ljust(18) + "".join(mode.ljust(32) for mode in results))
    names = list(dict.fromkeys(name for found in results.values() for name in found))
    failed, surprises = [], 0
    for name in names:
        cells = []
        for mode, found in results.items():
            cases, jobs, left_out = found.get(name, ([], [], "not tried"))
            wrong = [(case, why) for case, good, why in cases if not good]
            done = "; ".join(", ".join(job) for job in jobs)
            cells.append("left out" if left_out
                         else f"{len(cases) - len(wrong)}/{len(cases)}" + (done and f"  ({done})"))
            for case, why in wrong:
                reason = known.get((mode, name, case)) or known.get((mode, name, "*"))
                surprises += reason is None
                failed.append(f"{mode:6}{name} {case}: "
                              + (f"as expected: {reason}" if reason else why))
        print(name.ljust(18) + "".join(cell.ljust(32) for cell in cells).rstrip())
    print("\n".join(["", *failed]))
    print(f"{surprises} failures that are not expected")
    return surprises


def main():
    # So that nodes and programs are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--modes", default="redis,one,many")
    parser.add_argument("--only", default="")
    parser.add_argument("--packages", default=os.path.join(ROOT, "target", "frameworks"))
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--logs", default=None)
    given = parser.parse_args()
    packages = Packages(given.packages, given.installed)
    logs = given.logs or tempfile.mkdtemp(prefix="frameworks-")
    results = {}
    for mode in given.modes.split(","):
        directory = os.path.join(logs, mode)
        os.makedirs(directory, exist_ok=True)
        print(f"== {mode}; logs are in {directory}", flush=True)
        server = (Redis(directory) if mode == "redis"
                  else Doyen(os.path.abspath(given.program), directory, mode == "one"))
        try:
            results[mode] = try_all(server, packages, set(given.only.split(",")) - {""}, directory)
        finally:
            server.end()
    sys.exit(1 if table(results, expected()) else 0)


main()
