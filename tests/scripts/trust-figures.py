#!/usr/bin/env python3
"""What TLS and users with many rules cost Redis clients, beside redis-server in the same run.

    trust-figures.py DOYEN-BINARY [--rounds 5] [--requests 200000] [--only tls,handshakes,memory,acl]

It needs redis-server, redis-benchmark and openssl. Servers run on the first core, and what loads
them on the second. Rounds take turns, so that both see the same machine; medians are printed.
"""

import argparse
import contextlib
import os
import pathlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

PASSWORD = "long-password-of-the-figures"
CONNECTIONS = 1000
RULES = 1000


def on_core(core, command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], **options)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server with a port for each way of talking; `tls` is None if the port is in the clear."""

    def __init__(self, name, process, port, tls):
        self.name, self.process, self.port, self.tls = name, process, port, tls

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port))
        if self.tls is None:
            return plain
        context = ssl.create_default_context(cafile=self.tls)
        return context.wrap_socket(plain, server_hostname="localhost")

    def ask(self, *words):
        with self.connect() as stream:
            stream.sendall(request(*words))
            return stream.recv(4096)

    def benchmark(self, test, pipeline, requests, user=None):
        command = ["redis-benchmark", "-p", self.port, "-t", test, "-P", pipeline, "-n", requests]
        command += ["-c", 50, "-d", 100, "-r", 100000, "--csv"]
        if self.tls:
            command += ["--tls", "--cacert", self.tls, "-h", "localhost"]
        if user:
            command += ["--user", user, "-a", PASSWORD]
        run = on_core(1, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        told = run.communicate()[0]
        return float(re.search(rf'"{test.upper()}[^"]*","([0-9.]+)"', told)[1])


def request(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        word = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def until_it_answers(server):
    for _ in range(600):
        with contextlib.suppress(OSError):
            if server.ask("SET", "a", "1").startswith(b"+OK"):
                return
        time.sleep(0.05)
    sys.exit(f"{server.name} does not answer")


def start_servers(doyen, folder, started):
    secret = folder / "secret"
    subprocess.run([doyen, "secret", "new", "--dir", secret], check=True, stdout=subprocess.DEVNULL)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for tls in (False, True):
        port = free_port()
        command = [doyen, "run", "--name", "n1", "--expect", 1, "--threads", 1]
        command += ["--secret-file", secret / "member", "--listen", "127.0.0.1:0"]
        command += ["--data", "127.0.0.1:0", "--http", "127.0.0.1:0", "--resp-cluster", "off"]
        command += ["--resp", f"127.0.0.1:{port}"] + (["--resp-tls"] if tls else [])
        process = on_core(0, command, **quiet)
        ca = str(secret / "ca.pem") if tls else None
        started.append(Server("doyen", process, port, ca))
    key, cert = folder / "key.pem", folder / "cert.pem"
    # Of the kind that a node shows: ECDSA with P-256.
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, **quiet)
    for tls in (False, True):
        port = free_port()
        command = ["redis-server", "--save", "", "--appendonly", "no"]
        command += ["--port", 0 if tls else port]
        if tls:
            command += ["--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key]
            command += ["--tls-ca-cert-file", cert, "--tls-auth-clients", "no"]
        command += ["--maxclients", "20000"]
        process = on_core(0, command, cwd=folder, **quiet)
        started.append(Server("redis", process, port, str(cert) if tls else None))
    for server in started:
        until_it_answers(server)


def throughput(all_servers, options):
    print("\nrequests/s of 50 clients, values of 100 bytes, one core; doyen beside redis")
    for test in ("set", "get"):
        for pipeline in (1, 16):
            requests = options.requests if pipeline > 1 else options.requests // 4
            figures = {id(server): [] for server in all_servers}
            for _ in range(options.rounds):
                for server in all_servers:
                    figures[id(server)].append(server.benchmark(test, pipeline, requests))
            median = {at: statistics.median(of) for at, of in figures.items()}
            ratios = []
            for tls in (False, True):
                pair = [s for s in all_servers if bool(s.tls) == tls]
                doyen, redis = (median[id(s)] for s in pair)
                ratios.append(f"{doyen:9.0f} {redis:9.0f} {doyen / redis:5.2f}")
            line = f"  {test.upper()} P{pipeline:<2}  clear {ratios[0]}   TLS {ratios[1]}"
            print(line, flush=True)


def handshakes(all_servers, options):
    print("\nhandshakes/s (TLS 1.3, new ones; one client process)")
    for server in (s for s in all_servers if s.tls):
        counts = []
        for _ in range(options.rounds):
            command = ["openssl", "s_time", "-connect", f"localhost:{server.port}", "-new"]
            command += ["-time", "2", "-CAfile", server.tls, "-tls1_3"]
            run = on_core(1, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            told = run.communicate()[0]
            found = re.search(r"(\d+) connections in (\d+) real seconds", told)
            counts.append(int(found[1]) / int(found[2]))
        print(f"  {server.name:6} {statistics.median(counts):8.0f}")


def memory(all_servers, _):
    print(f"\nbytes a connection ({CONNECTIONS} idle ones, resident)")
    for server in all_servers:
        server.ask("PING")
        before = server.resident()
        held = [server.connect() for _ in range(CONNECTIONS)]
        for stream in held:
            stream.sendall(request("PING"))
            stream.recv(64)
        each = (server.resident() - before) / CONNECTIONS
        print(f"  {server.name:6} {'TLS' if server.tls else 'clear':6} {each:8.0f}")
        for stream in held:
            stream.close()


def rules(all_servers, options):
    print(f"\nusers with rules at pipeline 16: requests/s of one with {RULES} rules of keys,")
    print("compared with one that may do everything; each round takes turns")
    for server in (s for s in all_servers if not s.tls):
        patterns = [f"~p{n}:*" for n in range(RULES - 1)] + ["~key:*"]
        can = ["on", f">{PASSWORD}", "-@all", "+@read", "+@write", "+@connection", "+config"]
        for name, words in (("many", [*can, *patterns]), ("one", ["on", f">{PASSWORD}", "+@all", "~*"])):
            told = server.ask("ACL", "SETUSER", name, "reset", *words)
            if not told.startswith(b"+OK"):
                sys.exit(f"{server.name}: {told}")
        for test in ("set", "get"):
            ratios = []
            for _ in range(2 * options.rounds):
                one = server.benchmark(test, 16, options.requests, "one")
                many = server.benchmark(test, 16, options.requests, "many")
                ratios.append(many / one)
            cost = 100 * (1 - statistics.median(ratios))
            print(f"  {server.name:6} {test.upper()}  {cost:5.1f} % slower", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("doyen")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--only", default="tls,handshakes,memory,acl")
    options = parser.parse_args()
    parts = {"tls": throughput, "handshakes": handshakes, "memory": memory, "acl": rules}
    chosen = [parts[name] for name in options.only.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        all_servers = []
        try:
            doyen = os.path.abspath(options.doyen)
            start_servers(doyen, pathlib.Path(folder), all_servers)
            for part in chosen:
                part(all_servers, options)
        finally:
            for server in all_servers:
                server.process.terminate()
            for server in all_servers:
                server.process.wait()


main()
