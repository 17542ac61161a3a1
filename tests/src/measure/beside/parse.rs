//! Parses what generators and the kernel print.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The figures of one run. Latencies are in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Operations that were done.
    pub operations: f64,
    /// Operations a second.
    pub throughput: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of latency.
    pub p99_us: f64,
    /// Percentile 99.9 of latency.
    pub p999_us: f64,
    /// Errors that came back instead of replies, in words.
    pub errors: Option<String>,
    /// Operations of an open loop that were due and never started.
    pub behind: f64,
}

/// Parses the text of redis-benchmark without `--csv`, because only that text has p99.9.
///
/// # Errors
/// The text has another form.
pub fn redis_benchmark(text: &str) -> Result<Load> {
    let lines = || text.split(['\n', '\r']).map(str::trim);
    let number = |word: &str| word.trim_end_matches('%').parse::<f64>().ok();
    let first = |line: &str| line.split_whitespace().next().and_then(number);
    let operations = lines()
        .find(|l| l.contains("requests completed in"))
        .and_then(first)
        .context("redis-benchmark completed no requests")?;
    let throughput = lines()
        .find_map(|l| l.strip_prefix("throughput summary:"))
        .and_then(first)
        .context("redis-benchmark prints no throughput")?;
    // "99.902% <= 1.234 milliseconds (cumulative count ..)": the first section is sorted by
    // percentiles.
    let p999 = lines()
        .skip_while(|l| !l.starts_with("Latency by percentile distribution"))
        .skip(1)
        .map_while(|l| l.split_once("% <= "))
        .find(|(percent, _)| number(percent).is_some_and(|p| p >= 99.9))
        .and_then(|(_, rest)| first(rest))
        .context("redis-benchmark prints no p99.9")?;
    // "avg min p50 p95 p99 max", and their values below.
    let summary: Vec<f64> = lines()
        .skip_while(|l| !l.starts_with("latency summary"))
        .nth(2)
        .map(|l| l.split_whitespace().filter_map(number).collect())
        .unwrap_or_default();
    let [_, _, p50, _, p99, _] = summary[..] else {
        bail!("redis-benchmark prints no latencies")
    };
    let us = |milliseconds: f64| milliseconds * 1000.0;
    Ok(Load {
        operations,
        throughput,
        p50_us: us(p50),
        p99_us: us(p99),
        p999_us: us(p999),
        errors: None,
        behind: 0.0,
    })
}

/// Parses the object that `doyen bench --json` and Hazelcast's client print.
///
/// # Errors
/// The text has another form.
pub fn json_load(text: &str) -> Result<Load> {
    let line = text
        .lines()
        .rev()
        .find(|l| l.trim_start().starts_with('{'))
        .unwrap_or(text);
    let value: Value = serde_json::from_str(if text.trim_start().starts_with('{') {
        text
    } else {
        line
    })
    .context("no JSON")?;
    let number = |name: &str| {
        value[name]
            .as_f64()
            .with_context(|| format!("the generator's JSON has no {name}: {value}"))
    };
    let errors: Vec<String> = value["errors"]
        .as_object()
        .map(|e| e.iter().map(|(kind, n)| format!("{n} {kind}")).collect())
        .unwrap_or_default();
    Ok(Load {
        operations: number("operations")?,
        throughput: number("throughput")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        p999_us: number("p999_us")?,
        errors: (!errors.is_empty()).then(|| errors.join(", ")),
        behind: value["behind"].as_f64().unwrap_or(0.0),
    })
}

/// Used bytes of the heap, from `jcmd PID GC.heap_info`: all generations, without metaspace, which
/// is not part of the heap.
#[must_use]
pub fn java_heap(text: &str) -> Option<u64> {
    let mut used = None;
    for line in text
        .lines()
        .map(str::trim)
        .filter(|l| l.contains(" total ") && !l.starts_with("Metaspace"))
    {
        let (_, rest) = line.split_once(" used ")?;
        *used.get_or_insert(0) += rest.split('K').next()?.parse::<u64>().ok()? * 1024;
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS_BENCHMARK: &str = "\
        Cluster has 3 master nodes:\n\
        \n\
        Master 0: 5cf4 127.0.0.1:1\n\
        \n\
        \rSET: rps=0.0 (overall: 0.0)\r  \r\
        ====== SET ======                                                   \n\
        \x20 100000 requests completed in 1.52 seconds\n\
        \x20 50 parallel clients\n\
        multi-thread: yes\n\
        \n\
        Latency by percentile distribution:\n\
        0.000% <= 0.031 milliseconds (cumulative count 61)\n\
        50.000% <= 0.119 milliseconds (cumulative count 52262)\n\
        99.805% <= 12.903 milliseconds (cumulative count 99805)\n\
        99.902% <= 15.895 milliseconds (cumulative count 99904)\n\
        100.000% <= 60.191 milliseconds (cumulative count 100000)\n\
        \n\
        Cumulative distribution of latencies:\n\
        45.353% <= 0.103 milliseconds (cumulative count 45353)\n\
        100.000% <= 61.119 milliseconds (cumulative count 100000)\n\
        \n\
        Summary:\n\
        \x20 throughput summary: 65746.22 requests per second\n\
        latency summary (msec):\n\
        \x20         avg       min       p50       p95       p99       max\n\
        0.497     0.024     0.119     2.383     7.271    60.191\n\
        \n";

    #[test]
    fn all_figures_of_redis_benchmark_are_parsed() {
        let load = redis_benchmark(REDIS_BENCHMARK).expect("its text");
        let expected = Load {
            operations: 100_000.0,
            throughput: 65_746.22,
            p50_us: 119.0,
            p99_us: 7271.0,
            p999_us: 15_895.0,
            errors: None,
            behind: 0.0,
        };
        assert_eq!(load, expected);
    }

    #[test]
    fn a_run_that_failed_is_an_error_and_no_figure() {
        assert!(
            redis_benchmark("Could not connect to Redis at 127.0.0.1:1: Connection refused\n")
                .is_err()
        );
        assert!(
            redis_benchmark(REDIS_BENCHMARK.split("Latency by").next().expect("a part")).is_err()
        );
        assert!(redis_benchmark(&REDIS_BENCHMARK.replace("0.497     0.024", "")).is_err());
        assert!(json_load("doyen: no node answers").is_err());
        assert!(json_load(r#"{"operations":1}"#).is_err());
    }

    #[test]
    fn json_of_our_own_generators_is_parsed() {
        let text = r#"{"operation":"get","operations":1000,"seconds":1.0,"throughput":1000.5,
            "errors":{"BUSY":2},"mean_us":1,"p50_us":2,"p90_us":3,
            "p99_us":4.5,"p999_us":5,"p9999_us":6,"max_us":7,"longest_stall_us":8,"behind":3}"#;
        let load = json_load(text).expect("its JSON");
        assert_eq!(
            (load.throughput, load.p99_us, load.behind),
            (1000.5, 4.5, 3.0)
        );
        assert_eq!(load.errors.as_deref(), Some("2 BUSY"));
        let load = json_load(
            "warning: something\n{\"operations\":1,\"throughput\":1,\"errors\":{},\
             \"p50_us\":1,\"p99_us\":1,\"p999_us\":1}\n",
        );
        assert_eq!(load.expect("its JSON").errors, None);
    }

    #[test]
    fn heaps_of_several_collectors_are_parsed() {
        let serial = "4321:\n def new generation   total 9792K, used 1000K [0x1, 0x2, 0x3)\n\
            \x20 eden space 8704K,  10% used [0x, 0x, 0x)\n\
            \x20tenured generation   total 21888K, used 500K [0x, 0x, 0x)\n\
            \x20  the space 21888K,   4% used [0x, 0x, 0x, 0x)\n\
            \x20Metaspace       used 300K, committed 448K, reserved 1056768K\n\
            \x20 class space    used 20K, committed 128K, reserved 1048576K\n";
        assert_eq!(java_heap(serial), Some(1500 * 1024));
        let g1 = "4321:\n garbage-first heap   total 256000K, used 3000K [0x, 0x)\n\
            \x20 region size 2048K, 2 young (4096K), 0 survivors (0K)\n\
            \x20Metaspace       used 300K, committed 448K, reserved 1056768K\n";
        assert_eq!(java_heap(g1), Some(3000 * 1024));
        assert_eq!(java_heap("no such process"), None);
    }
}
