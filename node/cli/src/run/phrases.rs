//! Secrets that a person chose must not be guessed easily.

use super::Failed;
use doyen::config::Trust;

/// The least strength of a phrase, in bits: the binary logarithm of how many guesses find it.
/// Each guess costs an attacker 64 MiB and some tenths of a second.
const BITS_MIN: f64 = 60.0;

/// Refuses secrets that are guessed easily.
pub(super) fn judge(trust: &Trust) -> Result<(), Failed> {
    let Trust::Secret { secrets, .. } = trust else {
        return Ok(());
    };
    for (number, line) in (1..).zip(secrets.lines()) {
        let Some(chosen) = line.phrase() else {
            continue;
        };
        let bits = strength(&String::from_utf8_lossy(chosen));
        if bits < BITS_MIN {
            let which = match secrets.lines().len() {
                1 => "the secret".to_owned(),
                _ => format!("secret number {number}"),
            };
            return Err(Failed::usage(format!(
                "{which} is guessed too easily (about {:.0} bits, and at least {BITS_MIN} are \
                 needed): make one with `doyen secret new --dir DIR`",
                bits.floor()
            )));
        }
    }
    Ok(())
}

/// Phrases that everyone knows, as letters alone: they are the first that are tried.
const FAMOUS: [&str; 12] = [
    "correcthorsebatterystaple",
    "myvoiceismypassport",
    "openthepodbaydoors",
    "thequickbrownfoxjumps",
    "tobeornottobe",
    "maytheforcebewithyou",
    "onceuponatime",
    "itwasadarkandstormynight",
    "inthebeginning",
    "loremipsum",
    "speakfriendandenter",
    "helloworld",
];

/// About how many bits a phrase is worth. Words, names, dates, patterns of keys and repetitions
/// count for little, and a famous phrase for nothing beyond what stands beside it.
fn strength(phrase: &str) -> f64 {
    let letters = phrase.chars().filter(|c| c.is_alphanumeric());
    let letters: String = letters.flat_map(char::to_lowercase).collect();
    if let Some(famous) = FAMOUS.iter().find(|famous| letters.contains(**famous)) {
        let rest = letters.replace(famous, "");
        return zxcvbn::zxcvbn(&rest, &["doyen"]).guesses_log10() * std::f64::consts::LOG2_10;
    }
    zxcvbn::zxcvbn(phrase, &["doyen"]).guesses_log10() * std::f64::consts::LOG2_10
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen::config::Secrets;

    fn judged(text: &str) -> Result<(), Failed> {
        judge(&Trust::Secret {
            secrets: Secrets::parse(text.as_bytes()).expect("secrets"),
            file: None,
        })
    }

    #[test]
    fn phrases_that_are_guessed_easily_are_refused() {
        for weak in [
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "passwordpasswordpassword",
            "correct horse battery staple",
            "My voice is my passport, verify me!",
            "0123456789abcdef",
            "qwertyuiopasdfghjkl",
            "abcabcabcabcabcabcabcabcabcabc",
            "letmein2024letmein2024",
        ] {
            let refusal = judged(weak).expect_err(weak);
            assert!(
                refusal.message.contains("doyen secret new"),
                "{}",
                refusal.message
            );
            assert!(!refusal.message.contains(weak), "{}", refusal.message);
        }
    }

    #[test]
    fn good_phrases_and_random_bytes_are_taken() {
        for good in [
            "vermilion teapot orbits seventeen quiet glaciers",
            "Xk7#qLw9!vTz2@pRn5&Hm",
            "8f14e45fceea167a5a36dedd4bea2543b6d767d2f8ed5d21a44b0e5886680cb9",
            "nmdYFLsD1rhWZ1tGm3v9JXo0RzE2pUu5q8yKcBaTfQk=",
        ] {
            judged(good).unwrap_or_else(|e| panic!("{good}: {}", e.message));
        }
        let weak = "vermilion teapot orbits seventeen quiet glaciers\npasswordpasswordpassword";
        let refusal = judged(weak).expect_err("the second line");
        assert!(refusal.message.contains("number 2"), "{}", refusal.message);
    }
}
