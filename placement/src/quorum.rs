//! Majorities of voters.

use crate::id::MemberId;
use crate::mutant::{self, broken};

/// Whether the members for which `acknowledged` holds are a majority of these voters: more than
/// half, or exactly half including the oldest.
///
/// The casting vote belongs to the oldest voter that the configuration *names*, dead or alive. So
/// any two majorities of one configuration meet, and of two members the older one continues alone
/// if the younger one dies. Without voters there is no majority.
///
/// ```
/// use doyen_placement::{MemberId, quorum::majority};
/// let voters = [MemberId(7), MemberId(3)];
/// assert!(majority(&voters, |voter| voter == MemberId(7)));
/// assert!(!majority(&voters, |voter| voter == MemberId(3)));
/// ```
#[must_use]
pub fn majority(voters_in_order_of_age: &[MemberId], acks: impl Fn(MemberId) -> bool) -> bool {
    let Some(oldest) = voters_in_order_of_age.first() else {
        return false;
    };
    let given = voters_in_order_of_age
        .iter()
        .filter(|voter| acks(**voter))
        .count();
    let all = voters_in_order_of_age.len();
    given * 2 > all || (given * 2 == all && (acks(*oldest) || broken(&mutant::HALF_IS_ENOUGH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(count: u64) -> Vec<MemberId> {
        (0..count).map(MemberId).collect()
    }

    #[test]
    fn no_members_are_no_majority_of_no_voters() {
        assert!(!majority(&[], |_| true));
    }

    #[test]
    fn half_needs_the_oldest() {
        assert!(majority(&voters(4), |v| v.0 == 0 || v.0 == 3));
        assert!(!majority(&voters(4), |v| v.0 >= 2));
        assert!(majority(&voters(4), |v| v.0 >= 1));
    }

    #[test]
    fn two_majorities_always_meet() {
        for count in 1..=7 {
            let voters = voters(count);
            let winning: Vec<u64> = (0..1_u64 << count)
                .filter(|set| majority(&voters, |v| set & (1 << v.0) != 0))
                .collect();
            for one in &winning {
                assert!(
                    winning.iter().all(|other| one & other != 0),
                    "{count} voters: {one:b}"
                );
            }
        }
    }
}
