//! One picture of the scene.
//!
//! ```text
//!   title          the current act
//!   members        who coordinates, who leads how much, who is dead
//!   partitions     a strip, ordered by primary: each node's part has its length and colour
//!   throughput     acknowledged writes, ten samples a second
//!   story          what happened, the latest at the bottom
//! ```

use crate::demo::scene::{self, Actor, Mood, Scene};
use crate::screen::{colour, health, panel, partition_counts, strip};
use crate::wrap;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

/// Draws everything.
pub(super) fn scene(frame: &mut Frame<'_>, scene: &Scene) {
    let members = u16::try_from(scene.nodes.len()).unwrap_or(u16::MAX).max(1);
    let [title, top, strip, rate, story] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(members.saturating_add(2)),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Min(5),
    ])
    .areas(frame.area());
    frame.render_widget(heading(scene), title);
    draw_members(frame, top, scene);
    draw_partitions(frame, strip, scene);
    draw_rate(frame, rate, scene);
    draw_story(frame, story, scene);
}

fn heading(scene: &Scene) -> Paragraph<'_> {
    Paragraph::new(Line::from(vec![
        " doyen demo ".bold(),
        health(scene.report.as_ref()),
        format!("  {}", scene.act).into(),
        format!("   {:.1} s   q ends", scene.elapsed().as_secs_f64()).dim(),
    ]))
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let most = scene
        .nodes
        .iter()
        .map(|n| n.leads)
        .max()
        .unwrap_or(0)
        .max(1);
    let mut nodes: Vec<(usize, &Actor)> = scene.nodes.iter().enumerate().collect();
    nodes.sort_by_key(|(started, node)| (node.age.unwrap_or(u64::MAX), *started));
    let lines: Vec<Line<'_>> = nodes
        .into_iter()
        .map(|(i, node)| member(scene, i, node, most))
        .collect();
    frame.render_widget(
        Paragraph::new(lines).block(panel("members, oldest first")),
        area,
    );
}

fn member<'a>(scene: &Scene, index: usize, node: &'a Actor, most: usize) -> Line<'a> {
    let seen = scene
        .report
        .as_ref()
        .and_then(|r| r.members.iter().find(|m| m.name == node.name));
    let name = format!("{:<8}", node.name);
    if node.killed {
        let fate = if seen.is_some() {
            "killed, not yet removed by the others"
        } else {
            "killed, out of the cluster"
        };
        return Line::from(vec![
            "✝ ".red(),
            Span::styled(name, Style::new().dim().crossed_out()),
            format!(" {fate}").dim(),
        ]);
    }
    let mark = if scene.coordinates(&node.name) {
        "★ ".yellow().bold()
    } else {
        "  ".into()
    };
    let Some(member) = seen else {
        return Line::from(vec![mark, name.dim(), " joining".dim()]);
    };
    let bar = "█".repeat((node.leads * 24).div_ceil(most).min(24));
    let mut spans = vec![
        mark,
        Span::styled(name, Style::new().fg(colour(index)).bold()),
        format!(" age {:<3}{:<9}", member.age, member.state).into(),
        Span::styled(format!("{bar:<24}"), Style::new().fg(colour(index))),
        format!(" leads {:<5} copies {:<5}", node.leads, node.copies).into(),
    ];
    if node.learns > 0 {
        spans.push(format!(" being copied {}", node.learns).yellow());
    }
    spans.push(format!("  pid {}  redis-cli -p {}", node.pid, node.resp.port()).dim());
    Line::from(spans)
}

fn draw_partitions(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let block = panel("partitions: the colour is the primary's, a full block has two copies");
    let width = usize::from(block.inner(area).width).max(1);
    let mut lines = strip(&scene.cells, width, 2);
    lines.push(partition_counts(scene.report.as_ref()));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_rate(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let title = format!(
        "writes acknowledged: {} a second, {} in all; longest wait of a client {:.2} s",
        scene.rate(),
        scene.writes,
        scene.gap_max.as_secs_f64()
    );
    let block = panel(&title);
    let width = usize::from(block.inner(area).width);
    let samples: Vec<u64> = scene
        .samples
        .iter()
        .skip(scene.samples.len().saturating_sub(width))
        .copied()
        .collect();
    frame.render_widget(
        Sparkline::default()
            .block(block)
            .data(samples)
            .style(Style::new().fg(Color::Green)),
        area,
    );
}

fn draw_story(frame: &mut Frame<'_>, area: Rect, scene: &Scene) {
    let block = panel("story");
    let inner = block.inner(area);
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let mut lines: Vec<Line<'_>> = scene
        .story
        .iter()
        .flat_map(|line| told(line, width))
        .collect();
    lines.drain(..lines.len().saturating_sub(height));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// The line of the story, wrapped.
fn told(line: &scene::SceneLine, width: usize) -> impl Iterator<Item = Line<'static>> {
    let (mark, style) = match line.mood {
        Mood::Deed => ("▸ ", Style::new()),
        Mood::Blow => ("✗ ", Style::new().fg(Color::Red).bold()),
        Mood::Good => ("✓ ", Style::new().fg(Color::Green)),
    };
    let margin = format!("{:5.1} s  ", line.at.as_secs_f64());
    let indent = margin.chars().count() + mark.chars().count();
    wrap(&line.text, width.saturating_sub(indent))
        .into_iter()
        .enumerate()
        .map(move |(row, text)| match row {
            0 => Line::from(vec![
                margin.clone().dim(),
                Span::styled(mark, style),
                Span::styled(text, style),
            ]),
            _ => Line::from(vec![" ".repeat(indent).into(), Span::styled(text, style)]),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::Cell;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn a_scene_fits_any_terminal() {
        let mut stage = Scene::new();
        stage.say(Mood::Blow, "SIGKILL to ada");
        stage.cells = vec![
            Cell {
                primary: Some(0),
                open: true,
                whole: false
            };
            1024
        ];
        let resp = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        stage.nodes.push(Actor {
            name: "ada".into(),
            pid: 1,
            resp,
            killed: true,
            age: Some(1),
            leads: 3,
            copies: 2,
            learns: 1,
        });
        for (width, height) in [(120, 40), (80, 24), (20, 5), (1, 1)] {
            let mut terminal =
                Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
            terminal.draw(|frame| scene(frame, &stage)).expect("drawn");
        }
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a terminal in memory");
        terminal.draw(|frame| scene(frame, &stage)).expect("drawn");
        let text: String = terminal
            .backend()
            .buffer()
            .content()
            .iter()
            .map(ratatui::buffer::Cell::symbol)
            .collect();
        // The end of a long sentence used to be cut off.
        let sentence = "one cluster after 12.04 s: clara coordinates, because the oldest was too \
                        late for the election, in term 1; 1024 partitions, two copies of each";
        stage.say(Mood::Good, sentence);
        for width in [120, 80] {
            let mut terminal =
                Terminal::new(TestBackend::new(width, 40)).expect("a terminal in memory");
            terminal
                .draw(|frame| super::scene(frame, &stage))
                .expect("drawn");
            let text: String = terminal
                .backend()
                .buffer()
                .content()
                .iter()
                .map(ratatui::buffer::Cell::symbol)
                .collect();
            let shown: Vec<&str> = text
                .split(|c: char| c.is_whitespace() || c == '│')
                .filter(|word| !word.is_empty())
                .collect();
            assert!(shown.join(" ").contains(sentence), "{width}: {text}");
        }
        assert!(
            text.contains("SIGKILL to ada")
                && text.contains('▒')
                && text.contains("out of the cluster"),
            "{text}"
        );
    }
}
