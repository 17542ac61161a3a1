// rueidis as it is by default, with its cache at the client by CLIENT TRACKING.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

func test(name string, body func() error) {
	if err := body(); err != nil {
		fmt.Println("case", name, "failed", strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Println("case", name, "ok")
}

func main() {
	context, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	option := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + os.Getenv("REDIS_PORT")}}
	var client rueidis.Client
	test("connect", func() (err error) {
		client, err = rueidis.NewClient(option)
		return
	})
	test("cached", func() error {
		if client == nil {
			return fmt.Errorf("no client")
		}
		for n := 0; n < 100; n++ {
			if n == 30 {
				fmt.Println("kill")
			}
			text := strconv.Itoa(n)
			set := client.B().Set().Key("key").Value(text).Build()
			if err := client.Do(context, set).Error(); err != nil {
				return err
			}
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
				read, err := client.DoCache(context, client.B().Get().Key("key").Cache(),
					time.Minute).ToString()
				if err != nil {
					return err
				}
				if read == text {
					break
				}
				if time.Now().After(end) {
					return fmt.Errorf("found %s instead of %s for 5 s", read, text)
				}
			}
		}
		return nil
	})
}
