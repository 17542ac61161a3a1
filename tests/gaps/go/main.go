// Writes keys by go-redis: MODE SETTINGS PREFIX ADDRESSES (see tests/gaps/README.md)
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Ring divides keys among the nodes. Each Doyen node takes all of them.
func shards(addresses []string) map[string]string {
	all := map[string]string{}
	for _, address := range addresses {
		all[address] = address
	}
	return all
}

func connect(which string, addresses []string) redis.Cmdable {
	switch which {
	case "cluster_default":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses})
	case "cluster_good":
		// settings: go-redis cluster
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:                      addresses,
			ReadTimeout:                time.Second,
			DialTimeout:                500 * time.Millisecond,
			DialerRetries:              1,
			MaxRedirects:               20,
			MinRetryBackoff:            50 * time.Millisecond,
			MaxRetryBackoff:            300 * time.Millisecond,
			ClusterStateReloadInterval: time.Second,
		})
		// end
		return client
	case "plain_default":
		return redis.NewRing(&redis.RingOptions{Addrs: shards(addresses)})
	case "plain_good":
		// settings: go-redis plain
		client := redis.NewRing(&redis.RingOptions{
			Addrs:                 shards(addresses),
			HeartbeatFrequency:    100 * time.Millisecond,
			ReadTimeout:           time.Second,
			DialTimeout:           500 * time.Millisecond,
			DialerRetries:         1,
			MaxRetries:            20,
			MinRetryBackoff:       50 * time.Millisecond,
			MaxRetryBackoff:       300 * time.Millisecond,
			ContextTimeoutEnabled: true,
			HeartbeatFn: func(ctx context.Context, node *redis.Client) bool {
				within, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				// A node that is cut off from the others answers, and serves no slot.
				info, err := node.ClusterInfo(within).Result()
				return err == nil && !strings.Contains(info, "cluster_slots_ok:0\r")
			},
		})
		// end
		return client
	}
	panic("MODE is cluster or plain, SETTINGS default or good, not: " + which)
}

func main() {
	which, prefix := os.Args[1]+"_"+os.Args[2], os.Args[3]
	client := connect(which, strings.Split(os.Args[4], ","))
	for task := range 4 {
		go func() {
			for number := 0; ; number++ {
				key := fmt.Sprint(prefix, ":", task, ":", number)
				if err := client.Set(context.Background(), key, number, 0).Err(); err != nil {
					text, _, _ := strings.Cut(err.Error(), "\n")
					fmt.Println("-", task, number, text)
				} else {
					fmt.Println("+", task, number)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	select {}
}
