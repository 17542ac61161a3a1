//! What rustls and webpki do not tell about a certificate.

use rustls_pki_types::CertificateDer;
use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, BERReader, Tag};

/// Seconds since 1970.
pub(super) type UnixTimestamp = i64;

/// Version 3 of X.509.
const VERSION_3: u8 = 2;
/// The object identifiers of `commonName` and `organizationalUnitName` (X.520).
const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const UNIT: &[u64] = &[2, 5, 4, 11];

/// Facts of a certificate.
pub(super) struct CertificateFacts {
    /// 0 is version 1.
    version: u8,
    /// When it begins and when it ends.
    validity: (UnixTimestamp, UnixTimestamp),
    /// The common names of its subject.
    #[cfg_attr(
        not(feature = "resp"),
        expect(dead_code, reason = "only RESP asks for them")
    )]
    common_names: Vec<String>,
    /// The organizational units of its subject.
    pub(super) units: Vec<String>,
}

impl CertificateFacts {
    /// `None` if it cannot be read. Rustls decides whether the certificate can be used.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        // RFC 5280, section 4.1: Certificate and TBSCertificate.
        let facts = yasna::parse_der(certificate, |certificate| {
            certificate.read_sequence(|certificate| {
                let facts = certificate.next().read_sequence(|signed| {
                    let version = signed.read_optional(|version| {
                        version.read_tagged(Tag::context(0), |version| version.read_u8())
                    })?;
                    for _serial_algorithm_issuer in 0..3 {
                        signed.next().read_der()?;
                    }
                    let validity = signed.next().read_sequence(|validity| {
                        let begins = read_time(validity.next())?;
                        Ok((begins, read_time(validity.next())?))
                    })?;
                    let subject = signed.next().read_der()?;
                    let texts = |kind| yasna::parse_der(&subject, |name| read_texts(name, kind));
                    let common_names = texts(COMMON_NAME).unwrap_or_default();
                    let units = texts(UNIT).unwrap_or_default();
                    while signed.read_optional(|rest| rest.read_der())?.is_some() {}
                    Ok(Self {
                        version: version.unwrap_or(0),
                        validity,
                        common_names,
                        units,
                    })
                })?;
                for _algorithm_signature in 0..2 {
                    certificate.next().read_der()?;
                }
                Ok(facts)
            })
        });
        facts.ok()
    }
}

/// Either form of a certificate's times, in seconds since 1970.
fn read_time(time: BERReader<'_, '_>) -> ASN1Result<UnixTimestamp> {
    let utc = time.lookahead_tag()? == yasna::tags::TAG_UTCTIME;
    let at = if utc {
        *time.read_utctime()?.datetime()
    } else {
        *time.read_generalized_time()?.datetime()
    };
    Ok(at.unix_timestamp())
}

/// The texts of a distinguished name that are of this kind.
fn read_texts(name: BERReader<'_, '_>, wanted: &[u64]) -> ASN1Result<Vec<String>> {
    let wanted = ObjectIdentifier::from_slice(wanted);
    let mut texts = Vec::new();
    name.read_sequence_of(|part| {
        part.read_set_of(|pair| {
            pair.read_sequence(|pair| {
                let kind = pair.next().read_oid()?;
                // UTF8String, PrintableString and others: their bytes are the text.
                let value = pair.next().read_tagged_der()?;
                if kind == wanted
                    && let Ok(text) = std::str::from_utf8(value.value())
                {
                    texts.push(text.to_owned());
                }
                Ok(())
            })
        })
    })?;
    Ok(texts)
}

/// The common name of a certificate's subject; `None` if it has none, or several.
#[cfg(feature = "resp")]
pub(crate) fn common_name_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let names = CertificateFacts::of(certificate)?.common_names;
    <[String; 1]>::try_from(names).ok().map(|[name]| name)
}

/// Whether a certificate is older than version 3. Older versions have no host names, and TLS
/// refuses them.
pub(super) fn is_of_an_old_version(certificate: &CertificateDer<'_>) -> bool {
    CertificateFacts::of(certificate).is_some_and(|facts| facts.version != VERSION_3)
}

/// When a certificate ends; `None` if this cannot be read.
pub(super) fn end_of(certificate: &CertificateDer<'_>) -> Option<UnixTimestamp> {
    Some(validity_of(certificate)?.1)
}

/// When a certificate begins and ends; `None` if this cannot be read.
pub(super) fn validity_of(
    certificate: &CertificateDer<'_>,
) -> Option<(UnixTimestamp, UnixTimestamp)> {
    Some(CertificateFacts::of(certificate)?.validity)
}
