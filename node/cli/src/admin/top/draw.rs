//! One picture of the cluster.
//!
//! ```text
//!   title          whether all data is safe, who was asked
//!   members        by age, with the coordinator, memory, commands, latency
//!   partitions     a strip, ordered by primary, and what they lack
//!   throughput     commands a second, as far as there is room
//!   events         alerts that hold now, then what happened, the latest at the bottom
//! ```

use super::{TopEvent, TopSample, TopState, number};
use crate::screen::{colour, health, panel, partition_counts, strip};
use crate::{bytes, wrap};
use doyen::report::status::MemberReport;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

/// Rows of a box with one line.
const BOX_LEAST: u16 = 3;
/// Rows of the curve.
const RATE: u16 = 5;
/// Rows of the list of members without the members.
const MEMBERS_FRAME: u16 = 3;
/// The width of the column of names.
const NAME: usize = 14;

/// Draws everything.
pub(super) fn top(frame: &mut Frame<'_>, state: &TopState) {
    let [list, map, rate, events] = heights(frame.area().height, state);
    let rows = [1, list, map, rate, events].map(Constraint::Length);
    let [title, list, map, rate, events] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(heading(state), title);
    // A box without rows is not seen.
    draw_list(frame, list, state);
    draw_map(frame, map, state);
    draw_throughput(frame, rate, state);
    draw_events(frame, events, state);
}

/// Rows of the boxes. One for which there is no room has none: on a low terminal, the curve goes
/// first, then the partitions, and then the events.
fn heights(height: u16, state: &TopState) -> [u16; 4] {
    let members = state.report.as_ref().map_or(0, |r| r.members.len());
    let members = u16::try_from(members).unwrap_or(u16::MAX);
    // The rest has 4 + 5 + 6 rows; on a high terminal, members take what is left.
    let most = height.saturating_sub(16).max(6);
    let mut left = height.saturating_sub(1);
    let mut take = |rows: u16, keep: u16| {
        let taken = if rows + keep <= left { rows } else { 0 };
        left -= taken;
        taken
    };
    let list = members.saturating_add(MEMBERS_FRAME).min(most);
    let list = take(list.min(height.saturating_sub(1)).max(BOX_LEAST), 0);
    let map = take(if state.cells.is_empty() { 3 } else { 4 }, BOX_LEAST);
    let rate = take(RATE, BOX_LEAST);
    let events = if left < BOX_LEAST { 0 } else { left };
    [list, map, rate, events]
}

fn heading(state: &TopState) -> Paragraph<'_> {
    let coordinator = state
        .report
        .as_ref()
        .and_then(|report| report.coordinator.as_deref())
        .map_or("no member coordinates".to_owned(), |name| {
            format!("{name} coordinates")
        });
    let node = format!("  {coordinator}; seen by {}", state.node);
    let health = if state.silent.is_some() {
        "no answer: what you see is old".yellow().bold()
    } else {
        health(state.report.as_ref())
    };
    Paragraph::new(Line::from(vec![
        " doyen top ".bold(),
        health,
        node.into(),
        "   q ends".dim(),
    ]))
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let members = state.report.iter().flat_map(|r| &r.members);
    let room = usize::from(area.height.saturating_sub(MEMBERS_FRAME));
    let all = state.report.as_ref().map_or(0, |r| r.members.len());
    let first = state.first.min(all.saturating_sub(room));
    let title = if all > room && room > 0 {
        let last = (first + room).min(all);
        format!("members {} to {last} of {all}, oldest first", first + 1)
    } else {
        "members, oldest first".to_owned()
    };
    let head = format!(
        "  {:<NAME$} {:<10} {:>9} {:>16} {:>9} {:>8}",
        "name", "state", "leads", "memory", "commands", "p99"
    );
    let mut lines = vec![Line::from(head.dim())];
    lines.extend(members.skip(first).take(room).map(|m| member(state, m)));
    frame.render_widget(Paragraph::new(lines).block(panel(&title)), area);
}

fn member<'a>(state: &'a TopState, member: &'a MemberReport) -> Line<'a> {
    let coordinator = state.report.as_ref().and_then(|r| r.coordinator.as_deref());
    let mark = if coordinator == Some(&*member.name) {
        "★ ".yellow().bold()
    } else {
        "  ".into()
    };
    let name: String = member.name.chars().take(NAME).collect();
    let sample = state.members.get(&member.name);
    let leads = state.held.get(&member.name);
    let leads = leads.map_or("-".to_owned(), |(leads, _)| leads.to_string());
    let memory = sample.map_or("-".to_owned(), |s| {
        let percent = s
            .memory
            .saturating_mul(100)
            .checked_div(s.memory_max)
            .unwrap_or(0);
        format!("{} {percent:>3} %", bytes(s.memory))
    });
    let commands = sample.map_or("-".to_owned(), |s| s.commands.to_string());
    let p99 = sample.and_then(|s| s.p99_us).map_or("-".to_owned(), micros);
    let style = match &*member.state {
        "live" => Style::new(),
        "silent" | "unanswered" => Style::new().fg(Color::Red).bold(),
        _ => Style::new().fg(Color::Yellow),
    };
    Line::from(vec![
        mark,
        Span::styled(
            format!("{name:<NAME$} "),
            Style::new().fg(colour(number(member))).bold(),
        ),
        Span::styled(format!("{:<10} ", member.state), style),
        format!("{leads:>9} {memory:>16} {commands:>9} {p99:>8}").into(),
    ])
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let block = panel("partitions, in the colour of their primary");
    let width = usize::from(block.inner(area).width);
    let mut lines = match state.cells.as_slice() {
        [] => Vec::new(),
        cells => strip(cells, width, 1),
    };
    lines.push(partition_counts(state.report.as_ref()));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_throughput(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let last = state.hour.back().copied().unwrap_or_default();
    let title = totals(&last);
    let block = panel(&title);
    let width = usize::from(block.inner(area).width);
    let skipped = state.hour.len().saturating_sub(width);
    let samples: Vec<u64> = state
        .hour
        .iter()
        .skip(skipped)
        .map(|s| s.commands)
        .collect();
    let curve = Sparkline::default().block(block).data(samples);
    frame.render_widget(curve.style(Style::new().fg(Color::Green)), area);
}

/// What the whole cluster does.
fn totals(sample: &TopSample) -> String {
    let latency = match (sample.p50_us, sample.p99_us) {
        (Some(p50), Some(p99)) => format!(", p50 {} p99 {}", micros(p50), micros(p99)),
        _ => String::new(),
    };
    let hits = sample
        .hits
        .saturating_mul(100)
        .checked_div(sample.hits.saturating_add(sample.misses));
    let hits = hits.map_or(String::new(), |percent| format!(", {percent} % hits"));
    let errors = match sample.errors {
        0 => String::new(),
        errors => format!(", {errors} errors/s"),
    };
    let (commands, clients) = (sample.commands, sample.clients);
    format!("{commands} commands/s{latency}{hits}{errors}, {clients} clients")
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let block = panel("now, and what happened");
    let inner = block.inner(area);
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let mut now: Vec<Line<'_>> = Vec::new();
    if let Some(why) = &state.silent {
        now.extend(written(
            "✗ ",
            why,
            Style::new().fg(Color::Red).bold(),
            width,
        ));
    }
    for alert in &state.alerts {
        let style = match &*alert.severity {
            "critical" => Style::new().fg(Color::Red).bold(),
            _ => Style::new().fg(Color::Yellow).bold(),
        };
        now.extend(written("! ", &alert.text, style, width));
    }
    now.truncate(height);
    let mut events: Vec<Line<'_>> = state.events.iter().map(|e| event(e, width)).collect();
    events.drain(..events.len().saturating_sub(height - now.len()));
    now.append(&mut events);
    frame.render_widget(Paragraph::new(now).block(block), area);
}

/// One line: what happened before it would not be seen behind long lists of partitions.
fn event(event: &TopEvent, width: usize) -> Line<'static> {
    let style = match &*event.severity {
        "error" => Style::new().fg(Color::Red),
        "warning" => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    };
    // Of "2026-11-30T01:02:03.000Z", the time of day, in UTC.
    let time = format!("{} ", event.at.get(11..19).unwrap_or(&event.at));
    let room = width.saturating_sub(time.chars().count());
    let mut text = event.text.clone();
    if let Some((cut, _)) = text.char_indices().nth(room.max(1)) {
        let last = text[..cut].char_indices().next_back();
        text.truncate(last.map_or(0, |(at, _)| at));
        text.push('…');
    }
    Line::from(vec![time.dim(), Span::styled(text, style)])
}

/// A text behind a mark, wrapped.
fn written(mark: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let indent = mark.chars().count();
    let lines = wrap(text, width.saturating_sub(indent)).into_iter();
    let mark = |row: usize| match row {
        0 => mark.to_owned().dim(),
        _ => " ".repeat(indent).into(),
    };
    lines
        .enumerate()
        .map(|(row, text)| Line::from(vec![mark(row), Span::styled(text, style)]))
        .collect()
}

/// `80 us`, `1.5 ms`, `2.25 s`.
fn micros(count: u64) -> String {
    match count {
        0..1000 => format!("{count} us"),
        1000..1_000_000 => format!("{}.{} ms", count / 1000, count % 1000 / 100),
        _ => format!("{}.{:02} s", count / 1_000_000, count % 1_000_000 / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::seen;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(state: &TopState, width: u16, height: u16) -> String {
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("a terminal in memory");
        terminal.draw(|frame| top(frame, state)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        let rows = cells.chunks(usize::from(width).max(1));
        rows.map(|row| row.concat() + "\n").collect()
    }

    #[test]
    fn a_terminal_of_80_by_24_has_everything() {
        let text = drawn(&seen(3), 80, 24);
        for wanted in [
            " doyen top ",
            " safe ",
            "n1 coordinates",
            "★ n1 ",
            "90.0 MB  90 %",
            "12345",
            "1.5 ms",
            "█",
            "64 partitions   0 not served   3 with too few copies   0 moving",
            "12345 commands/s, p50 80 us p99 1.5 ms, 75 % hits, 7 clients",
            "! n1 is full.",
            "01:02:03 n1 coordinates",
        ] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
    }

    #[test]
    fn every_terminal_is_drawn_and_a_long_list_scrolls() {
        let mut state = seen(100);
        for (width, height) in [(200, 60), (80, 24), (20, 5), (1, 1)] {
            drawn(&state, width, height);
        }
        assert!(drawn(&state, 80, 24).contains("members 1 to 5 of 100"));
        (0..200).for_each(|_| state.scroll(1));
        assert!(drawn(&state, 80, 24).contains("members 96 to 100 of 100"));
        state.silent = Some("no answer from 127.0.0.1:7480".into());
        let silent = drawn(&state, 80, 24);
        assert!(silent.contains("✗ no answer from 127.0.0.1:7480"));
        assert!(silent.contains("what you see is old"));
        let event = TopEvent {
            at: "2026-11-30T01:02:03.000Z".into(),
            severity: "warning".into(),
            text: "ä".repeat(100),
        };
        state.events.push_back(event);
        let line = format!("01:02:03 {}… │", "ä".repeat(66));
        assert!(drawn(&state, 80, 24).contains(&line));
    }

    /// Boxes without room were drawn as empty ones.
    #[test]
    fn a_box_without_room_is_left_out() {
        for (height, boxes) in [
            (24, 4),
            (19, 4),
            (15, 3),
            (14, 3),
            (13, 2),
            (12, 2),
            (7, 1),
            (3, 0),
        ] {
            let text = drawn(&seen(3), 50, height);
            assert_eq!(text.matches('╭').count(), boxes, "{height}:\n{text}");
            let lines: Vec<&str> = text.lines().collect();
            let is_empty = |two: &[&str]| two[0].starts_with('╭') && two[1].starts_with('╰');
            assert!(!lines.windows(2).any(is_empty), "{height}:\n{text}");
            assert_eq!(
                text.contains("! n1 is full."),
                boxes > 1,
                "{height}:\n{text}"
            );
        }
    }

    #[test]
    fn a_cluster_of_which_nothing_is_known_is_drawn() {
        let text = drawn(&TopState::default(), 80, 24);
        assert!(text.contains("no cluster yet"), "{text}");
    }
}
