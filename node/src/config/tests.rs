use super::http::TOKEN_BYTES_MIN;
use super::ports::is_built;
use super::value::{Size, Toggle};
use super::*;
use doyen_placement::{Durability, OnLoss};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

fn resolve(change: impl FnOnce(&mut Options)) -> Result<Config, ConfigError> {
    let mut options = Options::default();
    change(&mut options);
    options.resolve(Defaults::Binary)
}

#[test]
fn a_door_that_is_not_built_is_refused_with_the_feature_to_switch_on() {
    let address = [(
        "--http",
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 7480))),
    )];
    let error = is_built("HTTP", "http", false, &address).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "this program is built without HTTP, which --http 127.0.0.1:7480 asks for: switch on \
         the feature `http` of the crate `doyen`, or leave --http out"
    );
    assert!(is_built("HTTP", "http", true, &address).is_ok());
    assert!(is_built("HTTP", "http", false, &[("--http", None)]).is_ok());
}

#[test]
fn by_default_a_node_stays_on_loopback() {
    let config = resolve(|_| {}).expect("defaults hold");
    assert_eq!(config.ports.listen.to_string(), "127.0.0.1:7400");
    assert_eq!(
        config.ports.resp.map(|a| a.to_string()).as_deref(),
        cfg!(feature = "resp").then_some("127.0.0.1:7379")
    );
    assert_eq!(
        config.ports.http.map(|a| a.to_string()).as_deref(),
        Some("127.0.0.1:7480")
    );
    assert_eq!(config.trust, Trust::Loopback);
}

#[test]
fn by_default_an_embedded_node_opens_no_client_ports() {
    let config = Options::default()
        .resolve(Defaults::Embedded)
        .expect("defaults hold");
    assert_eq!(
        (
            config.ports.resp,
            config.ports.resp_cluster,
            config.ports.http
        ),
        (None, None, None)
    );
}

#[test]
fn without_a_secret_only_loopback_is_bound() {
    let error = resolve(|o| o.listen = Some("0.0.0.0:7400".into())).expect_err("refused");
    assert!(error.0.contains("--secret-file"), "{error}");
    let config = resolve(|o| {
        o.listen = Some("0.0.0.0:7400".into());
        o.secret = Some(b"0123456789abcdef".to_vec());
    });
    assert!(config.is_ok());
}

#[test]
fn a_short_secret_is_refused() {
    let error = resolve(|o| o.secret = Some(b"short".to_vec())).expect_err("refused");
    assert!(error.0.contains("at least 16"), "{error}");
}

#[cfg(not(feature = "resp"))]
#[test]
fn a_build_without_resp_refuses_its_ports_and_names_the_feature() {
    for change in [
        |o: &mut Options| o.resp = Some(Toggle::On("127.0.0.1:0".into())),
        |o: &mut Options| o.resp_cluster = Some(Toggle::On("127.0.0.1:0".into())),
    ] {
        let error = resolve(change).expect_err("refused");
        assert!(error.0.contains("feature `resp`"), "{error}");
    }
    let config = resolve(|o| o.resp = Some(Toggle::Off)).expect("it asks for none");
    assert_eq!((config.ports.resp, config.ports.resp_cluster), (None, None));
}

#[cfg(feature = "resp")]
#[test]
fn resp_beyond_loopback_needs_a_password() {
    for change in [
        |o: &mut Options| o.resp = Some(Toggle::On("0.0.0.0:0".into())),
        |o: &mut Options| o.resp_cluster = Some(Toggle::On("0.0.0.0:0".into())),
    ] {
        let error = resolve(change).expect_err("refused");
        assert!(error.0.contains("--resp-password-file"), "{error}");
    }
}

/// `HOST:PORT` that does not resolve used to be called "not an address".
#[test]
fn all_flags_with_an_address_report_the_same_errors() {
    let secret = || Some(b"0123456789abcdef".to_vec());
    let on = |text: &str| Some(Toggle::On(text.into()));
    type Say = fn(&mut Options, &str);
    let flags: [(&str, Say); 8] = [
        ("--listen", |o, a| o.listen = Some(a.into())),
        ("--data", |o, a| o.data = Some(a.into())),
        ("--advertise", |o, a| o.advertise = Some(a.into())),
        ("--advertise-resp", |o, a| o.advertise_resp = Some(a.into())),
        ("--advertise-resp-cluster", |o, a| {
            o.advertise_resp_cluster = Some(a.into())
        }),
        ("--resp", |o, a| o.resp = Some(Toggle::On(a.into()))),
        ("--resp-cluster", |o, a| {
            o.resp_cluster = Some(Toggle::On(a.into()))
        }),
        ("--http", |o, a| o.http = Some(Toggle::On(a.into()))),
    ];
    for (flag, say) in flags {
        for (text, why) in [
            (
                "no-such-host.invalid:7",
                "cannot resolve `no-such-host.invalid`",
            ),
            ("7440", "write :7440"),
            ("a b", "`a b` is not an address"),
        ] {
            let error = resolve(|o| (say(o, text), o.secret = secret()).1)
                .expect_err("refused")
                .0;
            assert!(
                error.starts_with(&format!("{flag}: ")) && error.contains(why),
                "{error}"
            );
        }
    }
    let config = resolve(|o| {
        (
            o.http = on("[::ffff:127.0.0.1]:9"),
            o.listen = Some("::ffff:127.0.0.1".into()),
        )
            .1
    })
    .expect("holds");
    assert_eq!(
        (
            config.ports.listen.to_string(),
            config.ports.http.map(|a| a.to_string())
        ),
        ("127.0.0.1:7400".into(), Some("127.0.0.1:9".into()))
    );
}

#[test]
fn a_node_does_not_advertise_an_address_where_it_receives_nothing() {
    let tell = |listen: Option<&str>, data: Option<&str>, advertise: &str| {
        resolve(|o| {
            (o.listen, o.data) = (listen.map(Into::into), data.map(Into::into));
            (o.advertise, o.secret) = (Some(advertise.into()), Some(b"0123456789abcdef".to_vec()));
        })
    };
    for (listen, data, advertise) in [
        (Some("0.0.0.0:1"), None, "2001:db8::1"),
        (Some("[2001:db8::1]:1"), None, "10.0.0.1"),
        (Some("[::]:1"), Some("0.0.0.0:2"), "[2001:db8::1]:9"),
    ] {
        let error = tell(listen, data, advertise).expect_err("refused").0;
        let flag = if data.is_some() {
            "--data [::]:2"
        } else {
            "--listen [::]:1"
        };
        assert!(
            error.contains(flag) && error.contains("takes both"),
            "{error}"
        );
    }
    for (listen, advertise) in [
        ("[::]:1", "10.0.0.1"),
        ("[::]:1", "2001:db8::1"),
        ("0.0.0.0:1", "::ffff:10.0.0.1"),
    ] {
        assert!(
            tell(Some(listen), None, advertise).is_ok(),
            "{listen} {advertise}"
        );
    }
    assert_eq!(
        tell(None, None, "2001:db8::1")
            .expect("holds")
            .ports
            .listen
            .to_string(),
        "[::]:7400"
    );
    for none in ["0.0.0.0", "224.0.0.1", "255.255.255.255", "ff02::1"] {
        assert!(
            tell(None, None, none).is_err_and(|e| e.0.contains("not the address of a machine")),
            "{none}"
        );
    }
}

#[test]
fn on_every_interface_the_address_towards_the_first_seed_is_advertised() {
    let config = resolve(|o| {
        (o.listen, o.secret) = (Some("[::]:0".into()), Some(b"0123456789abcdef".to_vec()));
        o.seed = vec!["127.0.0.1:7400".into()];
    })
    .expect("holds");
    let bound = "[::]:7".parse().expect("an address");
    assert_eq!(
        config
            .ports
            .advertised(bound, &config.seeds)
            .map(|a| a.to_string()),
        Ok("127.0.0.1:7".into())
    );
}

/// The port used to be dropped silently, and a name used to become an address.
#[cfg(feature = "resp")]
#[test]
fn advertised_client_addresses_may_have_a_name_and_ports() {
    let tell = |resp: &str, cluster: &str| {
        resolve(|o| {
            (o.advertise_resp, o.advertise_resp_cluster) = (Some(resp.into()), Some(cluster.into()))
        })
    };
    let config = tell("10.0.0.1:6379", "localhost:9000").expect("holds");
    let address = |ip: [u8; 4], name: Option<&str>, port| ClientAddress {
        ip: ip.into(),
        name: name.map(Into::into),
        port: Some(port),
    };
    assert_eq!(
        config.ports.advertise_resp,
        Some(address([10, 0, 0, 1], None, 6379))
    );
    assert_eq!(
        config.ports.advertise_resp_cluster,
        Some(address([127, 0, 0, 1], Some("localhost"), 9000))
    );
    assert!(tell("10.0.0.1:0", "10.0.0.1").is_err_and(|e| e.0.contains("port 0")));
    let off =
        resolve(|o| (o.resp, o.advertise_resp) = (Some(Toggle::Off), Some("10.0.0.1:6379".into())));
    assert!(off.is_err_and(|e| e.0.contains("--advertise-resp-cluster")));
    let off = resolve(|o| {
        (o.resp_cluster, o.advertise_resp_cluster) = (Some(Toggle::Off), Some("10.0.0.1".into()))
    });
    assert!(off.is_err_and(|e| e.0.contains("--resp-cluster")));
    let high = resolve(|o| {
        (o.threads, o.advertise_resp_cluster) = (Some(2), Some("10.0.0.1:65535".into()))
    });
    assert!(high.is_err_and(|e| e.0.contains("--threads 2")));
}

#[test]
fn http_beyond_loopback_needs_a_token() {
    let http = |o: &mut Options| o.http = Some(Toggle::On("0.0.0.0:0".into()));
    let error = resolve(http).expect_err("refused");
    assert!(
        error.0.contains("--http-token-file") && error.0.lines().count() == 1,
        "{error}"
    );
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pem");
    fs::write(&file, "x".repeat(TOKEN_BYTES_MIN)).expect("written");
    let pem = |o: &mut Options| {
        [&mut o.tls_ca, &mut o.tls_cert, &mut o.tls_key]
            .into_iter()
            .for_each(|f| *f = Some(file.clone()))
    };
    let both = |o: &mut Options| {
        http(o);
        pem(o);
    };
    assert!(
        resolve(both).is_err_and(|e| e.0.contains("--http-token-file")),
        "certificates do not yield a token"
    );
    let with_token = |o: &mut Options| {
        both(o);
        o.http_token_file = Some(file.clone());
    };
    let takes_no_commands =
        |o: Result<Config, ConfigError>| o.expect("it holds").takes_no_commands();
    assert!(!takes_no_commands(resolve(with_token)), "it has a token");
    assert!(
        takes_no_commands(resolve(pem)),
        "neither a secret nor a token, which is logged at the start"
    );
    assert!(
        !takes_no_commands(resolve(|_| {})),
        "programs on this machine need no token"
    );
    let secret = |o: &mut Options| {
        http(o);
        o.secret = Some(b"0123456789abcdef".to_vec());
    };
    assert!(resolve(secret).is_ok(), "a secret yields a token");
}

#[test]
fn http_beyond_loopback_speaks_tls_unless_it_is_said_to_be_insecure() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("pem");
    fs::write(&file, "x".repeat(TOKEN_BYTES_MIN)).expect("written");
    let http_tls = |address: &str, change: &dyn Fn(&mut Options)| {
        resolve(|o| {
            o.secret = Some(b"0123456789abcdef".to_vec());
            o.http = Some(Toggle::On(address.into()));
            change(o);
        })
        .map(|config| config.http.tls)
    };
    let of_the_secret = Ok(Some(PortTls::default()));
    assert_eq!(http_tls("0.0.0.0:0", &|_| {}), of_the_secret);
    assert_eq!(http_tls("127.0.0.1:0", &|_| {}), Ok(None));
    assert_eq!(
        http_tls("127.0.0.1:0", &|o| o.http_tls = Some(true)),
        of_the_secret
    );
    assert_eq!(
        http_tls("0.0.0.0:0", &|o| o.http_insecure = Some(true)),
        Ok(None)
    );
    let both = |o: &mut Options| {
        (o.http_tls_cert, o.http_tls_key) = (Some(file.clone()), Some(file.clone()));
    };
    let pair = Some((file.clone(), file.clone()));
    for address in ["0.0.0.0:0", "127.0.0.1:0"] {
        let found = http_tls(address, &both).expect("it holds");
        assert_eq!(found.expect("files say that it is wanted").pair, pair);
    }
    let refused = |change: &dyn Fn(&mut Options)| {
        let why = http_tls("0.0.0.0:0", change).expect_err("refused").0;
        assert_eq!(why.lines().count(), 1, "{why}");
        why
    };
    assert!(refused(&|o| o.http_tls = Some(false)).contains("--http-insecure"));
    assert!(
        refused(&|o| (o.http_tls, o.http_insecure) = (Some(true), Some(true)))
            .contains("exclude each other")
    );
    assert!(refused(&|o| o.http_tls_cert = Some(file.clone())).contains("belong together"));
    assert!(
        refused(&|o| {
            both(o);
            o.http_insecure = Some(true);
        })
        .contains("--http-tls-cert")
    );
    let only_a_token = |o: &mut Options| {
        o.secret = None;
        o.http_token_file = Some(file.clone());
    };
    assert!(refused(&only_a_token).contains("--http-tls-cert and --http-tls-key"));
}

#[test]
fn http_answers_to_the_configured_names() {
    let hosts = |change: fn(&mut Options)| resolve(change).map(|config| config.http.hosts);
    assert_eq!(hosts(|_| {}), Ok(Vec::new()));
    let told = hosts(|o| {
        (o.http_host, o.http) = (
            Some(vec!["ada.example".into()]),
            Some(Toggle::On("localhost:0".into())),
        )
    });
    assert_eq!(told, Ok(vec!["ada.example".into(), "localhost".into()]));
    for wrong in ["", "ada:80", "http://ada", "*", "a b"] {
        let refused = resolve(|o| o.http_host = Some(vec![wrong.into()]));
        assert!(
            refused.is_err_and(|e| e.0.contains("--http-host")),
            "{wrong}"
        );
    }
}

#[cfg(feature = "resp")]
#[test]
fn http_answers_to_the_names_that_clients_are_told() {
    let config = resolve(|o| {
        (o.resp_cluster, o.advertise_resp_cluster) = (
            Some(Toggle::On("127.0.0.1:0".into())),
            Some("localhost:7000".into()),
        );
        o.advertise_resp = Some("10.0.0.1".into());
    });
    assert_eq!(
        config.expect("holds").http.hosts,
        ["localhost"],
        "an IP address is no name"
    );
}

#[test]
fn seeds_stay_names_and_get_the_default_port() {
    let config =
        resolve(|o| o.seed = vec!["db.internal".into(), "127.0.0.2:1".into()]).expect("holds");
    assert_eq!(config.seeds, ["db.internal:7400", "127.0.0.2:1"]);
    assert!(
        resolve(|o| o.seed = vec!["10.0.0.1".into()]).is_err_and(|e| e.0.contains("--secret-file"))
    );
    assert!(resolve(|o| o.seed = vec!["a:b:c".into()]).is_err());
}

#[test]
fn a_node_has_the_configured_number_of_data_threads_or_one() {
    assert_eq!(resolve(|_| {}).expect("holds").ports.threads, 1);
    assert_eq!(
        resolve(|o| o.threads = Some(16))
            .expect("holds")
            .ports
            .threads,
        16
    );
    for wrong in [0, 17, 300] {
        assert!(resolve(|o| o.threads = Some(wrong)).is_err_and(|e| {
            e.0.contains(&format!("--threads {wrong}: a node has 1 to 16"))
        }));
    }
    let mut options = Options {
        value_max: Some(Size(3 << 20)),
        memory_max: Some(Size(4 << 20)),
        ..Options::default()
    };
    assert!(options.clone().resolve(Defaults::Binary).is_ok());
    options.threads = Some(2);
    assert!(
        options
            .resolve(Defaults::Binary)
            .is_err_and(|e| e.0.contains("--threads 2"))
    );
}

#[test]
fn impossible_numbers_are_refused() {
    assert!(resolve(|o| o.partitions = Some(1000)).is_err());
    assert!(resolve(|o| o.partitions = Some(0)).is_err());
    assert!(resolve(|o| o.value_max = Some(Size(0))).is_err());
    let at =
        |bytes| resolve(|o| (o.value_max, o.memory_max) = (Some(Size(bytes)), Some(Size(1 << 30))));
    assert!(
        at(64 << 20).is_ok() && at((64 << 20) + 1).is_err_and(|e| e.0.contains("at most 64mb"))
    );
    assert!(
        resolve(|o| (o.value_max, o.memory_max) = (Some(Size(1 << 30)), Some(Size(1 << 20))))
            .is_err()
    );
    assert!(resolve(|o| o.backups = Some(200)).is_err());
    assert!(resolve(|o| o.min_in_sync = Some(3)).is_err());
    assert!(resolve(|o| o.weight = Some(0)).is_err());
    assert!(
        resolve(|o| o.weight = Some(1_000_000_000))
            .is_err_and(|why| why.to_string().contains("at most 100000"))
    );
    assert!(
        resolve(|o| o.zone = Some("\u{e9}".into())).is_err()
            && resolve(|o| o.rack = Some("r".repeat(65))).is_err()
    );
}

#[test]
fn variables_without_effect_are_reported() {
    let told = |names: &[&str]| unread_variables(names.iter().map(ToString::to_string));
    let links = [
        "DOYEN_SERVICE_HOST",
        "DOYEN_SERVICE_PORT_RESP",
        "DOYEN_PORT",
        "DOYEN_PORT_7400_UDP_ADDR",
        "DOYEN_RESP_SERVICE_HOST",
    ];
    assert_eq!(told(&links), Vec::<String>::new());
    assert_eq!(
        told(&[
            "DOYEN_BACKUPS",
            "DOYEN_SECRET",
            "DOYEN_HTTP",
            "DOYEN_CONFIG",
            "PATH",
            "DOYEN_SECRET_FILE"
        ]),
        Vec::<String>::new()
    );
    assert_eq!(
        told(&["DOYEN_BAKUPS"]),
        ["the variable DOYEN_BAKUPS has no effect: did you mean DOYEN_BACKUPS?"]
    );
    let told = told(&["DOYEN_SEEDS", "DOYEN_QQQQQQQQQ"]);
    assert!(
        told[0].contains("DOYEN_QQQQQQQQQ has no effect: `doyen run --help`"),
        "{told:?}"
    );
    assert!(told[1].contains("did you mean DOYEN_SEED?"), "{told:?}");
}

#[test]
fn a_keyspace_on_disk_needs_a_directory_and_its_level() {
    let refused = |options: Options| {
        let refused = options.resolve(Defaults::Binary).map(|_| ());
        refused.expect_err("it cannot hold").0
    };
    let durable = || Options {
        durability: Some(Durability::Log),
        ..Options::default()
    };
    assert!(refused(durable()).contains("give --dir DIR as well"));
    let with_dir = || Options {
        dir: Some("/tmp/n1".into()),
        ..durable()
    };
    let former = Options {
        level_max: Some(16),
        ..with_dir()
    };
    assert!(refused(former).contains("leave --level-max out"));
    let config = with_dir().resolve(Defaults::Binary).expect("holds");
    let keyspace = config.first.keyspace;
    assert_eq!(
        (keyspace.durability, keyspace.on_loss),
        (Durability::Log, OnLoss::Wait)
    );
}

#[test]
fn a_file_has_the_options_of_flags_and_unknown_keys_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("doyen.toml");
    let text = "seed = [\"a:1\"]\nvalue-max = \"1mb\"\nhttp = false\nbackups = 2\n\
                threads = 3\non-loss = \"wait\"\n";
    fs::write(&path, text).expect("written");
    let options = Options::from_file(&path).expect("read");
    assert_eq!(options.value_max, Some(Size(1 << 20)));
    assert_eq!(options.http, Some(Toggle::Off));
    let config = options.resolve(Defaults::Binary).expect("holds");
    assert_eq!(
        (config.first.keyspace.on_loss, config.ports.threads),
        (OnLoss::Wait, 3)
    );
    fs::write(&path, "backups = 1\nbakups = 2\n").expect("written");
    let error = Options::from_file(&path).expect_err("refused");
    assert!(
        error.0.contains("line 2")
            && error
                .0
                .contains("there is no key `bakups`: did you mean `backups`?"),
        "{error}"
    );
    for (wrong, said) in [
        (
            "threads = \"x\"",
            "`threads`: invalid type: string \"x\", but a whole number is expected",
        ),
        (
            "backups = 300",
            "`backups`: invalid value: integer `300`, but a whole number from 0 to 255 is \
             expected",
        ),
        (
            "seed = \"a\"",
            "`seed`: invalid type: string \"a\", but a list such as [\"a\", \"b\"] is expected",
        ),
        ("name = a", "`name`: a text stands in quotes: write \"...\""),
        (
            "backups = 1\nbackups = 2",
            "`backups`: this key stands in the file twice: remove one of them",
        ),
    ] {
        let error = Options::from_text(wrong, "doyen.toml").expect_err("refused");
        assert!(error.0.ends_with(said), "{error}");
    }
    for (wrong, meant) in [
        ("value_max", "`value-max`"),
        ("seeds", "`seed`"),
        ("loglevel", "`log`"),
        ("password", "`resp-password-file`"),
        ("nonsense", "--help"),
    ] {
        fs::write(&path, format!("{wrong} = \"x\"\n")).expect("written");
        let error = Options::from_file(&path).expect_err("refused");
        assert!(error.0.contains(meant) && error.0.len() < 200, "{error}");
    }
}

/// A limit that a file sets was refused with the name of its flag alone.
#[test]
fn a_value_of_a_file_that_does_not_hold_is_refused_with_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("doyen.toml");
    fs::write(
        &path,
        "# small\nmemory-max = \"64mb\"\nvalue-max = \"63mb\"\nthreads = 2\n",
    )
    .expect("written");
    let refused = |typed: Options| {
        let given = typed.given();
        let options = typed.or(Options::from_file(&path).expect("read"));
        let error = options.resolve(Defaults::Binary).expect_err("refused");
        error.in_file(&path, &given).0
    };
    let file = path.display();
    let all = refused(Options::default());
    let places = "`memory-max` is in line 2, `value-max` is in line 3, `threads` is in line 4)";
    assert!(all.ends_with(&format!(" ({file}: {places}")), "{all}");
    let typed = refused(Options {
        value_max: Some(Size(1)),
        ..Options::default()
    });
    assert!(!typed.contains("line"), "the flag wins: {typed}");
}

#[test]
fn secrets_and_tokens_that_are_guessed_easily_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    let with = |content: &[u8], set: &dyn Fn(&mut Options, PathBuf)| {
        fs::write(&file, content).expect("written");
        resolve(|o| set(o, file.clone()))
            .map(|_| ())
            .map_err(|e| e.0)
    };
    let secret = |o: &mut Options, file| o.secret_file = Some(file);
    let token = |o: &mut Options, file| o.http_token_file = Some(file);
    let long = b"0123456789abcdef";
    assert_eq!(with(long, &secret), Ok(()));
    assert_eq!(with(b"0123456789abcdef\n", &token), Ok(()));
    let (by_secret, by_token) = ("doyen secret new --dir DIR", "openssl rand -hex 32");
    for (content, set, wrong, remedy) in [
        (
            &[0; 32][..],
            &secret as &dyn Fn(&mut Options, PathBuf),
            "line 1 is damaged (it has a control character)",
            "copy the file again",
        ),
        (
            b"0123456789\nabcdef0",
            &secret,
            "line 1 has 10 bytes",
            by_secret,
        ),
        (b"# nothing\n", &secret, "has no secret", by_secret),
        (&[0; 32], &token, "control character '\\0'", by_token),
        (
            b"short",
            &token,
            "has 5 bytes, but at least 16 are needed",
            by_token,
        ),
        (b"0123456789abcde\n", &token, "has 15 bytes", by_token),
    ] {
        let why = with(content, set).expect_err("refused");
        assert!(why.contains(wrong) && why.contains(remedy), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
    }
    let zeros = resolve(|o| o.secret = Some(vec![0; 32])).expect_err("refused");
    assert!(zeros.0.contains("repeats few bytes"), "{zeros}");
}

#[test]
fn a_file_of_another_role_is_refused_with_the_one_that_fits() {
    let dir = tempfile::tempdir().expect("a directory");
    let member = Line::new_member().expect("randomness");
    let file = |role| {
        let path = dir.path().join(format!("{role}"));
        let line = member.for_role(role).expect("a line");
        fs::write(&path, line.expose().as_bytes()).expect("written");
        path
    };
    let (of_member, of_client, of_operator) = (
        file(TrustRole::Member),
        file(TrustRole::Client),
        file(TrustRole::Operator),
    );
    let as_node =
        |path: &PathBuf| resolve(|o| o.secret_file = Some(path.clone())).map(|config| config.trust);
    let as_client = |path: &PathBuf| {
        let options = Options {
            secret_file: Some(path.clone()),
            seed: vec!["127.0.0.1".to_owned()],
            ..Options::default()
        };
        options.client().map(|config| config.trust)
    };
    assert!(as_node(&of_member).is_ok() && as_client(&of_member).is_ok());
    assert!(as_client(&of_client).is_ok());
    for (refused, path, wanted) in [
        (as_node(&of_client), &of_client, "the member's file"),
        (as_node(&of_operator), &of_operator, "the member's file"),
        (as_client(&of_operator), &of_operator, "the client's file"),
    ] {
        let why = refused.expect_err("refused").0;
        assert!(why.starts_with(&path.display().to_string()), "{why}");
        assert!(why.contains(wanted), "{why}");
    }
}

#[test]
fn the_first_source_wins() {
    let flags = Options {
        backups: Some(2),
        ..Options::default()
    };
    let file = Options {
        backups: Some(0),
        weight: Some(7),
        ..Options::default()
    };
    let both = flags.or(file);
    assert_eq!((both.backups, both.weight), (Some(2), Some(7)));
}

#[test]
fn a_secret_that_every_user_can_read_causes_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("secret");
    fs::write(&path, "a secret of the tests").expect("written");
    for (mode, warnings) in [(0o644, 5), (0o640, 0), (0o600, 0), (0o604, 5)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
        let file = || Some(path.clone());
        let options = Options {
            secret_file: file(),
            resp_password_file: file(),
            resp_acl_file: file(),
            http_token_file: file(),
            tls_key: file(),
            ..Options::default()
        };
        let said = options.exposed();
        assert!(
            said.len() == warnings
                && said
                    .iter()
                    .all(|w| w.contains("chmod 600") && w.contains("secret")),
            "{mode:o}: {said:?}"
        );
    }
}

#[test]
fn a_directory_that_others_can_look_into_or_change_causes_a_warning() {
    let dir = tempfile::tempdir().expect("a directory");
    for (mode, warns) in [(0o700, false), (0o750, false), (0o755, true), (0o770, true)] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(dir.path(), permissions).expect("it is ours");
        let options = Options {
            dir: Some(dir.path().to_owned()),
            ..Options::default()
        };
        let said = options.exposed().concat();
        assert_eq!(said.contains("chmod 700"), warns, "{mode:o}: {said:?}");
    }
}

#[test]
fn secrets_do_not_reach_logs() {
    let config = resolve(|o| o.secret = Some(b"0123456789abcdef".to_vec())).expect("holds");
    assert!(
        !format!("{config:?}").contains("0123456789abcdef")
            && !format!("{config:?}").contains("48, 49")
    );
}

/// The table of all options, from what the program takes and what the builder sets.
fn table_of_options() -> String {
    let flags = <Options as clap::Args>::augment_args(clap::Command::new("run"));
    let mut table = String::new();
    for arg in flags.get_arguments() {
        let flag = arg.get_long().expect("each option is a flag");
        let variable = arg.get_env().and_then(|name| name.to_str());
        let variable = variable.expect("each option is a variable");
        let field = flag.replace('-', "_");
        assert_eq!(variable, format!("DOYEN_{}", field.to_uppercase()));
        let value = arg.get_value_names().unwrap_or_default().join(" ");
        let help = arg
            .get_long_help()
            .or(arg.get_help())
            .expect("it has words");
        let help = help.to_string().replace('|', "\\|");
        let setters = setters(&field);
        table += &format!("| `--{flag}` | {value} | {setters} | {help} |\n");
    }
    table
}

/// The methods of the builder that set this option.
fn setters(field: &str) -> String {
    let builder = include_str!("../node/builder.rs");
    let mut setters = Vec::new();
    let mut method = "";
    for line in builder.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("pub fn ") {
            method = name.split(['<', '(']).next().unwrap_or_default();
        }
        let sets = [
            format!("self.options.{field} ="),
            format!("self.options.{field}."),
        ];
        if sets.iter().any(|sets| line.starts_with(sets)) {
            setters.push(format!("`{method}`"));
        }
    }
    setters.join(", ")
}

/// To write the table of the page, run this with `DOYEN_WRITE_PAGES=1`.
#[test]
fn the_page_of_options_is_what_the_program_takes() {
    const HEAD: &str = "|---|---|---|---|\n";
    let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");
    let page = fs::read_to_string(at).expect("there is a page");
    let (words, table) = page.split_once(HEAD).expect("the page has a table");
    let wanted = table_of_options();
    if std::env::var_os("DOYEN_WRITE_PAGES").is_some() {
        fs::write(at, [words, HEAD, &wanted].concat()).expect("the page is written");
    } else {
        assert!(
            table == wanted,
            "the table of docs/options.md is outdated: run this test with DOYEN_WRITE_PAGES=1"
        );
    }
}
