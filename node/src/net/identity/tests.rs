use super::*;

const SECRET: &[u8] = b"0123456789abcdef";
/// A certificate of X.509 version 1.
const OLD: &str = "-----BEGIN CERTIFICATE-----\n\
MIHYMIGLAhR5gN5viMnDeMD6DzZzjm3B0NjyGzAFBgMrZXAwDjEMMAoGA1UEAwwD\n\
b2xkMCAXDTI2MTEyNjIyNDAwM1oYDzIxMjYxMTAyMjI0MDAzWjAOMQwwCgYDVQQD\n\
DANvbGQwKjAFBgMrZXADIQDPpxdPzT6vIifR4UajXM/itMZ2TQR+szsofNAme9Un\n\
xzAFBgMrZXADQQB7AIgRQwvKD+XQOk6GPGJ8/6G9SXL9aOnMknYhrChkoKQRz3dv\n\
3mpWv2SZdAUNROX1UIuy0ywn8MyPe0GRWFoD\n\
-----END CERTIFICATE-----\n";

#[test]
fn a_short_secret_is_refused() {
    let error = Identity::from_secret(b"short", "a").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("has 5 bytes; it needs at least 16"),
        "{error}"
    );
}

#[test]
fn the_authority_is_the_same_on_every_node() {
    let (a, b) = (
        Authority::derive(SECRET).unwrap(),
        Authority::derive(SECRET).unwrap(),
    );
    assert_eq!(a.certificate, b.certificate);
    assert_ne!(
        a.certificate,
        Authority::derive(b"another secret!!").unwrap().certificate
    );
}

#[test]
fn a_certificate_names_its_node_and_no_other() {
    let identity = Identity::from_secret(SECRET, "10.0.0.1:7400").unwrap();
    let (chain, _) = Authority::derive(SECRET)
        .unwrap()
        .issue("10.0.0.1:7400", ROLE)
        .unwrap();
    assert_eq!(identity.names(&chain[0], "10.0.0.1:7400", false), Ok(()));
    assert!(identity.names(&chain[0], "10.0.0.2:7400", false).is_err());
    assert!(
        identity
            .names(&CertificateDer::from(vec![1, 2, 3]), "x", false)
            .is_err()
    );
}

#[test]
fn a_client_s_certificate_is_none_of_a_node() {
    let identity = Identity::from_secret(SECRET, "a").unwrap();
    for (role, client) in [(ROLE, false), (CLIENT_ROLE, true)] {
        let (chain, _) = Authority::derive(SECRET)
            .unwrap()
            .issue("it", role)
            .unwrap();
        assert_eq!(identity.names(&chain[0], "it", client), Ok(()));
        assert!(
            identity
                .names(&chain[0], "it", !client)
                .is_err_and(|why| why.contains("does not name"))
        );
    }
}

#[test]
fn long_and_strange_names_have_certificates() {
    let name = "ä ö\u{0}".repeat(60);
    let identity = Identity::from_secret(SECRET, &name).unwrap();
    let (chain, _) = Authority::derive(SECRET)
        .unwrap()
        .issue(&name, ROLE)
        .unwrap();
    assert_eq!(identity.names(&chain[0], &name, false), Ok(()));
}

#[test]
fn the_http_token_follows_the_secret() {
    let token = Identity::from_secret(SECRET, "a").unwrap().http_token();
    assert_eq!(token.len(), 64);
    assert_eq!(
        token,
        Identity::from_secret(SECRET, "b").unwrap().http_token()
    );
    assert_ne!(
        token,
        Identity::from_secret(b"another secret!!", "a")
            .unwrap()
            .http_token()
    );
    assert_eq!(Identity::insecure_loopback("a").unwrap().http_token(), "");
}

#[test]
fn a_missing_file_is_named() {
    let error = Identity::from_pem(
        Path::new("/no/ca.pem"),
        Path::new("/no/cert.pem"),
        Path::new("/no/key.pem"),
        "a",
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("--tls-ca /no/ca.pem: cannot read it"),
        "{error}"
    );
}

#[test]
fn files_that_are_of_no_use_are_named_with_their_flags() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let authority = Authority::derive(SECRET).unwrap();
    let (chain, key) = authority.issue("a", ROLE).unwrap();
    let (_, other) = authority.issue("b", ROLE).unwrap();
    let write =
        |name: &str, kind: &str, der: &[u8]| std::fs::write(path(name), pem(kind, der)).unwrap();
    write("ca.pem", "CERTIFICATE", &authority.certificate);
    write("cert.pem", "CERTIFICATE", &chain[0]);
    write("key.pem", "PRIVATE KEY", key.secret_der());
    write("other.pem", "PRIVATE KEY", other.secret_der());
    let said = |cert: &str, key: &str| {
        Identity::from_pem(&path("ca.pem"), &path(cert), &path(key), "a").map_err(|e| e.to_string())
    };
    said("cert.pem", "key.pem").unwrap();
    let shown = |name: &str| path(name).display().to_string();
    let error = said("cert.pem", "cert.pem").unwrap_err();
    assert!(
        error.starts_with(&format!(
            "--tls-key {}: it has no private key",
            shown("cert.pem")
        )),
        "{error}"
    );
    let error = said("key.pem", "key.pem").unwrap_err();
    assert!(
        error.starts_with(&format!(
            "--tls-cert {}: it has no certificate",
            shown("key.pem")
        )),
        "{error}"
    );
    let error = said("cert.pem", "other.pem").unwrap_err();
    let both = format!(
        "--tls-cert {} and --tls-key {} do not belong together",
        shown("cert.pem"),
        shown("other.pem")
    );
    assert!(error.starts_with(&both), "{error}");
    // Made by `openssl x509 -req` without an extension file.
    std::fs::write(path("old.pem"), OLD).unwrap();
    let error = said("old.pem", "key.pem").unwrap_err();
    assert!(
        error.starts_with(&format!("--tls-cert {}: ", shown("old.pem")))
            && error.contains("version 1"),
        "{error}"
    );
    assert!(
        error.contains("-extfile") && error.contains("subjectAltName"),
        "{error}"
    );
    for error in [
        said("cert.pem", "other.pem"),
        said("old.pem", "key.pem"),
        said("key.pem", "key.pem"),
    ] {
        assert!(!error.unwrap_err().contains("secret"));
    }
}

#[test]
fn changed_files_come_into_force_and_broken_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |secret: &[u8]| {
        let authority = Authority::derive(secret).unwrap();
        let (chain, key) = authority.issue("a", ROLE).unwrap();
        std::fs::write(path("ca.pem"), pem("CERTIFICATE", &authority.certificate)).unwrap();
        std::fs::write(path("cert.pem"), pem("CERTIFICATE", &chain[0])).unwrap();
        std::fs::write(path("key.pem"), pem("PRIVATE KEY", key.secret_der())).unwrap();
    };
    let touch = |name: &str, ahead: u64| {
        let time = SystemTime::now() + Duration::from_secs(ahead);
        std::fs::File::options()
            .append(true)
            .open(path(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    write(SECRET);
    let identity =
        Identity::from_pem(&path("ca.pem"), &path("cert.pem"), &path("key.pem"), "a").unwrap();
    let counted = |reloads, reloads_failed| {
        let report = identity.certificate();
        assert_eq!(
            (report.reloads, report.reloads_failed),
            (reloads, reloads_failed)
        );
    };
    counted(0, 0);
    let first = identity.tls();
    identity.refresh();
    assert!(Arc::ptr_eq(&first, &identity.tls()));
    std::fs::write(path("key.pem"), "no key").unwrap();
    touch("key.pem", 5);
    counted(0, 1);
    assert!(Arc::ptr_eq(&first, &identity.tls()));
    write(b"another secret!!");
    touch("key.pem", 10);
    counted(1, 1);
    assert!(!Arc::ptr_eq(&first, &identity.tls()));
}

#[test]
fn a_chain_ends_with_the_first_of_its_certificates() {
    const YEAR: i64 = 31_556_952;
    let identity = Identity::from_secret(SECRET, "a").unwrap();
    let ends = identity.certificate().ends.expect("it is told");
    assert!(
        ends > 1000 * YEAR,
        "{ends}: from a secret, certificates are good for ever"
    );
    let authority = Authority::derive(SECRET).unwrap();
    let issue = |year: i32| {
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        (
            params
                .signed_by(&key, &authority.issuer)
                .unwrap()
                .der()
                .clone(),
            key,
        )
    };
    let ((node, key), (other, _)) = (issue(2040), issue(2039));
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let tls = Tls::new(
        std::slice::from_ref(&authority.certificate),
        vec![node, other],
        key,
        Arc::new(FixedTime),
    )
    .unwrap();
    assert_eq!(tls.ends, Some(2_177_452_800), "2039-01-01");
    assert_eq!(end_of(&CertificateDer::from(vec![1, 2, 3])), None);
}

fn pem(kind: &str, der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = format!("-----BEGIN {kind}-----\n");
    for line in der.chunks(48) {
        for three in line.chunks(3) {
            let n =
                three.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for i in 0..4 {
                let c = ALPHABET[(n >> (18 - 6 * i) & 63) as usize];
                out.push(if i <= three.len() { char::from(c) } else { '=' });
            }
        }
        out.push('\n');
    }
    out + &format!("-----END {kind}-----\n")
}
