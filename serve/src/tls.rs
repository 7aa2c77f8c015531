//! TLS of all ports from one certificate and key. What cannot be set up is an error; there is no way to plain text.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::transport::{Identity, ServerTlsConfig};

use crate::error::StartError;

/// Tonic asks for the cryptography of the process. If there is one already, that will do.
pub fn install_provider() {
    let _ = default_provider().install_default();
}

/// Certificate and key, read and checked.
#[derive(Clone)]
pub struct Tls {
    certificates: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    /// As they were read.
    pem: Arc<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Reads the certificate chain and the key, and sees that they belong together.
    ///
    /// # Errors
    /// [`StartError::File`] and [`StartError::Tls`].
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, StartError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| StartError::File {
                path: path.to_path_buf(),
                cause: error.to_string(),
            })
        };
        let pem = (read(certificate)?, read(key)?);
        let wrong = |path: &Path, cause: &dyn std::fmt::Display| {
            StartError::Tls(format!("{}: {cause}", path.display()))
        };
        let certificates = CertificateDer::pem_slice_iter(&pem.0)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(certificate, &error))?;
        if certificates.is_empty() {
            return Err(wrong(certificate, &"there is no certificate in it"));
        }
        let private = PrivateKeyDer::from_pem_slice(&pem.1).map_err(|error| wrong(key, &error))?;
        let tls = Self {
            certificates,
            key: Arc::new(private),
            pem: Arc::new(pem),
        };
        tls.acceptor(&[])?;
        Ok(tls)
    }

    /// For servers of gRPC.
    pub fn of_grpc(&self) -> ServerTlsConfig {
        install_provider();
        ServerTlsConfig::new().identity(Identity::from_pem(&self.pem.0, &self.pem.1))
    }

    /// Accepts connections of a protocol.
    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> Result<TlsAcceptor, StartError> {
        let wrong = |error: tokio_rustls::rustls::Error| StartError::Tls(error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_no_client_auth()
            .with_single_cert(self.certificates.clone(), self.key.clone_key())
            .map_err(wrong)?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
