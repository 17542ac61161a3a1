package rivals;

import com.hazelcast.config.*;
import com.hazelcast.core.*;
import com.hazelcast.partition.*;

/**
 * Member PORT SEEDPORT,SEEDPORT: one member with one synchronous backup. Prints READY when it has
 * joined, and MIGRATED when partitions are where they belong. It ends with its stdin.
 */
public class Member {
    public static void main(String[] a) throws Exception {
        Config c = new Config();
        c.setClusterName("rivals");
        c.setProperty("hazelcast.logging.type", "none");
        c.setProperty("hazelcast.phone.home.enabled", "false");
        c.setProperty("hazelcast.shutdownhook.enabled", "false");
        c.getNetworkConfig().setPort(Integer.parseInt(a[0])).setPortAutoIncrement(false);
        c.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        JoinConfig j = c.getNetworkConfig().getJoin();
        j.getMulticastConfig().setEnabled(false);
        j.getAutoDetectionConfig().setEnabled(false);
        TcpIpConfig t = j.getTcpIpConfig().setEnabled(true);
        for (String s : a[1].split(",")) t.addMember("127.0.0.1:" + s);
        c.addMapConfig(new MapConfig("bench").setBackupCount(1)
                .setInMemoryFormat(InMemoryFormat.BINARY).setStatisticsEnabled(false));
        // `figures move` loads every system from one process, and speaks this protocol.
        c.getNetworkConfig()
                .setMemcacheProtocolConfig(new MemcacheProtocolConfig().setEnabled(true));
        HazelcastInstance hz = Hazelcast.newHazelcastInstance(c);
        hz.getPartitionService().addMigrationListener(new MigrationListener() {
            @Override public void migrationStarted(MigrationState s) { }
            @Override public void migrationFinished(MigrationState s) {
                System.out.println("MIGRATED " + s.getCompletedMigrations()
                        + " in " + s.getTotalElapsedTime() + " ms");
            }
            @Override public void replicaMigrationCompleted(ReplicaMigrationEvent e) { }
            @Override public void replicaMigrationFailed(ReplicaMigrationEvent e) {
                System.out.println("FAILED " + e);
            }
        });
        System.out.println("READY " + hz.getCluster().getMembers().size());
        while (System.in.read() >= 0) { /* the parent process still runs */ }
        Runtime.getRuntime().halt(0);
    }
}
