//! The report as one page: a timeline with the faults above, throughput and what went unanswered below. No scripts, and nothing from elsewhere.

use super::report::{FaultReport, Report};
use std::fmt::Write;

/// Of the timeline, in its own units.
const WIDTH: f64 = 1000.0;
/// A fault.
const ROW: f64 = 14.0;
/// Throughput, and what went unanswered.
const CHART: f64 = 160.0;
const ERRORS: f64 = 50.0;
/// Between the parts, and below for the seconds.
const GAP: f64 = 18.0;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #222; --dim: #777; --paper: #fff; --line: #ddd; --good: #2a7f4f; --bad: #c0392b; --fault: #d98e04; --heal: #8fb3d9 }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --dim: #999; --paper: #181818; --line: #444; --good: #58b980; --bad: #e0685c; --fault: #e5a938; --heal: #4f7299 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } td, th { padding: .15em .8em; text-align: right; border-bottom: 1px solid var(--line) }
td:first-child, th:first-child, td.text { text-align: left } svg { width: 100%; height: auto } svg text { fill: var(--dim); font-size: 10px }
.good { color: var(--good) } .bad { color: var(--bad) } pre { white-space: pre-wrap } .dim { color: var(--dim) }
";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::new();
    let verdict = if report.holds() { ("good", "Everything held.") } else { ("bad", "Not everything held.") };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>doyen chaos, seed {seed}</title><style>{STYLE}</style></head><body>\
         <h1>doyen chaos, seed {seed}</h1><p class=\"{}\"><b>{}</b></p>\
         <p>{} nodes with {} copies of everything, {:.0} s: {} operations answered, {} of unknown outcome, {} refused; {} keys, \
         of which {} lost a write, {} were read stale, {} have another answer that nothing explains, {} were not decided, {} could not be read back.</p>",
        verdict.0,
        verdict.1,
        report.nodes,
        report.backups + 1,
        report.seconds,
        report.operations,
        report.unknown,
        report.refused,
        report.keys,
        report.lost,
        report.stale,
        report.unexplained,
        report.undecided,
        report.unread,
        seed = report.seed,
    );
    if let Some(why) = &report.unhealed {
        let _ = write!(out, "<p class=\"bad\">The cluster did not heal: {}</p>", escape(why));
    }
    timeline(&mut out, report);
    kinds(&mut out, report);
    faults(&mut out, &report.faults);
    for violation in &report.violations {
        let _ = write!(out, "<pre class=\"bad\">{}</pre>", escape(violation));
    }
    out.push_str("</body></html>\n");
    out
}

fn timeline(out: &mut String, report: &Report) {
    let seconds = report.seconds.max(report.timeline.len() as f64).max(1.0);
    let x = |at: f64| at.min(seconds) / seconds * WIDTH;
    // Faults do not overlap: three rows keep their names apart.
    let rows = 3;
    let top = ROW * rows as f64 + GAP;
    let height = top + CHART + GAP + ERRORS + GAP;
    let _ = write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"faults, throughput and errors over time\">");
    for (at, fault) in report.faults.iter().enumerate() {
        let y = (at % rows) as f64 * ROW;
        let (began, ended, healed) = (x(fault.began), x(fault.ended), x(fault.healed));
        let colour = if fault.safe { "var(--heal)" } else { "var(--bad)" };
        let title = escape(&format!("{:.1} s: {}; waited {:.2} s", fault.began, fault.text, fault.unavailable));
        let _ = write!(
            out,
            "<g><title>{title}</title><rect x=\"{began:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"var(--fault)\"/>\
             <rect x=\"{ended:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <rect x=\"{began:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{CHART}\" fill=\"var(--fault)\" opacity=\".12\"/></g>",
            (ended - began).max(1.0),
            ROW - 3.0,
            (healed - ended).max(0.5),
            ROW - 3.0,
            (healed - began).max(1.0),
        );
    }
    let most = report.timeline.iter().map(|s| s.answered).max().unwrap_or(0).max(1);
    bars(out, report, top + CHART, CHART, most, "var(--good)", |s| s.answered);
    let _ = write!(out, "<text x=\"2\" y=\"{}\">{most} operations/s</text>", top - 4.0);
    let errors = top + CHART + GAP;
    let worst = report.timeline.iter().map(|s| s.unknown + s.refused).max().unwrap_or(0).max(1);
    bars(out, report, errors + ERRORS, ERRORS, worst, "var(--bad)", |s| s.unknown + s.refused);
    let _ = write!(out, "<text x=\"2\" y=\"{}\">{worst} unknown or refused/s</text>", errors - 4.0);
    for tenth in 0..=10 {
        let at = seconds * f64::from(tenth) / 10.0;
        let anchor = if tenth == 0 {
            "start"
        } else if tenth == 10 {
            "end"
        } else {
            "middle"
        };
        let _ = write!(out, "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{at:.0} s</text>", x(at), height - 4.0);
    }
    out.push_str("</svg><p class=\"dim\">Above: faults, and what followed until all was safe; point at one to read what it was. Below: operations answered in each second, and those of unknown outcome or refused.</p>");
}

fn bars(out: &mut String, report: &Report, base: f64, height: f64, most: u64, colour: &str, of: fn(&super::book::Second) -> u64) {
    let seconds = report.seconds.max(report.timeline.len() as f64).max(1.0);
    let width = WIDTH / seconds;
    let mut path = String::new();
    // A second is told at its end.
    let first = (seconds - report.timeline.len() as f64).max(0.0);
    for (at, second) in report.timeline.iter().enumerate() {
        let tall = of(second) as f64 / most as f64 * height;
        if tall > 0.0 {
            let _ = write!(path, "M{:.1} {base:.1}v-{tall:.1}h{:.2}v{tall:.1}z", (first + at as f64) * width, (width * 0.9).max(0.3));
        }
    }
    let _ = write!(
        out,
        "<path d=\"{path}\" fill=\"{colour}\"/><line x1=\"0\" x2=\"{WIDTH}\" y1=\"{base}\" y2=\"{base}\" stroke=\"var(--line)\"/>"
    );
}

fn kinds(out: &mut String, report: &Report) {
    out.push_str(
        "<h2>By kind</h2><table><tr><th>fault<th>times<th>a client waited: median<th>p99<th>worst, s<th>safe again after: median<th>p99<th>worst, s</tr>",
    );
    for kind in &report.kinds {
        let (u, h) = (kind.unavailable, kind.healing);
        let _ = write!(
            out,
            "<tr><td>{}<td>{}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}</tr>",
            escape(&kind.kind),
            kind.faults,
            u.median,
            u.p99,
            u.worst,
            h.median,
            h.p99,
            h.worst
        );
    }
    out.push_str("</table>");
}

fn faults(out: &mut String, faults: &[FaultReport]) {
    out.push_str("<h2>One by one</h2><table><tr><th>at, s<th>what<th>lasted, s<th>safe again after, s<th>a client waited, s</tr>");
    for fault in faults {
        let (lasted, healing) = (fault.ended - fault.began, fault.healed - fault.ended);
        let class = if fault.safe { "" } else { " class=\"bad\"" };
        let _ = write!(
            out,
            "<tr{class}><td>{:.1}<td class=\"text\">{}<td>{lasted:.2}<td>{healing:.2}<td>{:.2}</tr>",
            fault.began,
            escape(&fault.text),
            fault.unavailable
        );
    }
    out.push_str("</table>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::chaos::book::{Book, Fault, Second};
    use std::time::Duration;

    #[test]
    fn a_page_shows_faults_and_figures_and_needs_nothing_else() {
        let mut book = Book::new(false);
        book.seconds = vec![Second { answered: 400, unknown: 3, refused: 2 }; 4];
        let [began, ended, healed] = [1, 2, 3].map(Duration::from_secs);
        book.faults.push(Fault { kind: "kill".into(), text: "SIGKILL to <ada>".into(), began, ended, healed, safe: true });
        let page = page(&Report::new(&book, 7, 3, 1, Duration::from_secs(4), Vec::new()));
        assert!(
            page.contains("SIGKILL to &lt;ada&gt;") && page.contains("400 operations/s") && page.contains("5 unknown or refused/s"),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("http"), "{page}");
        assert_eq!(page.matches("<svg").count(), 1);
    }
}
