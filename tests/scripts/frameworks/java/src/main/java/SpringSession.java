import java.time.Duration;
import java.util.Map;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.serializer.JdkSerializationRedisSerializer;
import org.springframework.data.redis.serializer.StringRedisSerializer;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.SessionRepository;
import org.springframework.session.data.redis.RedisIndexedSessionRepository;
import org.springframework.session.data.redis.RedisSessionRepository;

/** Spring Session with both of its repositories, and commands of Spring Data Redis. */
public final class SpringSession {
    static <S extends Session> void session(SessionRepository<S> repository) {
        for (int n = 0; n < 50; n++) {
            S session = repository.createSession();
            session.setAttribute("n", n);
            session.setMaxInactiveInterval(Duration.ofMinutes(5));
            repository.save(session);
            S found = repository.findById(session.getId());
            Cases.equal(found.<Integer>getAttribute("n"), n);
            // As each login does with Spring Security.
            String former = found.getId();
            found.changeSessionId();
            repository.save(found);
            Cases.equal(repository.findById(former), null);
            Cases.equal(repository.findById(found.getId()).<Integer>getAttribute("n"), n);
            if (n == 20) {
                Cases.say("kill");
            }
            if (n % 2 == 0) {
                repository.deleteById(found.getId());
                Cases.equal(repository.findById(found.getId()), null);
            }
        }
    }

    public static void main(String[] words) {
        var connections = new LettuceConnectionFactory(
                "127.0.0.1", Integer.parseInt(System.getenv("REDIS_PORT")));
        connections.afterPropertiesSet();
        connections.start();
        var strings = new StringRedisTemplate(connections);
        RedisTemplate<String, Object> template = new RedisTemplate<>();
        template.setConnectionFactory(connections);
        template.setKeySerializer(StringRedisSerializer.UTF_8);
        template.setHashKeySerializer(StringRedisSerializer.UTF_8);
        template.setValueSerializer(new JdkSerializationRedisSerializer());
        template.setHashValueSerializer(new JdkSerializationRedisSerializer());
        template.afterPropertiesSet();

        Cases.test("sessions", () -> session(new RedisSessionRepository(template)));
        Cases.test("indexed", () -> session(new RedisIndexedSessionRepository(template)));
        Cases.test("by-name", () -> {
            var repository = new RedisIndexedSessionRepository(template);
            var session = repository.createSession();
            session.setAttribute(
                    FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME, "anne");
            repository.save(session);
            Cases.equal(repository.findByPrincipalName("anne").size(), 1);
            repository.deleteById(session.getId());
            Cases.equal(repository.findByPrincipalName("anne"), Map.of());
        });
        Cases.test("template", () -> {
            strings.opsForList().rightPushAll("list", "a", "b");
            Cases.equal(strings.opsForList().leftPop("list", Duration.ofSeconds(1)), "a");
            strings.opsForZSet().add("zset", "a", 1);
            Cases.equal(strings.opsForZSet().popMin("zset").getValue(), "a");
            strings.opsForSet().add("set", "a", "b");
            Cases.equal(strings.opsForSet().size("set"), 2L);
        });
        System.exit(0);
    }
}
