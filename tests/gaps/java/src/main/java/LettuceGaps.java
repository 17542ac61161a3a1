import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisURI;
import io.lettuce.core.SocketOptions;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.failover.MultiDbClient;
import io.lettuce.core.failover.api.CircuitBreakerConfig;
import io.lettuce.core.failover.api.DatabaseConfig;
import io.lettuce.core.failover.api.MultiDbOptions;
import io.lettuce.core.failover.health.HealthCheckStrategy;
import io.lettuce.core.failover.health.PingStrategy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;

/** Writes keys by Lettuce: MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md) */
public class LettuceGaps {
  static BiConsumer<String, String> clusterDefault(List<RedisURI> nodes) {
    return RedisClusterClient.create(nodes).connect().sync()::set;
  }

  static BiConsumer<String, String> clusterGood(List<RedisURI> nodes) {
    // settings: Lettuce cluster
    nodes.forEach(node -> node.setTimeout(Duration.ofSeconds(1)));
    RedisClusterClient client = RedisClusterClient.create(nodes);
    client.setOptions(
        ClusterClientOptions.builder()
            .socketOptions(
                SocketOptions.builder().connectTimeout(Duration.ofMillis(500)).build())
            .topologyRefreshOptions(
                ClusterTopologyRefreshOptions.builder()
                    .enableAllAdaptiveRefreshTriggers()
                    .adaptiveRefreshTriggersTimeout(Duration.ofMillis(300))
                    .refreshTriggersReconnectAttempts(1)
                    .enablePeriodicRefresh(Duration.ofSeconds(1))
                    .build())
            .maxRedirects(50)
            .build());
    // end
    return client.connect().sync()::set;
  }

  static BiConsumer<String, String> plainDefault(List<RedisURI> nodes) {
    List<DatabaseConfig> databases = new ArrayList<>();
    float weight = 1;
    for (RedisURI node : nodes) {
      databases.add(DatabaseConfig.builder(node).weight(weight /= 2).build());
    }
    return MultiDbClient.create(databases).connect().sync()::set;
  }

  static BiConsumer<String, String> plainGood(List<RedisURI> nodes) {
    // settings: Lettuce plain
    HealthCheckStrategy.Config health =
        HealthCheckStrategy.Config.builder()
            .interval(500)
            .timeout(500)
            .numProbes(2)
            .delayInBetweenProbes(100)
            .build();
    List<DatabaseConfig> databases = new ArrayList<>();
    float weight = 1;
    for (RedisURI node : nodes) {
      databases.add(
          DatabaseConfig.builder(node)
              .weight(weight /= 2)
              .clientOptions(
                  ClientOptions.builder()
                      .timeoutOptions(TimeoutOptions.enabled(Duration.ofSeconds(1)))
                      .socketOptions(
                          SocketOptions.builder().connectTimeout(Duration.ofMillis(500)).build())
                      .build())
              .circuitBreakerConfig(
                  CircuitBreakerConfig.builder()
                      .minimumNumberOfFailures(1)
                      .failureRateThreshold(1)
                      .build())
              .healthCheckStrategySupplier((at, make) -> new PingStrategy(make, health))
              .build());
    }
    MultiDbOptions options =
        MultiDbOptions.builder()
            .delayInBetweenFailoverAttempts(Duration.ofMillis(100))
            .build();
    MultiDbClient client = MultiDbClient.create(databases, options);
    // end
    return client.connect().sync()::set;
  }

  public static void main(String[] args) {
    List<RedisURI> nodes =
        Gaps.nodes(args).stream().map(node -> RedisURI.create(node.host(), node.port())).toList();
    BiConsumer<String, String> set =
        switch (args[0] + " " + args[1]) {
          case "cluster default" -> clusterDefault(nodes);
          case "cluster good" -> clusterGood(nodes);
          case "plain default" -> plainDefault(nodes);
          case "plain good" -> plainGood(nodes);
          default -> throw new IllegalArgumentException("MODE is cluster or plain");
        };
    Gaps.write(args, set);
  }
}
