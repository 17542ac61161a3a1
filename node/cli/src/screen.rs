//! Pieces of pictures on a terminal, which `demo` and `top` share.

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use doyen::report::status::ClusterReport;
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Padding};
use std::time::Duration;

/// A colour for each node; they differ on a light and on a dark background.
const COLOURS: [Color; 8] = [
    Color::Cyan,
    Color::Magenta,
    Color::Yellow,
    Color::Green,
    Color::Blue,
    Color::LightRed,
    Color::LightCyan,
    Color::LightMagenta,
];

/// A partition. The order is by primary, then by what the partition lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    /// The number of its primary, which has a colour.
    pub(super) primary: Option<usize>,
    /// Whether it is served.
    pub(super) open: bool,
    /// Whether it has its other copies in sync.
    pub(super) whole: bool,
}

pub(super) fn colour(node: usize) -> Color {
    COLOURS[node % COLOURS.len()]
}

pub(super) fn panel(title: &str) -> Block<'_> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().dim())
        .padding(Padding::horizontal(1))
        .title(Span::styled(format!(" {title} "), Style::new().bold()))
}

/// The state of a cluster in a few words.
pub(super) fn health(report: Option<&ClusterReport>) -> Span<'static> {
    let (word, ground) = match report {
        Some(r) if r.safe => (" safe ", Color::Green),
        Some(r) if r.keyspaces.iter().any(|k| k.unavailable > 0) => {
            (" not all is served ", Color::Red)
        }
        Some(r) if r.cluster_id.is_some() => (" not safe yet ", Color::Yellow),
        _ => (" no cluster yet ", Color::DarkGray),
    };
    let style = Style::new().fg(Color::Black).bg(ground);
    Span::styled(word, style.add_modifier(Modifier::BOLD))
}

/// Partitions in their order, on this many rows of this many characters. Each character stands for
/// several partitions, and shows the worst of them.
pub(super) fn strip(cells: &[Cell], width: usize, rows: usize) -> Vec<Line<'static>> {
    let (width, count) = (width.max(1), cells.len());
    let characters = width * rows;
    let run = |i: usize| {
        cells
            .get(i * count / characters..((i + 1) * count).div_ceil(characters))
            .unwrap_or_default()
    };
    let drawn: Vec<Span<'_>> = (0..characters)
        .map(run)
        .filter(|run| !run.is_empty())
        .map(character)
        .collect();
    let mut lines: Vec<Line<'_>> = drawn
        .chunks(width)
        .take(rows)
        .map(|line| Line::from(line.to_vec()))
        .collect();
    lines.resize(rows, Line::default());
    lines
}

fn character(run: &[Cell]) -> Span<'static> {
    let primary = run.first().and_then(|c| c.primary);
    let style = primary.map_or(Style::new().dim(), |p| Style::new().fg(colour(p)));
    if run.iter().any(|c| !c.open || c.primary.is_none()) {
        return Span::styled("╳", Style::new().fg(Color::Red));
    }
    let whole = run.iter().all(|c| c.whole);
    Span::styled(if whole { "█" } else { "▒" }, style)
}

/// How many partitions there are, and what some of them lack.
pub(super) fn partition_counts(report: Option<&ClusterReport>) -> Line<'static> {
    let Some(report) = report else {
        return Line::default();
    };
    let of = |count: fn(&doyen::report::status::KeyspaceReport) -> usize| -> usize {
        report.keyspaces.iter().map(count).sum()
    };
    let figure = |n: usize, what: &str, bad: Color| {
        let text = format!("{n} {what}   ");
        if n == 0 {
            text.dim()
        } else {
            Span::styled(text, Style::new().fg(bad).bold())
        }
    };
    Line::from(vec![
        format!("{} partitions   ", of(|k| k.partitions)).into(),
        figure(of(|k| k.unavailable), "not served", Color::Red),
        figure(
            of(|k| k.under_replicated),
            "with too few copies",
            Color::Yellow,
        ),
        figure(report.moves.len(), "moving", Color::Yellow),
        format!("table {} of term {}", report.version, report.term).dim(),
    ])
}

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    /// q, Escape or Ctrl-C, which is no signal while the terminal is in raw mode.
    End,
    Up,
    Down,
}

/// The next key that was pressed, without waiting.
pub(super) fn pressed() -> Option<Pressed> {
    while event::poll(Duration::ZERO).unwrap_or(false) {
        let Ok(Event::Key(key)) = event::read() else {
            continue;
        };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Pressed::End),
            KeyCode::Char('c') if control => return Some(Pressed::End),
            KeyCode::Up | KeyCode::Char('k') => return Some(Pressed::Up),
            KeyCode::Down | KeyCode::Char('j') => return Some(Pressed::Down),
            _ => {}
        }
    }
    None
}
