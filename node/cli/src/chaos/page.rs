//! The report as one page: a timeline of faults, throughput and failures, the report as it is
//! printed, and a table of the faults. The page needs no scripts and no other files.

use super::report::{ChaosReport, FaultReport};
use std::fmt::Write;

/// Width of the timeline, in its own units.
const WIDTH: f64 = 1000.0;
/// Height of the row of a fault, and the number of rows. Faults do not overlap, but their numbers
/// would.
const ROW: f64 = 16.0;
const ROWS: usize = 3;
/// Heights of the charts of throughput and of failures.
const CHART: f64 = 160.0;
const ERRORS: f64 = 50.0;
/// Space between the charts, and below them for the seconds.
const GAP: f64 = 22.0;
/// Possible distances between two marks of time, in seconds, and the number of marks at most.
const STEPS: [f64; 11] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];
const MARKS_MAX: f64 = 12.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #222; --dim: #555; --paper: #fff; --line: #ddd;
  --good: #2a7f4f; --bad: #c0392b; --fault: #d98e04; --heal: #8fb3d9; --error: #7d3c98 }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --dim: #aaa; --paper: #181818;
  --line: #444; --good: #58b980; --bad: #e0685c; --fault: #e5a938; --heal: #4f7299;
  --error: #bb8fd6 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .15em .8em; text-align: right; border-bottom: 1px solid var(--line) }
td:first-child, th:first-child, .text { text-align: left } td.text { min-width: 16em }
.wide { overflow-x: auto }
svg { width: 100%; min-width: 760px; height: auto; display: block }
svg text { fill: var(--ink); font-size: 11.5px } svg text.number { font-size: 10px }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .3em }
.item { display: inline-block; margin-right: .9em } .dim { color: var(--dim) }
.good { color: var(--good) } .bad { color: var(--bad) }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
@media (max-width: 700px) { body { margin: 1em auto } td, th { padding: .15em .35em }
  td.text { min-width: 11em } svg { min-width: 620px } }
";

/// The whole page.
pub(super) fn page(report: &ChaosReport) -> String {
    let mut out = String::new();
    let verdict = if report.holds() {
        ("good", "All checks passed.")
    } else {
        ("bad", "Not all checks passed.")
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>doyen chaos, seed {seed}</title><style>{STYLE}</style></head><body>\
         <h1>doyen chaos, seed {seed}</h1><p class=\"{}\"><b>{}</b></p>\
         <p>{} nodes, {} copies of each partition, {:.0} s.</p>",
        verdict.0,
        verdict.1,
        report.nodes,
        report.backups + 1,
        report.seconds,
        seed = report.seed,
    );
    timeline(&mut out, report);
    let _ = write!(out, "<pre>{}</pre>", escape(&report.to_string()));
    faults(&mut out, &report.faults);
    out.push_str("</body></html>\n");
    out
}

fn timeline(out: &mut String, report: &ChaosReport) {
    let seconds = report.seconds.max(report.timeline.len() as f64).max(1.0);
    let x = |at: f64| at.min(seconds) / seconds * WIDTH;
    let top = ROW * ROWS as f64 + GAP;
    let height = top + CHART + GAP + ERRORS + GAP;
    let _ = write!(
        out,
        "<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"faults, throughput and errors over time\">"
    );
    for (at, fault) in report.faults.iter().enumerate() {
        let (number, y) = (at + 1, (at % ROWS) as f64 * ROW);
        let (began, ended, healed) = (x(fault.began), x(fault.ended), x(fault.healed));
        let colour = if fault.safe {
            "var(--heal)"
        } else {
            "var(--bad)"
        };
        let title = escape(&format!(
            "{number}, at {:.1} s: {}; waited {:.2} s",
            fault.began, fault.text, fault.unavailable
        ));
        let _ = write!(
            out,
            "<g><title>{title}</title>\
             <rect x=\"{began:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" \
             fill=\"var(--fault)\"/>\
             <rect x=\"{ended:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <rect x=\"{began:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{CHART}\" \
             fill=\"var(--fault)\" opacity=\".12\"/>\
             <text class=\"number\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{}\">\
             {number}</text></g>",
            (ended - began).max(1.0),
            ROW - 3.0,
            (healed - ended).max(0.5),
            ROW - 3.0,
            (healed - began).max(1.0),
            if at_end(healed) {
                began - 3.0
            } else {
                healed.max(ended + 0.5) + 3.0
            },
            y + ROW - 5.0,
            if at_end(healed) { "end" } else { "start" },
        );
    }
    let most = report
        .timeline
        .iter()
        .map(|s| s.answered)
        .max()
        .unwrap_or(0)
        .max(1);
    bars(out, report, top + CHART, CHART, most, "var(--good)", |s| {
        s.answered
    });
    let _ = write!(
        out,
        "<text x=\"2\" y=\"{}\">{most} operations/s</text>",
        top - 4.0
    );
    let errors = top + CHART + GAP;
    let worst = report
        .timeline
        .iter()
        .map(|s| s.unknown + s.refused)
        .max()
        .unwrap_or(0)
        .max(1);
    bars(
        out,
        report,
        errors + ERRORS,
        ERRORS,
        worst,
        "var(--error)",
        |s| s.unknown + s.refused,
    );
    let _ = write!(
        out,
        "<text x=\"2\" y=\"{}\">{worst} unknown or refused/s</text>",
        errors - 4.0
    );
    let step = STEPS
        .into_iter()
        .find(|step| seconds / step <= MARKS_MAX)
        .unwrap_or(3600.0);
    for mark in 0..=(seconds / step) as u32 {
        let at = f64::from(mark) * step;
        let anchor = match x(at) {
            0.0 => "start",
            x if at_end(x) => "end",
            _ => "middle",
        };
        let (x, base) = (x(at), errors + ERRORS);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{base}\" y2=\"{}\" stroke=\"var(--ink)\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{at:.0} s</text>",
            base + 4.0,
            height - 4.0
        );
    }
    let key = |colour, what| {
        format!(
            "<span class=\"item\"><span class=\"key\" style=\"background: \
             var(--{colour})\"></span>{what}</span>"
        )
    };
    let _ = write!(
        out,
        "</svg></div><p class=\"dim\">Above, with the numbers of the list below: {} {} {}<br>Per \
         second: {} {}</p>",
        key("fault", "a fault"),
        key("heal", "afterwards, until all data was safe"),
        key("bad", "not safe again"),
        key("good", "operations answered"),
        key("error", "with an unknown outcome, or refused"),
    );
}

/// Whether a text at this place would leave the chart.
fn at_end(x: f64) -> bool {
    x > WIDTH - 22.0
}

fn bars(
    out: &mut String,
    report: &ChaosReport,
    base: f64,
    height: f64,
    most: u64,
    colour: &str,
    of: fn(&super::book::Second) -> u64,
) {
    let seconds = report.seconds.max(report.timeline.len() as f64).max(1.0);
    let width = WIDTH / seconds;
    let mut path = String::new();
    // The figures of a second are taken at its end.
    let first = (seconds - report.timeline.len() as f64).max(0.0);
    for (at, second) in report.timeline.iter().enumerate() {
        let tall = of(second) as f64 / most as f64 * height;
        if tall > 0.0 {
            let _ = write!(
                path,
                "M{:.1} {base:.1}v-{tall:.1}h{:.2}v{tall:.1}z",
                (first + at as f64) * width,
                (width * 0.9).max(0.3)
            );
        }
    }
    let _ = write!(
        out,
        "<path d=\"{path}\" fill=\"{colour}\"/><line x1=\"0\" x2=\"{WIDTH}\" y1=\"{base}\" \
         y2=\"{base}\" stroke=\"var(--line)\"/>"
    );
}

fn faults(out: &mut String, faults: &[FaultReport]) {
    out.push_str(
        "<h2>All faults</h2><div class=\"wide\"><table><tr><th>no.<th>at, s<th class=\"text\">\
         fault<th>lasted, s<th>safe again after, s<th>longest wait of a client, s</tr>",
    );
    for (number, fault) in (1..).zip(faults) {
        let (lasted, healing) = (fault.ended - fault.began, fault.healed - fault.ended);
        let class = if fault.safe { "" } else { " class=\"bad\"" };
        let _ = write!(
            out,
            "<tr{class}><td>{number}<td>{:.1}<td \
             class=\"text\">{}{}<td>{lasted:.2}<td>{healing:.2}<td>{:.2}</tr>",
            fault.began,
            escape(&fault.text),
            if fault.cut_short {
                " (cut short by the end of the run)"
            } else {
                ""
            },
            fault.unavailable
        );
    }
    out.push_str("</table></div>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::book::{Book, Fault, Second};
    use std::time::Duration;

    #[test]
    fn the_page_shows_faults_and_figures_and_needs_no_other_file() {
        let mut book = Book::new(false);
        book.seconds = vec![
            Second {
                answered: 400,
                unknown: 3,
                refused: 2
            };
            4
        ];
        let [began, ended, healed] = [1, 2, 3].map(Duration::from_secs);
        book.faults.push(Fault {
            kind: "kill".into(),
            text: "SIGKILL to <ada>".into(),
            began,
            ended,
            healed,
            safe: true,
            cut_short: false,
        });
        let mut report = ChaosReport::new(&book, 7, 3, 1, Duration::from_secs(4), Vec::new());
        (report.locks.grants, report.locks.crowded) = (40, 2);
        report.locks.violations = vec!["lock: 2 holders".into()];
        let page = page(&report);
        assert!(
            page.contains("locks 40 (lost 0)")
                && page.contains("broken 2")
                && page.contains("\nlock: 2 holders\n")
                && page.contains("longest wait of a client, s"),
            "{page}"
        );
        assert!(
            page.contains("SIGKILL to &lt;ada&gt;")
                && page.contains("400 operations/s")
                && page.contains("5 unknown or refused/s"),
            "{page}"
        );
        assert!(
            !page.contains("<script") && !page.contains("http"),
            "{page}"
        );
        assert_eq!(page.matches("<svg").count(), 1);
        // Two colours of the legend used to be red.
        let colours: Vec<&str> = page
            .split("class=\"key\" style=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        let distinct: std::collections::BTreeSet<&&str> = colours.iter().collect();
        assert_eq!((colours.len(), distinct.len()), (5, 5), "{colours:?}");
    }
}
