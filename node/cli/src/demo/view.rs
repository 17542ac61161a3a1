//! Shows the scene: drawn on a terminal, or as plain lines.

mod draw;

use super::SharedScene;
use crate::screen::{Cell, Pressed, pressed};
use crate::{CommandFailed, say};
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
                    if pressed() == Some(Pressed::End) {
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
        let count = |f: fn(&Cell) -> bool| scene.cells.iter().filter(|c| f(c)).count();
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
