//! Certificates in PEM files.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyUsagePurpose, RevokedCertParams, SanType,
    SerialNumber,
};
use std::path::Path;

/// A certificate of X.509 version 1.
const OLD: &str = "-----BEGIN CERTIFICATE-----\n\
MIHYMIGLAhR5gN5viMnDeMD6DzZzjm3B0NjyGzAFBgMrZXAwDjEMMAoGA1UEAwwD\n\
b2xkMCAXDTI2MTEyNjIyNDAwM1oYDzIxMjYxMTAyMjI0MDAzWjAOMQwwCgYDVQQD\n\
DANvbGQwKjAFBgMrZXADIQDPpxdPzT6vIifR4UajXM/itMZ2TQR+szsofNAme9Un\n\
xzAFBgMrZXADQQB7AIgRQwvKD+XQOk6GPGJ8/6G9SXL9aOnMknYhrChkoKQRz3dv\n\
3mpWv2SZdAUNROX1UIuy0ywn8MyPe0GRWFoD\n\
-----END CERTIFICATE-----\n";

/// An operator's authority, with a directory for its files.
struct Operator {
    dir: tempfile::TempDir,
    params: CertificateParams,
    key: KeyPair,
}

/// What a certificate says.
#[derive(Clone, Copy, Default)]
struct Subject<'a> {
    host: &'a str,
    uri: Option<&'a str>,
    unit: Option<&'a str>,
    serial: u64,
    /// The year in which it begins; 0: long ago.
    begins: i32,
    /// The year in which it ends; 0: far away.
    ends: i32,
}

impl Operator {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        // Each with a name of its own.
        let name = format!("operator {}", rand::random::<u64>());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let operator = Self {
            dir: tempfile::tempdir().unwrap(),
            params,
            key,
        };
        let own = operator.params.self_signed(&operator.key).unwrap();
        operator.write("ca.pem", &own.pem());
        operator
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn issuer(&self) -> rcgen::Issuer<'_, &KeyPair> {
        rcgen::Issuer::from_params(&self.params, &self.key)
    }

    /// Writes NAME.pem and NAME.key, and returns the files of a process that has them.
    fn issue(&self, name: &str, subject: Subject<'_>) -> PemFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.host.to_owned()]).unwrap();
        if let Some(uri) = subject.uri {
            params
                .subject_alt_names
                .push(SanType::URI(uri.try_into().unwrap()));
        }
        if let Some(unit) = subject.unit {
            params
                .distinguished_name
                .push(DnType::OrganizationalUnitName, unit);
        }
        params.serial_number = Some(SerialNumber::from(subject.serial));
        if subject.begins > 0 {
            params.not_before = rcgen::date_time_ymd(subject.begins, 1, 1);
        }
        if subject.ends > 0 {
            params.not_after = rcgen::date_time_ymd(subject.ends, 1, 1);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &self.issuer()).unwrap();
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.files(name)
    }

    fn files(&self, name: &str) -> PemFiles {
        PemFiles::new(
            &self.path("ca.pem"),
            &self.path(&format!("{name}.pem")),
            &self.path(&format!("{name}.key")),
        )
    }

    /// Writes a revocation list.
    fn revoke(&self, serials: &[u64]) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2024, 1, 1),
            // Long over: a list that is older than it says still counts.
            next_update: rcgen::date_time_ymd(2024, 2, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer()).unwrap();
        self.write("crl.pem", &list.pem().unwrap());
    }
}

const NODE: Subject<'_> = Subject {
    host: "node",
    uri: Some("doyen:member"),
    unit: None,
    serial: 1,
    begins: 0,
    ends: 0,
};
const CLIENT: Subject<'_> = Subject {
    host: "any",
    uri: Some("doyen:client"),
    unit: None,
    serial: 2,
    begins: 0,
    ends: 0,
};

fn identity(files: PemFiles, role: SecretRole, name: &str) -> Identity {
    Identity::from_pem(files, role, name).unwrap()
}

#[test]
fn a_missing_file_is_named() {
    let no = Path::new("/no/file.pem");
    let error = Identity::from_pem(PemFiles::new(no, no, no), SecretRole::Member, "a").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("--tls-ca /no/file.pem: cannot read it"),
        "{error}"
    );
}

#[test]
fn certificates_name_their_roles_and_others_of_the_authority_are_refused() {
    let operator = Operator::new();
    let server = identity(operator.issue("server", NODE), SecretRole::Member, "node");
    let member = identity(operator.issue("member", NODE), SecretRole::Member, "node");
    let client = identity(
        operator.issue("client", CLIENT),
        SecretRole::Client,
        "anyone",
    );
    connect((&member, false), &server).unwrap();
    connect((&client, true), &server).unwrap();
    connect((&member, true), &server).expect("a member's certificate is good for clients");
    let refusal = connect((&client, false), &server).unwrap_err();
    assert!(
        matches!(&refusal, DialFailure::Hello(why) if why.contains("the role doyen:member")),
        "{refusal}"
    );
    // A client's certificate on a server.
    let posing = identity(
        operator.issue(
            "posing",
            Subject {
                host: "node",
                ..CLIENT
            },
        ),
        SecretRole::Member,
        "node",
    );
    let refusal = connect((&client, true), &posing).unwrap_err();
    assert!(matches!(&refusal, DialFailure::Hello(why) if why.contains("doyen:member")));

    // A certificate of another service, by the same authority: refused at home and by others.
    let foreign = Subject {
        uri: Some("https://example.com/member"),
        ..NODE
    };
    let files = operator.issue("foreign", foreign);
    let error = Identity::from_pem(files.clone(), SecretRole::Member, "node").unwrap_err();
    assert!(error.to_string().contains("names no role"), "{error}");
    assert!(error.to_string().contains("URI:doyen:member"), "{error}");
    let lenient = PemFiles {
        role_prefix: "https://example.com/".into(),
        ..files
    };
    let lenient = identity(lenient, SecretRole::Member, "node");
    for claims_client in [false, true] {
        let refusal = connect((&lenient, claims_client), &server).unwrap_err();
        assert!(
            matches!(&refusal, DialFailure::Hello(why) if why.contains("does not have the role"))
        );
    }
    let refusal = connect((&member, false), &lenient).unwrap_err();
    assert!(matches!(&refusal, DialFailure::Hello(why) if why.contains("does not have the role")));

    // And one of another authority.
    let other = Operator::new();
    let stranger = identity(other.issue("member", NODE), SecretRole::Member, "node");
    assert_eq!(
        connect((&stranger, false), &server).unwrap_err(),
        DialFailure::OtherSecret
    );
}

#[test]
fn roles_are_uris_or_units_under_a_prefix_that_can_be_chosen() {
    let operator = Operator::new();
    let by_unit = Subject {
        uri: None,
        unit: Some("doyen:member"),
        ..NODE
    };
    let by_unit = identity(operator.issue("unit", by_unit), SecretRole::Member, "node");
    let by_uri = identity(operator.issue("uri", NODE), SecretRole::Member, "node");
    connect((&by_unit, false), &by_uri).unwrap();
    connect((&by_uri, false), &by_unit).unwrap();
    for unit in ["member", "doyen:members", "a doyen:member", "DOYEN:MEMBER"] {
        let files = operator.issue(
            "near",
            Subject {
                uri: None,
                unit: Some(unit),
                ..NODE
            },
        );
        assert!(
            Identity::from_pem(files, SecretRole::Member, "node").is_err(),
            "{unit}"
        );
    }
    let prefixed = |name: &str, uri| {
        let files = operator.issue(
            name,
            Subject {
                uri: Some(uri),
                ..NODE
            },
        );
        PemFiles {
            role_prefix: "spiffe://example.com/cache/".into(),
            ..files
        }
    };
    let a = prefixed("a", "spiffe://example.com/cache/member");
    let b = prefixed("b", "spiffe://example.com/cache/member");
    let (a, b) = (
        identity(a, SecretRole::Member, "node"),
        identity(b, SecretRole::Member, "node"),
    );
    connect((&a, false), &b).unwrap();
    assert!(
        connect((&by_uri, false), &a).is_err(),
        "of another cluster with this authority"
    );
    assert!(connect((&a, false), &by_uri).is_err());
}

#[test]
fn a_revoked_certificate_is_refused_and_its_connections_are_not_trusted() {
    let operator = Operator::new();
    operator.revoke(&[99]);
    let with_list = |name: &str, serial| PemFiles {
        crl: Some(operator.path("crl.pem")),
        ..operator.issue(name, Subject { serial, ..NODE })
    };
    let server = identity(with_list("server", 1), SecretRole::Member, "node");
    let good = identity(with_list("good", 2), SecretRole::Member, "node");
    let bad = identity(with_list("bad", 3), SecretRole::Member, "node");
    let (of_good, _) = connect((&good, false), &server).unwrap();
    let (of_bad, _) = connect((&bad, false), &server).expect("the control: not revoked yet");
    assert!(server.trusts(&of_good) && server.trusts(&of_bad));

    operator.revoke(&[99, 3]);
    server.refresh();
    assert_eq!(server.generation(), 1);
    assert!(server.trusts(&of_good) && !server.trusts(&of_bad));
    assert_eq!(
        connect((&bad, false), &server).unwrap_err(),
        DialFailure::Revoked
    );
    assert_eq!(
        connect((&server, false), &bad).unwrap_err(),
        DialFailure::Revoked
    );
    connect((&good, false), &server).unwrap();

    // A process notices that its own certificate is revoked, and a list that is of no use.
    let error = Identity::from_pem(with_list("bad", 3), SecretRole::Member, "node").unwrap_err();
    assert!(
        error.to_string().contains("revokes the certificate"),
        "{error}"
    );
    let other = Operator::new();
    let of_other = PemFiles {
        crl: Some(operator.path("crl.pem")),
        ..other.issue("a", NODE)
    };
    let error = Identity::from_pem(of_other, SecretRole::Member, "node").unwrap_err();
    assert!(
        error.to_string().contains("no list in --tls-crl"),
        "{error}"
    );
    operator.write("crl.pem", "no list");
    let error = Identity::from_pem(with_list("good", 2), SecretRole::Member, "node").unwrap_err();
    assert!(error.to_string().starts_with("--tls-crl"), "{error}");
    server.refresh();
    assert_eq!(server.certificate().reloads_failed, 1);
    assert!(!server.trusts(&of_bad), "the former list stays in force");
}

#[test]
fn files_that_are_of_no_use_are_named_with_their_flags() {
    let operator = Operator::new();
    operator.issue("a", NODE);
    operator.issue("b", NODE);
    // Made by `openssl x509 -req` without an extension file.
    operator.write("old.pem", OLD);
    let shown = |name: &str| operator.path(name).display().to_string();
    let said = |cert: &str, key: &str| {
        let files = PemFiles::new(
            &operator.path("ca.pem"),
            &operator.path(cert),
            &operator.path(key),
        );
        Identity::from_pem(files, SecretRole::Member, "node")
            .map_err(|e| e.to_string())
            .map(|_| ())
    };
    said("a.pem", "a.key").unwrap();
    let cases = [
        (
            "a.pem",
            "a.pem",
            format!("--tls-key {}: it has no private key", shown("a.pem")),
        ),
        (
            "a.key",
            "a.key",
            format!("--tls-cert {}: it has no certificate", shown("a.key")),
        ),
        (
            "a.pem",
            "b.key",
            format!(
                "--tls-cert {} and --tls-key {} do not belong together",
                shown("a.pem"),
                shown("b.key")
            ),
        ),
        (
            "old.pem",
            "a.key",
            format!("--tls-cert {}: ", shown("old.pem")),
        ),
    ];
    for (cert, key, wanted) in cases {
        let error = said(cert, key).unwrap_err();
        assert!(error.starts_with(&wanted), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let error = said("old.pem", "a.key").unwrap_err();
    for part in ["version 1", "-extfile", "subjectAltName", "doyen:member"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn changed_files_come_into_force_and_broken_ones_do_not() {
    let operator = Operator::new();
    let node = identity(operator.issue("a", NODE), SecretRole::Member, "node");
    let counted = |reloads, reloads_failed| {
        let report = node.certificate();
        assert_eq!(
            (report.reloads, report.reloads_failed),
            (reloads, reloads_failed)
        );
    };
    counted(0, 0);
    let first = node.tls();
    node.refresh();
    assert!(Arc::ptr_eq(&first, &node.tls()));
    operator.write("a.key", "no key");
    counted(0, 1);
    assert!(Arc::ptr_eq(&first, &node.tls()));
    operator.issue("a", NODE);
    counted(1, 1);
    assert!(!Arc::ptr_eq(&first, &node.tls()));
}

#[test]
fn a_chain_ends_with_the_first_of_its_certificates() {
    let operator = Operator::new();
    let files = operator.issue("later", Subject { ends: 2040, ..NODE });
    operator.issue("sooner", Subject { ends: 2039, ..NODE });
    let read = |name: &str| std::fs::read_to_string(operator.path(name)).unwrap();
    operator.write("later.pem", &(read("later.pem") + &read("sooner.pem")));
    let node = identity(files, SecretRole::Member, "node");
    let ends = node.certificate().ends;
    assert_eq!(ends, [("listen", 2_177_452_800)], "2039-01-01");
    assert_eq!(
        certificate::end_of(&CertificateDer::from(vec![1, 2, 3])),
        None
    );
}

/// Regression: an expired certificate, and one of tomorrow, came into force over a good one,
/// without a line.
#[test]
fn certificates_of_another_time_are_refused_and_the_last_good_one_stays() {
    let operator = Operator::new();
    // In October of 2024.
    let hand = Hand::at_day(20_000);
    let node = Identity::at(secrets(&[1]), None, (SecretRole::Member, "a"), hand.clone()).unwrap();
    let wanted = |name: &str| ports::PortCertificate {
        port: "resp",
        source: ports::PortSource::Files {
            cert: ("--resp-tls-cert", operator.path(&format!("{name}.pem"))),
            key: ("--resp-tls-key", operator.path(&format!("{name}.key"))),
        },
        client_ca: None,
        min: Default::default(),
    };
    operator.issue("over", Subject { ends: 2024, ..NODE });
    operator.issue(
        "early",
        Subject {
            begins: 2025,
            ..NODE
        },
    );
    for (name, part) in [
        ("over", "expired 277 days ago"),
        ("early", "begins in 89 days"),
    ] {
        let of_ports = Ports::new(&node, wanted(name))
            .expect_err("refused")
            .to_string();
        let of_node = operator.files(name).load(hand.clone()).map(|_| ());
        let of_node = of_node.expect_err("refused").to_string();
        assert!(
            of_ports.contains(part) && of_ports.contains("--resp-tls-cert"),
            "{of_ports}"
        );
        assert!(
            of_node.contains(part) && of_node.contains("--tls-cert"),
            "{of_node}"
        );
    }

    operator.issue("good", Subject { ends: 2030, ..NODE });
    let ports = Arc::new(Ports::new(&node, wanted("good")).expect("it is of this time"));
    node.keep_ports(&ports);
    let good = ports.config();
    let copy = |name: &str| {
        for kind in ["key", "pem"] {
            let [from, to] = [name, "good"].map(|name| operator.path(&format!("{name}.{kind}")));
            std::fs::copy(from, to).expect("copied");
        }
    };
    let counted = |reloads, failed| {
        let report = node.certificate();
        assert_eq!((report.reloads, report.reloads_failed), (reloads, failed));
        report
            .ends
            .into_iter()
            .find(|(port, _)| *port == "resp")
            .map(|(_, ends)| ends)
    };
    let in_2030 = Some(1_893_456_000);
    assert_eq!(counted(0, 0), in_2030);
    for (failed, name) in [(1, "over"), (2, "early")] {
        copy(name);
        for _ in 0..3 {
            assert_eq!(counted(0, failed), in_2030, "{name}");
            assert!(Arc::ptr_eq(&good, &ports.config()), "{name}");
        }
    }
    // Its time comes, though the file does not change.
    hand.move_to(20_100 * DAY);
    assert_ne!(counted(1, 2), in_2030);
    assert!(!Arc::ptr_eq(&good, &ports.config()));
}
