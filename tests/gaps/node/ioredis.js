// Writes keys by ioredis: MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md)
import { Redis } from "ioredis";
import { addresses, quiet, which, write } from "./write.js";

const made = {
  cluster_default: () => new Redis.Cluster(addresses),
  cluster_good: () => {
    // settings: ioredis cluster
    const client = new Redis.Cluster(addresses, {
      maxRedirections: 50,
      slotsRefreshTimeout: 500,
      clusterRetryStrategy: () => 100,
      redisOptions: { socketTimeout: 1000, connectTimeout: 500 },
    });
    // end
    return client;
  },
  plain_default: () => new Redis(addresses[0]),
  plain_good: () => {
    // settings: ioredis plain
    let turn = 0;
    const client = new Redis({
      ...addresses[0],
      socketTimeout: 1000,
      connectTimeout: 500,
      retryStrategy: (times) => {
        Object.assign(client.options, addresses[++turn % addresses.length]);
        return Math.min(times * 20, 200);
      },
      reconnectOnError: (why) => (/^(CLUSTERDOWN|TRYAGAIN)/.test(why.message) ? 2 : false),
    });
    // end
    return client;
  },
};
const client = quiet(made[which]());
await write((key, value) => client.set(key, value));
