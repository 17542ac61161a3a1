// Writes keys by node-redis: MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md)
import { createClient, createCluster } from "redis";
import { addresses, quiet, which, write } from "./write.js";

const rootNodes = addresses.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
const made = {
  cluster_default: () => createCluster({ rootNodes }),
  cluster_good: () => {
    // settings: node-redis cluster
    const client = createCluster({
      rootNodes,
      maxCommandRedirections: 50,
      topologyRefreshOnReconnectionAttemptStrategy: 100,
      defaults: {
        socket: { connectTimeout: 500, socketTimeout: 1000, reconnectStrategy: 100 },
      },
      commandOptions: { timeout: 1000 },
    });
    // end
    return client;
  },
};
const client = quiet(made[which]());
await client.connect();
await write((key, value) => client.set(key, value));
