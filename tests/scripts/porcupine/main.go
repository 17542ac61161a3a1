// Compares the verdicts of doyen::testkit's judge with those of Porcupine
// (https://github.com/anishathalye/porcupine), on histories that one of its tests writes:
// `just porcupine`.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/anishathalye/porcupine"
)

type call struct {
	Op       string
	Value    string
	Expected *string
	By       int64
	Tag      uint64
}

type answer struct {
	At    int64
	Kind  string
	Int   int64
	Value string
}

type entry struct {
	Client   uint32
	Call     call
	Called   int64
	Answered *answer
	Waited   int64
}

type history struct {
	Seed    uint64
	Holds   bool
	Entries []entry
}

// The call, the number of its operation in the history, and the operations that must have happened
// before it.
type input struct {
	call   call
	number int
	after  uint64
	known  bool
	// If one of these has happened before it, it never happens.
	behind uint64
}

// The value of the key, and the operations that have happened.
type state struct {
	there bool
	value string
	tag   uint64
	done  uint64
}

// What a store does and answers. The last result is false if it refuses.
func (s state) execute(c call) (state, answer, bool) {
	read := answer{Kind: "nil"}
	was := int64(0)
	if s.there {
		read = answer{Kind: "bulk", Value: s.value}
		was = 1
	}
	put := func(value string, tag uint64) state {
		return state{there: true, value: value, tag: tag, done: s.done}
	}
	nothing := state{done: s.done}
	number := func(n int64) answer { return answer{Kind: "int", Int: n} }
	ok := answer{Kind: "ok"}
	switch c.Op {
	case "get":
		return s, read, true
	case "set":
		return put(c.Value, 0), ok, true
	case "getset":
		return put(c.Value, 0), read, true
	case "delete":
		return nothing, number(was), true
	case "getdel":
		return nothing, read, true
	case "cas":
		if s.there == (c.Expected != nil) && (!s.there || s.value == *c.Expected) {
			return put(c.Value, s.tag), number(1), true
		}
		return s, number(0), true
	case "incr":
		sum := int64(0)
		if s.there {
			var err error
			if sum, err = strconv.ParseInt(s.value, 10, 64); err != nil {
				return s, answer{}, false
			}
		}
		sum += c.By
		return put(strconv.FormatInt(sum, 10), s.tag), number(sum), true
	case "append":
		whole := s.value + c.Value
		return put(whole, s.tag), number(int64(len(whole))), true
	case "setfor":
		return put(c.Value, c.Tag), ok, true
	case "expire":
		if s.there {
			return put(s.value, c.Tag), number(1), true
		}
		return s, number(0), true
	case "persist":
		if s.there && s.tag != 0 {
			return put(s.value, 0), number(1), true
		}
		return s, number(0), true
	case "expired":
		if s.there && s.tag == c.Tag {
			return nothing, ok, true
		}
		return s, ok, true
	}
	panic("unknown operation " + c.Op)
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, asked, said interface{}) (bool, interface{}) {
		s, in := before.(state), asked.(input)
		if s.done&in.after != in.after {
			return false, s
		}
		next, got, possible := s.execute(in.call)
		if s.done&in.behind != 0 {
			next = s
		}
		if in.known {
			want := *said.(*answer)
			if !possible || got.Kind != want.Kind || got.Int != want.Int || got.Value != want.Value {
				return false, s
			}
		}
		next.done |= 1 << in.number
		return true, next
	},
	Equal: func(a, b interface{}) bool { return a == b },
}

func gives(c call) bool { return c.Op == "setfor" || c.Op == "expire" }

// Operations that must come before this one for other reasons than time: earlier calls of its
// client, and for a deadline that passes, the call that set it.
func after(entries []entry, at int) uint64 {
	var set uint64
	for other, e := range entries {
		mine := entries[at]
		if e.Answered == nil {
			continue
		}
		clock := e.Call.Op == "expired" || mine.Call.Op == "expired"
		byClient := !clock && e.Client == mine.Client && e.Called < mine.Called
		byCause := mine.Call.Op == "expired" && gives(e.Call) && e.Call.Tag == mine.Call.Tag
		if byClient || byCause {
			set |= 1 << other
		}
	}
	return set
}

// Calls that the client made while it waited for this one. If such a call happens and this one of
// unknown outcome has not, this one never happens.
func behind(entries []entry, at int) uint64 {
	var set uint64
	mine := entries[at]
	for other, e := range entries {
		clock := e.Call.Op == "expired" || mine.Call.Op == "expired"
		meanwhile := mine.Called < e.Called && e.Called < mine.Waited
		if !clock && mine.Answered == nil && e.Client == mine.Client && meanwhile {
			set |= 1 << other
		}
	}
	return set
}

func holds(h history) bool {
	var operations []porcupine.Operation
	for at, e := range h.Entries {
		// An operation of unknown outcome may happen after everything else, which is as good as never.
		operation := porcupine.Operation{
			ClientId: at, Call: e.Called, Return: math.MaxInt64, Output: e.Answered,
			Input: input{
				call: e.Call, number: at, after: after(h.Entries, at), behind: behind(h.Entries, at),
				known: e.Answered != nil,
			},
		}
		if e.Answered != nil {
			operation.Return = e.Answered.At
			want := *e.Answered
			want.At = 0
			operation.Output = &want
		}
		operations = append(operations, operation)
	}
	return porcupine.CheckOperations(model, operations)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine HISTORIES.json")
		os.Exit(2)
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var histories []history
	if err := json.Unmarshal(text, &histories); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(2)
	}
	good, differ := 0, 0
	for _, h := range histories {
		verdict := holds(h)
		if verdict {
			good++
		}
		if verdict != h.Holds {
			differ++
			told, _ := json.Marshal(h)
			fmt.Printf("seed %d: Porcupine says %v, and we %v: %s\n", h.Seed, verdict, h.Holds, told)
		}
	}
	fmt.Printf("%d histories: by Porcupine, %d hold and %d do not; %d verdicts differ\n",
		len(histories), good, len(histories)-good, differ)
	if differ > 0 || len(histories) == 0 {
		os.Exit(1)
	}
}
