//! TLS between the processes of a job, with certificates of the job's own authority.
//!
//! The authority's key is derived from the job's key, so that whoever was given that, and nobody else, can make itself a
//! certificate; nothing secret crosses the network, and there is no file. Both ends show a certificate. Which process of
//! the job it is that shows it the handshake behind it tells (`handshake`), as without TLS.

use std::fmt;
use std::sync::Arc;

use gridmpi_wire::{JobId, JobKey, Role};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    SupportedCipherSuite, client,
};
use thiserror::Error;

/// First byte of a TLS connection: a handshake record.
pub(crate) const FIRST_BYTE: u8 = 0x16;

/// An Ed25519 key in PKCS #8 (RFC 8410 §7), up to its 32 bytes.
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// What a process needs to speak TLS with those of its job. Cheap to clone; its key is in memory only.
#[derive(Clone)]
pub struct Security {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The certificates could not be made. A fault of ours, or of the system's random source.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// In making one.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// In using it.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// In demanding one.
    #[error("cannot set up TLS: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl Security {
    /// For a process of the job that has this key.
    ///
    /// # Errors
    /// See [`SecurityError`].
    pub fn of_job(job: JobId, key: &JobKey) -> Result<Self, SecurityError> {
        let name = name(job);
        let (roots, chain, own_key) = certificates(&name, &authority_key(job, key)?)?;
        let provider = Arc::new(provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), own_key.clone_key())?;
        // Connections last as long as the job: there is nothing to resume.
        server.send_tls13_tickets = 0;
        let client = client_config(provider, roots, chain, own_key)?;
        let name = ServerName::try_from(name).map_err(|_| rustls::Error::General("name".into()))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), name })
    }

    pub(crate) fn client(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.client), self.name.clone())
    }

    pub(crate) fn server(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(Arc::clone(&self.server))
    }
}

/// What both ends offer: first what costs least where processors have AES.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    let is_later =
        |suite: &SupportedCipherSuite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(is_later);
    provider
}

fn client_config(
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, SecurityError> {
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    client.resumption = client::Resumption::disabled();
    Ok(client)
}

/// What all certificates of the job are for.
fn name(job: JobId) -> String {
    let digits: String = job.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}.job.gridmpi")
}

/// The same in all processes of the job.
fn authority_key(job: JobId, key: &JobKey) -> Result<KeyPair, SecurityError> {
    let seed = key.sign(Role::Authority, &[&job]);
    let der = PrivatePkcs8KeyDer::from([&ED25519_PKCS8[..], &seed].concat());
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
}

type Certificates = (Arc<RootCertStore>, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Whom to believe, and a certificate of our own with its fresh key.
fn certificates(name: &str, authority_key: &KeyPair) -> Result<Certificates, SecurityError> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name = common_name(&format!("authority of {name}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let anchor = authority.self_signed(authority_key)?;
    let mut roots = RootCertStore::empty();
    roots.add(anchor.der().clone())?;

    let mut leaf = CertificateParams::new(vec![name.to_owned()])?;
    leaf.distinguished_name = common_name(name);
    leaf.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate_for(&PKCS_ED25519)?;
    let leaf = leaf.signed_by(&key, &Issuer::from_params(&authority, authority_key))?;
    let own_key = PrivatePkcs8KeyDer::from(key.serialize_der());
    Ok((Arc::new(roots), vec![leaf.der().clone()], own_key.into()))
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}
