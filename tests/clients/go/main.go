// Uses a node over TLS as a user with rules, by go-redis: PORT CLUSTER_PORT CA
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func refused(err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		must(fmt.Errorf("%q was expected, not: %v", text, err))
	}
}

func main() {
	context := context.Background()
	pem, err := os.ReadFile(os.Args[3])
	must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	trusting := &tls.Config{RootCAs: roots, ServerName: "localhost"}
	options := redis.Options{
		Addr: "localhost:" + os.Args[1], Username: "app", Password: "app-password-1",
		TLSConfig: trusting, MaxRetries: -1,
	}
	client := redis.NewClient(&options)
	must(client.Set(context, "app:go", "value", 0).Err())
	value, err := client.Get(context, "app:go").Result()
	must(err)
	if value != "value" {
		must(fmt.Errorf("GET: %q", value))
	}
	_, err = client.Pipelined(context, func(pipeline redis.Pipeliner) error {
		for n := range 2000 {
			pipeline.Set(context, fmt.Sprint("app:", n), n, 0)
		}
		return nil
	})
	must(err)
	refused(client.Set(context, "other", "value", 0).Err(), "NOPERM")

	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"localhost:" + os.Args[2]}, Username: "app", Password: "app-password-1",
		TLSConfig: trusting,
	})
	for n := range 200 {
		must(cluster.Set(context, fmt.Sprint("app:", n), n, 0).Err())
	}

	wrong := options
	wrong.Password = "wrong"
	refused(redis.NewClient(&wrong).Ping(context).Err(), "WRONGPASS")
	unknown := options
	unknown.TLSConfig = &tls.Config{ServerName: "localhost"}
	refused(redis.NewClient(&unknown).Ping(context).Err(), "certificate")
	fmt.Println("ok: go-redis", redis.Version())
}
