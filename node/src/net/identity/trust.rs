//! Whose certificates this process accepts, and for which role.
//!
//! With secrets, the authority of a certificate says its role: an authority signs for one role
//! only. No intermediate authority is accepted, so the holder of a client's secret cannot sign
//! itself a longer chain. With PEM files, all certificates are of the operator's authority, and
//! each one names its roles.

use super::IdentityError;
use super::certificate::CertificateFacts;
use super::secret::SecretRole;
use rustls::{CertificateError, OtherError};
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use std::collections::BTreeSet;
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

/// The end of a connection that shows a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It dialled.
    Dialler,
    /// It was dialled.
    Server,
}

/// Who vouches for others.
#[derive(Debug)]
pub(super) enum TrustStore {
    /// Authorities of secrets, each for one role.
    Secrets(Vec<Voucher>),
    /// The operator's authority.
    Pem(Pem),
}

/// An authority of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Voucher {
    /// The role of the certificates that it signs.
    pub(super) role: SecretRole,
    pub(super) anchor: TrustAnchor<'static>,
}

/// The operator's authority, from PEM files.
#[derive(Debug)]
pub(super) struct Pem {
    pub(super) anchors: Vec<TrustAnchor<'static>>,
    pub(super) crls: Vec<CertRevocationList<'static>>,
    /// What precedes the name of a role in a certificate.
    pub(super) role_prefix: String,
}

impl TrustStore {
    /// Checks the chain of another process, the leaf first.
    pub(super) fn accepts(
        &self,
        chain: (&CertificateDer<'_>, &[CertificateDer<'_>]),
        end: End,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        match self {
            Self::Secrets(vouchers) => found(vouchers, chain.0, end, now).map(|_| ()),
            Self::Pem(pem) => pem.accepts(chain, end, now),
        }
    }
}

/// The authority that signed this certificate itself.
pub(super) fn found<'v>(
    vouchers: &'v [Voucher],
    certificate: &CertificateDer<'_>,
    end: End,
    now: UnixTime,
) -> Result<&'v Voucher, webpki::Error> {
    let mut why = webpki::Error::UnknownIssuer;
    for voucher in vouchers {
        let anchors = std::slice::from_ref(&voucher.anchor);
        match verify(anchors, (certificate, &[]), end, now, &[]) {
            Ok(()) => return Ok(voucher),
            Err(webpki::Error::UnknownIssuer) => {}
            Err(e) => why = e,
        }
    }
    Err(why)
}

impl Pem {
    pub(super) fn accepts(
        &self,
        chain: (&CertificateDer<'_>, &[CertificateDer<'_>]),
        end: End,
        now: UnixTime,
    ) -> Result<(), webpki::Error> {
        let crls: Vec<&CertRevocationList<'_>> = self.crls.iter().collect();
        verify(&self.anchors, chain, end, now, &crls)
    }

    /// The roles that a certificate names: URIs among its alternative names, or organizational
    /// units of its subject.
    pub(super) fn roles(&self, certificate: &CertificateDer<'_>) -> BTreeSet<SecretRole> {
        let mut said: Vec<String> = Vec::new();
        if let Ok(parsed) = EndEntityCert::try_from(certificate) {
            said.extend(parsed.valid_uri_names().map(str::to_owned));
        }
        if let Some(facts) = CertificateFacts::of(certificate) {
            said.extend(facts.units);
        }
        [SecretRole::Member, SecretRole::Client, SecretRole::Operator]
            .into_iter()
            .filter(|role| {
                said.iter()
                    .any(|text| text.strip_prefix(&self.role_prefix) == Some(role.name()))
            })
            .collect()
    }
}

/// Checks a chain of certificates, the leaf first.
fn verify(
    anchors: &[TrustAnchor<'_>],
    (leaf, intermediates): (&CertificateDer<'_>, &[CertificateDer<'_>]),
    end: End,
    now: UnixTime,
    crls: &[&CertRevocationList<'_>],
) -> Result<(), webpki::Error> {
    let usage = match end {
        End::Dialler => KeyUsage::client_auth(),
        End::Server => KeyUsage::server_auth(),
    };
    // Authorities above the leaf are revoked by taking them out of --tls-ca. A list that is older
    // than it says still counts: an authority that is down must not stop a cluster.
    let revocation = RevocationOptionsBuilder::new(crls).ok().map(|options| {
        options
            .with_depth(RevocationCheckDepth::EndEntity)
            .with_status_policy(UnknownStatusPolicy::Deny)
            .with_expiration_policy(ExpirationPolicy::Ignore)
            .build()
    });
    let algorithms = super::tls::provider().signature_verification_algorithms.all;
    EndEntityCert::try_from(leaf)?
        .verify_for_usage(
            algorithms,
            anchors,
            intermediates,
            now,
            usage,
            revocation,
            None,
        )
        .map(|_| ())
}

/// Whether a certificate bears this host name or address among its alternative names.
pub(super) fn bears(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Ok(parsed) = EndEntityCert::try_from(certificate) else {
        return false;
    };
    ServerName::try_from(name)
        .is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
}

/// Whether two certificates are for the same key.
pub(super) fn share_key(a: &CertificateDer<'_>, b: &CertificateDer<'_>) -> bool {
    let key = |certificate| {
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        Some(parsed.subject_public_key_info().to_vec())
    };
    let key_of_a = key(a);
    key_of_a.is_some() && key_of_a == key(b)
}

/// Whether a certificate was refused because of the time only.
pub(super) fn is_of_time(e: &webpki::Error) -> bool {
    matches!(
        e,
        webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. }
    )
}

/// The error for rustls, which sends the alert that fits.
pub(super) fn for_tls(e: webpki::Error) -> rustls::Error {
    match e {
        e if is_of_time(&e) => CertificateError::Expired,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        e => CertificateError::Other(OtherError(Arc::new(e))),
    }
    .into()
}

/// Why a process's own certificate does not pass its own revocation lists.
pub(super) fn own(e: &webpki::Error) -> IdentityError {
    IdentityError::Unusable(match e {
        webpki::Error::CertRevoked => "the list in --tls-crl revokes the certificate in \
                                       --tls-cert: get another certificate"
            .into(),
        webpki::Error::UnknownRevocationStatus | webpki::Error::InvalidCrlSignatureForPublicKey => {
            "no list in --tls-crl is of the authority that signed the certificate in --tls-cert: \
             add the list of that authority"
                .into()
        }
        e => e.to_string(),
    })
}
