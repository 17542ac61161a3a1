//! Every order in which things may happen, within a bound: a check is run again for each course
//! that it may take.

use std::cell::RefCell;
use std::rc::Rc;

/// A course: what was chosen at each of its points, so far. Clones are the same one.
#[derive(Debug, Default, Clone)]
pub(super) struct Course(Rc<RefCell<Chosen>>);

#[derive(Debug, Default)]
struct Chosen {
    /// At each point, what was chosen, and of how many.
    points: Vec<(usize, usize)>,
    at: usize,
}

impl Course {
    /// One of so many ways to go on; 0 is the usual one.
    pub(super) fn pick(&self, ways: usize) -> usize {
        let mut chosen = self.0.borrow_mut();
        let at = chosen.at;
        if at == chosen.points.len() {
            chosen.points.push((0, ways));
        }
        chosen.at += 1;
        chosen.points[at].0
    }

    /// The point at which it is.
    pub(super) fn point(&self) -> usize {
        self.0.borrow().at
    }

    /// The next course, if there is one that leaves the usual one no more often than that.
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

    /// Where it left the usual one, and for what.
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

/// Runs every course that leaves the usual one at most so often (delay-bounded search: Emmi,
/// Qadeer, Rakamaric, POPL 2011).
///
/// # Errors
/// The first that failed, and where it left the usual one.
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
