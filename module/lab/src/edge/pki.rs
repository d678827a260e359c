//! The certificates of an IoT Edge device: root, Edge CA, edgeHub's server certificate. Everything is
//! made in memory at start; nothing is ever read from or written to disk.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::error::EdgeError;
use super::faults::CertificateFault;

/// One generation of the device's certificates. A rotation makes a new one.
pub(crate) struct Pki {
    root: CertifiedIssuer<'static, KeyPair>,
    edge_ca: CertifiedIssuer<'static, KeyPair>,
    server: Issued,
    gateway: String,
}

/// A leaf certificate with its chain and key.
pub(crate) struct Issued {
    /// Leaf and Edge CA as PEM, in the order that TLS sends them.
    pub(crate) chain_pem: String,
    /// The private key, PKCS#8 PEM.
    pub(crate) key_pem: String,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Pki {
    /// Makes root, Edge CA and a server certificate for `gateway`, `localhost` and 127.0.0.1.
    ///
    /// # Errors
    /// When a name is not usable in a certificate.
    pub(crate) fn new(device: &str, gateway: &str) -> Result<Self, EdgeError> {
        let serial = uuid::Uuid::new_v4();
        let root = CertifiedIssuer::self_signed(
            authority(&format!("lab root {serial}"))?,
            KeyPair::generate()?,
        )?;
        let edge_ca = CertifiedIssuer::signed_by(
            authority(&format!("iotedged workload ca {device} {serial}"))?,
            KeyPair::generate()?,
            &root,
        )?;
        let mut names = vec![gateway.to_owned(), "localhost".into(), "127.0.0.1".into()];
        names.dedup();
        let server = issue(&edge_ca, gateway, names, CertificateFault::None)?;
        Ok(Self {
            root,
            edge_ca,
            server,
            gateway: gateway.to_owned(),
        })
    }

    /// The trust bundle as the workload API hands it out: the root.
    pub(crate) fn bundle_pem(&self) -> String {
        self.root.pem()
    }

    /// A server certificate for a module, as `certificate/server` gives it.
    pub(crate) fn issue(&self, common_name: &str, module: &str) -> Result<Issued, EdgeError> {
        let mut names = vec![common_name.to_owned(), module.to_owned()];
        names.dedup();
        issue(&self.edge_ca, common_name, names, CertificateFault::None)
    }

    /// TLS 1.2 and 1.3 with edgeHub's chain (server certificate and Edge CA, without the root).
    ///
    /// # Errors
    /// When a faulty certificate cannot be made or TLS refuses the key.
    pub(crate) fn server_config(
        &self,
        fault: CertificateFault,
    ) -> Result<Arc<ServerConfig>, EdgeError> {
        let faulty = match fault {
            CertificateFault::None => None,
            CertificateFault::WrongName => {
                let other = "another-device".to_owned();
                Some(issue(&self.edge_ca, &other, vec![other.clone()], fault)?)
            }
            CertificateFault::NotYetValid | CertificateFault::Expired => {
                let names = vec![self.gateway.clone(), "localhost".into()];
                Some(issue(&self.edge_ca, &self.gateway, names, fault)?)
            }
        };
        let server = faulty.as_ref().unwrap_or(&self.server);
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server.key.clone()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12, &rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(server.chain.clone(), key)?;
        Ok(Arc::new(config))
    }
}

fn authority(name: &str) -> Result<CertificateParams, EdgeError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn issue(
    ca: &CertifiedIssuer<'static, KeyPair>,
    common_name: &str,
    names: Vec<String>,
    fault: CertificateFault,
) -> Result<Issued, EdgeError> {
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    match fault {
        CertificateFault::NotYetValid => params.not_before = rcgen::date_time_ymd(2200, 1, 1),
        CertificateFault::Expired => params.not_after = rcgen::date_time_ymd(2001, 1, 1),
        CertificateFault::None | CertificateFault::WrongName => {}
    }
    let key = KeyPair::generate()?;
    let leaf = params.signed_by(&key, ca)?;
    Ok(Issued {
        chain_pem: format!("{}{}", leaf.pem(), ca.pem()),
        key_pem: key.serialize_pem(),
        chain: vec![leaf.der().clone(), ca.der().clone()],
        key: key.serialize_der(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_generation_shares_no_root_with_the_old_one() {
        let old = Pki::new("edge1", "gw").unwrap();
        let new = Pki::new("edge1", "gw").unwrap();
        assert_ne!(old.bundle_pem(), new.bundle_pem());
        assert_eq!(old.server.chain_pem.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(old.server_config(CertificateFault::None).is_ok());
    }
}
