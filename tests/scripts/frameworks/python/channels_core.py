"""channels_redis: the core layer, by sorted sets, blocking pops and scripts; and the other one."""
# needs: channels==4.3.2 channels-redis==4.3.0 redis==5.3.1

import asyncio

from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer
from cases import PORT, case, equal, kill

COUNT = 200
HOSTS = [("127.0.0.1", PORT)]


async def one_channel():
    layer = RedisChannelLayer(hosts=HOSTS, capacity=1000)
    name = await layer.new_channel()

    async def send():
        for n in range(COUNT):
            if n == COUNT // 4:
                kill()
            await layer.send(name, {"type": "n", "n": n})

    sending = asyncio.create_task(send())
    got = [(await asyncio.wait_for(layer.receive(name), 30))["n"] for _ in range(COUNT)]
    await sending
    await layer.close_pools()
    equal(sorted(set(got)), list(range(COUNT)))


async def groups(layer):
    names = [await layer.new_channel() for _ in range(3)]
    for name in names:
        await layer.group_add("people", name)
    # The layer by messages does not await that it is subscribed. What it publishes at once may be
    # lost, also by redis-server.
    await asyncio.sleep(0.2)
    await layer.group_send("people", {"type": "hello"})
    for name in names:
        equal((await asyncio.wait_for(layer.receive(name), 30))["type"], "hello")
    await layer.group_discard("people", names[0])
    await layer.group_send("people", {"type": "again"})
    for name in names[1:]:
        equal((await asyncio.wait_for(layer.receive(name), 30))["type"], "again")
    await layer.flush()


async def full():
    layer = RedisChannelLayer(hosts=HOSTS, capacity=3)
    name = await layer.new_channel()
    try:
        for _ in range(4):
            await layer.send(name, {"type": "n"})
    except Exception as error:
        equal(type(error).__name__, "ChannelFull")
    else:
        raise AssertionError("a channel that is full took a message")
    await layer.close_pools()


case("channel", lambda: asyncio.run(one_channel()))
case("groups", lambda: asyncio.run(groups(RedisChannelLayer(hosts=HOSTS))))
case("full", lambda: asyncio.run(full()))
case("by-pubsub", lambda: asyncio.run(groups(RedisPubSubChannelLayer(hosts=HOSTS))))
