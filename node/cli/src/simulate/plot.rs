//! Charts: for each strategy, what each node holds before and after; and for each event, what it
//! moved.

use super::figures::{StageFigures, StrategyOutcome};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeMap;

/// Sizes in pixels: the picture, its head, a panel, a row of bars, and the margin.
const WIDTH: u32 = 1200;
const HEAD: u32 = 96;
const PANEL: u32 = 190;
const ROW: u32 = 15;
const SIDE: u32 = 32;
const COLUMNS: usize = 3;
/// Nodes of one panel, at most. With more nodes, those that hold most are shown; otherwise bars
/// would be thinner than a pixel.
const NODES_MAX: usize = 160;
/// A bar above this multiple of the least is cut off there, and shows its number.
const TIMES_SHOWN: f64 = 6.0;

const INK: RGBColor = RGBColor(34, 34, 34);
const DIM: RGBColor = RGBColor(110, 110, 110);
const LINE: RGBColor = RGBColor(221, 221, 221);
const BEFORE: RGBColor = RGBColor(183, 196, 209);
const AFTER: RGBColor = RGBColor(42, 111, 151);
const FAIR: RGBColor = RGBColor(192, 57, 43);
/// Colours of the events, in turn.
const EVENTS: [RGBColor; 6] = [
    RGBColor(42, 111, 151),
    RGBColor(217, 142, 4),
    RGBColor(42, 127, 79),
    RGBColor(142, 68, 133),
    RGBColor(192, 92, 59),
    RGBColor(110, 110, 110),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The whole picture; `words` describe the simulation.
pub(super) fn svg(outcomes: &[StrategyOutcome], words: &str) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, outcomes, words).map_err(|e| e.to_string())?;
    Ok(text)
}

fn draw(
    text: &mut String,
    outcomes: &[StrategyOutcome],
    words: &str,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let events = outcomes
        .first()
        .map_or(0, |o| o.stages.len().saturating_sub(1));
    let panels = PANEL * outcomes.len().div_ceil(COLUMNS) as u32;
    let group = ROW * events as u32 + 12;
    let moves = if events == 0 {
        0
    } else {
        HEAD + group * outcomes.len() as u32 + 24
    };
    let root =
        SVGBackend::with_string(text, (WIDTH, HEAD + panels + moves + SIDE)).into_drawing_area();
    root.fill(&WHITE)?;
    let (first, rest) = root.split_vertically(HEAD);
    head(
        &first,
        "Bytes that each node holds, as a multiple of its fair share; the oldest node first",
        words,
    )?;
    let legend = if events == 0 {
        &[("now", AFTER)][..]
    } else {
        &[("before", BEFORE), ("after", AFTER)]
    };
    legend_at(
        &first,
        legend
            .iter()
            .map(|(name, colour)| ((*name).to_owned(), *colour)),
    )?;
    let (grid, below) = rest.split_vertically(panels);
    let grid = grid.margin(0, 0, SIDE - 12, SIDE - 12);
    let most = outcomes
        .iter()
        .flat_map(|o| &o.stages)
        .flat_map(|s| &s.nodes)
        .map(|n| n.bytes_fair)
        .fold(1.0, f64::max);
    for (area, outcome) in grid
        .split_evenly((outcomes.len().div_ceil(COLUMNS), COLUMNS))
        .iter()
        .zip(outcomes)
    {
        panel(&area.margin(8, 14, 12, 12), outcome, most * 1.08)?;
    }
    if events > 0 {
        let (first, rest) = below.split_vertically(HEAD);
        head(
            &first,
            "What each event moved, as a multiple of the least that must move",
            "bytes copied to nodes that did not hold them",
        )?;
        let named = outcomes[0].stages[1..]
            .iter()
            .enumerate()
            .map(|(n, s)| (s.event.clone(), EVENTS[n % EVENTS.len()]));
        legend_at(&first, named)?;
        movements(&rest.margin(0, 0, SIDE, SIDE), outcomes, group as i32)?;
    }
    root.present()
}

fn style(size: u32, colour: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from(("Helvetica, Arial, sans-serif", size).into_font()).color(colour)
}

fn at(style: TextStyle<'static>, h: HPos, v: VPos) -> TextStyle<'static> {
    style.pos(Pos::new(h, v))
}

fn head(
    area: &Area<'_>,
    title: &str,
    words: &str,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    area.draw_text(title, &style(21, &INK), (SIDE as i32, 24))?;
    area.draw_text(words, &style(13, &DIM), (SIDE as i32, 52))
}

/// Draws the legend below the text of the head.
fn legend_at(
    area: &Area<'_>,
    names: impl Iterator<Item = (String, RGBColor)>,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let mut x = SIDE as i32;
    for (name, colour) in names {
        area.draw(&Rectangle::new([(x, 76), (x + 11, 87)], colour.filled()))?;
        area.draw_text(&name, &style(13, &INK), (x + 17, 74))?;
        // An estimate of the width of the text: there is no font to measure here.
        x += 40 + 8 * name.chars().count() as i32;
    }
    Ok(())
}

/// One strategy: two bars for each node. All panels have the same scale.
fn panel(
    area: &Area<'_>,
    outcome: &StrategyOutcome,
    most: f64,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let (width, height) = area.dim_in_pixel();
    let (left, top, right, bottom) = (34, 24, width as i32, height as i32 - 4);
    let (Some(start), Some(end)) = (outcome.stages.first(), outcome.stages.last()) else {
        return Ok(());
    };
    let fullest = format!("fullest {:.2}", end.bytes.max);
    area.draw_text(&outcome.strategy, &style(14, &INK), (left, 0))?;
    area.draw_text(
        &fullest,
        &at(style(12, &DIM), HPos::Right, VPos::Top),
        (right, 2),
    )?;
    let y = |part: f64| bottom - (f64::from(bottom - top) * (part / most).min(1.0)) as i32;
    let step = if most > 8.0 {
        most.ceil() as usize / 4
    } else {
        1
    };
    for mark in (0..=most as usize).step_by(step.max(1)) {
        let line = y(mark as f64);
        area.draw(&PathElement::new([(left, line), (right, line)], LINE))?;
        area.draw_text(
            &format!("{mark}"),
            &at(style(11, &DIM), HPos::Right, VPos::Center),
            (left - 6, line),
        )?;
    }
    let nodes = nodes(start, end);
    let room = f64::from(right - left) / nodes.len().max(1) as f64;
    let gap = (room * 0.16).min(6.0);
    for (number, [before, after]) in nodes.into_iter().enumerate() {
        let x = |part: f64| left + (room * number as f64 + gap + (room - 2.0 * gap) * part) as i32;
        let several = outcome.stages.len() > 1;
        if several && before > 0.0 {
            area.draw(&Rectangle::new(
                [(x(0.0), y(before)), (x(0.5), bottom)],
                BEFORE.filled(),
            ))?;
        }
        if after > 0.0 {
            area.draw(&Rectangle::new(
                [
                    (x(if several { 0.5 } else { 0.0 }), y(after)),
                    (x(1.0), bottom),
                ],
                AFTER.filled(),
            ))?;
        }
    }
    area.draw(&PathElement::new([(left, y(1.0)), (right, y(1.0))], FAIR))?;
    Ok(())
}

/// What each node holds, as a multiple of its fair share, before and after; in order of age. If
/// there are too many nodes to show, only those that hold most.
fn nodes(start: &StageFigures, end: &StageFigures) -> Vec<[f64; 2]> {
    let mut nodes: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    for (place, stage) in [start, end].into_iter().enumerate() {
        for node in &stage.nodes {
            // The numbers of node1, node2 and so on give the order of age.
            let number = node
                .name
                .trim_start_matches("node")
                .parse()
                .unwrap_or(usize::MAX);
            nodes.entry(number).or_default()[place] = node.bytes_fair;
        }
    }
    while nodes.len() > NODES_MAX {
        let least = nodes
            .iter()
            .min_by(|a, b| a.1[1].total_cmp(&b.1[1]))
            .map(|(number, _)| *number);
        nodes.remove(&least.unwrap_or_default());
    }
    nodes.into_values().collect()
}

/// One group of bars for each strategy, one bar for each event.
fn movements(
    area: &Area<'_>,
    outcomes: &[StrategyOutcome],
    group: i32,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let (width, _) = area.dim_in_pixel();
    let (left, right) = (140, width as i32 - 70);
    let times = outcomes
        .iter()
        .flat_map(|o| &o.stages)
        .filter_map(|s| s.moved?.times());
    let most = times.fold(1.0, f64::max).clamp(1.5, TIMES_SHOWN);
    let x = |times: f64| left + (f64::from(right - left) * (times / most).min(1.0)) as i32;
    let bottom = group * outcomes.len() as i32;
    for mark in 0..=most as usize {
        let line = x(mark as f64);
        area.draw(&PathElement::new([(line, 0), (line, bottom)], LINE))?;
        area.draw_text(
            &format!("{mark}x"),
            &at(style(11, &DIM), HPos::Center, VPos::Top),
            (line, bottom + 5),
        )?;
    }
    area.draw(&PathElement::new([(x(1.0), 0), (x(1.0), bottom)], FAIR))?;
    for (number, outcome) in outcomes.iter().enumerate() {
        let top = group * number as i32;
        let middle = top + (group - 8) / 2 + 2;
        area.draw_text(
            &outcome.strategy,
            &at(style(13, &INK), HPos::Right, VPos::Center),
            (left - 10, middle),
        )?;
        for (event, stage) in outcome.stages.iter().skip(1).enumerate() {
            let bar = top + 2 + ROW as i32 * event as i32;
            let told = stage.moved.and_then(|moved| moved.times());
            let end = x(told.unwrap_or(0.0));
            area.draw(&Rectangle::new(
                [(left, bar), (end, bar + ROW as i32 - 4)],
                EVENTS[event % EVENTS.len()].filled(),
            ))?;
            let told = told.map_or_else(
                || "nothing must move".to_owned(),
                |times| format!("{times:.2}"),
            );
            // Draw the number behind the red line, which would otherwise cross it.
            let from = if (x(1.0) - 36..=x(1.0)).contains(&end) {
                x(1.0)
            } else {
                end
            };
            area.draw_text(
                &told,
                &at(style(11, &DIM), HPos::Left, VPos::Center),
                (from + 6, bar + ROW as i32 / 2 - 2),
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cluster::{SimulatedCluster, SimulatedEvent};
    use super::super::comparison::run;
    use super::super::keys::{SimulatedDistribution, SimulatedKeys};
    use super::super::strategy::{StrategyKind, StrategyOptions};
    use super::*;

    fn outcomes(nodes: usize, events: &[&str]) -> Vec<StrategyOutcome> {
        let keys = SimulatedKeys::drawn(2000, SimulatedDistribution::Uniform, 1);
        let events: Vec<SimulatedEvent> = events
            .iter()
            .map(|e| e.parse().expect("an event"))
            .collect();
        let stages = SimulatedCluster::new(nodes, &[], &[])
            .and_then(|c| c.stages(&events))
            .expect("possible");
        let outcome = |kind: StrategyKind| {
            let mut strategy = kind.strategy(&StrategyOptions {
                copies: 1,
                partitions: 64,
                seed: 1,
                keys: &keys,
            });
            run(
                &kind.to_string(),
                strategy.as_mut(),
                &stages,
                &keys,
                1,
                None,
            )
        };
        [
            StrategyKind::Modulo,
            StrategyKind::Fixed,
            StrategyKind::Rendezvous,
            StrategyKind::Jump,
        ]
        .into_iter()
        .map(outcome)
        .collect()
    }

    #[test]
    fn charts_name_every_strategy_and_every_event() {
        let text = svg(
            &outcomes(4, &["+1", "-node2", "node1=100"]),
            "4 nodes & more",
        )
        .expect("drawn");
        for told in [
            "mod",
            "fixed",
            "rendezvous",
            "jump",
            "+1",
            "-node2",
            "nothing must move",
            "4 nodes &amp; more",
        ] {
            assert!(text.contains(told), "{told}");
        }
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn charts_work_without_events_and_with_many_nodes() {
        for (nodes, events) in [(1, &[][..]), (300, &["+1"])] {
            let text = svg(&outcomes(nodes, events), "").expect("drawn");
            assert_eq!(text.contains("must move"), !events.is_empty());
        }
    }
}
