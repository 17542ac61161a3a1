//! TLS to servers that speak Redis.

use crate::CommandFailed;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// The authorities whose certificates a server may show.
#[derive(Debug, Clone)]
pub(super) struct ServerTrust {
    config: Arc<ClientConfig>,
    /// The flag that named them.
    flag: &'static str,
}

impl ServerTrust {
    /// The authorities of a PEM file.
    pub(super) fn by_file(flag: &'static str, path: &Path) -> Result<Self, CommandFailed> {
        let unusable = |why: &dyn Display| {
            CommandFailed::usage(format!(
                "{flag} {}: {why}: give a PEM file of the authorities that sign the server's \
                 certificate; those of nodes are in the cluster's ca.pem",
                path.display()
            ))
        };
        let mut roots = RootCertStore::empty();
        for found in CertificateDer::pem_file_iter(path).map_err(|e| unusable(&e))? {
            let root = found.map_err(|e| unusable(&e))?;
            roots.add(root).map_err(|e| unusable(&e))?;
        }
        if roots.is_empty() {
            return Err(unusable(&"there is no certificate in it"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            config: Arc::new(config),
            flag,
        })
    }

    /// Begins TLS with the server at `HOST:PORT`, whose certificate must name the host.
    pub(super) async fn begin(
        &self,
        name: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let host = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let host = host.map_err(|e| e.to_string())?;
        let begun = TlsConnector::from(self.config.clone()).connect(host, stream);
        begun.await.map_err(|e| self.why(&e))
    }

    fn why(&self, e: &io::Error) -> String {
        let of_tls = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        let flag = self.flag;
        match of_tls {
            Some(rustls::Error::InvalidMessage(_)) => {
                format!("it does not speak TLS: connect without {flag}")
            }
            Some(why @ rustls::Error::InvalidCertificate(_)) => format!(
                "its certificate is not trusted ({why}): {flag} must have the authority that \
                 signed it, and the certificate must name the host that you give"
            ),
            _ => format!("TLS did not begin: {e}"),
        }
    }
}
