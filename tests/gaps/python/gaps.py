"""Writes keys by redis-py: gaps.py MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md)"""

import sys
import threading
import time

from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ClusterDownError, ConnectionError, TimeoutError, TryAgainError
from redis.multidb.client import MultiDBClient
from redis.multidb.config import DatabaseConfig, MultiDbConfig
from redis.retry import Retry


def cluster_default(addresses):
    return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in addresses])


def cluster_good(addresses):
    # settings: redis-py cluster
    client = RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in addresses],
        socket_timeout=1.0,
        socket_connect_timeout=0.5,
        retry=Retry(NoBackoff(), 200),
        reinitialize_steps=1,
    )
    # end
    return client


def plain_default(addresses):
    databases = [
        DatabaseConfig(weight=1.0 / (n + 1), client_kwargs={"host": host, "port": port})
        for n, (host, port) in enumerate(addresses)
    ]
    client = MultiDBClient(MultiDbConfig(databases_config=databases))
    client.initialize()
    return client


def plain_good(addresses):
    # settings: redis-py plain
    timeouts = {"socket_timeout": 1.0, "socket_connect_timeout": 0.5}
    databases = [
        DatabaseConfig(
            weight=1.0 / (n + 1), client_kwargs={"host": host, "port": port, **timeouts}
        )
        for n, (host, port) in enumerate(addresses)
    ]
    again = (ConnectionError, TimeoutError, ClusterDownError, TryAgainError)
    client = MultiDBClient(
        MultiDbConfig(
            databases_config=databases,
            command_retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.3), 20, again),
            min_num_failures=1,
            failure_rate_threshold=0.0,
            health_check_interval=1,
            health_check_probes=1,
            health_check_timeout=1,
            failover_delay=0.1,
        )
    )
    # end
    client.initialize()
    return client


def say(line):
    # One call, so that lines of several threads do not mix.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def write(client, prefix, task):
    number = 0
    while True:
        try:
            client.set(f"{prefix}:{task}:{number}", number)
            say(f"+ {task} {number}")
        except Exception as why:  # noqa: BLE001 an application sees all of them
            text = f"{type(why).__name__} {why}".splitlines()[0]
            say(f"- {task} {number} {text}")
        number += 1
        time.sleep(0.01)


def main():
    mode, settings, prefix, addresses = sys.argv[1:]
    pairs = [address.rsplit(":", 1) for address in addresses.split(",")]
    make = globals()[f"{mode}_{settings}"]
    client = make([(host, int(port)) for host, port in pairs])
    for task in range(4):
        threading.Thread(target=write, args=(client, prefix, task)).start()


main()
