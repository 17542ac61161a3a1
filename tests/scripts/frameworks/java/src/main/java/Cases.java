import java.util.Objects;
import java.util.function.BooleanSupplier;

/** What the Java programs share: their words for the runner. */
final class Cases {
    static final String URL = "redis://127.0.0.1:" + System.getenv("REDIS_PORT");

    interface Body {
        void run() throws Exception;
    }

    static void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    static void test(String name, Body body) {
        try {
            body.run();
            say("case " + name + " ok");
        } catch (Throwable error) {
            error.printStackTrace();
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            String text = (cause.getClass().getSimpleName() + ": " + cause.getMessage())
                    .replaceAll("\\s+", " ");
            say("case " + name + " failed " + text.substring(0, Math.min(300, text.length())));
        }
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + " instead of " + expected);
        }
    }

    static void until(String what, BooleanSupplier isTrue) throws InterruptedException {
        for (long end = System.nanoTime() + 40_000_000_000L; !isTrue.getAsBoolean();) {
            if (System.nanoTime() > end) {
                throw new AssertionError(what + ": not within 40 s");
            }
            Thread.sleep(20);
        }
    }

    private Cases() {}
}
