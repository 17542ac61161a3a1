use super::*;
use proptest::prelude::*;

const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
/// From HKDF-SHA256, Ed25519 and argon2 of Python and of the reference implementation.
const VECTOR_MEMBER: &str = "8bc56fe41dcf1b0731d4e26ec0fda44e0ccf3bbcaf07fd18c83246a5b5ba2ead";
const VECTOR_CLIENT: &str = "68a8075374d0a83f825b56a5b9a8c5a046d2470541ed4c596eab40cd55b5d9cd";
const VECTOR_TOKEN: &str = "4da330e21e221c62a7d67bcc5212edcee219444f7e31433b2b15050e64da680c";
const VECTOR_FINGERPRINT: &str = "687c9e1870ad7eb3";
const VECTOR_PHRASE: &str = "e020d4309c9dd70db7e0583ae3bf93cb57d9cbab5c17bffd2cb0107ba9985ae1";
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn counting() -> Line {
    Line::member(std::array::from_fn(|i| i as u8))
}

fn parse(text: &str) -> Result<Secrets, SecretError> {
    Secrets::parse(text.as_bytes())
}

/// These values are made once and never change: with others, nodes of two builds would not talk.
#[test]
fn what_is_derived_from_a_secret_is_fixed() {
    let line = counting();
    let keys = line.keys().unwrap();
    assert_eq!(
        line.expose().as_str(),
        "doyen-member-1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    );
    assert_eq!(hex(keys.member.expose()), VECTOR_MEMBER);
    assert_eq!(hex(keys.client.expose()), VECTOR_CLIENT);
    assert_eq!(*keys.token, VECTOR_TOKEN);
    assert_eq!(line.fingerprint(), VECTOR_FINGERPRINT);
}

#[test]
fn a_phrase_is_stretched_to_a_fixed_secret() {
    // RFC 9106 has no vector for these parameters; this one is from the reference implementation's
    // command: `printf PHRASE | argon2 'doyen/2 phrase' -id -t 3 -k 65536 -p 1 -l 32 -r`.
    let stretched = |phrase: &[u8]| phrase::stretched(phrase).unwrap();
    let secret = stretched(b"correct horse battery staple");
    assert_eq!(hex(secret.expose()), VECTOR_PHRASE);
    assert_eq!(secret, stretched(b"correct horse battery staple"));
    assert_ne!(secret, stretched(b"correct horse battery stapler"));
}

#[test]
fn bytes_may_be_written_in_three_forms_and_are_the_same_secret() {
    let url = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let fingerprints: Vec<String> = [
        format!("doyen-member-1 {url}"),
        HEX.to_owned(),
        HEX.to_uppercase(),
        BASE64.to_owned(),
        url.to_owned(),
    ]
    .iter()
    .map(|text| parse(text).unwrap().first().fingerprint())
    .collect();
    assert!(fingerprints.iter().all(|f| *f == VECTOR_FINGERPRINT));
    // The scheme before version 15 took the text itself.
    assert_eq!(parse(HEX).unwrap().first().former(), Some(HEX.as_bytes()));
    assert_eq!(counting().former(), None);
    let raw: Vec<u8> = (0..32).collect();
    assert_eq!(
        Secrets::of_bytes(&raw).unwrap().first().fingerprint(),
        VECTOR_FINGERPRINT
    );
    // 33 bytes of base64 are a phrase, and so are 63 digits.
    for phrase in [format!("AA{BASE64}"), HEX[1..].to_owned()] {
        let line = parse(&phrase).unwrap();
        assert!(line.first().is_phrase() && line.first().former().is_none());
    }
}

#[test]
fn derived_secrets_have_their_role_and_not_the_others() {
    let member = counting();
    let client = member.for_role(SecretRole::Client).unwrap();
    let operator = member.for_role(SecretRole::Operator).unwrap();
    for (line, role) in [
        (&member, SecretRole::Member),
        (&client, SecretRole::Client),
        (&operator, SecretRole::Operator),
    ] {
        assert_eq!(line.role(), role);
        assert_eq!(
            line.fingerprint(),
            VECTOR_FINGERPRINT,
            "all name the member authority"
        );
        let again = parse(&line.expose()).unwrap();
        assert_eq!(again.first(), line);
    }
    let keys = member.keys().unwrap();
    // What each may do, it can do exactly as the member could.
    assert_eq!(client.client_key(), Some(keys.client));
    assert_eq!(operator.token().as_deref(), Some(&*keys.token));
    // And nothing else.
    assert!(client.keys().is_none() && client.token().is_none());
    assert!(operator.keys().is_none() && operator.client_key().is_none());
    for line in [client, operator] {
        assert_eq!(line.for_role(SecretRole::Member), None);
        assert_eq!(line.for_role(SecretRole::Client), None);
    }
}

#[test]
fn a_file_has_comments_and_several_lines_and_the_first_signs() {
    let (old, new) = (counting(), Line::new_member().unwrap());
    let text = format!(
        "# made today\r\n\r\n  {} \n{}\n",
        *new.expose(),
        *old.expose()
    );
    let secrets = parse(&text).unwrap();
    assert_eq!(secrets.first(), &new);
    assert_eq!(secrets.lines(), [new, old]);
    let clients = secrets.for_role(SecretRole::Client).unwrap();
    assert_eq!(parse(&clients.expose()).unwrap(), clients);
    assert_eq!(clients.role(), SecretRole::Client);
    assert_eq!(clients.for_role(SecretRole::Operator), None);
}

#[test]
fn unusable_files_are_refused_without_their_content() {
    let member = counting();
    let client = member.for_role(SecretRole::Client).unwrap();
    let cases = [
        (String::new(), "it has no secret"),
        ("# only a comment".to_owned(), "it has no secret"),
        (
            format!("{}\n", *member.expose()).repeat(9),
            "more than 8 secrets",
        ),
        ("\n0123456789".to_owned(), "in line 2 has 10 bytes"),
        ("00".repeat(32), "repeats few bytes"),
        (format!("{:064}", 1), "repeats few bytes"),
        ("deadbeef".repeat(8), "repeats few bytes"),
        ("doyen-member-1".to_owned(), "line 1 is damaged"),
        ("doyen-member-1 AAEC".to_owned(), "line 1 is damaged"),
        (format!("{} x", *member.expose()), "something follows"),
        (
            client.expose().rsplit_once(' ').unwrap().0.to_owned(),
            "the public key at its end",
        ),
        ("doyen-member-2 AAEC".to_owned(), "later version"),
        (
            format!("{}\n{}", *member.expose(), *client.expose()),
            "a member and of a client",
        ),
        ("a phrase with\u{7} a bell".to_owned(), "control character"),
        ("x".repeat(5000), "too long"),
    ];
    for (text, wanted) in cases {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text:?}: {error}");
        assert!(
            !error.contains("AAEC") && !error.contains("0123456789"),
            "{error}"
        );
    }
    assert_eq!(Secrets::parse(&[0xff; 40]), Err(SecretError::NoText));
    let pem = b"\n-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(Secrets::parse(pem), Err(SecretError::Certificate));
    // A text that only looks like a prefix is a phrase.
    for phrase in ["doyen-member-one of our passwords", "doyen-is-our-database"] {
        assert!(parse(phrase).unwrap().first().is_phrase());
    }
}

#[test]
fn secrets_are_never_printed() {
    for text in [
        HEX.to_owned(),
        counting().expose().to_string(),
        "a phrase of the tests".into(),
    ] {
        let secrets = parse(&text).unwrap();
        let printed = format!(
            "{secrets:?} {:?} {:?}",
            secrets.first(),
            secrets.first().keys()
        );
        let token = secrets.first().token().unwrap();
        for secret in [
            text.as_str(),
            "000102",
            "AAECAw",
            "phrase of",
            token.as_str(),
        ] {
            assert!(!printed.contains(secret), "{printed}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_secrets_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(secrets) = Secrets::of_bytes(&bytes) {
            prop_assert!((1..=LINES_MAX).contains(&secrets.lines().len()));
        }
    }

    #[test]
    fn what_is_written_is_read_again(bytes: [u8; 32], count in 1..LINES_MAX) {
        let line = Line::member(bytes);
        for role in [SecretRole::Member, SecretRole::Client, SecretRole::Operator] {
            let lines = vec![line.for_role(role).unwrap(); count];
            let secrets = Secrets::new(lines).unwrap();
            prop_assert_eq!(&Secrets::parse(secrets.expose().as_bytes()).unwrap(), &secrets);
        }
    }
}

#[test]
fn a_file_says_which_step_of_a_rotation_was_made() {
    let text = format!("# a secret\n{ROTATION_MARK}used\r\n{HEX}\n");
    assert_eq!(rotation_step(&text), Some("used"));
    assert_eq!(rotation_step(HEX), None);
}
