//! Authorities: keys that sign certificates, and what recognizes their signatures.
//!
//! An [`Authority`] is made from a seed, so every node has the same one. Its [`Anchor`] needs only
//! the public key, so a client can have the anchor of the member authority without its key. The
//! name of an authority contains its fingerprint, so that another secret gives an unknown issuer
//! rather than a bad signature.

use super::secret::{PublicKey, Secret, SecretRole, expand, sha256};
use super::{IdentityError, unusable};
use crate::hex::hex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use rustls_pki_types::{CertificateDer, Der, PrivatePkcs8KeyDer, TrustAnchor, UnixTime};
use std::time::Duration;
use yasna::models::ObjectIdentifier;
use zeroize::Zeroizing;

/// The domain of the names of nodes in certificates.
const NODES: &str = "node.doyen.internal";
/// The salt of the token that [`former_token`] derives.
const FORMER_SALT: &[u8] = b"doyen/1";
/// The object identifier of `organizationName` (X.520).
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// A key that signs certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    organization: String,
    anchor: TrustAnchor<'static>,
    /// The certificate of the authority itself, the same bytes on every node.
    certificate: CertificateDer<'static>,
}

impl Authority {
    /// The authority for certificates of members or clients.
    pub(super) fn of(role: SecretRole, seed: &Secret) -> Result<Self, IdentityError> {
        let key = ed25519(seed.expose())?;
        let public = PublicKey(key.der_bytes().try_into().unwrap_or([0; 32]));
        let serial = sha256(&public.0).as_ref()[8..16].to_vec();
        Self::new(key, organization(role, &public), &serial)
    }

    fn new(key: KeyPair, organization: String, serial: &[u8]) -> Result<Self, IdentityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization.clone());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Everything that rcgen would draw or derive is set here: the bytes must be the same on
        // every node.
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let certificate = params.self_signed(&key).map_err(unusable)?.der().clone();
        Ok(Self {
            anchor: anchor(&organization, &key.subject_public_key_info()),
            issuer: Issuer::new(params, key),
            organization,
            certificate,
        })
    }

    /// What recognizes its certificates.
    pub(super) fn anchor(&self) -> &TrustAnchor<'static> {
        &self.anchor
    }

    /// Its own certificate.
    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate for this key that names a node or a client, good within these times.
    pub(super) fn issue(
        &self,
        key: &KeyPair,
        role: SecretRole,
        name: &str,
        (begins, ends): (UnixTime, UnixTime),
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let mut params = self.end_entity(vec![dns_name(name)], role.name(), name)?;
        params.not_before = time(begins)?;
        params.not_after = time(ends)?;
        // One key has many certificates in its life. They must not share a number.
        let serial: [u8; 16] = rand::random();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let certificate = params.signed_by(key, &self.issuer).map_err(unusable)?;
        Ok(certificate.der().clone())
    }

    /// A certificate for a port that this node serves under these names and addresses. It is no
    /// certificate of a member: it names none, and is not valid for diallers.
    pub(super) fn issue_for_port(
        &self,
        key: &KeyPair,
        names: &[String],
        (begins, ends): (UnixTime, UnixTime),
    ) -> Result<CertificateDer<'static>, IdentityError> {
        let name = names.first().map_or("doyen", String::as_str);
        let mut params = self.end_entity(names.to_vec(), "port", name)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (time(begins)?, time(ends)?);
        let serial: [u8; 16] = rand::random();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let certificate = params.signed_by(key, &self.issuer).map_err(unusable)?;
        Ok(certificate.der().clone())
    }

    fn end_entity(
        &self,
        names: Vec<String>,
        unit: &str,
        name: &str,
    ) -> Result<CertificateParams, IdentityError> {
        let mut params = CertificateParams::new(names).map_err(unusable)?;
        params.distinguished_name = DistinguishedName::new();
        let mut say = |what, text: String| params.distinguished_name.push(what, text);
        say(DnType::OrganizationName, self.organization.clone());
        say(DnType::OrganizationalUnitName, unit.to_owned());
        // Hellos carry certificates, and have a limit. (64 is X.520's.)
        let mut end = name.len().min(64);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        say(DnType::CommonName, name[..end].to_owned());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        Ok(params)
    }
}

/// The anchor of the member authority with this public key.
pub(super) fn member_anchor(public: &PublicKey) -> TrustAnchor<'static> {
    TrustAnchor {
        subject: Der::from(subject(&organization(SecretRole::Member, public))),
        subject_public_key_info: Der::from(public.info()),
        name_constraints: None,
    }
}

/// A certificate that proves nothing but its key, and names nothing.
pub(super) fn anonymous(key: &KeyPair) -> Result<CertificateDer<'static>, IdentityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    Ok(params.self_signed(key).map_err(unusable)?.der().clone())
}

/// A new key of this process, which is never stored.
pub(super) fn new_key() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(unusable)
}

/// The token of operators that commands have sent since before version 15, if the secret is 32
/// bytes without a prefix.
pub(super) fn former_token(secret: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(hex(expand(FORMER_SALT, secret, "http").as_ref()))
}

/// Turns a name of any characters and any length into a DNS name.
pub(super) fn dns_name(name: &str) -> String {
    let digest = sha256(name.as_bytes());
    format!("n{}.{NODES}", hex(&digest.as_ref()[..16]))
}

/// A new key for a certificate of a port. More clients know ECDSA than Ed25519.
pub(super) fn new_key_for_clients() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(unusable)
}

fn organization(role: SecretRole, public: &PublicKey) -> String {
    format!("doyen {role} {}", public.fingerprint())
}

/// An anchor from a name and a SubjectPublicKeyInfo with its header.
fn anchor(organization: &str, info: &[u8]) -> TrustAnchor<'static> {
    // An Ed25519 key's header has two bytes: SEQUENCE, and a length below 128.
    TrustAnchor {
        subject: Der::from(subject(organization)),
        subject_public_key_info: Der::from(info[2..].to_vec()),
        name_constraints: None,
    }
}

/// The value of a distinguished name that has only an organization, without its header, as rcgen
/// writes it.
fn subject(organization: &str) -> Vec<u8> {
    yasna::construct_der(|writer| {
        writer.write_set(|set| {
            set.next().write_sequence(|pair| {
                pair.next()
                    .write_oid(&ObjectIdentifier::from_slice(ORGANIZATION));
                pair.next().write_utf8_string(organization);
            });
        });
    })
}

fn time(at: UnixTime) -> Result<time::OffsetDateTime, IdentityError> {
    let at = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    time::OffsetDateTime::from_unix_timestamp(at)
        .map_err(|e| IdentityError::Unusable(format!("this machine's clock: {e}")))
}

/// A time before or after another, within what can be said.
pub(super) fn shifted(at: UnixTime, by: Duration, later: bool) -> UnixTime {
    let at = Duration::from_secs(at.as_secs());
    UnixTime::since_unix_epoch(if later {
        at.saturating_add(by)
    } else {
        at.saturating_sub(by)
    })
}

pub(super) fn pkcs8(key: &KeyPair) -> PrivatePkcs8KeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.serialize_der())
}

pub(super) fn ed25519(seed: &[u8; 32]) -> Result<KeyPair, IdentityError> {
    // PKCS #8 version 1 of an Ed25519 key (RFC 8410, section 7): a fixed prefix, then the seed.
    let mut der = vec![
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04,
        0x20,
    ];
    der.extend_from_slice(seed);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &rcgen::PKCS_ED25519)
        .map_err(unusable)
}
