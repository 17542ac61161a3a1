// asynq: two servers in this process, retries, scheduled and unique tasks, its inspector.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const count = 300

var (
	lock  sync.Mutex
	marks = map[int]int{}
)

func test(name string, body func() error) {
	if err := body(); err != nil {
		fmt.Println("case", name, "failed", strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Println("case", name, "ok")
}

func until(what string, isTrue func() bool) error {
	for end := time.Now().Add(40 * time.Second); !isTrue(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(what + ": not within 40 s")
		}
	}
	return nil
}

func found() (different, all int) {
	lock.Lock()
	defer lock.Unlock()
	for n, times := range marks {
		if n >= 0 {
			different, all = different+1, all+times
		}
	}
	return
}

func times(n int) int {
	lock.Lock()
	defer lock.Unlock()
	return marks[n]
}

func leave(_ context.Context, task *asynq.Task) error {
	time.Sleep(10 * time.Millisecond)
	n, err := strconv.Atoi(string(task.Payload()))
	lock.Lock()
	defer lock.Unlock()
	marks[n]++
	return err
}

func again(_ context.Context, _ *asynq.Task) error {
	lock.Lock()
	defer lock.Unlock()
	marks[-1]++
	if marks[-1] < 3 {
		return errors.New("on purpose")
	}
	return nil
}

func server(redis asynq.RedisClientOpt) *asynq.Server {
	mux := asynq.NewServeMux()
	mux.HandleFunc("leave", leave)
	mux.HandleFunc("again", again)
	it := asynq.NewServer(redis, asynq.Config{
		Concurrency: 2, LogLevel: asynq.WarnLevel, Queues: map[string]int{"default": 2, "low": 1},
		TaskCheckInterval: 100 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 200 * time.Millisecond },
	})
	if err := it.Start(mux); err != nil {
		panic(err)
	}
	return it
}

func main() {
	redis := asynq.RedisClientOpt{Addr: "127.0.0.1:" + os.Getenv("REDIS_PORT")}
	client := asynq.NewClient(redis)
	one, two := server(redis), server(redis)
	send := func(n int, options ...asynq.Option) error {
		_, err := client.Enqueue(asynq.NewTask("leave", []byte(strconv.Itoa(n))), options...)
		return err
	}
	some := func(from, to int) error {
		for n := from; n < to; n++ {
			if err := send(n); err != nil {
				return fmt.Errorf("task %d: %w", n, err)
			}
		}
		return nil
	}
	test("jobs", func() error {
		if err := some(0, count/2); err != nil {
			return err
		}
		if err := until("a quarter of the jobs", func() bool {
			n, _ := found()
			return n >= count/4
		}); err != nil {
			return err
		}
		fmt.Println("kill")
		if err := some(count/2, count); err != nil {
			return err
		}
		err := until("all jobs", func() bool { n, _ := found(); return n == count })
		different, all := found()
		fmt.Println("jobs", count, different, all-different)
		return err
	})
	test("retry", func() error {
		if _, err := client.Enqueue(asynq.NewTask("again", nil), asynq.MaxRetry(5)); err != nil {
			return err
		}
		return until("the third try", func() bool { return times(-1) == 3 })
	})
	test("delayed", func() error {
		if err := send(1000, asynq.ProcessIn(time.Second)); err != nil {
			return err
		}
		return until("the task", func() bool { return times(1000) == 1 })
	})
	test("unique", func() error {
		options := []asynq.Option{asynq.Unique(time.Minute), asynq.ProcessIn(time.Second)}
		if err := send(1001, options...); err != nil {
			return err
		}
		if err := send(1001, options...); !errors.Is(err, asynq.ErrDuplicateTask) {
			return fmt.Errorf("the second one: %v", err)
		}
		return until("the task", func() bool { return times(1001) == 1 })
	})
	test("low", func() error {
		if err := send(1002, asynq.Queue("low"), asynq.Retention(time.Minute)); err != nil {
			return err
		}
		return until("the task", func() bool { return times(1002) == 1 })
	})
	test("group", func() error {
		return send(1003, asynq.Group("some"))
	})
	inspector := asynq.NewInspector(redis)
	test("inspector", func() error {
		queues, err := inspector.Queues()
		if err != nil || len(queues) != 2 {
			return fmt.Errorf("queues: %v, %v", queues, err)
		}
		info, err := inspector.GetQueueInfo("default")
		if err != nil || info.Pending != 0 || info.ProcessedTotal < count {
			return fmt.Errorf("info: %+v, %v", info, err)
		}
		servers, err := inspector.Servers()
		if err != nil || len(servers) != 2 {
			return fmt.Errorf("servers: %v, %v", servers, err)
		}
		if err := send(1004, asynq.ProcessIn(time.Hour), asynq.TaskID("late")); err != nil {
			return err
		}
		if err := inspector.PauseQueue("low"); err != nil {
			return err
		}
		if err := inspector.UnpauseQueue("low"); err != nil {
			return err
		}
		return inspector.DeleteTask("default", "late")
	})
	one.Shutdown()
	two.Shutdown()
	test("delete", func() error { return inspector.DeleteQueue("low", true) })
}
