import java.time.Duration;
import java.util.List;
import java.util.Set;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.MultiDbClient;
import redis.clients.jedis.MultiDbConfig;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.mcf.HealthCheckStrategy;
import redis.clients.jedis.mcf.PingStrategy;

/** Writes keys by Jedis: MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md) */
public class JedisGaps {
  static UnifiedJedis clusterDefault(Set<HostAndPort> nodes) {
    return RedisClusterClient.builder().nodes(nodes).build();
  }

  static UnifiedJedis clusterGood(Set<HostAndPort> nodes) {
    // settings: Jedis cluster
    RedisClusterClient client =
        RedisClusterClient.builder()
            .nodes(nodes)
            .clientConfig(
                DefaultJedisClientConfig.builder()
                    .connectionTimeoutMillis(500)
                    .socketTimeoutMillis(1000)
                    .build())
            .maxAttempts(30)
            .maxTotalRetriesDuration(Duration.ofSeconds(10))
            .topologyRefreshPeriod(Duration.ofSeconds(1))
            .build();
    // end
    return client;
  }

  static UnifiedJedis plainDefault(List<HostAndPort> nodes) {
    MultiDbConfig.Builder config = MultiDbConfig.builder();
    float weight = 1;
    for (HostAndPort node : nodes) {
      config.database(node, weight /= 2, DefaultJedisClientConfig.builder().build());
    }
    return MultiDbClient.builder().multiDbConfig(config.build()).build();
  }

  static UnifiedJedis plainGood(List<HostAndPort> nodes) {
    // settings: Jedis plain
    DefaultJedisClientConfig each =
        DefaultJedisClientConfig.builder()
            .connectionTimeoutMillis(500)
            .socketTimeoutMillis(1000)
            .build();
    HealthCheckStrategy.Config health =
        HealthCheckStrategy.Config.builder()
            .interval(500)
            .timeout(500)
            .numProbes(2)
            .delayInBetweenProbes(100)
            .build();
    MultiDbConfig.Builder config =
        MultiDbConfig.builder()
            .commandRetry(
                MultiDbConfig.RetryConfig.builder()
                    .maxAttempts(20)
                    .waitDuration(50)
                    .exponentialBackoffMultiplier(1)
                    .build())
            .failureDetector(
                MultiDbConfig.CircuitBreakerConfig.builder()
                    .minNumOfFailures(1)
                    .failureRateThreshold(1)
                    .build())
            .retryOnFailover(true)
            .fastFailover(true)
            .delayInBetweenFailoverAttempts(100);
    float weight = 1;
    for (HostAndPort node : nodes) {
      config.database(
          MultiDbConfig.DatabaseConfig.builder(node, each)
              .connectionPoolConfig(new ConnectionPoolConfig())
              .weight(weight /= 2)
              .healthCheckStrategySupplier((at, how) -> new PingStrategy(at, how, health))
              .build());
    }
    MultiDbClient client = MultiDbClient.builder().multiDbConfig(config.build()).build();
    // end
    return client;
  }

  public static void main(String[] args) {
    List<HostAndPort> nodes =
        Gaps.nodes(args).stream().map(node -> new HostAndPort(node.host(), node.port())).toList();
    UnifiedJedis client =
        switch (args[0] + " " + args[1]) {
          case "cluster default" -> clusterDefault(Set.copyOf(nodes));
          case "cluster good" -> clusterGood(Set.copyOf(nodes));
          case "plain default" -> plainDefault(nodes);
          case "plain good" -> plainGood(nodes);
          default -> throw new IllegalArgumentException("MODE is cluster or plain");
        };
    Gaps.write(args, client::set);
  }
}
