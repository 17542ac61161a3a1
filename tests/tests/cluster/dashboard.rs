//! node/grafana.json: a dashboard that Grafana imports, whose queries ask for what nodes have.

use doyen_tests::cluster::Cluster;
use doyen_tests::resp::Reply;
use doyen_tests::runbook::metrics;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_doyen-under-test");
const DASHBOARD: &str = include_str!("../../../node/grafana.json");
/// Every metric, with its labels.
const PAGE: &str = include_str!("../../../docs/metrics.md");
/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];
/// Metrics that the binary has only if it has near caches, which it opens none of.
const OF_PROGRAMS: &str = "doyen_near_";
/// A metric whose labels appear with the first event.
const OF_EVENTS: &str = "doyen_events_total";

/// A query of a panel: the title of the panel, the expression, and the text of its legend.
struct PanelQuery {
    panel: String,
    expr: String,
    legend: String,
}

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("it has panels");
    panels
        .iter()
        .filter(|panel| panel["type"] != "row")
        .collect()
}

fn queries(dashboard: &Value) -> Vec<PanelQuery> {
    let of = |panel: &&Value| {
        let targets = panel["targets"].as_array().expect("a panel has targets");
        let query = |target: &Value| PanelQuery {
            panel: text(&panel["title"]),
            expr: text(&target["expr"]),
            legend: text(&target["legendFormat"]),
        };
        targets.iter().map(query).collect::<Vec<_>>()
    };
    panels(dashboard).iter().flat_map(of).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics that an expression asks for, each with the labels by which it chooses series.
fn asked(expr: &str) -> Vec<(&str, Vec<&str>)> {
    let begin = |at: &usize| !expr[..*at].ends_with(is_word);
    let places = expr.match_indices("doyen_").map(|(at, _)| at).filter(begin);
    let metric = |at: usize| {
        let rest = &expr[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let chosen = rest[end..]
            .strip_prefix('{')
            .and_then(|labels| labels.split_once('}'))
            .map_or("", |(labels, _)| labels);
        let labels = chosen.split(',').filter_map(|label| label.split_once('='));
        (
            &rest[..end],
            labels.map(|(label, _)| label.trim()).collect(),
        )
    };
    places.map(metric).collect()
}

/// The labels by which an expression groups.
fn grouped(expr: &str) -> BTreeSet<&str> {
    let groups = expr.split("by (").skip(1);
    let labels = groups.filter_map(|group| group.split_once(')'));
    labels
        .flat_map(|(labels, _)| labels.split(','))
        .map(str::trim)
        .collect()
}

/// The labels that a legend shows.
fn shown(legend: &str) -> BTreeSet<&str> {
    let shown = legend.split("{{").skip(1);
    shown
        .filter_map(|label| Some(label.split_once("}}")?.0))
        .collect()
}

/// The metric to which a series belongs.
fn metric_of(series: &str) -> &str {
    let parts = ["_bucket", "_sum", "_count"];
    let of = parts.iter().find_map(|part| series.strip_suffix(part));
    of.unwrap_or(series)
}

/// The labels of a metric that the page of metrics names.
fn documented(metric: &str) -> Option<BTreeSet<&str>> {
    let row = format!("| `{metric}` |");
    let line = PAGE.lines().find(|line| line.starts_with(&row))?;
    let labels = line[row.len()..].split(" | ").nth(1)?;
    let labels = labels.split('`').skip(1).step_by(2);
    Some(labels.collect())
}

/// The labels of each series that a node shows.
fn scraped() -> BTreeMap<String, BTreeSet<String>> {
    // The first of two has committed a table, and a node shows the sizes of maps that hold
    // something.
    let cluster = Cluster::of(BINARY, 2);
    let written = cluster.command_at("n0", &["SET", "key", "value"]);
    assert_eq!(written, Reply::Simple("OK".into()));
    cluster.eventually("it shows the size of a map", |cluster| {
        let shown = metrics(cluster, "n0").into_keys();
        shown
            .into_iter()
            .any(|series| series.starts_with("doyen_map_bytes"))
    });
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for series in metrics(&cluster, "n0").into_keys() {
        let (name, labels) = series.split_once('{').unwrap_or((&series, ""));
        let labels = labels.trim_end_matches('}').split(',');
        let labels = labels.filter_map(|label| label.split_once('='));
        all.entry(name.to_owned())
            .or_default()
            .extend(labels.map(|(label, _)| label.to_owned()));
    }
    all
}

#[test]
fn every_query_asks_for_metrics_and_labels_that_nodes_have() {
    let (queries, scraped) = (queries(&dashboard()), scraped());
    let mut names = BTreeSet::new();
    for PanelQuery {
        panel,
        expr,
        legend,
    } in &queries
    {
        let asked = asked(expr);
        assert!(!asked.is_empty(), "{panel}: {expr} asks for nothing");
        let mut has: BTreeSet<&str> = OF_PROMETHEUS.into();
        for (name, chosen) in asked {
            let labels = documented(metric_of(name));
            let mut labels = labels.unwrap_or_else(|| panic!("docs/metrics.md: no {name}"));
            if name.ends_with("_bucket") {
                labels.insert("le");
            }
            let seen = scraped.get(name);
            let absent = name.starts_with(OF_PROGRAMS) || name == OF_EVENTS;
            assert!(seen.is_some() || absent, "{panel}: no node has {name}");
            for label in labels.iter().filter(|_| seen.is_some() && !absent) {
                let seen = seen.is_some_and(|seen| seen.contains(*label));
                assert!(seen, "{panel}: {name} has no label {label}");
            }
            has.extend(labels);
            for label in OF_PROMETHEUS {
                assert!(chosen.contains(&label), "{panel}: {name} of all clusters");
            }
            let unknown = chosen.iter().find(|label| !has.contains(**label));
            assert_eq!(unknown, None, "{panel}: {expr}");
            names.insert(name);
        }
        let groups = grouped(expr);
        assert!(groups.is_subset(&has), "{panel}: {expr} by {groups:?}");
        // What is summed away is in no legend.
        let left = if expr.contains("by (") { &groups } else { &has };
        let shown = shown(legend);
        assert!(shown.is_subset(left), "{panel}: the legend {legend}");
        let aggregates = ["sum(", "max(", "min("];
        if !expr.contains("by (") && aggregates.iter().any(|of| expr.contains(of)) {
            assert!(
                shown.is_empty(),
                "{panel}: the legend {legend} of one series"
            );
        }
    }
    assert!(names.len() > 70, "{} metrics are shown", names.len());
}

#[test]
fn every_panel_says_what_it_shows_and_in_which_unit() {
    let dashboard = dashboard();
    let (mut titles, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = text(&panel["title"]);
        assert!(text(&panel["description"]).ends_with('.'), "{title}");
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{title}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let at = &panel["gridPos"];
        let number = |field: &str| at[field].as_u64().expect("a place");
        assert!(
            number("x") + number("w") <= 24,
            "{title} is beyond the edge"
        );
        for x in number("x")..number("x") + number("w") {
            for y in number("y")..number("y") + number("h") {
                assert!(places.insert((x, y)), "{title} lies on another panel");
            }
        }
        assert!(
            titles.insert(title.clone()),
            "two panels are called {title}"
        );
    }
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let names: Vec<_> = variables.iter().map(|of| text(&of["name"])).collect();
    assert_eq!(names, ["datasource", "cluster", "instance"]);
}

/// promtool knows the whole language. It reads the queries as the rules of a file.
#[test]
fn promtool_understands_every_query() {
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (n, query) in queries(&dashboard()).iter().enumerate() {
        let expr = query.expr.replace("$__rate_interval", "1m");
        rules += &format!(
            "      - {{record: \"q:{n}\", expr: {}}}\n",
            Value::from(expr)
        );
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(rules.as_bytes()).expect("it is written");
    let promtool = Command::new("promtool")
        .args(["check", "rules"])
        .arg(file.path())
        .output();
    match promtool {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        // The rules of alerts say that they are not checked, for the same reason.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => panic!("promtool does not run: {e}"),
    }
}
