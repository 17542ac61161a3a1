//! Secrets that a person chose must not be guessed easily.

use super::CommandFailed;
use doyen::config::Trust;

/// The least strength of a phrase, in bits: the binary logarithm of how many guesses find it.
/// Each guess costs an attacker 64 MiB and some tenths of a second.
const BITS_MIN: f64 = 60.0;

/// Refuses secrets that are guessed easily.
pub(super) fn judge(trust: &Trust) -> Result<(), CommandFailed> {
    let Trust::Secret { secrets, .. } = trust else {
        return Ok(());
    };
    for (number, line) in (1..).zip(secrets.lines()) {
        let Some(chosen) = line.phrase() else {
            continue;
        };
        let phrase = String::from_utf8_lossy(chosen);
        let bits = strength(&phrase);
        let why = if is_famous(&phrase) {
            "it has words that everyone knows".to_owned()
        } else if bits < BITS_MIN {
            format!(
                "about {:.0} bits, and at least {BITS_MIN} are needed",
                bits.floor()
            )
        } else {
            continue;
        };
        let which = match secrets.lines().len() {
            1 => "the secret".to_owned(),
            _ => format!("secret number {number}"),
        };
        return Err(CommandFailed::usage(format!(
            "{which} is guessed too easily ({why}): make one with `doyen secret new --dir DIR`"
        )));
    }
    Ok(())
}

/// Openings that everyone knows, as letters alone. They are the first that are tried, and how they
/// go on is known as well.
const FAMOUS: [&str; 56] = [
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
    "allhappyfamiliesarealike",
    "allyourbasearebelongtous",
    "asknotwhatyourcountry",
    "callmeishmael",
    "donotgogentleinto",
    "elementarymydearwatson",
    "forgodsolovedtheworld",
    "fourscoreandsevenyearsago",
    "franklymydearidont",
    "friendsromanscountrymen",
    "galliaestomnisdivisa",
    "godsavetheking",
    "godsavethequeen",
    "happybirthdaytoyou",
    "houstonwehaveaproblem",
    "humptydumptysatonawall",
    "ihaveadreamthat",
    "inaholeinthegroundthere",
    "isthisthereallife",
    "ithinkthereforeiam",
    "itisatruthuniversally",
    "itwasabrightcolddayinapril",
    "itwasthebestoftimes",
    "maryhadalittlelamb",
    "nevergonnagiveyouup",
    "ohsaycanyousee",
    "oneringtorulethemall",
    "ourfatherwhichartinheaven",
    "ourfatherwhoartinheaven",
    "romeoromeowhereforeart",
    "rosesareredvioletsareblue",
    "shallicomparetheetoa",
    "somewhereovertherainbow",
    "thatsonesmallstepfor",
    "thelordismyshepherd",
    "thereisnoplacelikehome",
    "theresnoplacelikehome",
    "threeringsfortheelven",
    "twasbrillig",
    "twinkletwinklelittlestar",
    "tworoadsdivergedina",
    "weholdthesetruths",
    "wethepeopleoftheunited",
    "whenshallwethreemeet",
];

fn is_famous(phrase: &str) -> bool {
    let letters = phrase.chars().filter(|c| c.is_alphanumeric());
    let letters: String = letters.flat_map(char::to_lowercase).collect();
    FAMOUS.iter().any(|famous| letters.contains(famous))
}

/// About how many bits a phrase is worth. Words, names, dates, patterns of keys and repetitions
/// count for little.
fn strength(phrase: &str) -> f64 {
    let guesses = zxcvbn::zxcvbn(phrase, &["doyen"]).guesses_log10();
    (guesses * std::f64::consts::LOG2_10).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen::config::Secrets;

    fn judged(text: &str) -> Result<(), CommandFailed> {
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
            "to be, or not to be",
            "in the beginning God created the heaven and the earth",
            "Four score and seven years ago our fathers brought forth",
            "it was the best of times, it was the worst of times",
            "We the People of the United States, in Order to form",
            "All your base are belong to us 42!",
        ] {
            let refusal = judged(weak).expect_err(weak);
            assert!(
                refusal.message.contains("doyen secret new"),
                "{}",
                refusal.message
            );
            assert!(!refusal.message.contains(weak), "{}", refusal.message);
            assert!(!refusal.message.contains("inf"), "{}", refusal.message);
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
