import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.Set;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManagerFactory;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.Pipeline;

/** Uses a node over TLS as a user with rules, by Jedis: PORT CLUSTER_PORT CA */
public class Try {
  interface Action {
    void run();
  }

  static void refused(String text, Action action) {
    try {
      action.run();
    } catch (RuntimeException e) {
      for (Throwable why = e; why != null; why = why.getCause()) {
        if (String.valueOf(why.getMessage()).contains(text)) {
          return;
        }
      }
      throw e;
    }
    throw new IllegalStateException(text + " was expected");
  }

  static SSLSocketFactory trusting(String path) throws Exception {
    KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
    roots.load(null, null);
    try (FileInputStream pem = new FileInputStream(path)) {
      roots.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
    }
    TrustManagerFactory managers =
        TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    managers.init(roots);
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(null, managers.getTrustManagers(), null);
    return context.getSocketFactory();
  }

  static DefaultJedisClientConfig config(SSLSocketFactory factory, String password) {
    DefaultJedisClientConfig.Builder config =
        DefaultJedisClientConfig.builder().ssl(true).user("app").password(password);
    return (factory == null ? config : config.sslSocketFactory(factory)).build();
  }

  public static void main(String[] args) throws Exception {
    HostAndPort plain = new HostAndPort("localhost", Integer.parseInt(args[0]));
    HostAndPort aware = new HostAndPort("localhost", Integer.parseInt(args[1]));
    SSLSocketFactory factory = trusting(args[2]);
    DefaultJedisClientConfig app = config(factory, "app-password-1");
    try (Jedis client = new Jedis(plain, app)) {
      client.set("app:java", "value");
      if (!"value".equals(client.get("app:java"))) {
        throw new IllegalStateException("GET");
      }
      Pipeline pipeline = client.pipelined();
      for (int n = 0; n < 2000; n++) {
        pipeline.set("app:" + n, "" + n);
      }
      if (!pipeline.syncAndReturnAll().stream().allMatch("OK"::equals)) {
        throw new IllegalStateException("a pipeline");
      }
      refused("NOPERM", () -> client.set("other", "value"));
    }
    try (JedisCluster cluster = new JedisCluster(Set.of(aware), app)) {
      for (int n = 0; n < 200; n++) {
        cluster.set("app:" + n, "" + n);
      }
    }
    refused("WRONGPASS", () -> new Jedis(plain, config(factory, "wrong")).ping());
    refused("PKIX path", () -> new Jedis(plain, config(null, "app-password-1")).ping());
    System.out.println("ok: Jedis");
  }
}
