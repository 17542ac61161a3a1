//! Shows the scene: drawn on a terminal, or as plain lines.

mod draw;

use super::SharedScene;
use crate::{CommandFailed, say};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use std::time::{Duration, Instant};

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(66);
/// Time between two plain lines of figures.
const FIGURES: Duration = Duration::from_secs(1);

/// A terminal, or a stream of lines.
pub(super) struct DemoView {
    scene: SharedScene,
    terminal: Option<DefaultTerminal>,
    /// Lines of the story that were printed already.
    told: usize,
}

impl DemoView {
    pub(super) fn open(plain: bool, scene: SharedScene) -> Result<Self, CommandFailed> {
        // `try_init` also makes a panic restore the terminal.
        let terminal =
            if plain {
                None
            } else {
                Some(ratatui::try_init().map_err(|e| {
                    CommandFailed::new(format!("cannot draw here ({e}): use --plain"))
                })?)
            };
        Ok(Self {
            scene,
            terminal,
            told: 0,
        })
    }

    /// Shows the scene until the user wants to end.
    pub(super) async fn run(&mut self) -> CommandFailed {
        let mut figures = Instant::now();
        loop {
            match &mut self.terminal {
                Some(terminal) => {
                    let scene = self.scene.borrow();
                    if let Err(e) = terminal.draw(|frame| draw::scene(frame, &scene)) {
                        return CommandFailed::new(format!("cannot draw here ({e}): use --plain"));
                    }
                    drop(scene);
                    if wants_to_end() {
                        return CommandFailed {
                            message: "interrupted: every node of the demo was stopped".into(),
                            status: 130,
                        };
                    }
                }
                None => {
                    self.tell();
                    if self.scene.borrow().under_load && figures.elapsed() >= FIGURES {
                        figures = Instant::now();
                        self.tell_figures();
                    }
                }
            }
            tokio::time::sleep(FRAME).await;
        }
    }

    /// Gives the terminal back, and prints the story into the scrollback.
    pub(super) fn close(&mut self) {
        if self.terminal.take().is_some() {
            ratatui::restore();
        }
        self.tell();
    }

    fn tell(&mut self) {
        let scene = self.scene.borrow();
        for line in scene.story.iter().skip(self.told) {
            say(format_args!(
                "{:6.2} s  {}\n",
                line.at.as_secs_f64(),
                line.text
            ));
        }
        self.told = scene.story.len();
    }

    fn tell_figures(&self) {
        let scene = self.scene.borrow();
        let count =
            |f: fn(&super::scene::Cell) -> bool| scene.cells.iter().filter(|c| f(c)).count();
        say(format_args!(
            "{:6.2} s    {:>6} writes/s  {} acknowledged  {} of {} partitions served, \
             {} with two copies\n",
            scene.elapsed().as_secs_f64(),
            scene.rate(),
            scene.writes,
            count(|c| c.open),
            scene.cells.len(),
            count(|c| c.whole)
        ));
    }
}

/// Whether q, Escape or Ctrl-C was pressed. Ctrl-C is no signal while the terminal is in raw mode.
fn wants_to_end() -> bool {
    while event::poll(Duration::ZERO).unwrap_or(false) {
        let Ok(Event::Key(key)) = event::read() else {
            continue;
        };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if key.kind == KeyEventKind::Press
            && (matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
                || (control && key.code == KeyCode::Char('c')))
        {
            return true;
        }
    }
    false
}
