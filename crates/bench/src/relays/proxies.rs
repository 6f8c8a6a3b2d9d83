//! What relays are held against: HAProxy in TCP mode and nginx's stream module, as Debian ships them.

use super::servers::{self, Keys, Started};
use crate::error::BenchError;
use crate::place::Lab;
use crate::session::Session;
use gridmpi_report::terminal::tell;
use std::path::Path;
use std::time::Instant;

/// What relays take between each other. OpenSSL would take AES-256 first, which costs more; HAProxy as Debian sets it takes this one, too.
const SUITE: &str = "TLS_AES_128_GCM_SHA256";

/// Debian's place for what nginx loads.
const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// One of them, and how it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Haproxy,
    /// With `option splice-auto`.
    Splice,
    Nginx,
}

pub(super) const ALL: [Proxy; 3] = [Proxy::Haproxy, Proxy::Splice, Proxy::Nginx];

/// How one hop is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    None,
    /// What it dials.
    Out,
    /// What dials it.
    In,
}

/// One proxy process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    pub(super) node: &'a str,
    pub(super) port: u16,
    /// What it dials.
    pub(super) to: &'a str,
    pub(super) cover: Cover,
}

impl Proxy {
    /// For series of samples.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Haproxy => "haproxy",
            Self::Splice => "splice",
            Self::Nginx => "nginx",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "HAProxy",
            Self::Splice => "HAProxy, splice-auto",
            Self::Nginx => "nginx stream",
        }
    }

    /// Where Debian has the program.
    fn program(self) -> &'static str {
        match self {
            Self::Haproxy | Self::Splice => "/usr/sbin/haproxy",
            Self::Nginx => "/usr/sbin/nginx",
        }
    }

    /// Whether it is there.
    pub(super) fn is_installed(self) -> bool {
        let needs_module = self == Self::Nginx;
        Path::new(self.program()).exists() && (!needs_module || Path::new(NGINX_STREAM).exists())
    }

    fn settings(self, hop: &Hop<'_>, certificate: &Path) -> String {
        let Hop { port, to, cover, .. } = hop;
        let pem = certificate.join("both.pem");
        let (pem, place) = (pem.display(), certificate.display());
        if self == Self::Nginx {
            let tls = match cover {
                Cover::None => String::new(),
                Cover::Out => format!(
                    "proxy_ssl on; proxy_ssl_protocols TLSv1.3; proxy_ssl_conf_command Ciphersuites {SUITE};"
                ),
                Cover::In => format!(
                    "ssl_certificate {pem}; ssl_certificate_key {pem}; ssl_protocols TLSv1.3; \
                     ssl_conf_command Ciphersuites {SUITE};"
                ),
            };
            let ssl = if *cover == Cover::In { " ssl" } else { "" };
            return format!(
                "load_module {NGINX_STREAM};\ndaemon off;\nmaster_process off;\nerror_log stderr;\n\
                 pid {place}/nginx-{}-{port}.pid;\nevents {{}}\nstream {{ server {{\n\
                 listen {port}{ssl}; proxy_pass {to}; {tls}\n}} }}\n",
                hop.node
            );
        }
        let splice = if self == Self::Splice { "option splice-auto\n" } else { "" };
        let (bind, server) = match cover {
            Cover::None => (String::new(), String::new()),
            Cover::Out => (String::new(), format!(" ssl verify none ciphersuites {SUITE}")),
            Cover::In => (format!(" ssl crt {pem} ciphersuites {SUITE}"), String::new()),
        };
        format!(
            "defaults\nmode tcp\n{splice}timeout connect 5s\ntimeout client 1h\ntimeout server 1h\n\
             listen path\nbind 0.0.0.0:{port}{bind}\nserver far {to}{server}\n"
        )
    }

    /// Starts it behind `front` (`taskset` and its words).
    pub(super) fn start(
        self,
        session: &Session,
        lab: &Lab,
        keys: &Keys,
        hop: &Hop<'_>,
        front: &[&str],
        until: Instant,
    ) -> Result<Started, BenchError> {
        let (directory, _) = keys.identity("proxies", until)?;
        // Written once: another may be reading it.
        if !directory.join("both.pem").exists() {
            let both = read(&directory.join("relay.crt"))? + &read(&directory.join("relay.key"))?;
            session.files().write("relays/proxies/both.pem", &both)?;
        }
        let name = format!("relays/proxies/{}-{}-{}.conf", self.key(), hop.node, hop.port);
        let file = session.files().write(&name, &self.settings(hop, &directory))?;
        let file = file.to_string_lossy();
        let mut command = front.to_vec();
        match self {
            Self::Nginx => command.extend([self.program(), "-e", "stderr", "-c", &*file]),
            Self::Haproxy | Self::Splice => command.extend([self.program(), "-db", "-f", &*file]),
        }
        servers::start(lab, hop.node, &command, until)
    }
}

fn read(path: &Path) -> Result<String, BenchError> {
    std::fs::read_to_string(path).map_err(|error| {
        let what = format!("cannot read {}", path.display());
        BenchError::File { what, error }
    })
}

/// Those that are there; says what is not.
pub(super) fn installed() -> Vec<Proxy> {
    for (proxy, packages) in
        [(Proxy::Haproxy, "haproxy"), (Proxy::Nginx, "nginx-light libnginx-mod-stream")]
    {
        if !proxy.is_installed() {
            tell(format_args!(
                "gridmpi bench: {}: not installed: apt install {packages}",
                proxy.name()
            ));
        }
    }
    ALL.into_iter().filter(|proxy| proxy.is_installed()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_side_of_a_hop_is_encrypted() {
        let text = |proxy: Proxy, cover| {
            let hop = Hop { node: "a1", port: 9, to: "10.0.0.1:9", cover };
            proxy.settings(&hop, Path::new("/x"))
        };
        assert!(text(Proxy::Haproxy, Cover::In).contains("bind 0.0.0.0:9 ssl crt /x/both.pem"));
        assert!(text(Proxy::Splice, Cover::Out).contains("server far 10.0.0.1:9 ssl verify none"));
        assert!(text(Proxy::Splice, Cover::None).contains("splice-auto"));
        assert!(!text(Proxy::Nginx, Cover::None).contains("ssl"));
    }

    #[test]
    fn what_is_encrypted_is_so_as_between_relays() {
        for (proxy, cover) in ALL
            .iter()
            .flat_map(|proxy| [Cover::None, Cover::Out, Cover::In].map(|cover| (*proxy, cover)))
        {
            let hop = Hop { node: "a1", port: 9, to: "10.0.0.1:9", cover };
            let text = proxy.settings(&hop, Path::new("/x"));
            let named = text
                .to_lowercase()
                .matches(&format!("ciphersuites {}", SUITE.to_lowercase()))
                .count();
            assert_eq!(named, usize::from(cover != Cover::None), "{text}");
        }
    }
}
