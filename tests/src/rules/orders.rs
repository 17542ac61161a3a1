//! Tries every order of events within a bound: a check runs again for each course that it may take.

use std::cell::RefCell;
use std::rc::Rc;

/// A course: the choices at each of its points so far. Clones share one course.
#[derive(Debug, Default, Clone)]
pub(super) struct Course(Rc<RefCell<Chosen>>);

#[derive(Debug, Default)]
struct Chosen {
    /// For each point, the choice and the number of choices.
    points: Vec<(usize, usize)>,
    at: usize,
}

impl Course {
    /// Chooses one of this many ways to go on; 0 is the usual one.
    pub(super) fn pick(&self, ways: usize) -> usize {
        let mut chosen = self.0.borrow_mut();
        let at = chosen.at;
        if at == chosen.points.len() {
            chosen.points.push((0, ways));
        }
        chosen.at += 1;
        chosen.points[at].0
    }

    /// The present point.
    pub(super) fn point(&self) -> usize {
        self.0.borrow().at
    }

    /// The next course, if one is left that departs from the usual choice at most this often.
    fn next(&self, deviations_max: usize) -> bool {
        let mut chosen = self.0.borrow_mut();
        let reached = std::mem::take(&mut chosen.at);
        let points = &mut chosen.points;
        points.truncate(reached);
        while let Some((taken, ways)) = points.pop() {
            let left = points.iter().filter(|(taken, _)| *taken > 0).count();
            if taken + 1 < ways && left < deviations_max {
                points.push((taken + 1, ways));
                return true;
            }
        }
        false
    }

    /// The points at which it departed from the usual choice, as a text.
    fn told(&self) -> String {
        let chosen = self.0.borrow();
        let left = chosen
            .points
            .iter()
            .enumerate()
            .filter(|(_, (taken, _))| *taken > 0);
        left.map(|(at, (taken, _))| format!("{at}:{taken}"))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Runs every course that departs from the usual choice at most this often (delay-bounded search:
/// Emmi, Qadeer, Rakamaric, POPL 2011).
///
/// # Errors
/// The first course that failed, and where it departed.
pub(super) fn every_course(
    deviations_max: usize,
    run: impl Fn(&Course) -> Result<(), String>,
) -> Result<(), String> {
    let course = Course::default();
    let mut count = 1;
    loop {
        run(&course).map_err(|what| format!("{what} (course {count}: {})", course.told()))?;
        if !course.next(deviations_max) {
            return Ok(());
        }
        count += 1;
    }
}
