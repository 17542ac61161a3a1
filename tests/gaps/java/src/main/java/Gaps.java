import java.util.List;
import java.util.function.BiConsumer;
import java.util.stream.Stream;

/** What both libraries of this folder share: the arguments, and four tasks that write. */
final class Gaps {
  record Node(String host, int port) {}

  private Gaps() {}

  static List<Node> nodes(String[] args) {
    return Stream.of(args[3].split(","))
        .map(address -> address.split(":"))
        .map(pair -> new Node(pair[0], Integer.parseInt(pair[1])))
        .toList();
  }

  static void write(String[] args, BiConsumer<String, String> set) {
    for (int n = 0; n < 4; n++) {
      int task = n;
      new Thread(() -> write(args[2], task, set)).start();
    }
  }

  private static void write(String prefix, int task, BiConsumer<String, String> set) {
    for (int number = 0; ; number++) {
      try {
        set.accept(prefix + ":" + task + ":" + number, "" + number);
        System.out.println("+ " + task + " " + number);
      } catch (RuntimeException e) {
        System.out.println("- " + task + " " + number + " " + e.toString().lines().findFirst().get());
      }
      try {
        Thread.sleep(10);
      } catch (InterruptedException e) {
        return;
      }
    }
  }
}
