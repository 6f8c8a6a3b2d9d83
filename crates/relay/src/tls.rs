//! TLS between relays: version 1.3 only, both sides with a certificate, each known by its fingerprint and nothing else.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, Error, ServerConfig, ServerConnection, SignatureScheme,
};
use sha2::{Digest, Sha256};

use crate::cell::RelayId;
use crate::secret::to_hex;

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", to_hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Reads `sha256:` and 64 hexadecimal digits, with or without colons between them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().strip_prefix("sha256:")?.replace(':', "");
        crate::secret::from_hex(&digits).map(Self)
    }

    /// The name of the relay that has this certificate.
    pub(crate) fn relay(&self) -> RelayId {
        let mut name = [0; 16];
        name.copy_from_slice(&self.0[..16]);
        RelayId(name)
    }
}

/// What a relay is: its certificate and key.
pub struct Identity {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { certificate: self.certificate.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint())
    }
}

impl Identity {
    /// By which other relays know it.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }
}

/// Where neither side has a name that a certificate could bear.
const NAME: &str = "relay.gridmpi.invalid";

fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    // 128 bits of key are enough, and cost a quarter less.
    provider.cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider
}

/// Lets in the relays that are known, by their certificates.
#[derive(Debug)]
struct Pinned {
    /// `None`: whoever proves to have the certificate that it shows.
    fingerprints: Option<Vec<Fingerprint>>,
    provider: CryptoProvider,
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.fingerprints {
            Some(known) if !known.contains(&Fingerprint::of(certificate)) => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn no_older() -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS before 1.3 is not spoken".to_owned()))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::no_older()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::no_older()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

fn pinned(fingerprints: Option<Vec<Fingerprint>>) -> Arc<Pinned> {
    Arc::new(Pinned { fingerprints, provider: provider() })
}

/// A connection that we dial, to the relay with this certificate.
pub(crate) fn dial(us: &Identity, to: Fingerprint) -> Result<Connection, Error> {
    client(us, pinned(Some(vec![to])))
}

/// A connection to see whose certificate is there. Nothing may be said on it.
pub(crate) fn dial_anybody(us: &Identity) -> Result<Connection, Error> {
    client(us, pinned(None))
}

fn client(us: &Identity, verifier: Arc<Pinned>) -> Result<Connection, Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(vec![us.certificate.clone()], us.key.clone_key())?;
    // Each connection proves both sides anew.
    config.resumption = Resumption::disabled();
    let name = ServerName::try_from(NAME).map_err(|_| Error::General("name".to_owned()))?;
    let mut connection = ClientConnection::new(Arc::new(config), name)?;
    connection.set_buffer_limit(None);
    Ok(connection.into())
}

/// What connections that come are answered with.
pub(crate) fn server(us: &Identity, known: Vec<Fingerprint>) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(pinned(Some(known)))
        .with_single_cert(vec![us.certificate.clone()], us.key.clone_key())?;
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// A connection that came.
pub(crate) fn answer(config: Arc<ServerConfig>) -> Result<Connection, Error> {
    let mut connection = ServerConnection::new(config)?;
    connection.set_buffer_limit(None);
    Ok(connection.into())
}

/// Whose certificate the other side has proven.
pub(crate) fn proven(connection: &Connection) -> Option<Fingerprint> {
    connection.peer_certificates()?.first().map(Fingerprint::of)
}
