//! The hello at the beginning of every connection. It names the sender, the purpose, and the
//! versions of the wire that the sender speaks.
//!
//! The dialler opens the connection's first stream, sends its hello and ends the stream. The other
//! end answers likewise, or closes the connection with a reason. The layout of these fields never
//! changes, and readers skip what follows the fields that they know. So nodes of different versions
//! can at least say that they do not fit:
//!
//! ```text
//!   "DOYN"  version min u16  version max u16  purpose u8  sender u8     (little endian)
//!   id u64  name length u16  name
//!   stay u8  family u8 (0, 4 or 6)  address  port u16
//!   certificate length u16  certificate
//!   vote key, 32 bytes  signature, 64 bytes
//!   process u64  count u64
//! ```
//! The last four lines may be missing. If the cluster has a secret, the answering end shows its
//! certificate here, which is for the key of its handshake. A node shows the key of its votes, and
//! signs its id and a number that TLS derives for this connection and this end
//! (`identity::process`). A node with a directory says which process it is, and a number that rises
//! with each one of that directory (rule 14): until a table has it, it speaks in the name of the
//! member that had the directory before, whose id and key it shows. *stay* is 1 if the connection
//! ends with its hellos, because the dialler only asks which node answers. The address is the one
//! at which others reach the sender's control port; control connections carry it.
//!
//! The sender is a node (1) or a client (2), and its id must be of the same kind. On data ports the
//! sender is a data thread, and the id is that of the thread.

use super::endpoint::{Close, DialFailure, Purpose};
use super::identity::{Claim, Evidence, Identity, Proof};
use super::starts::DirectoryStart;
use bytes::{Buf, BufMut};
use doyen_gossip::{Presence, Signature};
use doyen_placement::level::LEVELS;
use doyen_placement::{MemberId, VoteKey};
use quinn::Connection;
use rustls_pki_types::CertificateDer;
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The longest name of a node.
pub const NAME_BYTES_MAX: usize = 256;

const MAGIC: &[u8; 4] = b"DOYN";
/// Longest hello, including the fields of later versions.
pub(super) const HELLO_BYTES_MAX: usize = 1024;
/// Length of a key and of a signature.
const PROOF_BYTES: usize = 96;
/// Length of what follows them.
const START_BYTES: usize = 16;
/// The sender is a node.
const SENDER_NODE: u8 = 1;
/// The sender is a client. It sends requests, and is not a member.
const SENDER_CLIENT: u8 = 2;
/// The label of the numbers that TLS derives for the two ends (RFC 8446, section 7.5).
const BINDING: &[u8] = b"EXPERIMENTAL doyen presence";
/// How long either side may take for its hello.
pub(super) const TIMEOUT: Duration = Duration::from_millis(1500);

/// The hello of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Lowest and highest version of the wire ([`level`](doyen_placement::level)).
    pub versions: (u16, u16),
    /// What the connection is for.
    pub purpose: Purpose,
    /// This process. The id also tells a node from a client.
    pub id: MemberId,
    /// Its name, which its certificate must bear.
    pub name: String,
    /// How long the connection is meant to live.
    pub stay: Stay,
    /// Where others reach its control port.
    pub control: Option<SocketAddr>,
    /// Its certificate, if it was dialled and the cluster has a secret.
    pub certificate: Option<CertificateDer<'static>>,
    /// What shows that it is the process with this id. Clients have none, nor do nodes of versions
    /// before 15.
    pub proof: Option<Proof>,
    /// The process, if it has a directory.
    pub start: Option<DirectoryStart>,
}

/// The end of a connection that sends a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Dialler,
    Answerer,
}

/// The number that TLS derives for one end of a connection. Only the two ends know it.
pub(super) fn binding(
    side: Side,
    export: impl FnOnce(&mut [u8], &[u8], &[u8]) -> bool,
) -> Result<[u8; 32], DialFailure> {
    let side: &[u8] = match side {
        Side::Dialler => b"dialler",
        Side::Answerer => b"answerer",
    };
    let mut number = [0; 32];
    if export(&mut number, BINDING, side) {
        Ok(number)
    } else {
        Err(DialFailure::Hello("its handshake is not complete".into()))
    }
}

fn binding_of(connection: &Connection, side: Side) -> Result<[u8; 32], DialFailure> {
    binding(side, |number, label, context| {
        let exported = connection.export_keying_material(number, label, context);
        exported.is_ok()
    })
}

/// How long a connection is meant to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// As long as both ends do.
    Lasting = 0,
    /// Until both have said hello: the dialler only asks which node answers.
    Passing = 1,
}

impl Hello {
    /// The hello of this program, which speaks all its versions.
    #[must_use]
    pub fn new(purpose: Purpose, id: MemberId, name: &str) -> Self {
        Self {
            versions: LEVELS,
            purpose,
            id,
            name: name.to_owned(),
            stay: Stay::Lasting,
            control: None,
            certificate: None,
            proof: None,
            start: None,
        }
    }

    /// The process that says it.
    #[must_use]
    pub fn process(&self) -> MemberId {
        self.start.map_or(self.id, |start| start.process)
    }

    /// The same for a node that speaks no version above this one (`--level-max`).
    #[must_use]
    pub(crate) fn up_to(self, level_max: u16) -> Self {
        Self {
            versions: (self.versions.0, level_max),
            ..self
        }
    }

    /// The version of a connection between two ends that fit: the highest that both speak.
    #[must_use]
    pub fn version(&self, other: &Self) -> u16 {
        self.versions.1.min(other.versions.1)
    }

    /// The same for a node that others reach at this address.
    #[must_use]
    pub fn at(self, control: SocketAddr) -> Self {
        Self {
            control: Some(control),
            ..self
        }
    }

    /// The same for a connection that only asks which node answers.
    #[must_use]
    pub fn passing(self) -> Self {
        Self {
            stay: Stay::Passing,
            ..self
        }
    }

    /// The same for the end that was dialled, and that shows this certificate.
    #[must_use]
    pub(super) fn answering(&self, certificate: Option<CertificateDer<'static>>) -> Self {
        Self {
            certificate,
            ..self.clone()
        }
    }

    /// The same for the end of a connection whose number is this.
    #[must_use]
    pub(super) fn shown_by(self, identity: &Identity, connection: [u8; 32]) -> Self {
        let id = self.id;
        let proof = if id.is_client() {
            None
        } else {
            identity.prove(&Presence { id, connection })
        };
        Self { proof, ..self }
    }

    /// The key that the sender showed that it has.
    ///
    /// # Errors
    /// The signature is wrong.
    fn key(&self, connection: [u8; 32]) -> Result<Option<VoteKey>, DialFailure> {
        let id = self.id;
        match self.proof {
            None => Ok(None),
            Some(Proof { key, signature }) => {
                if signature.shows(&key, &Presence { id, connection }) {
                    Ok(Some(key))
                } else {
                    let why = "it shows a key, and not that it has the private part of it";
                    Err(DialFailure::Hello(why.into()))
                }
            }
        }
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.put_slice(MAGIC);
        out.put_u16_le(self.versions.0);
        out.put_u16_le(self.versions.1);
        out.put_u8(self.purpose as u8);
        out.put_u8(if self.id.is_client() {
            SENDER_CLIENT
        } else {
            SENDER_NODE
        });
        out.put_u64_le(self.id.0);
        let mut end = self.name.len().min(NAME_BYTES_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &self.name.as_bytes()[..end];
        // NAME_BYTES_MAX fits.
        out.put_u16_le(name.len() as u16);
        out.put_slice(name);
        out.put_u8(self.stay as u8);
        match self.control.map(|control| control.ip()) {
            None => out.put_u8(0),
            Some(IpAddr::V4(ip)) => {
                out.put_u8(4);
                out.put_slice(&ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                out.put_u8(6);
                out.put_slice(&ip.octets());
            }
        }
        out.put_u16_le(self.control.map_or(0, |control| control.port()));
        // Ours is far below the limit of a hello.
        let after = PROOF_BYTES + START_BYTES;
        let fits = |c: &&CertificateDer<'_>| out.len() + 2 + c.len() + after <= HELLO_BYTES_MAX;
        let certificate = self.certificate.as_ref().filter(fits);
        if certificate.is_some() || self.proof.is_some() {
            let certificate = certificate.map_or(&[][..], AsRef::as_ref);
            out.put_u16_le(certificate.len() as u16);
            out.put_slice(certificate);
        }
        if let Some(Proof { key, signature }) = &self.proof {
            out.put_slice(&key.0);
            out.put_slice(signature.halves().as_flattened());
            if let Some(DirectoryStart { process, count }) = self.start {
                out.put_u64_le(process.0);
                out.put_u64_le(count);
            }
        }
        out
    }

    /// Decodes a peer's hello.
    ///
    /// # Errors
    /// The bytes are not a hello; the text is for people.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let short = |_| "its hello is too short".to_owned();
        let mut magic = [0; 4];
        bytes.try_copy_to_slice(&mut magic).map_err(short)?;
        if &magic != MAGIC {
            return Err("its hello is not one of a Doyen node".into());
        }
        let versions = (
            bytes.try_get_u16_le().map_err(short)?,
            bytes.try_get_u16_le().map_err(short)?,
        );
        if versions.0 > versions.1 {
            return Err("its hello has an empty range of versions".into());
        }
        let purpose = match bytes.try_get_u8().map_err(short)? {
            1 => Purpose::Control,
            2 => Purpose::Data,
            other => return Err(format!("its hello is for an unknown purpose ({other})")),
        };
        let client = match bytes.try_get_u8().map_err(short)? {
            SENDER_NODE => false,
            SENDER_CLIENT => true,
            other => {
                return Err(format!(
                    "its hello is of an unknown kind of sender ({other})"
                ));
            }
        };
        let id = MemberId(bytes.try_get_u64_le().map_err(short)?);
        // From here on, the id alone tells a client from a member: neither passes for the other.
        if id.is_client() != client {
            return Err(format!(
                "its hello is of a {} and its id is not",
                if client { "client" } else { "node" }
            ));
        }
        let length = usize::from(bytes.try_get_u16_le().map_err(short)?);
        if length > NAME_BYTES_MAX {
            return Err(format!(
                "its name has {length} bytes; {NAME_BYTES_MAX} are allowed"
            ));
        }
        let name = bytes.get(..length).ok_or("its hello is too short")?;
        let name = std::str::from_utf8(name)
            .map_err(|_| "its name is not UTF-8")?
            .to_owned();
        bytes.advance(length);
        let (stay, control) = Self::decode_place(&mut bytes).unwrap_or((Stay::Lasting, None));
        let certificate = Self::decode_certificate(&mut bytes);
        let proof = Self::decode_proof(&mut bytes);
        // Only what follows a key says that it is a process of that key.
        let start = proof.and_then(|_| Self::decode_start(&mut bytes));
        Ok(Self {
            versions,
            purpose,
            id,
            name,
            stay,
            control,
            certificate,
            proof,
            start,
        })
    }

    /// Decodes what follows the name. `None`: nothing that this version knows.
    fn decode_place(bytes: &mut &[u8]) -> Option<(Stay, Option<SocketAddr>)> {
        let stay = match bytes.try_get_u8().ok()? {
            0 => Stay::Lasting,
            1 => Stay::Passing,
            _ => return None,
        };
        let ip = match bytes.try_get_u8().ok()? {
            0 => None,
            4 => Some(IpAddr::V4(bytes.try_get_u32().ok()?.into())),
            6 => Some(IpAddr::V6(bytes.try_get_u128().ok()?.into())),
            _ => return None,
        };
        let port = bytes.try_get_u16_le().ok()?;
        Some((stay, ip.map(|ip| SocketAddr::new(ip, port))))
    }

    /// Decodes what follows the address. `None`: it is missing, or cut off. Then nothing follows.
    fn decode_certificate(bytes: &mut &[u8]) -> Option<CertificateDer<'static>> {
        let length = usize::from(bytes.try_get_u16_le().ok()?);
        let Some((certificate, rest)) = bytes.split_at_checked(length) else {
            *bytes = &[];
            return None;
        };
        *bytes = rest;
        (length > 0).then(|| certificate.to_vec().into())
    }

    /// Decodes what follows the certificate. `None`: it is missing, or cut off.
    fn decode_proof(bytes: &mut &[u8]) -> Option<Proof> {
        let mut key = [0; 32];
        let mut halves = [[0; 32]; 2];
        bytes.try_copy_to_slice(&mut key).ok()?;
        bytes.try_copy_to_slice(halves.as_flattened_mut()).ok()?;
        Some(Proof {
            key: VoteKey(key),
            signature: Signature::new(halves),
        })
    }

    /// Decodes what follows the signature. `None`: it is missing, or cut off.
    fn decode_start(bytes: &mut &[u8]) -> Option<DirectoryStart> {
        let process = MemberId(bytes.try_get_u64_le().ok()?);
        let count = bytes.try_get_u64_le().ok()?;
        let is_node = !process.is_client();
        is_node.then_some(DirectoryStart { process, count })
    }

    /// Checks that the two ends fit.
    ///
    /// # Errors
    /// They do not fit. The text names both sides, as this side sees it.
    pub fn suits(&self, ours: &Self) -> Result<(), String> {
        let ((a, b), (c, d)) = (ours.versions, self.versions);
        if d < a || b < c {
            let older = if d < a { "it" } else { "this node" };
            return Err(format!(
                "this node ({}) speaks versions {a} to {b} of the protocol and {:?} speaks {c} to \
                 {d}: upgrade the older of them ({older})",
                ours.name, self.name
            ));
        }
        if self.purpose != ours.purpose {
            return Err(format!(
                "this is a {}, and {:?} dialled it as a {}: check the addresses",
                ours.purpose, self.name, self.purpose
            ));
        }
        if self.id.is_client() && (self.purpose != Purpose::Data || ours.id.is_client()) {
            return Err(
                "clients may use only the data ports (--data) of nodes: dial one of those".into(),
            );
        }
        Ok(())
    }
}

/// Says hello on a connection that we dialled, and reads the answer.
///
/// # Errors
/// Either side does not accept the other; the connection is closed.
pub async fn greet(
    connection: &Connection,
    identity: &Identity,
    ours: &Hello,
) -> Result<(Hello, Evidence), DialFailure> {
    let exchange = async {
        let (mut send, mut recv) = connection.open_bi().await?;
        let shown = ours
            .clone()
            .shown_by(identity, binding_of(connection, Side::Dialler)?);
        send.write_all(&shown.encode())
            .await
            .map_err(|e| failed(connection, &e))?;
        let _ = send.finish();
        let bytes = recv
            .read_to_end(HELLO_BYTES_MAX)
            .await
            .map_err(|e| failed(connection, &e))?;
        let shown = (
            connection.peer_identity(),
            binding_of(connection, Side::Answerer)?,
        );
        judge(shown, identity, ours, &bytes, true)
    };
    settle(
        connection,
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(timed_out())),
    )
}

/// Reads the hello on a connection that we accepted, lets `admit` judge it, and answers.
///
/// # Errors
/// Either side does not accept the other; the connection is closed.
pub async fn answer(
    connection: &Connection,
    identity: &Identity,
    ours: &Hello,
    admit: impl FnOnce(&Hello) -> Result<(), DialFailure>,
) -> Result<(Hello, Evidence), DialFailure> {
    let exchange = async {
        let (mut send, mut recv) = connection.accept_bi().await?;
        let bytes = recv
            .read_to_end(HELLO_BYTES_MAX)
            .await
            .map_err(|e| failed(connection, &e))?;
        let shown = (
            connection.peer_identity(),
            binding_of(connection, Side::Dialler)?,
        );
        let (theirs, evidence) = judge(shown, identity, ours, &bytes, false)?;
        admit(&theirs)?;
        let answer = ours
            .answering(identity.card())
            .shown_by(identity, binding_of(connection, Side::Answerer)?);
        send.write_all(&answer.encode())
            .await
            .map_err(|e| failed(connection, &e))?;
        let _ = send.finish();
        Ok((theirs, evidence))
    };
    settle(
        connection,
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(timed_out())),
    )
}

/// Decodes and checks a peer's hello. `shown` is the certificate chain of its handshake, and the
/// number of its end of the connection. `dialled`: this process dialled the peer.
pub(super) fn judge(
    shown: (Option<Box<dyn Any>>, [u8; 32]),
    identity: &Identity,
    ours: &Hello,
    bytes: &[u8],
    dialled: bool,
) -> Result<(Hello, Evidence), DialFailure> {
    let theirs = Hello::decode(bytes).map_err(DialFailure::Hello)?;
    theirs.suits(ours).map_err(DialFailure::Hello)?;
    let (shown, connection) = shown;
    let chain = shown.and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    // The id and the name must be bound to it.
    let evidence = identity.recognize(
        chain.as_deref().map_or(&[][..], Vec::as_slice),
        &Claim {
            name: &theirs.name,
            client: theirs.id.is_client(),
            card: theirs.certificate.as_ref(),
            dialled,
        },
    )?;
    let evidence = evidence.of(theirs.id, theirs.key(connection)?);
    if !identity.is_process(&evidence) {
        return Err(DialFailure::Hello(format!(
            "it says that it is member {}, and does not show that member's key",
            theirs.id
        )));
    }
    Ok((theirs, evidence))
}

fn settle<T>(connection: &Connection, result: Result<T, DialFailure>) -> Result<T, DialFailure> {
    match &result {
        Ok(_) => {}
        Err(DialFailure::Stranger) => Close::Stranger.on(connection, "not a peer of this node"),
        Err(e) => Close::Hello.on(connection, &e.to_string()),
    }
    result
}

fn timed_out() -> DialFailure {
    DialFailure::Unreachable("no hello in time".into())
}

/// The reason why the connection ended explains more than the stream's error.
fn failed(connection: &Connection, error: &dyn std::fmt::Display) -> DialFailure {
    match connection.close_reason() {
        Some(reason) => reason.into(),
        None => DialFailure::Hello(format!("its hello broke off: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doyen_gossip::SigningSeed;
    use proptest::prelude::*;

    fn hello(versions: (u16, u16)) -> Hello {
        Hello {
            versions,
            ..Hello::new(Purpose::Control, MemberId(7), "alpha")
        }
    }

    #[test]
    fn a_hello_comes_back_and_later_versions_may_add_to_it() {
        let mut bytes = hello((1, 3)).encode();
        assert_eq!(Hello::decode(&bytes), Ok(hello((1, 3))));
        bytes.extend(b"what comes later");
        assert_eq!(Hello::decode(&bytes), Ok(hello((1, 3))));
    }

    #[test]
    fn a_hello_shows_the_certificate_of_the_end_that_answers() {
        let certificate = CertificateDer::from(vec![7; 500]);
        let said = hello((1, 1)).answering(Some(certificate));
        let bytes = said.encode();
        assert_eq!(Hello::decode(&bytes), Ok(said.clone()));
        // Cut off, it is missing; readers of earlier versions skip it.
        for end in bytes.len() - 502..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..end]), Ok(hello((1, 1))));
        }
        let long = Hello {
            name: "n".repeat(NAME_BYTES_MAX),
            ..said.at("[2001:db8::1]:7400".parse().unwrap())
        };
        assert_eq!(Hello::decode(&long.encode()), Ok(long.clone()));
        assert!(long.encode().len() <= HELLO_BYTES_MAX);
    }

    #[test]
    fn a_hello_names_the_process_that_has_a_directory() {
        let identity = Identity::from_secret(b"a secret of tests", "alpha").unwrap();
        identity.set_key(&SigningSeed::of_test(1));
        let said = Hello {
            start: Some(DirectoryStart {
                process: MemberId(9 << 20),
                count: 4,
            }),
            ..hello((1, 1)).shown_by(&identity, [3; 32])
        };
        let bytes = said.encode();
        assert_eq!(Hello::decode(&bytes), Ok(said.clone()));
        assert_eq!(said.process(), MemberId(9 << 20));
        let without = Hello {
            start: None,
            ..said
        };
        for end in bytes.len() - START_BYTES..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..end]), Ok(without.clone()));
        }
        // What shows no key says of no directory whose it is.
        let unshown = Hello {
            proof: None,
            ..without
        };
        assert_eq!(unshown.process(), MemberId(7));
    }

    #[test]
    fn a_hello_shows_the_key_of_its_sender() {
        let proof = Some(Proof {
            key: VoteKey([3; 32]),
            signature: Signature::new([[4; 32], [5; 32]]),
        });
        let certificate = Some(CertificateDer::from(vec![7; 400]));
        for certificate in [None, certificate] {
            let without = hello((1, 1)).answering(certificate);
            let said = Hello {
                proof,
                ..without.clone()
            };
            let bytes = said.encode();
            assert_eq!(Hello::decode(&bytes), Ok(said.clone()));
            // Cut off, it is missing; readers of earlier versions skip it.
            for end in bytes.len() - PROOF_BYTES..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..end]), Ok(without.clone()));
            }
            let long = Hello {
                name: "n".repeat(NAME_BYTES_MAX),
                ..said.at("[2001:db8::1]:7400".parse().unwrap())
            };
            assert_eq!(Hello::decode(&long.encode()), Ok(long.clone()));
            assert!(long.encode().len() <= HELLO_BYTES_MAX);
        }
    }

    #[test]
    fn a_proof_is_of_one_key_one_process_and_one_end_of_one_connection() {
        let identity = Identity::from_secret(b"a secret of the tests", "alpha").unwrap();
        let said = |connection| hello((1, 1)).shown_by(&identity, connection);
        assert_eq!(said([1; 32]).proof, None, "it has no key");
        let seed = SigningSeed::of_test(1);
        identity.set_key(&seed);
        let said = said([1; 32]);
        assert_eq!(said.key([1; 32]), Ok(Some(seed.vote_key())));
        let other = Hello {
            id: MemberId(8),
            ..said.clone()
        };
        for wrong in [said.key([2; 32]), other.key([1; 32])] {
            assert!(
                matches!(wrong, Err(DialFailure::Hello(why)) if why.contains("the private part"))
            );
        }
        // The two ends have different numbers.
        let export = |number: &mut [u8], _: &[u8], side: &[u8]| {
            number[..side.len()].copy_from_slice(side);
            true
        };
        let [dialler, answerer] =
            [Side::Dialler, Side::Answerer].map(|side| binding(side, export).unwrap());
        assert_ne!(dialler, answerer);
    }

    #[test]
    fn a_hello_says_where_its_sender_is_and_whether_it_stays() {
        for control in ["10.0.0.1:7400", "[2001:db8::1]:7400"] {
            let said = hello((1, 1)).at(control.parse().unwrap()).passing();
            let bytes = said.encode();
            assert_eq!(Hello::decode(&bytes), Ok(said));
            // A hello without these fields is of a lasting connection, from an unknown address.
            for end in bytes.len() - 8..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..end]), Ok(hello((1, 1))));
            }
        }
    }

    #[test]
    fn a_sender_with_an_id_of_the_other_kind_is_refused() {
        let client = Hello {
            id: MemberId::of_client(7),
            purpose: Purpose::Data,
            ..hello((1, 1))
        };
        for honest in [client.clone(), hello((1, 1))] {
            let mut bytes = honest.encode();
            assert_eq!(Hello::decode(&bytes), Ok(honest));
            // The kind of sender follows magic, versions and purpose.
            bytes[9] = 3 - bytes[9];
            assert!(Hello::decode(&bytes).is_err_and(|why| why.contains("its id is not")));
        }
        let node = Hello {
            purpose: Purpose::Data,
            ..hello((1, 1))
        };
        assert_eq!(client.suits(&node), Ok(()));
        assert!(
            client
                .suits(&client)
                .is_err_and(|why| why.contains("--data"))
        );
        let control = Hello {
            purpose: Purpose::Control,
            ..client
        };
        assert!(
            control
                .suits(&hello((1, 1)))
                .is_err_and(|why| why.contains("--data"))
        );
    }

    #[test]
    fn version_mismatch_names_both_ranges() {
        let text = Hello {
            name: "beta".into(),
            ..hello((3, 4))
        }
        .suits(&hello((1, 2)))
        .unwrap_err();
        assert_eq!(
            text,
            "this node (alpha) speaks versions 1 to 2 of the protocol and \"beta\" speaks 3 to 4: \
             upgrade the older of them (this node)"
        );
        assert!(
            hello((1, 1))
                .suits(&hello((2, 5)))
                .unwrap_err()
                .contains("(it)")
        );
        assert_eq!(hello((2, 3)).suits(&hello((1, 2))), Ok(()));
    }

    #[test]
    fn a_wrong_port_is_named() {
        let text = Hello {
            purpose: Purpose::Data,
            ..hello((1, 1))
        }
        .suits(&hello((1, 1)))
        .unwrap_err();
        assert!(
            text.contains("this is a control port (--listen)")
                && text.contains("as a data port (--data)"),
            "{text}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_hello_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let _ = Hello::decode(&bytes);
            let mut with_magic = MAGIC.to_vec();
            with_magic.extend(&bytes);
            let _ = Hello::decode(&with_magic);
        }

        #[test]
        fn any_name_fits(name in ".{0,400}") {
            let decoded = Hello::decode(
                &Hello {
                    name: name.clone(),
                    ..hello((1, 1))
                }
                .encode(),
            )
            .unwrap();
            prop_assert!(name.starts_with(&decoded.name));
        }
    }
}
