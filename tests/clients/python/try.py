"""Uses a node over TLS as a user with rules, by redis-py: try.py PORT CLUSTER_PORT CA"""

import sys

import redis
from redis.cluster import RedisCluster

port, cluster_port, ca = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tls = {"ssl": True, "ssl_ca_certs": ca}
user = {"username": "app", "password": "app-password-1"}


def refused(kind, what):
    try:
        what()
    except kind as why:
        return str(why)
    sys.exit(f"this was not refused: {what}")


admin = redis.Redis("localhost", port, password="admin-password-1", **tls)
admin.acl_setuser(
    "py", enabled=True, passwords=["+py-password-1"], keys=["py:*"], categories=["+@read"]
)
found = admin.acl_getuser("py")
assert "on" in found["flags"] and found["keys"] == ["~py:*"], found
assert admin.acl_deluser("py") == 1

for protocol in (2, 3):
    client = redis.Redis("localhost", port, protocol=protocol, **user, **tls)
    assert client.set("app:py", "value") and client.get("app:py") == b"value"
    large = b"x" * 1_000_000
    client.set("app:large", large)
    assert client.get("app:large") == large
    with client.pipeline(transaction=False) as pipeline:
        for n in range(2_000):
            pipeline.set(f"app:{n}", n)
        assert all(pipeline.execute())
    assert client.acl_whoami() in (b"app", "app")
    refused(redis.exceptions.NoPermissionError, lambda: client.set("other", "value"))

cluster = RedisCluster("localhost", cluster_port, **user, **tls)
for n in range(200):
    assert cluster.set(f"app:{n}", n)
assert cluster.get("app:7") == b"7"

wrong = redis.Redis("localhost", port, username="app", password="wrong", **tls)
refused(redis.exceptions.AuthenticationError, wrong.ping)
plain = redis.Redis("localhost", port, **user, socket_timeout=5)
refused(redis.exceptions.ConnectionError, plain.ping)
unknown = redis.Redis("localhost", port, ssl=True, **user)
assert "CERTIFICATE_VERIFY_FAILED" in refused(redis.exceptions.ConnectionError, unknown.ping)
print("ok: redis-py", redis.__version__)
